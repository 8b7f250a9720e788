"""Rows that all pull one way, in batches as full as a draw may be: no device may refuse the update that they make."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from choral.core.codec import Codec
from choral.core.errors import PlanError, SumError
from choral.core.masks import Stream
from choral.core.plan import Plan, SecureSum
from choral.learning.batches import Batches, drawer_of
from choral.learning.models import Model
from choral.learning.noise import secure_normal
from choral.learning.trainer import LocalTraining

ONE = Model(
    name="one number", features=1, classes=2, init=lambda _: {"w": jnp.zeros(1)},
    loss=lambda tree, _x, _y: 8 * tree["w"][0], predict=lambda tree, rows: rows * tree["w"],
)  # fmt: skip
PLAN = Plan(devices=10, cohort=10, rounds=30, rows=2440, batch=244, local_steps=10, step_size=0.5, clip=1.0, noise=1e-3)


def training_of(plan, rows=None):
    rows = rows or plan.rows
    return LocalTraining(model=ONE, plan=plan, features=np.ones((rows, 1), np.float32), labels=np.zeros(rows, np.int32))


def codec_of(plan):
    return Codec.for_plan(plan, SecureSum.for_cohort(10), ONE.size, failure=plan.out_of_range)


def full(plan, rows):
    """The fullest draw of every step that the room of a device with so many rows allows."""
    room = drawer_of(plan).room(rows)
    used = np.tile(np.arange(room, dtype=np.int32), (1, plan.local_steps, 1))
    return Batches(rows=used, counts=np.full((1, plan.local_steps), room, np.int32))


def refused(codec, update):
    try:
        codec.encode(update, Stream.fresh())
    except SumError as error:
        assert error.code == "CH501"
        return True
    return False


def test_no_update_that_a_device_draws_is_refused_though_all_of_its_gradients_are_aligned():
    training, codec = training_of(PLAN), codec_of(PLAN)
    updates = [training.update(np.zeros(1, np.float32)) for _ in range(300)]
    assert max(float(np.abs(update[0])) for update in updates) > 5.05  # ητG is 5: draws of more than γ rows are usual
    assert not any(refused(codec, update) for update in updates)
    before = codec_of(replace(PLAN, codec=1))  # of a run that began with the first version, which is kept for it
    assert sum(refused(before, update) for update in updates) > 30


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"local_steps": 1},
        {"rows": 300, "batch": 244},
        {"rows": 8, "batch": 1, "local_steps": 3},
        {"weighing": "rows"},
        {"weighing": "rows", "sampling": "partition", "rows": 100, "batch": 60, "local_steps": 2},
        {"sampling": "partition"},
    ],
    ids=str,
)
def test_the_fullest_draw_of_any_device_is_encoded(changes):
    plan = replace(PLAN, **changes)
    codec = codec_of(plan)
    for rows in (plan.rows, 2 * plan.rows, 40 * plan.rows):
        training = training_of(plan, rows)
        update = training.trainer.train(
            np.zeros(1, np.float32), full(plan, rows), secure_normal((plan.local_steps + 1, 1))
        )
        reach = drawer_of(plan).room(rows) / plan.batch * plan.local_steps * plan.step_size
        assert abs(update[0]) > 0.99 * reach
        assert not refused(codec, update)


@st.composite
def plans(draw):
    rows = draw(st.integers(2, 3000))
    steps = draw(st.integers(2, 60))
    return Plan(
        devices=12, cohort=10, rounds=draw(st.integers(1, 300)), rows=rows, batch=draw(st.integers(1, rows)),
        local_steps=steps, step_size=0.5, clip=draw(st.floats(0.01, 100)), noise=draw(st.floats(1e-3, 10)),
        sampling=draw(st.sampled_from(["poisson", "partition"])),
        weighing=draw(st.sampled_from(["equally", "rows"])),
        overflow=draw(st.sampled_from([1e-8, 1e-12])),
    )  # fmt: skip


@given(plan=plans(), times=st.integers(1, 50), data=st.data())
@settings(deadline=None, max_examples=150)
def test_no_legal_draw_no_noise_within_its_tail_and_no_rounding_leaves_the_range(plan, times, data):
    """The steps of a device in float32, from the largest parameter that it accepts, by hand and not by the engine."""
    try:
        codec = codec_of(plan)
    except PlanError as error:
        assume(error.code != "CH204")  # noise finer than the grid, or too many steps: refused ahead of the run
        raise
    room = drawer_of(plan).room(times * plan.rows)
    divisor = max(plan.batch, plan.batch_of(times * plan.rows))
    tail = np.sqrt(2 * np.log(2 * ONE.size * plan.cohort * plan.rounds / codec.failure))
    start = place = np.float32(codec.largest_parameter)
    signs = data.draw(st.sampled_from([np.ones(plan.local_steps), -np.ones(plan.local_steps)]))
    least = data.draw(st.integers(0, room))  # records that this draw has in every step but the last
    for step in range(plan.local_steps):
        records = room if step + 1 == plan.local_steps else max(least, room - step)
        # A tail of √τ deviations in all is a tail in each of the steps over √τ.
        noise = plan.noise * plan.batch * tail / np.sqrt(plan.local_steps)
        slope = np.float32(signs[step] * (records * plan.clip * (1 + 5e-4) + 1.01 * noise)) * np.float32(1 / divisor)
        place = place - np.float32(plan.step_size) * slope
    update = np.float32(divisor / plan.batch if plan.weighed else 1) * (place - start)
    assert not refused(codec, np.float32([update]))
