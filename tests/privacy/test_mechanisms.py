import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from choral.accounting.proofs import against_everyone, exposed, of_clipped_updates, with_secure_sum
from choral.accounting.published import theorem_1
from choral.accounting.words import WORDS
from choral.core.errors import PlanError
from choral.core.events import Gaussian, Poisson
from choral.core.exposure import EVERYONE, Exposure
from choral.core.mechanisms import MECHANISMS
from choral.core.private_sums import RULE

BASE = {
    "rounds": 13,
    "local_steps": 10,
    "cohort": 10,
    "devices": 16,
    "rows": 2440,
    "batch": 244,
    "noise": 0.004902,
    "clip": 1.0,
}


def test_the_design_notes_figures_come_out_8_42_by_sampling_and_39_8_by_partition():
    # shared figures for logistic regression on Adult, δ = 1e-4
    assert against_everyone(exposed(**BASE)).epsilon(1e-4) == pytest.approx(8.42, abs=0.005)
    partition = against_everyone(exposed(**BASE, sampling="partition"))
    assert partition.epsilon(1e-4) == pytest.approx(39.8, abs=0.05)


@pytest.mark.parametrize(
    ("passes", "rounds", "steps", "uses"),
    [
        ("continue", 13, 10, 13),
        ("continue", 3, 4, 2),
        ("reshuffle", 3, 4, 3),
        ("reshuffle", 3, 11, 6),
        ("continue", 3, 11, 4),
    ],
)
def test_a_partition_counts_the_uses_of_its_most_used_record(passes, rounds, steps, uses):
    # E = 10 batches: ⌈Cτ/E⌉ when passes continue, C⌈τ/E⌉ when every round reshuffles
    part = exposed(**(BASE | {"rounds": rounds, "local_steps": steps}), sampling="partition", passes=passes)
    assert part.uses(range(part.rounds)) == uses
    assert against_everyone(part).event.mu == pytest.approx(2 * math.sqrt(uses) / (244 * 0.004902), rel=1e-14)


def test_a_batch_of_all_rows_is_no_sampling():
    loss = against_everyone(exposed(**(BASE | {"batch": 2440})))
    assert loss.rule == "S1"
    assert loss.event == Gaussian(mu=2 * math.sqrt(130) / (0.004902 * 2440))


@pytest.mark.parametrize(("colluders", "dropouts"), [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_one_step_a_round_divides_by_the_root_of_the_honest_noises(colluders, dropouts):
    part = exposed(**(BASE | {"local_steps": 1}), sampling="partition", colluders=colluders, dropouts=dropouts)
    loss = with_secure_sum(part)
    assert loss.rule == "S2"
    alone = against_everyone(part).event.mu
    assert loss.event.mu == pytest.approx(alone / math.sqrt(10 - colluders - dropouts), rel=1e-14)


def test_one_sampled_step_a_round_has_its_noise_multiplied():
    part = exposed(**(BASE | {"local_steps": 1}), colluders=1)
    loss = with_secure_sum(part)
    assert loss.rule == "S5"
    assert loss.event == Poisson(noise_multiplier=0.004902 * 244 * 3, probability=0.1, steps=13)


def test_several_steps_need_a_bound_on_what_they_stretch():
    part = exposed(**BASE, sampling="partition", step_size=0.5, smoothness=0.5, convex=True, colluders=2)
    loss = with_secure_sum(part)
    assert loss.rule == "S3"
    assert loss.certificate.startswith("in exact arithmetic, not claimed for runs: ")
    # k = 1, r_eff = 8 < E: ρ = 2G²C/(γ²σ²)/8
    assert 0.5 * loss.event.mu**2 == pytest.approx(2 * 13 / (244 * 0.004902) ** 2 / 8, rel=1e-14)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"secure_sum": False}, "no secure sum"),
        ({}, "Poisson"),
        ({"sampling": "partition"}, "step_size and smoothness"),
        (
            {"sampling": "partition", "step_size": 0.1, "smoothness": 1.0, "local_steps": 12},
            "do not end with the rounds",
        ),
    ],
)
def test_without_a_certificate_nothing_is_claimed_of_the_secure_sum(change, words):
    part = exposed(**(BASE | change))
    reason = with_secure_sum(part)
    assert isinstance(reason, str)
    assert words in reason


@pytest.mark.parametrize("stretch", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("steps", [10, 20, 30])
@pytest.mark.parametrize("convex", [True, False])
def test_the_secure_sum_never_costs_more_than_standing_alone(stretch, steps, convex):
    numbers = BASE | {"local_steps": steps, "sampling": "partition", "step_size": stretch, "smoothness": 1.0}
    part = exposed(**numbers, convex=convex)
    assert with_secure_sum(part).event.mu <= against_everyone(part).event.mu * (1 + 1e-12)


def test_a_clipped_update_is_protected_whole():
    # Rule S4: 2·S·√C/(σ_u·√r_eff) = 2 · 0.5 · 3 / (1.5 · 2)
    part = exposed(**(BASE | {"rounds": 9, "clip": 0.5, "noise": 1.5, "cohort": 5}), colluders=1)
    loss = of_clipped_updates(part)
    assert loss.event.mu == pytest.approx(1.0, rel=1e-15)
    assert loss.adjacency == "all records of one device replaced"
    assert "helped by 1 of the devices" in loss.adversary
    alone = of_clipped_updates(exposed(**(BASE | {"rounds": 9, "clip": 0.5, "noise": 1.5}), secure_sum=False))
    assert alone.event.mu == pytest.approx(2.0, rel=1e-15)
    assert alone.adversary == EVERYONE


GOOD = BASE | {"sampling": "poisson", "passes": "continue", "step_size": 0.5, "smoothness": 0.5}


@pytest.mark.parametrize("name", ["rounds", "local_steps", "cohort", "devices", "rows", "batch"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, math.inf, "3", None, True])
def test_a_count_that_is_no_count_is_refused_by_name(name, bad):
    with pytest.raises(PlanError, match=f"CH200 {name} = "):
        exposed(**(GOOD | {name: bad}))


@pytest.mark.parametrize("name", ["noise", "clip", "step_size", "smoothness"])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", True])
def test_a_number_that_is_not_positive_and_finite_is_refused_by_name(name, bad):
    with pytest.raises(PlanError, match=f"CH200 {name} = "):
        exposed(**(GOOD | {name: bad}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cohort": 17}, "CH200 cohort = 17.*at most 16"),
        ({"batch": 2441}, "CH200 batch = 2441.*at most 2,440"),
        ({"sampling": "shuffle"}, '"poisson" or "partition"'),
        ({"passes": "repeat"}, '"continue" or "reshuffle"'),
        ({"colluders": -1}, "CH200 colluders"),
        ({"dropouts": 0.5}, "CH200 dropouts"),
        ({"colluders": 6, "dropouts": 4}, "CH204 6 colluders and 4 drop-outs leave none of 10"),
        ({"secure_sum": 1}, "CH200 secure_sum"),
        ({"convex": "yes"}, "CH200 convex"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused(change, words):
    with pytest.raises(PlanError, match=words):
        exposed(**(GOOD | change))


@pytest.mark.parametrize(
    "plan",
    [
        {"local_steps": 1, "batch": 2440},  # S2
        {"local_steps": 1},  # S5 with one step
        {"local_steps": 1, "sampling": "partition", "law": "discrete_gaussian"},  # S6
        {"unit": "device", "noise": 5.0},  # S4
        {"batch": 2440, "sampling": "partition", "noise_is_added": "once", "row_length": 1.0, "noise": 0.1},  # S7
    ],
)
def test_probes_leave_the_figure_against_everyone_and_take_all_of_that_with_the_secure_sum(plan):
    plain = Exposure(step_size=1.0, **BASE | plan)
    probed = replace(plain, probes=32, opened_turns=2)
    assert not isinstance(with_secure_sum(plain), str)
    assert "32 probes of its update" in with_secure_sum(probed)
    assert probed.honest_noises == 1
    assert against_everyone(probed) == against_everyone(plain)
    assert not theorem_1(probed).valid


ROOT = Path(__file__).parents[2]


def assumptions():
    """The rows of the list in docs/accounting.md: the rules, the assumption, and the tests that it names."""
    page = (ROOT / "docs" / "accounting.md").read_text()
    listed = page.partition("## Assumptions of all rules")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in listed.splitlines() if line.startswith("| ")][1:]
    return [(rules.strip(), what, re.findall(r"`(tests/[^`]+)`", held)) for rules, what, held in rows]


def test_every_rule_is_in_the_list_of_assumptions_and_nothing_else_is():
    known = {rule for mechanism in MECHANISMS for rule in WORDS[type(mechanism)].rules} | {RULE}
    named = {rule for rules, _, _ in assumptions() if rules != "all" for rule in rules.split(", ")}
    assert named == known


def test_every_assumption_names_tests_and_every_test_that_it_names_exists():
    rows = assumptions()
    assert len(rows) > 20
    for _, what, held in rows:
        assert held, what
        for test in held:
            file, _, name = test.partition("::")
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), test
