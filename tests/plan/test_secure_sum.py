"""SecureSum: the numbers of a safe sum, each bound refused one below it."""

import pytest

from choral.core.errors import PlanError
from choral.core.plan.secure_sum import SecureSum


def secure(**changes):
    return SecureSum(**{"cohort": 10, "smallest_sum": 8, "threshold": 7, "colluders": 2} | changes)


@pytest.mark.parametrize(("r", "c", "u", "s"), [(10, 2, 8, 7), (100, 20, 75, 74)])
def test_the_defaults_are_the_designs(r, c, u, s):
    found = SecureSum.for_cohort(r)
    assert (found.colluders, found.smallest_sum, found.threshold) == (c, u, s)
    assert found.adversary == "lying"


def test_every_cohort_has_a_default_that_hides_everybody():
    for cohort in range(2, 1000):
        found = SecureSum.for_cohort(cohort)
        assert found.honest_noises("lying") >= 2
        assert found.honest_noises("curious") >= 2


def test_from_four_devices_on_one_colluder_at_least_is_counted_and_opens_nobody_alone():
    for cohort in range(4, 1000):
        found = SecureSum.for_cohort(cohort)
        assert found.colluders == max(1, cohort // 5)
        assert found.threshold + found.smallest_sum >= cohort + found.colluders + 1  # the bound of docs/secure-sum.md


@pytest.mark.parametrize(
    ("r", "c", "u", "s", "honest"),
    [
        (2, 0, 2, 1, 2),  # c < s = u − 1 ≤ r − 1 leaves no room for a colluder
        (3, 0, 3, 2, 3),
        (4, 1, 4, 3, 3),  # s + u ≥ 6 and s ≤ u − 1 need u = 4: nobody may drop out before the upload
        (5, 1, 4, 3, 2),
        (6, 1, 5, 4, 3),
        (7, 1, 6, 5, 4),
        (8, 1, 6, 5, 3),
        (9, 1, 7, 6, 4),
        (10, 2, 8, 7, 4),
    ],
)
def test_the_defaults_of_small_cohorts_worked_out_by_hand(r, c, u, s, honest):
    found = SecureSum.for_cohort(r)
    assert (found.colluders, found.smallest_sum, found.threshold) == (c, u, s)
    assert found.honest_noises("lying") == s + u - r - c + 1 == honest


def test_three_devices_withstand_one_colluder_too_if_it_is_counted():
    found = SecureSum.for_cohort(3, colluders=1)
    assert (found.smallest_sum, found.threshold, found.honest_noises("lying")) == (3, 2, 2)


def test_more_colluders_raise_the_smallest_sum_as_far_as_the_bound_asks():
    found = SecureSum.for_cohort(10, colluders=5)
    assert (found.smallest_sum, found.threshold) == (9, 8)  # 2u − 1 ≥ 10 + 5 + 1
    with pytest.raises(PlanError, match="CH20"):
        SecureSum.for_cohort(10, colluders=9)


@pytest.mark.parametrize(("r", "u", "c"), [(10, 8, 2), (10, 9, 0), (50, 40, 5), (100, 75, 20)])
def test_one_below_the_safe_bound_is_refused(r, u, c):
    """s + u_min ≥ r + c + 1: the least s is r + c + 1 − u_min."""
    least = r + c + 1 - u
    secure(cohort=r, smallest_sum=u, colluders=c, threshold=least)
    with pytest.raises(PlanError, match=r"CH205.*safe bound"):
        secure(cohort=r, smallest_sum=u, colluders=c, threshold=least - 1)


@pytest.mark.parametrize("adversary", ["curious", "lying"])
def test_a_threshold_that_colluders_reach_or_the_smallest_sum_does_not_is_refused(adversary):
    secure(threshold=7, adversary=adversary)
    with pytest.raises(PlanError, match="CH205"):
        secure(threshold=8, adversary=adversary)
    with pytest.raises(PlanError, match="CH205"):
        secure(threshold=2, adversary=adversary)


def test_a_curious_server_needs_a_smaller_threshold():
    found = secure(threshold=3, adversary="curious")
    assert found.honest_noises("curious") == 6
    with pytest.raises(PlanError, match="CH205"):
        found.honest_noises("lying")
    with pytest.raises(PlanError, match="CH205"):
        secure(threshold=3)


def test_a_sparse_graph_claims_nothing_against_a_lying_server():
    sparse = {"graph": "harary", "neighbours": 6, "threshold": 4}
    secure(**sparse, adversary="curious")
    with pytest.raises(PlanError, match="CH205"):
        secure(**sparse)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"graph": "harary"}, "CH204"),
        ({"neighbours": 4}, "CH204"),
        ({"graph": "harary", "neighbours": 5}, "CH200"),
        ({"graph": "harary", "neighbours": 10}, "CH200"),
        ({"graph": "harary", "neighbours": 4, "threshold": 5}, "CH205"),
        ({"graph": "ring"}, "CH200"),
        ({"adversary": "nice"}, "CH200"),
        ({"modulus_bits": 24}, "CH204"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, code):
    with pytest.raises(PlanError, match=code):
        secure(**{"adversary": "curious"} | changes)


@pytest.mark.parametrize(
    ("bits", "cohort", "left"),
    [
        (32, 10, 27),
        (32, 16, 27),
        (32, 17, 26),
        (16, 10, 11),
        (64, 2, 62),
    ],
)
def test_the_bits_of_a_value(bits, cohort, left):
    """q = b − ⌈log2 r⌉ − 1, by hand."""
    assert SecureSum.for_cohort(cohort, modulus_bits=bits).value_bits == left


def test_a_cohort_too_large_for_its_modulus_is_refused():
    """16 − 12 − 1 = 3 bits are left for 4,096 devices, 2 for one more."""
    SecureSum.for_cohort(4096, modulus_bits=16)
    with pytest.raises(PlanError, match="CH204"):
        SecureSum.for_cohort(4097, modulus_bits=16)


def test_a_secure_sum_is_described_as_choral_0_2_did_and_read_again():
    described = secure().described
    assert list(described) == [
        "cohort", "smallest_sum", "threshold", "colluders", "adversary", "modulus_bits", "lanes", "masks", "graph",
        "neighbours", "mode",
    ]  # fmt: skip
    assert SecureSum.read(described) == secure()


@pytest.mark.parametrize("gone", [{"mode": "paper", "masks": "directed"}, {"masks": "directed"}, {"lanes": 3}])
def test_forms_that_only_earlier_versions_run_are_refused_by_the_name_of_the_last_of_them(gone):
    described = secure().described | gone
    recorded = SecureSum.read(described)
    assert recorded.described == described
    with pytest.raises(PlanError, match=r"CH204 .*choral 0\.2 is the last version that runs it"):
        recorded.require_runnable()
