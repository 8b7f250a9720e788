import dataclasses
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from choral.core.codec import Codec
from choral.core.errors import PlanError, TableError, TrainingError
from choral.core.plan import Plan
from choral.engine import programs
from choral.engine.compiled import CompiledEngine
from choral.learning import models, noise, streams
from choral.learning.recipe import Recipe, sensitivity_factor
from choral.tables.records import Records
from tests.cases import cases
from tests.reference import step as reference


def records_of(sizes, features=6, classes=3, seed=0, scale=1.0):
    draw = np.random.default_rng(seed)
    count = int(np.sum(sizes))
    return Records(
        features=(draw.normal(size=(count, features)) * scale).astype(np.float32),
        labels=draw.integers(0, classes, count).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        names=tuple(f"d{number}" for number in range(len(sizes))),
        classes=classes,
    )


SIZES = [30, 45, 30, 77, 120, 31, 64, 50, 33, 90, 41, 38]
PLAN = Plan(
    devices=12, cohort=12, rounds=5, rows=30, batch=8, local_steps=3, step_size=0.2, clip=0.7, noise=0.1
)  # fmt: skip
CODEC = Codec(grid=2.0**-22, largest=2**22, cohort=12, word_bits=64)
MODEL = models.mlp(6, (7, 5), 3)
RECORDS = records_of(SIZES)


def engine(plan=PLAN, model=MODEL, records=RECORDS, **settings):
    return CompiledEngine(**{"model": model, "records": records, "plan": plan, "codec": CODEC, "seed": 11, **settings})


def start(model=MODEL):
    return model.start(3)


@pytest.fixture(scope="module")
def whole():
    """Everybody's update and integers in round 2, in one block."""
    one = engine()
    updates = one.updates(start(), 2, np.arange(12))
    integers = np.stack([CODEC.integers(updates[device], one.dither(2, device)) for device in range(12)])
    return updates, integers


def test_a_round_is_the_sum_of_what_the_devices_would_encode_themselves(whole):
    total = engine().train(start(), 2, np.arange(12)).total
    assert np.abs(whole[1]).max() > 2**18  # both halves of the engine's integers are used
    assert (total == whole[1].sum(axis=0)).all()


def test_a_padded_last_call_adds_nobody_twice():
    one, cohort = engine(lanes=4), np.array([9, 2, 4, 0, 7])
    updates = engine(lanes=4).updates(start(), 2, cohort)
    expected = sum(
        CODEC.integers(update, one.dither(2, device)) for update, device in zip(updates, cohort, strict=True)
    )
    found = one.train(start(), 2, cohort)
    assert (found.total == expected).all()
    assert found.count == 5


def test_a_round_equals_the_secure_sum_words_and_all(whole):
    encoding = engine()
    words = sum(CODEC.encode(whole[0][device], encoding.dither(2, device)) for device in range(12))
    opened = CODEC.decode(words, MODEL.size, count=12)
    assert (engine().train(start(), 2, np.arange(12)).total == opened).all()


def by_hand(one, theta, number, cohort):
    """What each device of the cohort does in this round, by the NumPy reference."""
    plan, batches = one.plan, one.drawing.batches([(number, cohort, None)], one.rounds_of[cohort])
    keys = streams.words(streams.keys(one.seed, "noise", number, cohort)[:, None], np.arange(plan.local_steps))
    draw = jax.jit(lambda key: noise.normal(key, theta.shape))
    for place, device in enumerate(cohort):
        rows, counts = batches.rows[place], batches.counts[place]
        yield reference.noisy_steps(
            one.model.widths,
            one.model.link,
            theta,
            one.records.features_of(device),
            one.records.labels_of(device),
            [rows[step, : counts[step]] for step in range(plan.local_steps)],
            [np.asarray(draw(key), dtype=np.float64) for key in noise.split(keys[place])],
            step_size=plan.step_size,
            clip=plan.clip,
            spread=plan.batch * plan.noise * sensitivity_factor(one.model, one.room),
            batch=plan.batch,
        )


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_every_device_of_a_round_follows_the_papers_algorithm_to_1e_5(sampling):
    plan, cohort = dataclasses.replace(PLAN, sampling=sampling), np.arange(12)
    found = engine(plan).updates(start(), 2, cohort)
    expected = np.stack(list(by_hand(engine(plan), start(), 2, cohort)))
    assert np.abs(found - expected).max() <= 1e-5


@pytest.mark.long
@pytest.mark.parametrize("number", cases(50, quick=12))
def test_50_random_plans_follow_the_papers_algorithm_to_1e_5(number):
    draw = np.random.default_rng(number)
    features, classes = int(draw.integers(2, 9)), int(draw.integers(2, 5))
    hidden = tuple(int(width) for width in draw.integers(2, 9, draw.integers(1, 4)))
    model = [models.logistic(features, classes), models.mlp(features, hidden, classes)][number % 2]
    sizes = draw.integers(20, 90, draw.integers(3, 9))
    plan = Plan(
        devices=len(sizes),
        cohort=int(draw.integers(1, len(sizes) + 1)),
        rounds=10,
        rows=int(sizes.min()),
        batch=int(draw.integers(2, 15)),
        local_steps=int(draw.integers(1, 7)),
        step_size=float(draw.uniform(0.01, 0.3)),
        clip=float(draw.uniform(0.1, 3.0)),
        noise=float(draw.choice([0.0, 0.01, 0.2])),
        sampling=str(draw.choice(["poisson", "partition"])),
        passes=str(draw.choice(["continue", "reshuffle"])),
    )
    records = records_of(sizes, features, classes, seed=number, scale=float(draw.choice([0.3, 1.0, 4.0])))
    cohort = draw.choice(len(sizes), plan.cohort, replace=False)
    theta = (draw.normal(size=model.size) * 0.5).astype(np.float32)
    found = engine(plan, model, records).updates(theta, 1, cohort)
    expected = np.stack(list(by_hand(engine(plan, model, records), theta, 1, cohort)))
    assert np.abs(found - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("chunk", [1, 5, 12, 1000])
def test_the_chunk_size_changes_no_bit(chunk):
    reference_sum = engine(lanes=4).train(start(), 2, np.arange(12)).total
    assert (engine(lanes=4, chunk=chunk).train(start(), 2, np.arange(12)).total == reference_sum).all()


def test_a_devices_update_has_the_same_bits_in_any_cohort_order_and_place(whole):
    one = engine()
    for cohort in ([7], [0, 7], [7, 3, 1], [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]):
        found = one.updates(start(), 2, np.array(cohort))
        assert (found == whole[0][cohort]).all()


def test_a_device_that_drops_out_is_left_out_and_changes_no_other():
    included = np.ones(12, dtype=bool)
    included[[0, 5, 11]] = False
    found = engine(lanes=4).train(start(), 2, np.arange(12), included)
    one = engine(lanes=4)
    updates = one.updates(start(), 2, np.arange(12))
    expected = sum(CODEC.integers(updates[d], one.dither(2, d)) for d in range(12) if included[d])
    assert found.count == 9
    assert (found.total == expected).all()


def test_rows_read_when_needed_give_the_same_bits_as_rows_held(tmp_path, monkeypatch):
    np.save(tmp_path / "features.npy", RECORDS.features)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    held = engine().train(start(), 2, np.arange(12)).total
    in_place = engine(records=dataclasses.replace(RECORDS, features=mapped))
    monkeypatch.setattr("choral.engine.processors.ALIGNMENT", 2**40)
    staged = engine(records=dataclasses.replace(RECORDS, features=mapped))
    assert in_place.feed.resident
    assert not staged.feed.resident
    assert (in_place.train(start(), 2, np.arange(12)).total == held).all()
    assert (staged.train(start(), 2, np.arange(12)).total == held).all()


def test_a_device_with_more_rows_than_a_round_can_use_is_read_row_by_row(monkeypatch):
    large = records_of([400, 35, 700])
    plan = dataclasses.replace(PLAN, devices=3, cohort=3)
    held = engine(plan, records=large)
    monkeypatch.setattr("choral.engine.processors.RESIDENT", {"cpu": 0})
    monkeypatch.setattr("choral.engine.processors.ALIGNMENT", 2**40)
    staged = engine(plan, records=large)
    assert staged.feed.slot == 3 * staged.room < 400
    assert (held.train(start(), 0, np.arange(3)).total == staged.train(start(), 0, np.arange(3)).total).all()


def test_the_same_seed_gives_the_same_bits_and_another_seed_round_or_device_others():
    first = engine().updates(start(), 2, np.arange(12))
    assert (first == engine().updates(start(), 2, np.arange(12))).all()
    assert (first != engine(seed=12).updates(start(), 2, np.arange(12))).mean() > 0.99
    assert (first != engine().updates(start(), 3, np.arange(12))).mean() > 0.99
    assert (first[0] != first[2]).mean() > 0.99


def test_two_processors_give_the_bits_of_one():
    script = """
        import numpy as np, jax
        from tests.engine.test_compiled import engine, start
        one = engine(lanes=4)
        assert len(one.processors) == 2
        print(one.train(start(), 2, np.arange(12)).total.tobytes().hex())
    """
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "PYTHONPATH": "src:.", "CHORAL_CACHE": "off"}
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, env=flags, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == engine(lanes=4).train(start(), 2, np.arange(12)).total.tobytes().hex()


def test_apply_adds_the_mean_update():
    one = engine()
    moved = one.apply(np.float32([1.0, 2.0]), np.array([2**22, -(2**23)]), 4)
    assert moved.tolist() == [1.25, 1.5]  # 2^22 steps of 2^-22 are 1, over 4 devices


def used_by(one):
    """What tells how often each record entered a step that was drawn since, by any thread."""
    found, draw = [], one.drawing.batches

    def noted(turns, before):
        batches = draw(turns, before)
        of_cohorts = np.concatenate([cohort for _, cohort, _ in turns])
        for device, rows, counts in zip(of_cohorts, batches.rows, batches.counts, strict=True):
            found.extend(one.records.offsets[device] + rows[step, :count] for step, count in enumerate(counts))
        return batches

    object.__setattr__(one.drawing, "batches", noted)
    return lambda: np.bincount(np.concatenate(found), minlength=len(one.records.labels))


def test_whole_passes_use_every_record_of_who_takes_part_equally_often():
    plan = dataclasses.replace(PLAN, sampling="partition", passes="continue", rows=30, batch=10, local_steps=2)
    one, cohort = engine(plan), np.array([0, 2])  # 30 rows: E = 3 batches a pass
    used = used_by(one)
    for number in range(3):
        one.train(start(), number, cohort)
    # 3 rounds of 2 steps are 6 batches, two whole passes: every record exactly twice.
    assert used().tolist() == [2 * (device in cohort) for device, size in enumerate(SIZES) for _ in range(size)]


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_an_engine_that_knows_how_often_devices_took_part_goes_on_with_the_same_bits(sampling):
    # As a run that is resumed does: `rounds_of` is all that it restores, from the charges in the ledgers.
    plan = dataclasses.replace(PLAN, sampling=sampling, passes="continue")
    whole_run, first, second = engine(plan), engine(plan), engine(plan)
    cohorts = [np.arange(12), np.array([0, 3, 4]), np.array([3, 4, 5])]
    in_one, in_two = used_by(whole_run), (used_by(first), used_by(second))

    def go(one, theta, numbers):
        for number in numbers:
            found = one.train(theta, number, cohorts[number])
            theta = one.apply(theta, found.total, found.count)
        return theta

    expected = go(whole_run, start(), range(3))
    half = go(first, start(), range(2))
    second.rounds_of[:] = [2 if device in (0, 3, 4) else 1 for device in range(12)]
    assert (go(second, half, [2]) == expected).all()
    assert (in_two[0]() + in_two[1]() == in_one()).all()


@pytest.mark.parametrize("every", [1, 2, 5])
def test_rounds_without_the_host_have_the_bits_of_rounds_with_it(every):
    cohorts = [np.array(cohort) for cohort in ([0, 1, 2], [3, 4], [5, 6, 7, 8], [0, 9], [1, 10, 11])]
    included = [np.ones(len(cohort), dtype=bool) for cohort in cohorts]
    included[2][1] = False
    by_hand, theta = engine(), start()
    used_by_hand = used_by(by_hand)
    for number, cohort in enumerate(cohorts):
        found = by_hand.train(theta, number + 4, cohort, included[number])
        theta = by_hand.apply(theta, found.total, found.count)
    one = engine()
    used = used_by(one)
    steps = list(one.rounds(start(), cohorts, included, first=4, every=every))
    assert (steps[-1].parameters == theta).all()
    assert (used() == used_by_hand()).all()
    assert (one.rounds_of == by_hand.rounds_of).all()
    assert [step.done for step in steps] == [min(5, (n + 1) * every) for n in range(-(-5 // every))]
    assert steps[-1].seconds_left == 0.0
    assert steps[-1].round_number == 8


def test_a_sum_beyond_32_bits_is_exact():
    # 12 devices at 2^28 steps each would pass 2^31; the noise alone makes such integers on this grid.
    fine = dataclasses.replace(PLAN, noise=400.0)
    codec = type("Wide", (), {"grid": 2.0**-20, "largest": 2**30})()
    one = engine(fine, codec=codec)
    found = one.train(start(), 0, np.arange(12))
    updates = engine(fine, codec=codec).updates(start(), 0, np.arange(12)).astype(np.float64)
    assert np.abs(found.total).max() > 2**28
    assert np.abs(found.total - updates.sum(axis=0) * 2**20).max() <= 12
    moved = one.apply(start(), found.total, 12)
    assert (next(engine(fine, codec=codec).rounds(start(), [np.arange(12)])).parameters == moved).all()


def test_an_interrupted_round_counts_for_nobody(monkeypatch):
    one = engine()

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "check_runs", interrupt)
    with pytest.raises(KeyboardInterrupt):
        one.train(start(), 0, np.arange(12))
    assert one.rounds_of.sum() == 0


def test_a_step_size_that_diverges_is_reported_with_the_round_and_a_fix():
    wild = dataclasses.replace(PLAN, step_size=1e30, noise=1e20)
    with pytest.raises(TrainingError, match=r"CH700 round 7: 12 of 12 updates are .* Use a step size below 1e\+30"):
        engine(wild).train(start(), 7, np.arange(12))


def own_model(loss):
    return models.own(lambda _: jnp.ones(6), loss, lambda _, rows: rows[:, :3], features=6, classes=3)


@pytest.mark.parametrize("recipe", [None, Recipe(steps=3, batch=8, step_size=0.1)])
def test_a_users_model_whose_loss_is_not_finite_is_reported_and_not_hidden_by_clipping(recipe):
    def loss(tree, x, y):
        return jnp.sqrt(-jnp.sum(tree * tree) - 1.0) + x[0] + y

    one = engine(model=own_model(loss), recipe=recipe)
    with pytest.raises(TrainingError, match="CH700 the loss of the model is not finite"):
        one.train(np.ones(6, np.float32), 0, np.arange(12))


def test_a_users_model_that_becomes_not_finite_is_reported_with_the_round():
    def loss(tree, x, _):
        return jnp.exp(jnp.exp(jnp.sum(tree * jnp.abs(x))))

    one = engine(model=own_model(loss), recipe=Recipe(steps=3, batch=8, step_size=1e6))
    with pytest.raises(TrainingError, match=r"CH700 round 3: .* updates are"):
        one.train(np.full(6, -3.0, np.float32), 3, np.arange(12))


def test_a_users_model_trains_like_the_stack_that_it_copies():
    copy = models.own(MODEL.init, MODEL.loss, MODEL.predict, features=6, classes=3)
    ours, theirs = (engine(model=one).updates(start(), 2, np.arange(12)) for one in (MODEL, copy))
    assert np.abs(ours - theirs).max() <= 1e-6


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"model": models.mlp(5, (7, 5), 3)}, TableError, "CH312 the rows have 6 features, the model takes 5"),
        ({"model": models.mlp(6, (7, 5), 2)}, TableError, "CH311 labels lie outside the 2 classes"),
        ({"plan": dataclasses.replace(PLAN, devices=13)}, PlanError, "CH204 the plan is for 13 devices"),
        ({"accelerator": "abacus"}, TrainingError, 'CH702 no accelerator "abacus"'),
        ({"accelerator": "gpu"}, TrainingError, 'CH702 no accelerator "gpu"'),
    ],
)
def test_what_does_not_go_together_is_refused_with_a_way_out(change, error, says):
    with pytest.raises(error, match=says) as caught:
        engine(**change)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("cohort", "error", "says"),
    [
        ([], PlanError, "CH204 a cohort is empty"),
        ([3, 3], PlanError, "CH204 .* twice"),
        ([-1], PlanError, "CH204"),
        ([12], PlanError, "CH204"),
    ],
)
def test_a_cohort_that_can_not_be_is_refused(cohort, error, says):
    with pytest.raises(error, match=says):
        engine().train(start(), 0, np.array(cohort, dtype=np.int64))


def test_a_device_with_too_few_rows_is_refused_by_name():
    with pytest.raises(TableError, match="CH305 device d0 has 30 rows; the plan is for devices of 31 or more"):
        engine(dataclasses.replace(PLAN, rows=31)).train(start(), 0, np.array([1, 0]))


@pytest.mark.long
@pytest.mark.parametrize("lanes", [1, 2, 3, 5, 8, 12])
def test_the_number_of_lanes_moves_an_update_by_rounding_errors_only(lanes, whole):
    assert np.abs(engine(lanes=lanes).updates(start(), 2, np.arange(12)) - whole[0]).max() <= 1e-6


@pytest.mark.parametrize("sampling", ["partition", "poisson"])
def test_an_engine_with_another_step_size_clip_or_noise_compiles_nothing(sampling):
    """Of the step and of everything around it; the new codec has another grid, too."""
    cohorts, compiled, model = [np.arange(3), np.arange(1, 4)], [], models.logistic(6, 3)

    def rounds(grid=CODEC.grid, **numbers):
        codec, plan = dataclasses.replace(CODEC, grid=grid), dataclasses.replace(PLAN, sampling=sampling, **numbers)
        one = engine(plan, model=model, codec=codec)
        return [progress.parameters for progress in one.rounds(start(model), cohorts, every=2)][-1]

    first = rounds()
    jax.monitoring.register_event_duration_secs_listener(
        listener := lambda event, seconds, **_: compiled.append(seconds) if "backend_compile" in event else None
    )
    try:
        second = rounds(CODEC.grid / 2, step_size=PLAN.step_size / 3, clip=PLAN.clip * 1.7, noise=PLAN.noise * 1.1)
        assert not compiled and not np.array_equal(first, second)
        rounds(local_steps=PLAN.local_steps + 1)
        assert compiled  # so the listener hears of it
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


def test_rounds_that_fail_together_count_for_nobody(monkeypatch):
    one = engine()
    one.train(start(), 9, np.array([2, 5]))
    before = one.rounds_of.copy()

    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(programs, "check_runs", fails)
    with pytest.raises(KeyboardInterrupt):
        list(one.rounds(start(), [np.array([0, 1]), np.array([2, 3])], every=2))
    assert (one.rounds_of == before).all()
