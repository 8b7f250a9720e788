import dataclasses
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choral.core.errors import TableError, TrainingError
from choral.core.plan import Plan
from choral.learning import models
from choral.learning.batches.partition import PartitionDrawer
from choral.learning.recipe import sensitivity_factor
from choral.learning.trainer import LocalTraining
from tests.reference import step as reference

DRAW = np.random.default_rng(2)
FEATURES = DRAW.normal(size=(40, 5)).astype(np.float32)
LABELS = DRAW.integers(0, 2, 40).astype(np.int32)
MODEL = models.mlp(5, (4,), 2)
PLAN = Plan(devices=3, cohort=3, rounds=4, rows=40, batch=10, local_steps=3, step_size=0.2, clip=0.5, noise=0.3)


def trainer(**changes):
    return LocalTraining(**{"model": MODEL, "plan": PLAN, "features": FEATURES, "labels": LABELS, **changes})


def test_a_device_follows_the_papers_algorithm_with_noise_that_it_drew_itself(monkeypatch):
    monkeypatch.setattr("os.urandom", lambda count: bytes(count))  # a stream that can be drawn again
    from choral.learning import noise, streams
    from choral.learning.batches import poisson

    start = MODEL.start(1)
    found = trainer().update(start)
    batches = poisson.poisson(np.array([40]), 10, streams.secure_words((1, 3, trainer().room)))
    drawn = noise.secure_normal((4, MODEL.size)).astype(np.float64)
    expected = reference.noisy_steps(
        MODEL.widths,
        "softmax",
        start,
        FEATURES,
        LABELS,
        [batches.rows[0, step, : batches.counts[0, step]] for step in range(3)],
        drawn[:3],
        step_size=0.2,
        clip=0.5,
        spread=10 * 0.3 * sensitivity_factor(MODEL, trainer().room),
        batch=10,
    )
    assert np.abs(found - expected).max() <= 1e-5


def test_two_updates_are_never_the_same_and_differ_by_their_noise():
    one = trainer()
    first, second = one.update(MODEL.start(1)), one.update(MODEL.start(1))
    assert (first != second).all()
    # η σ √τ √2 = 0.2·0.3·√3·√2 = 0.147; clipped gradients add at most 2·η τ G = 0.6 in norm over 34 coordinates.
    assert 0.08 < (first - second).std() < 0.3


def test_passes_that_continue_use_every_record_equally_and_survive_a_restart():
    plan = dataclasses.replace(PLAN, sampling="partition", passes="continue", local_steps=2)  # 4 batches a pass
    one = trainer(plan=plan)
    one.update(MODEL.start(1))
    again = trainer(plan=plan, rounds=one.rounds, order=one.order)
    again.update(MODEL.start(1))
    assert (one.uses.of_row + again.uses.of_row).tolist() == [1] * 40


@pytest.fixture
def untrained(monkeypatch):
    """Trainers that draw and count as ever, and take no steps: nothing is compiled."""
    monkeypatch.setattr("choral.learning.trainer.jax_update", lambda *_: np.zeros(MODEL.size, np.float32))


@pytest.mark.usefixtures("untrained")
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 40),
    batch=st.integers(1, 12),
    steps=st.integers(1, 9),
    passes=st.sampled_from(["continue", "reshuffle"]),
    lives=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_a_trainer_that_keeps_to_its_passes_is_never_refused_over_rounds_and_restarts(
    rows, batch, steps, passes, lives
):
    shape = {"rows": rows, "batch": min(batch, rows), "local_steps": steps, "passes": passes, "sampling": "partition"}
    given = {"plan": dataclasses.replace(PLAN, rounds=sum(lives), **shape), "order": 5}
    given |= {"features": FEATURES[:rows], "labels": LABELS[:rows]}
    uses, rounds = np.zeros(rows, dtype=np.int64), 0
    for life in lives:
        one = trainer(**given, rounds=rounds)
        one.trial(MODEL.start(1))  # as an agent does when it starts
        for _ in range(life):
            one.update(MODEL.start(1))
        uses, rounds = uses + one.uses.of_row, one.rounds
    # What the charges of all lives together pay for, by hand: ⌈Cτ/E⌉ if passes continue, C⌈τ/E⌉ if they do not.
    per_pass = rows // min(batch, rows)
    most = math.ceil(rounds * steps / per_pass) if passes == "continue" else rounds * math.ceil(steps / per_pass)
    assert uses.max() <= most
    assert uses.sum() == rounds * steps * min(batch, rows)


def test_a_batch_that_is_drawn_twice_is_refused_ahead_of_the_first_step(monkeypatch):
    plan = dataclasses.replace(PLAN, sampling="partition", local_steps=2)  # 4 batches a pass
    honest, trained = PartitionDrawer.draw, []

    def twice(*given):
        found = honest(*given)
        return dataclasses.replace(found, rows=np.repeat(found.rows[:, :1], 2, axis=1))

    monkeypatch.setattr("choral.learning.trainer.jax_update", lambda *given: trained.append(given))
    monkeypatch.setattr(PartitionDrawer, "draw", twice)
    for passes in ("continue", "reshuffle"):
        with pytest.raises(
            TrainingError, match="CH703 round 1: a record would be used 2 times; charges pay for 1"
        ) as no:
            trainer(plan=dataclasses.replace(plan, passes=passes)).update(MODEL.start(1))
        assert no.value.fix
    assert trained == []


@pytest.mark.usefixtures("untrained")
def test_a_round_trained_again_at_the_same_place_is_refused():
    one = trainer(plan=dataclasses.replace(PLAN, sampling="partition", local_steps=4))  # a whole pass a round
    one.update(MODEL.start(1))
    one.rounds = 0  # as if its charge had not been made
    with pytest.raises(TrainingError, match="CH703"):
        one.update(MODEL.start(1))


def test_a_trial_uses_no_record_and_moves_no_pass():
    plan = dataclasses.replace(PLAN, sampling="partition", local_steps=4)
    one = trainer(plan=plan)
    assert one.trial(MODEL.start(1)) is None
    assert (one.rounds, one.uses.of_row.sum()) == (0, 0)
    with pytest.raises(TrainingError, match="CH700"):  # and still finds out what can't be trained
        one.trial(np.full(MODEL.size, np.nan, np.float32))


def test_neither_records_nor_the_secret_order_are_printed():
    one = trainer()
    assert repr(one) == "LocalTraining(mlp, 40 rows, 0 rounds)"
    assert str(one.order) not in repr(one)


def test_what_can_not_be_trained_is_refused():
    with pytest.raises(TableError, match="CH305 this device has 20 rows; the plan is for devices of 40"):
        trainer(features=FEATURES[:20], labels=LABELS[:20])
    with pytest.raises(TableError, match="CH312"):
        trainer(features=FEATURES[:, :4])
    with pytest.raises(TrainingError, match="CH700 round 1: the update is not finite"):
        trainer(plan=dataclasses.replace(PLAN, step_size=1e38, noise=1e30)).update(MODEL.start(1))
