"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug
from tests.mutants.planting import Change

OPERATORS, ON_OPERATORS = "choral.learning.onnx_operators:", "tests/learning/test_onnx_operators.py::"
ON_ENCODERS = "tests/learning/test_encoder.py::"

# Reading: a record's features are a function of that record and of public numbers.
READING: list[Mutant] = []

# Answers to questions, and their intervals.
ANSWERS: list[Mutant] = []

# Ranges of the codec, reserves of δ, noises and how they are found.
PRICES: list[Mutant] = []

# What is proved about noise, rounding and lengths.
PROOFS: list[Mutant] = []

# Encoders and models of others.
ENCODERS: list[Mutant] = [
    bug(
        "an operator of an encoder that draws random numbers",
        OPERATORS + "check_operators",
        "not one.allowed",
        "False",
        ON_ENCODERS + "test_a_graph_that_draws_random_numbers_is_refused_before_it_runs",
    ),
    bug(
        "parts of an encoder that nobody knows",
        OPERATORS + "_Reader.message",
        "wire not in form.wires(number)",
        "False",
        ON_OPERATORS + "test_what_another_program_could_read_differently_is_refused",
    ),
    bug(
        "tags above 32 bits in an encoder",
        OPERATORS + "_Reader.message",
        "tag, at = self.number(at, end, _MOST_OF_TAG)",
        "tag, at = self.number(at, end, _MOST_OF_NUMBER)\ntag %= _MOST_OF_TAG",
        ON_OPERATORS + "test_operators_behind_tags_above_32_bits_are_refused_though_onnxruntime_runs_them",
    ),
    bug(
        "a second graph in an encoder",
        OPERATORS + "_Reader.message",
        "number in found and (number in form.scalars or number in form.part)",
        "False",
        ON_OPERATORS + "test_what_another_program_could_read_differently_is_refused",
    ),
    bug(
        "branches of an encoder",
        OPERATORS + "_Reader.message",
        "number in form.refused",
        "number in form.refused and form is not _ATTRIBUTE",
        ON_OPERATORS + "test_parts_that_an_encoder_does_not_need_are_refused",
        Change(
            OPERATORS + "_Reader.message",
            "wire not in form.wires(number)",
            "wire not in form.wires(number) and number not in form.refused",
        ),
    ),
    bug(
        "an encoder that reads other files",
        OPERATORS + "_Reader.message",
        "_TENSOR_ELSEWHERE in found or any(found.get(_TENSOR_LOCATION, ()))",
        "False",
        ON_OPERATORS + "test_numbers_outside_of_the_file_are_refused_wherever_a_tensor_may_stand",
    ),
    bug(
        "an encoder that is compared in one order",
        "choral.learning.encoder:Encoder.embed",
        "one.tobytes() != other.tobytes()",
        "False",
        ON_ENCODERS + "test_a_graph_that_remembers_rows_is_refused_since_all_rows_are_compared_in_two_orders",
    ),
    bug(
        "an onnxruntime that reads any file",
        "choral.learning.encoder:_onnxruntime",
        "found < _LEAST_VERSION",
        "False",
        ON_ENCODERS + "test_a_version_of_onnxruntime_that_reads_other_files_is_refused",
    ),
]

# What was shown is what is approved; screens of a site.
APPROVALS: list[Mutant] = []

# Frames that the server signs, answers that a card signs, and the gate.
SPEAKERS: list[Mutant] = []

# Pages, verdicts, and what `choral verify` compares.
PAGES: list[Mutant] = []

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]
