"""Record and replay: neighbouring data, the same randomness, and every release moves by no more than is declared."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choral.config import parse
from choral.core.codec import Codec
from choral.core.plan import Plan
from choral.engine.compiled import CompiledEngine
from choral.learning.local import counted_update
from choral.learning.models import binary, mlp
from choral.learning.persons import model_of_units
from choral.learning.recipe import Recipe, TracedNumbers
from choral.run.planning import settle
from choral.tables.records import Records

PAIRS, ROWS, FEATURES = 1000, 12, 5
PLAN = Plan(
    devices=PAIRS, cohort=PAIRS, rounds=3, rows=ROWS, batch=4, local_steps=1, step_size=0.5, clip=1.5, noise=0.3
)


def neighbours(seed):
    """1000 devices, and the same with one record of each replaced: by an ordinary, a zero or a huge one."""
    rng = np.random.default_rng(seed)
    features = rng.normal(0, 1, (PAIRS, ROWS, FEATURES)).astype(np.float32)
    labels = rng.integers(0, 2, (PAIRS, ROWS)).astype(np.int32)
    other, turned = features.copy(), labels.copy()
    place, scale = rng.integers(0, ROWS, PAIRS), rng.choice([0.0, 1.0, 1e4, 1e18], PAIRS)
    who = np.arange(PAIRS)
    other[who, place] = rng.normal(0, 1, (PAIRS, FEATURES)) * scale[:, None]
    turned[who, place] = rng.integers(0, 2, PAIRS)
    return [
        Records(
            features=rows.reshape(-1, FEATURES),
            labels=codes.reshape(-1),
            offsets=np.arange(PAIRS + 1) * ROWS,
            names=tuple(map(str, who)),
        )
        for rows, codes in ((features, labels), (other, turned))
    ]


def moved(model, plan, recipe=None, seed=0):
    """How far each device's update moves when its one record is replaced and all randomness is replayed."""
    updates = [
        CompiledEngine(
            model=model, records=records, plan=plan, codec=Codec(grid=1.0, largest=1, cohort=2), seed=9, recipe=recipe
        ).updates(model.start(1), 1, np.arange(PAIRS))
        for records in neighbours(seed)
    ]
    return np.linalg.norm((updates[0] - updates[1]).astype(np.float64), axis=1)


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
@pytest.mark.parametrize("model", [binary(FEATURES), mlp(FEATURES, (4,))], ids=["binary", "network"])
def test_one_record_moves_an_update_of_one_step_by_at_most_its_declared_sensitivity(model, sampling):
    # 2ηG/γ, with the rounding of float32 updates of size below 10.
    limit = 2 * PLAN.step_size * PLAN.clip / PLAN.batch
    distance = moved(model, replace(PLAN, sampling=sampling))
    assert distance.max() <= limit * (1 + 1e-5) + 1e-5
    assert distance.max() > 0.9 * limit  # the bound is met: a smaller one would be wrong


def test_one_device_moves_a_clipped_update_by_at_most_twice_the_clip():
    recipe = Recipe(steps=5, batch=4, step_size=0.5, update_clip=0.7, update_noise=0.1)
    distance = moved(binary(FEATURES), replace(PLAN, local_steps=5), recipe)
    assert 0.1 < distance.max() <= 2 * 0.7 * (1 + 1e-5) + 1e-5


ADAPTIVE = replace(PLAN, unit="device", local_steps=5, clip=0.7, noise=0.1, clip_quantile=0.5)


def test_no_clip_lets_an_update_and_its_count_move_further_together_than_is_charged_for():
    """Pairs of updates of all lengths, under every clip that a server may send: also where one is no number."""
    rng, model = np.random.default_rng(4), binary(FEATURES)
    log_clip = rng.choice([-40, -22, -3, 0, 5, 22, 90, math.inf, -math.inf, math.nan], PAIRS).astype(np.float32)
    clip = np.exp(np.clip(log_clip, -22, 22))[:, None]
    ways = rng.normal(size=(2, PAIRS, model.size))
    ways /= np.linalg.norm(ways, axis=2, keepdims=True)
    ways[1, ::2] = -ways[0, ::2]
    # From far below the clip to far beyond it, many just within it or just outside; a few are not finite.
    lengths = rng.choice([0, 1e-9, 0.999, 1 - 1e-6, 1 + 1e-6, 1.001, 1e9, 1e38, math.nan], (2, PAIRS, 1))
    with np.errstate(over="ignore"):
        updates = (ways * lengths * clip).astype(np.float32)
    recipe = replace(Recipe.of(ADAPTIVE), update_noise=0.0)
    numbers = TracedNumbers.of(model, recipe, recipe.batch)

    def sent(update, log_clip):
        return counted_update(model, recipe, numbers, model.unravel(update), log_clip, jnp.zeros(2), None)

    made = [np.asarray(jax.jit(jax.vmap(sent))(side, log_clip), np.float64) for side in updates]
    distance = np.linalg.norm(made[0] - made[1], axis=1)
    assert np.isfinite(distance).all()
    assert 0.9999 * math.sqrt(4 + 0.2**2) < distance.max() <= ADAPTIVE.mechanism.moves * (1 + 1e-5)


def test_one_device_moves_what_it_sends_with_an_adaptive_clip_by_no_more_than_is_charged_for():
    distance = moved(model_of_units(binary(FEATURES), ADAPTIVE), ADAPTIVE)
    assert 0.2 < distance.max() <= ADAPTIVE.mechanism.moves * (1 + 1e-5)


def test_a_replaced_record_changes_neither_plan_nor_codec_nor_cost():
    # What is public before round 0 may depend on sizes, never on a value.
    job = parse("privacy.epsilon = 2.0\nfederation.devices = 4\nrun.seed = 1")
    rng = np.random.default_rng(0)
    features, labels = rng.normal(0, 1, (400, 3)).astype(np.float32), np.arange(400) % 2
    other = features.copy()
    other[7] = 1e6
    studies = [settle(job, (rows, labels)) for rows in (features, other)]
    for name in ("plan", "secure", "codec", "limits"):
        assert getattr(studies[0], name) == getattr(studies[1], name)
    assert studies[0].costs.spent(0, 3, 1e-5) == studies[1].costs.spent(0, 3, 1e-5)


@pytest.mark.parametrize("noise", [1e-2, 1e-6, 1e-10])
def test_the_smallest_noise_of_a_plan_is_there_in_full(noise):
    # Rows of zeros move a weight by noise alone; 1000 devices know its deviation to 2.2 %, so 10 % is four deviations.
    records = Records(
        features=np.zeros((PAIRS * ROWS, FEATURES), np.float32),
        labels=np.zeros(PAIRS * ROWS, np.int32),
        offsets=np.arange(PAIRS + 1) * ROWS,
        names=tuple(map(str, range(PAIRS))),
    )
    model = binary(FEATURES)
    engine = CompiledEngine(
        model=model,
        records=records,
        plan=replace(PLAN, noise=noise, local_steps=4),
        codec=Codec(grid=1.0, largest=1, cohort=2),
        seed=3,
    )
    weights = engine.updates(model.start(), 1, np.arange(PAIRS))[:, :FEATURES]
    assert np.std(weights.astype(np.float64)) == pytest.approx(0.5 * noise * math.sqrt(4), rel=0.1)
