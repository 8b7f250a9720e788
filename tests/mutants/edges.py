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
ASKED = "choral.asking."
FIFTH = "tests/asking/test_empty_cells.py::test_intervals_hold_the_truth_where_a_fifth_of_the_cells_is_empty"
ANSWERS: list[Mutant] = [
    bug(
        "length of a mean without its rounding",
        ASKED + "means:ColumnMean.summand",
        "2 * UNIT + 1",
        "2 * UNIT",
        "tests/asking/test_means.py::test_the_farthest_of_all_pairs_is_within_the_claim_and_more_than_two_units_apart",
    ),
    bug(
        "a tie on a quantile's edge",
        ASKED + "quantiles:Distribution.summand.total",
        'np.searchsorted(self.edges[1:-1], found, side="left")',
        'np.searchsorted(self.edges[1:-1], found, side="right")',
        "tests/asking/test_quantiles.py::test_a_number_on_an_edge_is_at_or_below_it",
    ),
    bug(
        "a mean divided by all rows",
        ASKED + "means:ColumnMean._moments",
        "self.length == 2",
        "self.keeps.is_everything",
        FIFTH,
    ),
    bug(
        "quantiles of all rows",
        ASKED + "quantiles:Distribution.summand.total",
        "np.where(np.isnan(found), self.bins, place)",
        "place",
        FIFTH,
    ),
    bug(
        "a constant of training in a question",
        ASKED + "cells:bounded",
        "np.clip(numbers(rows, column.name), column.low, column.high)",
        "np.clip(np.nan_to_num(numbers(rows, column.name), nan=column.missing), column.low, column.high)",
        "tests/run/test_inquiry.py::"
        "test_empty_cells_are_left_out_and_counted_whatever_constant_training_takes_for_them",
    ),
    bug(
        "an event that nobody knows is none",
        ASKED + "survival:Survival.lives",
        "known & ~np.isnan(time)",
        "~np.isnan(time)",
        "tests/asking/test_survival.py::test_every_row_has_one_cell",
    ),
    bug(
        "who is watched to the end leaves in the last bin",
        ASKED + "survival:Survival.summand.places",
        '("left", "right")',
        '("left", "left")',
        "tests/asking/test_survival.py::test_who_is_watched_to_the_end_or_beyond_the_declared_range_leaves_in_no_bin",
    ),
    bug(
        "a count of rows longer than a model's sensitivity",
        ASKED + "rounds:RowCounter.weight",
        "math.isqrt(3 * self.longest**2)",
        "2 * self.longest",
        "tests/asking/test_rounds.py::test_no_two_rows_are_farther_apart_than_the_claim_at_any_state",
    ),
    bug(
        "a count of rows longer than that of moments",
        ASKED + "moments:Moments.square",
        "5 * len(self.columns) * UNIT // 4",
        "2 * len(self.columns) * UNIT",
        "tests/asking/test_moments.py::test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it",
    ),
    bug(
        "numbers of a question read without the decimal sign",
        ASKED + "cells:numbers.read",
        "rows.written.numbers(rows.cells(name))",
        "type(rows.written)().numbers(rows.cells(name))",
        "tests/run/test_inquiry.py::test_numbers_with_decimal_commas_are_read_as_training_reads_them",
    ),
    bug(
        "questions of another version answered",
        ASKED + "question:Question.require_current",
        "self.version != VERSION",
        "False",
        "tests/run/test_inquiry.py::test_a_question_of_the_first_version_is_not_asked_and_nobody_is_charged",
    ),
]

# Ranges of the codec, reserves of δ, noises and how they are found.
PRICES: list[Mutant] = []

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
