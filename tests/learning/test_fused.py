"""The kernel is interpreted here: all that a GPU computes, except for the GPU's own logarithm and root."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bench.peers.ours import backend_of, flat_weights
from bench.work import CROSS_DEVICE
from choral.learning import fused, local, models, noise
from choral.learning.recipe import Recipe


def layer(lanes, rows, width, outputs, seed=0):
    draw = np.random.default_rng(seed)
    shapes = (lanes, width, outputs), (lanes, rows, width), (lanes, rows, outputs)
    arrays = [draw.normal(size=shape).astype(np.float32) for shape in shapes]
    return [*arrays, draw.integers(0, 2**32, (lanes, 4), dtype=np.uint32)]


def stepped(given, start=5):
    one = partial(fused.noisy_step, size=np.float32(0.1), spread=np.float32(0.3), start=start)
    return np.asarray(jax.jit(jax.vmap(one))(*given))


SHAPES = [(1, 1, 1, 1), (2, 8, 20, 40), (3, 33, 70, 10), (1, 16, 33, 64), (2, 40, 16, 131), (1, 8, 150, 72)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_step_is_the_one_in_double_precision_with_the_same_gaussians(shape):
    weights, inputs, slopes, keys = layer(*shape)
    sums = np.einsum("lki,lkj->lij", inputs.astype(np.float64), slopes.astype(np.float64))
    drawn = np.stack([noise.normal(jnp.asarray(key), weights.shape[1:], 5) for key in keys]).astype(np.float64)
    exact = weights - np.float64(np.float32(0.1)) * (sums + np.float64(np.float32(0.3)) * drawn)
    # Two numbers of at most 32 rounded once each, and a Gaussian within 1e-6 of the compiler's own form.
    np.testing.assert_allclose(stepped([weights, inputs, slopes, keys]), exact, rtol=0, atol=2e-6)


def test_gaussians_whose_sums_are_rounded_with_their_products_are_the_same_to_float32():
    """As the kernel makes them, by fused instructions: a product of two float32 is exact in float64."""
    exact = lambda c, a, b: np.float32(np.float64(a) * np.float64(b) + np.float64(c))  # noqa: E731
    far = lambda rest: np.float32(np.sqrt(1 - np.log(np.float64(rest))))  # noqa: E731
    key = jnp.uint32([1, 2, 3, 4])
    drawn = np.concatenate([noise.bits(key, (10_000,)), np.uint32([0, 1, 2**31 - 1, 2**31, 2**32 - 1])])
    once = np.asarray(noise.quantiles(drawn, far, exact))
    twice = np.asarray(noise.quantiles(jnp.asarray(drawn), far))
    np.testing.assert_allclose(once, twice, rtol=0, atol=1e-6)
    np.testing.assert_allclose(twice[:10_000], noise.normal(key, (10_000,)), rtol=0, atol=1e-6)
    assert (once != twice).any()


def test_neither_tiles_nor_other_lanes_change_a_bit(monkeypatch):
    given = layer(3, 40, 70, 131)
    usual = stepped(given)
    alone = np.concatenate([stepped([one[lane : lane + 1] for one in given]) for lane in range(3)])
    assert (alone == usual).all()
    monkeypatch.setattr(fused, "TILE", (16, 32))
    monkeypatch.setattr(fused, "ROWS", 16)
    monkeypatch.setattr(fused, "TALLEST", 32)
    other = stepped(given)
    # Other tiles are other programs: float64 sums of 40 products differ in the 53rd bit, a float32 in its last at most.
    assert np.abs(other - usual).max() <= 2.0**-23 * np.abs(usual).max()
    assert (other == usual).mean() > 0.99


def test_rows_that_count_for_nothing_add_nothing():
    weights, inputs, slopes, keys = layer(1, 20, 17, 9)
    slopes[:, 7:] = 0
    assert (stepped([weights, inputs, slopes, keys]) == stepped([weights, inputs[:, :7], slopes[:, :7], keys])).all()


def test_one_row_moves_the_sum_by_its_own_gradient_and_one_rounding():
    """The worst rows of `test_float_sum`: here a sum is rounded once, so nothing drifts."""
    rows = np.zeros((384, 1), np.float32)
    rows[:129], rows[129:] = 8, -2 * 0.51 * 4 * 128 * 2.0**-24
    turned = rows.copy()
    turned[128] *= -1
    ones, keys = np.full((384, 1), 0.5, np.float32), np.zeros((1, 4), np.uint32)
    one = partial(fused.noisy_step, size=np.float32(1), spread=np.float32(0), start=0)
    made = [jax.jit(jax.vmap(one))(np.zeros((1, 1, 1), np.float32), x[None], ones[None], keys) for x in (rows, turned)]
    moved = abs(float(made[0][0, 0, 0]) - float(made[1][0, 0, 0]))
    assert 8 * (1 - 2.0**-16) < moved < 8 * (1 + 2.0**-16)  # 512 has the spacing 2^-15 below and above 2^-14


def test_local_steps_by_the_kernel_are_those_of_the_compiler_to_float32(monkeypatch):
    monkeypatch.setattr(fused, "FEWEST_WEIGHTS", 1)
    model = models.mlp(20, (40, 9), 3)
    recipe = Recipe(steps=3, batch=8, step_size=0.1, clip=1.0, noise=0.1)
    draw = np.random.default_rng(1)
    rows, labels = jnp.float32(draw.normal(size=(50, 20))), jnp.asarray(draw.integers(0, 3, 50))
    theta = (draw.normal(size=model.size) * 0.1).astype(np.float32)
    places, counts = draw.integers(-1, 50, (2, 3, 8)).astype(np.int32), np.int32([[8, 7, 0], [1, 8, 8]])
    keys = draw.integers(0, 2**32, (2, 4, 4), dtype=np.uint32)

    def updates(kernels):
        one = partial(
            local.local_update, model, recipe, theta, rows, labels, shortcuts=local.Shortcuts(kernels=kernels)
        )
        return np.asarray(jax.jit(jax.vmap(one))(places, counts, keys))

    plain, by_kernel = updates(False), updates(True)
    assert np.abs(by_kernel - plain).max() <= 1e-6 * max(1, np.abs(plain).max())
    assert (by_kernel != plain).any()  # else the kernel was not used


@pytest.mark.parametrize(
    "changed",
    [{"noise": 0.0}, {"clip": 2.0**-20}],
    ids=str,
)
def test_other_recipes_keep_to_the_compiler(changed):
    usual = {"steps": 3, "batch": 8, "step_size": 0.1, "clip": 1.0, "noise": 0.1}
    wide = models.mlp(784, (200, 200), 10)
    assert fused.suits(wide, Recipe(**usual), 32, 32)
    assert not fused.suits(wide, Recipe(**usual | changed), 32, 32)


def test_batches_in_pieces_rare_tails_and_models_without_widths_keep_to_the_compiler():
    recipe, wide = Recipe(steps=3, batch=8, step_size=0.1, clip=1.0, noise=0.1), models.mlp(784, (200, 200), 10)
    assert not fused.suits(wide, recipe, 385, None)
    assert not fused.suits(wide, recipe, 40, 36)
    small = models.logistic(2)
    own = models.own(small.init, small.loss, small.predict, features=2)
    assert not fused.suits(own, recipe, 32, None)


def test_for_a_gpu_a_layers_step_is_one_kernel_with_its_own_products():
    shapes = (2, 784, 200), (2, 32, 784), (2, 32, 200)
    given = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    one = partial(fused.noisy_step, size=np.float32(1), spread=np.float32(1), start=0)
    traced = jax.jit(jax.vmap(one)).trace(*given, jax.ShapeDtypeStruct((2, 4), np.uint32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("gpu.triton") == 1
    assert "stablehlo.dot_general" not in text
    assert all(name in text for name in ("fma.rn.f32", "lg2.approx.ftz.f32", "rsqrt.approx.ftz.f32"))


class Gpu:
    """What `runs_on` reads of a device."""

    def __init__(self, platform, capability):
        self.platform, self.compute_capability = platform, capability


@pytest.mark.parametrize(
    ("platform", "capability", "runs"),
    [("gpu", "9.0", True), ("gpu", "8.0", True), ("gpu", "8.9", False), ("gpu", "gfx942", False), ("cpu", None, False)],
)
def test_only_gpus_with_fast_double_precision_take_the_kernel(platform, capability, runs):
    assert fused.runs_on(Gpu(platform, capability)) is runs


def test_an_engine_with_the_kernel_gives_the_same_integers_for_any_chunk_and_order(monkeypatch):
    monkeypatch.setattr(fused, "FEWEST_WEIGHTS", 1)
    monkeypatch.setattr(fused, "runs_on", lambda _: True)
    work = CROSS_DEVICE.but(devices=6, fewest_rows=8, most_rows=16, layers=(12, 20, 3), cohort=5, batch=8, steps=2)
    start, cohort = flat_weights(work), np.arange(5)
    engine = backend_of(work, lanes=2)
    assert engine.form.shortcuts.kernels
    usual = engine.train(start, 0, cohort).total
    assert (backend_of(work, lanes=2, chunk=2).train(start, 0, cohort).total == usual).all()
    assert (backend_of(work, lanes=2).train(start, 0, cohort[::-1]).total == usual).all()
    monkeypatch.setattr(fused, "runs_on", lambda _: False)
    plain = backend_of(work, lanes=2).train(start, 0, cohort).total
    assert np.abs(plain - usual).max() <= 5 * 2  # grid steps of 2^-20: each update is rounded near the same number
