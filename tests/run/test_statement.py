"""Which devices are full, and what was planned, paid and retried: with sites of very different sizes, and drop-outs."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from choral.accounting import groups
from choral.accounting.costs import Costs
from choral.accounting.reserves import overflow, rounded_coin
from choral.core.plan import OUT_OF_RANGE, Budget, Plan, SecureSum
from choral.core.private_sums import SumPrice
from choral.record import read_run
from choral.report import write_report
from choral.report.verify import verify
from choral.run.folder import RunFolder
from choral.run.runs import Run
from choral.run.statement import planned_statement, privacy_statement
from tests.run.forger import cover_up, edit
from tests.run.small import rows, study

SHARES = (50, 28, 14, 6, 2)  # per cent of all rows


def costs_of_sites(sizes, limits, **plan):
    """What a plan for these sites costs, whose smallest one decides the batch."""
    numbers = {"rounds": 2, "rows": min(sizes), "batch": 5, "step_size": 0.5, "clip": 1.0} | plan
    return Costs(
        plan=Plan(devices=5, cohort=5, **numbers),
        secure=SecureSum.for_cohort(5),
        rows=np.array(sizes),
        limits=tuple(Budget(epsilon=limit, delta=1e-5) for limit in limits),
        names=tuple("abcde"),
    )


def test_a_site_that_has_used_little_of_its_limit_is_not_full_after_the_last_planned_round():
    """In twenty rounds the smallest site uses each row five times, the others once or twice; a sixth use is too much.

    Before, all five were said to be full, since all had done the rounds of the plan.
    """
    sizes = [10 * share for share in SHARES]
    costs = costs_of_sites(sizes, [2.0] * 5, rounds=20, sampling="partition", noise=1.8)
    devices = privacy_statement(costs, np.full(5, 20)).devices
    assert devices[0].epsilon < 0.9 < 1.9 < devices[-1].epsilon <= 2.0 < costs.spent(4, 21, 1e-5)
    assert [device.full for device in devices] == [False, False, False, False, True]
    assert [(device.rounds, device.planned, device.retried) for device in devices] == [(20, 20, 0)] * 5


@pytest.mark.parametrize("paid", [0, 1, 4, 20, 21])
def test_full_means_that_one_more_round_would_pass_the_limit(paid):
    """Full batches, so ε has a closed form; limits that pay for no round, for some, for the plan's and for more."""
    limits = (0.1, 0.9, 3.0, 5.2, 40.0)
    costs = costs_of_sites([60] * 5, limits, batch=60, rounds=20, noise=0.15)
    assert sorted({*costs.allowed_rounds.tolist()})[0] == 0 and costs.allowed_rounds.max() == 20
    devices = privacy_statement(costs, np.full(5, paid)).devices
    assert [device.full for device in devices] == [costs.spent(0, paid + 1, 1e-5) > limit for limit in limits]


def test_the_pages_of_unequal_sites_call_nobody_full_that_could_go_on(tmp_path):
    features, labels = rows(1000)
    frame = pd.DataFrame(features, columns=list("wxyz"))
    frame = frame.assign(label=labels, site=np.repeat(list("abcde"), [10 * share for share in SHARES]))
    settled = study(frame, devices=None, cohort=5, epsilon=2.0, batch=4, label="label", device_column="site",
                    sampling="partition")  # fmt: skip
    Run("simulation", settled, folder=RunFolder.create(tmp_path / "run")).finish()
    text = write_report(tmp_path / "run").read_text()
    devices = read_run(tmp_path / "run").result.privacy.devices
    full = [device.name for device in devices if device.full]
    assert full == [one.name for n, one in enumerate(devices) if settled.costs.spent(n, one.rounds + 1, 1e-4) > 2.0]
    assert text.count(" · full<") == len(full)
    assert verify(tmp_path / "run").good


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """A rehearsal whose third round failed once: two devices paid for an upload that is in no sum."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    Run("rehearsal", study(seed=6, rounds=4), folder=RunFolder.create(folder), drop=0.2).finish()
    write_report(folder)
    return folder


@pytest.fixture
def retried(rehearsed, tmp_path):
    return shutil.copytree(rehearsed, tmp_path / "run")


def test_after_a_drop_out_planned_paid_retried_and_limit_are_four_figures(retried):
    record = read_run(retried)
    devices = record.result.privacy.devices
    assert (
        [number for number, device in enumerate(devices) if device.retried] == [0, 4] == list(record.rounds[2].wasted)
    )
    assert all(device.epsilon <= device.limit and device.rounds <= device.planned for device in devices)
    text = (retried / "report.html").read_text()
    assert "2 / 3 · 1 retried<" in text and "3 / 3 · 1 retried · full<" in text
    assert "Retried: paid for in an attempt that failed." in text
    assert verify(retried).good


@pytest.mark.parametrize(("field", "value"), [("full", False), ("planned", 9), ("retried", 0), ("limit", 9.0)])
def test_verify_works_out_every_one_of_them_again(retried, field, value):
    def change(result):
        result["privacy"]["devices"][4][field] = value

    edit(retried / "result.json", change)
    cover_up(retried)
    wrong = " ".join(line for finding in verify(retried) for line in finding.wrong)
    assert f"privacy.devices[5].{field} says {value}" in wrong or ".devices[5] says" in wrong


def test_a_statement_from_before_these_fields_is_held_against_its_own_meaning(retried):
    def as_before(result):
        for device in result["privacy"]["devices"]:
            device.pop("retried", None)
            device["full"] = device["rounds"] >= device.pop("planned")

    edit(retried / "result.json", as_before)
    cover_up(retried)
    assert json.loads((retried / "result.json").read_text())["privacy"]["devices"][0].get("planned") is None
    assert verify(retried).good
    assert " · as many as planned<" in (retried / "report.html").read_text()


def unequal(**changes):
    """Eight devices of 200 rows and eight of 2,000, which a Poisson plan charges very differently."""
    plan = Plan(
        devices=16, cohort=8, rounds=20, rows=200, batch=100, step_size=0.5, clip=1.0, noise=0.05, local_steps=2
    )
    sizes, limit = np.array([200] * 8 + [2000] * 8), Budget(epsilon=2.0, delta=1e-5)
    given = {"plan": plan, "secure": SecureSum.for_cohort(8), "rows": sizes, "limits": (limit,) * 16,
             "names": tuple(f"d{number}" for number in range(16))}  # fmt: skip
    return Costs(**given | changes)


def test_the_planned_figure_is_that_of_the_device_that_loses_most_and_not_of_the_one_with_most_rounds():
    costs = unequal()
    allowed = costs.allowed_rounds
    assert allowed[0] < allowed[-1]  # the large ones may take part more often, and lose less
    most = max(costs.spent_by_all(allowed))
    assert planned_statement(costs).against_everyone.epsilon == most
    stopped = privacy_statement(costs, np.minimum(allowed, 5), stopped=True)
    assert stopped.against_everyone.epsilon == most >= stopped.running.epsilon


def test_each_claim_is_the_largest_of_all_devices():
    once = Plan(devices=16, cohort=8, rounds=4, rows=200, batch=100, step_size=0.5, clip=1.0, noise=0.9, local_steps=9,
                sampling="poisson", noise_is_added="once", row_length=2.0)  # fmt: skip
    costs, rounds = unequal(plan=once), np.array([2] * 8 + [4] * 8)
    reported = privacy_statement(costs, rounds)
    alone = [costs.spent_against_everyone(device, int(rounds[device]), 1e-5) for device in (0, 8)]
    summed = [costs.epsilon_of_sums(costs.of(device).exposure(int(rounds[device])), 1e-5) for device in (0, 8)]
    assert reported.against_everyone.epsilon == max(alone)
    assert reported.with_secure_sum.epsilon == max(summed)


def test_the_figure_for_the_planned_colluders_is_the_claim_itself_and_questions_are_in_every_figure():
    once = Plan(devices=16, cohort=8, rounds=4, rows=200, batch=200, step_size=0.5, clip=1.0, noise=0.9, local_steps=9,
                sampling="partition", noise_is_added="once", row_length=2.0)  # fmt: skip
    costs, rounds = unequal(plan=once), np.full(16, 2)
    plain = privacy_statement(costs, rounds)
    known = dict(plain.by_colluders)
    assert known[costs.secure.colluders] == plain.with_secure_sum.epsilon  # not that of a server that never lies
    assert known[0] < known[1] and known[7] is None
    asking = privacy_statement(replace(costs, questions=SumPrice(mu=0.5, noises=4, most=3)), rounds)
    assert asking.several.at_two_sites > asking.against_everyone.epsilon > plain.against_everyone.epsilon
    assert asking.several.epsilon > plain.several.epsilon
    assert dict(asking.by_colluders)[costs.secure.colluders + 1] is None  # questions have sums of their own


def test_what_several_rows_cost_is_verified_with_the_room_that_batches_had_when_it_was_written():
    """10,000 draws leave less of β to full batches than before: 112 places for 48 rows, which had 104."""
    costs = costs_of_sites([2440] * 5, [9.0] * 5, rounds=500, batch=48, local_steps=20, noise=1.2)
    full = overflow(rows=2440, batch=48, capacity=104, together=5)
    events = [costs.of(0).event(before) for before in range(500)]
    before = groups.of_rows(events, 5, 1e-5 - OUT_OF_RANGE - 10_000 * full)
    assert planned_statement(costs, several="without rounding").several.epsilon == before
    assert planned_statement(costs).several.epsilon != before


def test_rounded_coins_of_a_small_site_count_with_the_rate_at_which_all_draw():
    """Where rows weigh, two rows of a site are drawn at the rate of all, 0.9, though its batch is said to be two."""
    costs = costs_of_sites([2, 100, 100, 100, 100], [9.0] * 5, rows=100, batch=90, local_steps=4, noise=1.2,
                           weighing="rows")  # fmt: skip
    several = planned_statement(costs).several
    assert (several.rows, several.charged_delta) == (2, pytest.approx(OUT_OF_RANGE + 2 * 4 * 2 * rounded_coin(0.9)))
