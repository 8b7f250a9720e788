"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug

# Reading: a record's features are a function of that record and of public numbers.
READING: list[Mutant] = []

# Answers to questions, and their intervals.
ANSWERS: list[Mutant] = []

# Ranges of the codec, reserves of δ, noises and how they are found.
PRICES: list[Mutant] = []

# What is proved about noise, rounding and lengths.
INTEGERS = "tests/privacy/test_mechanisms_integer_noise.py::"
COVER = "choral.privacy.cover:"
LOST = "tests/privacy/test_losses.py::test_what_transforms_lose_is_far_below_what_is_kept_for_it_in_plans_of_any_size"
PROOFS: list[Mutant] = [
    bug(
        "whole updates with noise as narrow as their Gaussian",
        "choral.secagg.codec:Codec._strict",
        "SMOOTHING if plan.smoothed else 0",
        "SMOOTHING if plan.once else 0",
        INTEGERS + "test_every_codec_leaves_room_for_what_the_gaussian_is_rounded_with",
    ),
    bug(
        "an older plan's whole noise counted as a Gaussian",
        "choral.plan:Plan.completed",
        "{'codec': 1, **values}",
        "dict(values)",
        "tests/privacy/test_golden.py::test_a_plan_keeps_its_digest_its_charges_and_the_rounds_that_limits_allow",
    ),
    bug(
        "a pull that the codec counts twice",
        "choral.secagg.codec:longest",
        "plan.counted_time * plan.clip * (1 + MOST_ROUNDING)",
        "plan.counted_time * plan.clip * (1 + MOST_ROUNDING) * plan.counted_time / plan.local_time",
        "tests/learning/test_once.py::"
        "test_with_one_dither_one_record_moves_the_integers_by_no_more_than_the_codec_counts_on",
    ),
    bug(
        "only the columns of a model are rounded",
        "choral.learning.once:LocalWork.rounding",
        "(d * outputs + moves) * v / (rate * self.clip)",
        "(d + moves) * v / (rate * self.clip)",
        "tests/learning/test_once.py::test_the_rounding_of_a_step_counts_every_number_of_the_model",
    ),
    bug(
        "transforms that lose nothing",
        "choral.privacy.losses:Tilted._lost",
        "math.sqrt(squares) * self.error + math.exp(_TAIL) * most",
        "math.exp(_TAIL) * most",
        LOST,
    ),
    bug(
        "one step's transform pays for all steps",
        "choral.privacy.losses:Composed.tilted",
        "lost + count * error",
        "lost + error",
        LOST,
    ),
    bug(
        "losses rounded down to the grid",
        "choral.privacy.losses:of_step",
        "probabilities[1:] += upper",
        "probabilities[1:] += upper * (1 - 1e-06)",
        "tests/privacy/test_losses.py::test_no_point_of_a_steps_curve_lies_above_that_of_its_losses_on_the_grid",
    ),
    bug(
        "a study compared with its price at the wrong ends",
        COVER + "least_mu",
        "study, at = (deltas[:-1], epsilons[1:])",
        "study, at = (deltas[1:], epsilons[:-1])",
        "tests/privacy/test_cover.py::"
        "test_the_least_mu_itself_covers_every_point_of_the_curve_and_is_no_less_than_needed",
    ),
    bug(
        "a price that is rounded down",
        COVER + "least_mu",
        "min(cap, high * (1 + _ROUNDING))",
        "min(cap, low * (1 - _ROUNDING))",
        "tests/privacy/test_cover.py::"
        "test_the_least_mu_itself_covers_every_point_of_the_curve_and_is_no_less_than_needed",
    ),
]

# Encoders and models of others.
ENCODERS: list[Mutant] = []

# What was shown is what is approved; screens of a site.
APPROVALS: list[Mutant] = []

# Frames that the server signs, answers that a card signs, and the gate.
SPEAKERS: list[Mutant] = []

# Pages, verdicts, and what `choral verify` compares.
PAGES: list[Mutant] = []

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]
