"""Models that share their rows: each has the bits that it has alone, and rows of lanes are not shared."""

import jax
import jax.numpy as jnp
import numpy as np

from choral.learning.local import in_turn

RNG = np.random.default_rng(5)
ROWS = jnp.asarray(RNG.normal(size=(61, 108)), jnp.float32)
MODELS = jnp.asarray(RNG.normal(size=(7, 108, 2)), jnp.float32)


def scores(model, rows):
    return in_turn(lambda own, rows: rows @ own, model, (rows,))


def test_a_model_has_the_bits_that_it_has_alone_however_many_others_share_its_rows():
    alone = jax.jit(scores)
    for count in (1, 2, 7):
        together = jax.jit(jax.vmap(scores, in_axes=(0, None)))(MODELS[:count], ROWS)
        for model, found in zip(MODELS, together, strict=False):
            np.testing.assert_array_equal(found, alone(model, ROWS))


def test_lanes_with_other_rows_are_one_product_with_each_lane_s_rows():
    lanes = jnp.stack([ROWS, 2 * ROWS, ROWS[::-1]])
    found = jax.vmap(scores)(MODELS[:3], lanes)
    expected = np.einsum("lrf,lfo->lro", np.float64(lanes), np.float64(MODELS[:3]))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_models_over_lanes_keep_both_axes_in_their_places():
    lanes = jnp.stack([ROWS, 2 * ROWS])
    per_lane = jax.vmap(scores, in_axes=(None, 0))
    found = jax.vmap(per_lane, in_axes=(0, None))(MODELS, lanes)
    assert found.shape == (7, 2, 61, 2)
    np.testing.assert_allclose(found[3, 1], 2 * np.float64(ROWS) @ np.float64(MODELS[3]), atol=1e-4)
