"""`valid` on a table of cases, each decided by hand from the conditions in docs/accounting.md."""

import pytest

from choral.accounting import published
from choral.accounting.proofs import against_everyone, exposed, with_secure_sum

# 2,440 rows in 10 batches of 244; 10 of 16 devices; smoothness 0.5 and step size 0.5 make ηL = 0.25.
BASE = {
    "rounds": 20,
    "local_steps": 10,
    "cohort": 10,
    "devices": 16,
    "rows": 2440,
    "batch": 244,
    "noise": 0.02,
    "clip": 1.0,
    "sampling": "partition",
    "step_size": 0.5,
    "smoothness": 0.5,
    "convex": True,
}

CASES = [
    # what is changed, whether Theorem 1 is a guarantee, and words of the reason
    ({}, True, "non-expansive and pass once"),
    ({"local_steps": 20}, True, "non-expansive"),  # k = 2, r = 10 ≤ E = 10
    ({"local_steps": 20, "cohort": 11}, False, "2 passes a round with 11 devices for 10 batches"),
    ({"local_steps": 20, "cohort": 1}, True, "one device a round"),
    ({"batch": 2440, "local_steps": 1, "convex": False, "step_size": None}, True, "one local step"),
    ({"local_steps": 1, "step_size": None}, True, "one local step"),  # 20 rounds are two passes of 10 batches
    ({"local_steps": 1, "rounds": 25}, False, "rounds = 25 of one step do not fill whole passes"),
    ({"local_steps": 1, "passes": "reshuffle"}, False, "every round reshuffles"),
    ({"batch": 2440, "local_steps": 1, "passes": "reshuffle"}, True, "one local step"),
    ({"batch": 2440, "local_steps": 5}, False, "5 passes a round"),
    ({"rows": 2441}, False, "batch = 244 does not divide rows = 2441"),
    ({"rows": 2441, "batch": 2441, "local_steps": 1}, True, "one local step"),
    ({"local_steps": 12}, False, "do not fill whole passes of 10 batches"),
    ({"sampling": "poisson"}, False, "Poisson"),
    ({"sampling": "poisson", "batch": 2440, "local_steps": 1}, True, "one local step"),
    ({"secure_sum": False}, False, "no secure sum"),
    ({"secure_sum": False, "cohort": 1}, True, "one device a round"),
    ({"colluders": 1}, False, "only 9 honest noises"),
    ({"dropouts": 2}, False, "only 8 honest noises"),
    ({"step_size": None}, False, "nothing shows"),
    ({"smoothness": None}, False, "nothing shows"),
    ({"step_size": 4.1}, False, "stretch distances by 3.05"),  # η > 2/L = 4
    ({"step_size": 4.0}, True, "non-expansive"),  # η = 2/L
    ({"convex": False}, False, "stretch distances by 1.25"),  # 1.25² > 10/9
    ({"convex": False, "step_size": 0.1}, True, "c² ≤ r/(r−1)"),  # 1.05² = 1.1025 ≤ 10/9
    ({"convex": False, "step_size": 0.1, "local_steps": 20}, False, "2 passes a round of steps that may stretch"),
    ({"convex": False, "step_size": 0.1, "cohort": 11}, False, "stretch distances"),  # 1.1025 > 1.1
]


@pytest.mark.parametrize(("change", "valid", "words"), CASES)
def test_theorem_1_is_valid_exactly_where_a_proved_rule_covers_it(change, valid, words):
    part = exposed(**(BASE | change))
    figure = published.theorem_1(part)
    assert figure.valid is valid
    assert words in figure.because
    # ρ = 2CτG²/(r m γ σ²), by hand
    by_hand = 2 * part.rounds * part.local_steps / (part.cohort * part.rows * part.batch * part.noise**2)
    assert figure.rho == pytest.approx(by_hand, rel=1e-12)
    if valid:  # the proof of the figure is a proved rule that is no larger
        summed = with_secure_sum(part)
        proved = against_everyone(part) if isinstance(summed, str) else summed
        assert 0.5 * proved.event.mu**2 <= figure.rho * (1 + 1e-12)
        assert proved.epsilon(1e-5) <= figure.epsilon(1e-5)


def test_where_theorem_1_fails_for_more_passes_the_proved_bound_is_larger_than_it():
    part = exposed(**(BASE | {"batch": 2440, "local_steps": 5}))
    assert 0.5 * with_secure_sum(part).event.mu ** 2 > published.theorem_1(part).rho


@pytest.mark.parametrize(
    ("change", "valid"),
    [
        ({}, True),
        ({"step_size": None, "secure_sum": False, "colluders": 3}, True),
        ({"local_steps": 12}, False),
        ({"rows": 2441}, False),
        ({"sampling": "poisson"}, False),
        ({"local_steps": 20, "passes": "reshuffle"}, True),
    ],
)
def test_without_the_secure_sum_the_paper_is_right_about_whole_passes(change, valid):
    part = exposed(**(BASE | change))
    figure = published.without_secure_sum(part)
    assert figure.valid is valid
    assert figure.rho == pytest.approx(
        2 * part.rounds * part.local_steps / (part.rows * part.batch * part.noise**2), rel=1e-12
    )
    if valid:
        assert figure.rho == pytest.approx(0.5 * against_everyone(part).event.mu ** 2, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "printed", "corrected"),
    [
        ({"local_steps": 1}, False, True),
        ({"local_steps": 1, "devices": 10}, True, True),
        ({"local_steps": 1, "colluders": 1}, False, False),
        ({"local_steps": 1, "secure_sum": False}, False, False),
        ({"local_steps": 1, "sampling": "poisson"}, False, True),
        ({}, False, False),  # DP-SGD makes one step a round
    ],
)
def test_dp_sgd_counts_the_noises_that_are_there_only_when_corrected(change, printed, corrected):
    part = exposed(**(BASE | change))
    assert published.dp_sgd_as_printed(part).valid is printed
    assert published.dp_sgd_corrected(part).valid is corrected
    per_noise = 2 * part.rounds / (part.batch * part.noise) ** 2
    assert published.dp_sgd_as_printed(part).rho == pytest.approx(per_noise / part.devices, rel=1e-12)
    assert published.dp_sgd_corrected(part).rho == pytest.approx(per_noise / part.cohort, rel=1e-12)
