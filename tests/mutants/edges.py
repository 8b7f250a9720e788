"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug

# Reading: a record's features are a function of that record and of public numbers.
FORMAT, READERS, LEARNT = "choral.learning.columns:Format.", "choral.learning.reading:", "choral.learning.columns:"
ALONE = "tests/learning/test_one_row_alone.py::"
CSV_CELL = ALONE + "test_a_replaced_cell_of_a_csv_file_changes_no_other_row"
FRAME_CELL = ALONE + "test_a_replaced_cell_of_a_data_frame_changes_no_other_row_whatever_the_types_become"
AUDITED = "tests/audit/test_reading.py::test_no_other_row_is_read_differently_and_the_claim_survives"
READING: list[Mutant] = [
    bug(
        "the order of dates by all rows of a column",
        FORMAT + "days",
        "self.day",
        "replace(self, dates=__import__('choral.learning.dates', fromlist=['order_of']).order_of("
        "[cell for cell in cells if isinstance(cell, str)])).day",
        AUDITED,
    ),
    bug(
        "the encoding by all bytes of a file",
        READERS + "resolved",
        "_guessed_encoding(path) if guess else UTF_8",
        "_guessed_encoding(path)",
        ALONE + "test_one_byte_changes_no_other_row",
    ),
    bug(
        "a delimiter by the first rows",
        READERS + "_delimiter_of",
        "len(next(read_rows(path, delimiter, encoding), []))",
        "len(list(islice(read_rows(path, delimiter, encoding), 3))[-1])",
        "tests/learning/test_reading.py::test_the_delimiter_is_found_in_the_header_line_and_no_row_has_a_part_in_it",
    ),
    bug(
        "what is missing by whether another cell is strange",
        LEARNT + "Categorical.codes",
        "faults.refuse()",
        "if self.missing is not None and (codes == self._places.get(self.other, STRANGE)).any():\n"
        "    empty = [row for row, cell in enumerate(cells) if written.is_missing(cell)]\n"
        "    codes[empty] = self._places[self.missing]\n"
        "faults.refuse()\n",
        CSV_CELL,
    ),
    bug(
        "marks inside cells that are not quoted",
        READERS + "read_rows",
        "not _quoted_rows(delimiter).fullmatch(''.join(lines))",
        "False",
        "tests/learning/test_reading.py::test_a_quotation_mark_inside_a_cell_that_is_not_quoted_is_refused",
    ),
    bug(
        "an encoding with a state",
        LEARNT + "check_encoding",
        "found.startswith(_WITH_STATE)",
        "False",
        ALONE + "test_an_encoding_in_which_a_row_changes_how_the_next_are_read_is_not_known",
    ),
    bug(
        "names that became floats",
        LEARNT + "is_inexact",
        "isinstance(cell, float) and abs(cell) >= _EXACT",
        "False",
        ALONE + "test_a_name_that_became_a_float_is_refused",
    ),
    bug(
        "a level by the type of its column",
        LEARNT + "level_of",
        "isinstance(cell, float) and cell.is_integer()",
        "False",
        FRAME_CELL,
    ),
    bug(
        "whole numbers rounded once where others are rounded twice",
        "choral.learning.arrays:by_way_of_float64",
        "found.dtype.kind in 'iu'",
        "False",
        ALONE + "test_a_replaced_row_of_arrays_changes_no_other_whatever_their_type_becomes",
    ),
    bug(
        "an approval that leaves its format open",
        "choral.deploy.site:Home.approve",
        "held.written",
        "written",
        "tests/deploy/test_site.py::test_a_site_says_how_its_own_file_is_written_and_the_agent_keeps_to_it",
    ),
]

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
        "choral.plan:Plan.smoothed",
        "self.law == 'discrete_gaussian' and self.codec > 1",
        "self.law == 'discrete_gaussian'",
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
