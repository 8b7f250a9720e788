"""Probes in whole runs: simulation and rehearsal agree, a run goes on as it was, attackers are left out and named."""

import numpy as np
import pytest

from choral.core.errors import ConfigError, PlanError
from choral.core.messages import Turn
from choral.core.plan import SecureSum
from choral.probes.projections import answers_of
from choral.record import read_probes
from choral.report.verify import verify
from choral.report.words import server_sees
from choral.run.folder import RunFolder
from choral.run.guard import Guard, seed_from
from choral.run.places import Simulated
from choral.run.runs import Run, resume
from choral.run.statement import releases
from tests.run.small import rows, study

PROBED = {"devices": 12, "cohort": 12, "rounds": 6, "robust": True, "colluders": 1}


@pytest.fixture(scope="module")
def probed():
    return study(rows(480, 70), **PROBED)


class Poisoned(Simulated):
    """A simulation in which some devices send something else than they computed."""

    def __init__(self, study, poison, **how):
        super().__init__(study, **how)
        self.poison = poison

    def integers(self, parameters, devices, turn):
        honest = super().integers(parameters, devices, turn)
        return honest | self.poison(honest, self)


def run_with(study, poison):
    run = Run(Poisoned(study, poison), study)
    run.finish()
    return run


def test_a_rehearsal_has_the_integers_and_the_answers_of_its_simulation(probed, tmp_path):
    found = []
    for kind in ("simulation", "rehearsal"):
        folder = RunFolder.create(tmp_path / kind)
        result = Run(kind, probed, folder=folder, drop=0.1).finish()
        found.append(
            (result.parameters.tolist(), list(read_probes(folder.path)), [line.included for line in result.history])
        )
    assert found[0] == found[1]
    lines = found[0][1]
    assert [line.round for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [len(next(iter(line.answers.values()))) for line in lines] == [32, 36, 36, 36, 36, 36]
    assert any(set(line.answers) != set(probed.data.records.names) for line in lines)  # somebody dropped out


def test_a_run_that_goes_on_after_a_crash_ends_as_it_would_have(probed, tmp_path):
    whole = Run("simulation", probed, folder=RunFolder.create(tmp_path / "whole"))
    whole.finish()
    cut = Run("simulation", probed, folder=RunFolder.create(tmp_path / "cut"))
    for line in cut.rounds():
        if line.round == 3:
            break
    going_on = resume(tmp_path / "cut", rows(480, 70))
    going_on.finish()
    assert list(read_probes(tmp_path / "cut")) == list(read_probes(tmp_path / "whole"))
    assert going_on.parameters.tolist() == whole.parameters.tolist()


def test_a_shouting_device_is_left_out_of_every_round_and_named_in_round_four(probed):
    run = run_with(probed, lambda honest, _: {3: -40 * honest[3]} if 3 in honest else {})
    assert all(3 not in line.included for line in run.lines)
    name = probed.data.records.names[3]
    assert run.place.guard.named == {name: 4}
    assert all(3 not in line.cohort for line in run.lines[4:])  # excluded, since 12 devices are enough for statistics


def test_a_coalition_of_three_against_the_mean_of_the_others_is_left_out(probed):
    """Inner-product manipulation: each sends the honest mean, turned round and 20 times as long."""

    def poison(honest, _):
        mean = np.mean([own for device, own in honest.items() if device > 2], axis=0)
        return {device: np.rint(-20 * mean).astype(np.int64) for device in (0, 1, 2) if device in honest}

    run = run_with(probed, poison)
    assert all(not {0, 1, 2} & set(line.included) for line in run.lines)
    assert {probed.data.records.names[at] for at in (0, 1, 2)} == run.place.guard.named.keys()


def test_nobody_is_excluded_below_nine_devices_a_person_decides():
    small = study(rows(320, 70), **PROBED | {"devices": 8, "cohort": 8})
    run = run_with(small, lambda honest, _: {3: -40 * honest[3]} if 3 in honest else {})
    assert run.place.guard.named and not run.place.guard.excluded
    assert 3 in run.lines[-1].cohort and 3 not in run.lines[-1].included


def test_every_device_that_answered_is_charged_left_out_or_not(probed):
    run = run_with(probed, lambda honest, _: {3: -40 * honest[3]} if 3 in honest else {})
    assert run.place.ledgers.rounds[3] == 4  # the rounds before it was named
    assert sum(line.wasted.count(3) for line in run.lines) == 4


def test_the_probes_of_a_turn_that_can_be_repeated_follow_from_the_seed_and_the_turn():
    seeds = {seed_from(seed, Turn(*turn)) for seed in (1, 2) for turn in ((1, 0), (1, 1), (2, 0))}
    assert len(seeds) == 6


def test_the_noise_of_an_update_is_that_of_all_its_steps(probed):
    guard = Guard.of_study(probed, None)
    integers = Simulated(probed)
    with integers.opened():
        own = integers.integers(probed.trained.start(0), range(12), Turn(1, 0))
    seen = guard.seen({str(at): answers_of(bytes(32), 32, mine).tolist() for at, mine in own.items()})
    assert 0.5 < np.median(seen.squares) / guard.parameters < 3  # noise, and some signal


def test_the_report_of_what_left_the_devices_and_what_the_server_sees_names_the_answers(probed):
    reported = [release.what for release in releases(probed.plan, 6, compare=False)]
    assert any("32 random projections of each device's update" in what for what in reported)
    can, cannot = server_sees(probed.secure, probed.plan)
    assert "each device's whole noisy update in at most 2 opened turns" in can
    assert not any("single device" in what for what in cannot)


def test_a_rehearsed_audit_opens_one_round_names_nobody_and_changes_no_sum(probed):
    run, opened = Run("rehearsal", probed), []
    for line in run.rounds():
        run.place.guard.audited = 3 if line.round == 2 else 0
        opened.append([device.vault.memory.opened for device in run.place.recorded.devices.values()])
        if line.round == 3:
            break
    assert [opened[2][at] - opened[1][at] for at in run.lines[2].included] == [1] * len(run.lines[2].included)
    assert not run.place.guard.named and len(run.lines[2].included) >= 9


@pytest.mark.parametrize(
    ("change", "kind", "code"),
    [
        ({"against": "server and colluders", "local_steps": 1, "batch": 32}, ConfigError, "CH104"),
        ({"epsilon": None, "noise": 0.0}, PlanError, "CH204"),
        ({"weighing": "rows", "typical_rows": 20}, ConfigError, "CH104"),
    ],
)
def test_probes_are_refused_where_the_secure_sum_is_what_protects(change, kind, code):
    with pytest.raises(kind, match=code):
        study(rows(480, 70), **PROBED | change)


def test_probes_are_asked_for_only_where_the_study_says_so():
    reported = {"devices": 12, "cohort": 12, "colluders": 1}
    assert study(rows(480, 70), **reported).plan.probes == 0
    assert study(rows(480, 70), **reported, robust=True).plan.probes == 32
    assert study(rows(480, 40), **reported, robust=True).plan.probes == 16


def test_a_guard_leaves_enough_devices_for_a_sum():
    guard = Guard(plan=study(robust=False).plan, secure=SecureSum.for_cohort(4), parameters=1, noise=1.0, names=("a",))
    assert guard.excluded == frozenset()


def test_a_push_that_goes_one_way_is_named_by_its_own_past_and_again_from_the_lines(probed):
    names, size = probed.data.records.names, probed.trained.size
    guard, again = (Guard.of(probed.plan, probed.secure, probed.codec, size, names) for _ in range(2))
    rng = np.random.default_rng(3)
    push, lines = 2 * guard.noise * rng.choice([-1, 1], size), []
    for number in range(1, 15):
        updates = rng.normal(0, guard.noise, (len(names), size))
        updates[3] += push
        integers = dict(enumerate(np.rint(updates).astype(np.int64)))
        turn = Turn(number, 0)
        lines.append(guard.simulated(turn, seed_from(1, turn), integers)[0])
    assert guard.named.keys() == {names[3]}
    assert {one.rule for one in guard.evidence.suspicions if one.named_in} == {"own past", "watched past"}
    assert [again.judged_again(line).named for line in lines] == [line.named for line in lines]


def test_the_direction_is_watched_and_the_pasts_of_the_three_who_follow_them_most(probed):
    guard = Guard.of(probed.plan, probed.secure, probed.codec, probed.trained.size, probed.data.records.names)
    rng, turn = np.random.default_rng(4), Turn(1, 0)
    assert guard.watched == b""
    updates = rng.normal(0, guard.noise, (len(guard.names), guard.parameters))
    guard.simulated(turn, seed_from(1, turn), dict(enumerate(np.rint(updates).astype(np.int64))))
    watched = np.frombuffer(guard.watched, np.int8).reshape(4, guard.parameters)
    assert np.array_equal(watched[0], guard.direction.bytes_)
    for (name, past), shown in zip(guard.evidence.to_watch(3), watched[1:], strict=True):
        exact = guard.evidence.past_of(name)
        assert np.array_equal(past, shown)
        assert past @ exact / np.linalg.norm(past.astype(float)) / np.linalg.norm(exact) > 0.999


def test_a_run_of_a_version_that_watched_no_past_still_verifies(probed, tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr("choral.run.guard.MOST_WATCHED", 1)
        Run("rehearsal", probed, folder=RunFolder.create(tmp_path / "run")).finish()
    assert {len(next(iter(line.answers.values()))) for line in read_probes(tmp_path / "run")} == {32, 33}
    assert verify(tmp_path / "run").good
