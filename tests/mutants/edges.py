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
