"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import CODEC, Mutant, bug

SPARSE = (
    "tests/run/test_against.py::"
    "test_every_turn_of_a_sparse_graph_takes_its_share_of_a_small_delta_in_noise_and_in_statements"
)

# Reading: a record's features are a function of that record and of public numbers.
READING: list[Mutant] = []

# Answers to questions, and their intervals.
ANSWERS: list[Mutant] = []

# Ranges of the codec, reserves of δ, noises and how they are found.
PRICES: list[Mutant] = [
    bug("range of the codec for batches of the mean size", CODEC + "proved_range", "plan.widest_batch", "plan.batch",
        "tests/learning/test_aligned_gradients.py::"
        "test_no_update_that_a_device_draws_is_refused_though_all_of_its_gradients_are_aligned"),
    bug("rounded coins for which nothing is kept of a small delta", "choral.privacy.calibrate:with_reserves",
        "max(usual, needed)", "usual",
        "tests/privacy/test_calibrate.py::"
        "test_what_is_kept_of_delta_follows_it_and_pays_for_the_rounding_of_all_coins"),
    bug("coins and full batches paid for by the same share of delta", "choral.plan.poisson_room:widest",
        "(1 - MOST_ROUNDED) * overflow", "overflow",
        "tests/learning/test_batches.py::"
        "test_where_coins_take_most_of_the_reserve_the_rest_pays_for_full_batches"),
    bug("updates out of range in no charge", "choral.privacy.costs:Costs.charged_delta",
        "self.plan.overflow + self.plan.out_of_range", "self.plan.overflow",
        "tests/run/test_one_calibration.py::test_a_run_at_a_billionth_is_charged_and_verified"),
    bug("device with too many rows asked and charged", "choral.run.questions:check_rows", "rows > MOST_ROWS", "False",
        "tests/run/test_inquiry.py::"
        "test_a_device_with_more_rows_than_an_answer_has_room_for_is_refused_before_anybody_pays"),
    bug("turn of a sparse graph free of charge", "choral.privacy.costs:Costs.sum_event",
        "self.charged_delta(1) + self.secure.failure", "self.charged_delta(1)",
        "tests/run/test_against.py::test_a_sparse_graph_takes_its_own_share_of_delta"),
    bug("turns of a sparse graph in no statement", "choral.privacy.costs:Costs.epsilon_of_sums",
        "part.rounds * self.secure.failure", "0.0", SPARSE),
    bug("turns of a sparse graph left out of the noise", "choral.run.planning:_with_noise",
        "budget.delta - rounds_each(plan) * secure.failure", "budget.delta", SPARSE),
    bug("steps over uneven parts as long as over even ones", "choral.learning.once:LocalWork.covered",
        "-(-rows // self.parts) * self.parts", "rows",
        "tests/learning/test_once.py::test_no_step_over_the_largest_of_uneven_parts_is_longer_than_2_over_l"),
    bug("room of a sampled upload for the mean draw", "choral.learning.once:places_of",
        "drawer_of(replace(plan, local_steps=1)).room(rows)", "plan.batch",
        "tests/learning/test_once.py::"
        "test_a_sampled_round_has_room_for_what_is_drawn_and_steps_for_all_of_that_room"),
    bug("least mu rounded down", "choral.privacy.cover:least_mu", "high * (1 + _ROUNDING)", "high * (1 - _ROUNDING)",
        "tests/privacy/test_filter.py::test_the_least_mu_is_on_the_side_of_the_search_that_covers"),
    bug("curve of a study taken at the better end of a piece", "choral.privacy.cover:least_mu",
        "study, at = deltas[:-1], epsilons[1:]", "study, at = deltas[1:], epsilons[:-1]",
        "tests/privacy/test_filter.py::test_a_covering_gaussian_is_nowhere_better_than_the_study"),
    bug("site alone promised all that others have", "choral.planner.worth_joining:Prospect._advantage_over",
        "1 / (self.devices * self.rows)", "0",
        "tests/run/test_verdicts.py::"
        "test_n_sites_together_have_n_times_the_rows_of_one_and_can_gain_no_more_than_that"),
]  # fmt: skip

# What is proved about noise, rounding and lengths.
PROOFS: list[Mutant] = []

# Encoders and models of others.
ENCODERS: list[Mutant] = []

# What was shown is what is approved; screens of a site.
APPROVALS: list[Mutant] = []

# Frames that the server signs, answers that a card signs, and the gate.
SPEAKERS: list[Mutant] = []

# Pages, verdicts, and what `choral verify` compares.
PAGES: list[Mutant] = []

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]
