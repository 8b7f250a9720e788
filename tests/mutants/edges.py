"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug
from tests.mutants.planting import Change

OPERATORS, ON_OPERATORS = "choral.tables.encoder:", "tests/tables/test_onnx_operators.py::"
ON_ENCODERS = "tests/tables/test_encoder.py::"
SPARSE = (
    "tests/run/test_against.py::"
    "test_every_turn_of_a_sparse_graph_takes_its_share_of_a_small_delta_in_noise_and_in_statements"
)

SITE, COMPARING, OWNERSHIP = "choral.deploy.home:", "choral.deploy.approving:", "choral.deploy.ownership:"
SWAPPED, OWNED = "tests/attacks/test_swapped_files.py::", "tests/deploy/test_ownership.py::"

# Reading: a record's features are a function of that record and of public numbers.
READ, FORMAT = "choral.tables.cells:", "choral.tables.cells:Format."
READERS, DECLARED = "choral.tables.reading:", "choral.tables.columns:"
ALONE = "tests/tables/test_one_row_alone.py::"
CSV_CELL = ALONE + "test_a_replaced_cell_of_a_csv_file_changes_no_other_row"
FRAME_CELL = ALONE + "test_a_replaced_cell_of_a_data_frame_changes_no_other_row_whatever_the_types_become"
AUDITED = "lab/tests/audit/test_two_files.py::test_no_other_row_is_read_differently_and_the_claim_survives"
READING: list[Mutant] = [
    bug(
        "the order of dates by all rows of a column",
        FORMAT + "days",
        "self.day",
        "replace(self, dates=order_of([cell for cell in cells if isinstance(cell, str)])).day",
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
        "tests/tables/test_reading.py::test_the_delimiter_is_found_in_the_header_line_and_no_row_has_a_part_in_it",
    ),
    bug(
        "what is missing by whether another cell is strange",
        DECLARED + "Categorical.codes",
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
        "tests/tables/test_reading.py::test_a_quotation_mark_inside_a_cell_that_is_not_quoted_is_refused",
    ),
    bug(
        "an encoding with a state",
        READ + "check_encoding",
        "found.startswith(_WITH_STATE)",
        "False",
        ALONE + "test_an_encoding_in_which_a_row_changes_how_the_next_are_read_is_not_known",
    ),
    bug(
        "names that became floats",
        READ + "is_inexact",
        "isinstance(cell, float) and abs(cell) >= _EXACT",
        "False",
        ALONE + "test_a_name_that_became_a_float_is_refused",
    ),
    bug(
        "a level by the type of its column",
        READ + "level_of",
        "isinstance(cell, float) and cell.is_integer()",
        "False",
        FRAME_CELL,
    ),
    bug(
        "whole numbers rounded once where others are rounded twice",
        "choral.tables.arrays:by_way_of_float64",
        "np.issubdtype(found.dtype, np.integer)",
        "False",
        ALONE + "test_a_replaced_row_of_arrays_changes_no_other_whatever_their_type_becomes",
    ),
    bug(
        "numbers of NumPy in a column of objects",
        READERS + "_plain",
        "isinstance(cell, np.number | np.bool_)",
        "False",
        ALONE + "test_numbers_of_numpy_are_read_alike_in_a_column_of_numbers_and_in_one_of_objects",
    ),
    bug(
        "whole labels stand for places next to classes that are numbers",
        "choral.tables.arrays:label_cells",
        "any(name.lstrip('-').isdigit() for name in classes)",
        "all(name.lstrip('-').isdigit() for name in classes)",
        ALONE + "test_a_replaced_row_of_arrays_changes_no_other_whatever_their_type_becomes",
    ),
    bug(
        "kept embeddings of cells that were read in another way",
        "choral.deploy.home:KeepingEncoder.path_for",
        "repr(table.written)",
        "''",
        "tests/deploy/test_embeddings.py::test_cells_that_are_read_in_another_way_have_their_own_embeddings",
    ),
    bug(
        "persons numbered by their names",
        "choral.tables.records:in_order",
        "np.sort(first), np.argsort(np.argsort(first))[code.ravel()]",
        "first, code.ravel()",
        "tests/tables/test_owners.py::test_a_person_in_the_place_of_another_changes_the_device_of_nobody_else",
    ),
    bug(
        "columns that only questions read are not approved",
        "choral.run.agreement:Agreement.digest_of",
        "(*self.reads, self.target.name, *person, *asked)",
        "(*self.reads, self.target.name, *person)",
        "tests/deploy/test_asking.py::test_a_column_that_only_questions_read_is_approved_with_the_table",
    ),
    bug(
        "an approval that leaves its format open",
        "choral.deploy.approving:accept",
        "held.written",
        "OPEN",
        "tests/deploy/test_site.py::test_a_site_says_how_its_own_file_is_written_and_the_agent_keeps_to_it",
    ),
]

# Answers to questions, and their intervals.
ASKED = "choral.asking."
FIFTH = "tests/asking/test_empty_cells.py::test_intervals_hold_the_truth_where_a_fifth_of_the_cells_is_empty"
ANSWERS: list[Mutant] = [
    bug(
        "length of a mean without its rounding",
        ASKED + "moments:ColumnMean.summand",
        "2 * MEAN_UNIT + 1",
        "2 * MEAN_UNIT",
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
        ASKED + "moments:ColumnMean._moments",
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
        ASKED + "fitting:RowCounter.weight",
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
PRICES: list[Mutant] = [
    bug("range of the codec for batches of the mean size", "choral.core.mechanisms:Mechanism.proved_range",
        "plan.widest_batch", "plan.batch",
        "tests/learning/test_aligned_gradients.py::"
        "test_no_update_that_a_device_draws_is_refused_though_all_of_its_gradients_are_aligned"),
    bug("rounded coins for which nothing is kept of a small delta", "choral.accounting.reserves:with_reserves",
        "max(usual, needed)", "usual",
        "tests/privacy/test_calibrate.py::"
        "test_what_is_kept_of_delta_follows_it_and_pays_for_the_rounding_of_all_coins"),
    bug("coins and full batches paid for by the same share of delta", "choral.core.plan:widest",
        "(1 - MOST_ROUNDED) * overflow", "overflow",
        "tests/learning/test_batches.py::"
        "test_where_coins_take_most_of_the_reserve_the_rest_pays_for_full_batches"),
    bug("updates out of range in no charge", "choral.core.entries:UploadCosts.charged_delta",
        "self.plan.overflow + self.plan.out_of_range", "self.plan.overflow",
        "tests/run/test_one_calibration.py::test_a_run_at_a_billionth_is_charged_and_verified"),
    bug("device with too many rows asked and charged", "choral.run.study:check_rows", "rows > MOST_ROWS", "False",
        "tests/run/test_inquiry.py::"
        "test_a_device_with_more_rows_than_an_answer_has_room_for_is_refused_before_anybody_pays"),
    bug("turn of a sparse graph free of charge", "choral.core.entries:UploadCosts.sum_event",
        "self.charged_delta(1) + self.secure.failure", "self.charged_delta(1)",
        "tests/run/test_against.py::test_a_sparse_graph_takes_its_own_share_of_delta"),
    bug("turns of a sparse graph in no statement", "choral.accounting.costs:Costs.epsilon_of_sums",
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
    bug("least mu rounded down", "choral.core.balance:least_mu", "high * (1 + _ROUNDING)", "high * (1 - _ROUNDING)",
        "tests/privacy/test_filter.py::test_the_least_mu_is_on_the_side_of_the_search_that_covers"),
    bug("curve of a study taken at the better end of a piece", "choral.core.balance:least_mu",
        "study, at = deltas[:-1], epsilons[1:]", "study, at = deltas[1:], epsilons[:-1]",
        "tests/privacy/test_filter.py::test_a_covering_gaussian_is_nowhere_better_than_the_study"),
    bug("site alone promised all that others have", "choral.planner.prospect:Prospect._advantage_over",
        "1 / (self.devices * self.rows)", "0",
        "tests/run/test_verdicts.py::"
        "test_n_sites_together_have_n_times_the_rows_of_one_and_can_gain_no_more_than_that"),
]  # fmt: skip

# What is proved about noise, rounding and lengths.
INTEGERS = "tests/privacy/test_mechanisms_integer_noise.py::"
COVER = "choral.core.balance:"
LOST = (
    "tests/privacy/test_loss_grid.py::test_what_transforms_lose_is_far_below_what_is_kept_for_it_in_plans_of_any_size"
)
PROOFS: list[Mutant] = [
    bug(
        "whole updates with noise as narrow as their Gaussian",
        "choral.core.codec:Codec._strict",
        "SMOOTHING if own.smooths(plan) else 0",
        "SMOOTHING if plan.once else 0",
        INTEGERS + "test_every_codec_leaves_room_for_what_the_gaussian_is_rounded_with",
    ),
    bug(
        "an older plan's whole noise counted as a Gaussian",
        "choral.core.mechanisms:Mechanism.smooths",
        "plan.law in OF_GAUSSIANS and plan.codec > 1",
        "plan.law in OF_GAUSSIANS",
        "tests/privacy/test_golden.py::test_a_plan_keeps_its_digest_its_charges_and_the_rounds_that_limits_allow",
    ),
    bug(
        "a pull that the codec counts twice",
        "choral.core.mechanisms:NoiseOnce.longest",
        "self.counted_time(plan) * plan.clip * (1 + MOST_ROUNDING)",
        "self.counted_time(plan) * plan.clip * (1 + MOST_ROUNDING) * self.counted_time(plan) / plan.local_time",
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
        "choral.core.poisson:Tilted.lost",
        "math.sqrt(squares) * self.error + 2 * math.exp(_TAIL) * most",
        "2 * math.exp(_TAIL) * most",
        LOST,
    ),
    bug(
        "one step's transform pays for all steps",
        "choral.core.poisson:Composed.tilted",
        "lost + count * error",
        "lost + error",
        LOST,
    ),
    bug(
        "moments without what floats lose",
        "choral.core.poisson:renyi",
        "4 * UNIT * (2 * order - 1)",
        "0 * UNIT * (2 * order - 1)",
        "tests/privacy/test_poisson.py::test_moments_of_a_step_are_never_below_the_exact_ones",
    ),
    bug(
        "losses rounded down to the grid",
        "choral.core.poisson:of_step",
        "probabilities[1:] += upper",
        "probabilities[1:] += upper * (1 - 1e-06)",
        "tests/privacy/test_loss_grid.py::test_no_point_of_a_steps_curve_lies_above_that_of_its_losses_on_the_grid",
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
        "choral.tables.encoder:Encoder.embed",
        "one.tobytes() != other.tobytes()",
        "False",
        ON_ENCODERS + "test_a_graph_that_remembers_rows_is_refused_since_all_rows_are_compared_in_two_orders",
    ),
    bug(
        "an onnxruntime that reads any file",
        "choral.tables.encoder:_onnxruntime",
        "found < _LEAST_VERSION",
        "False",
        ON_ENCODERS + "test_a_version_of_onnxruntime_that_reads_other_files_is_refused",
    ),
]

# What was shown is what is approved; screens of a site.
APPROVALS: list[Mutant] = [
    bug(
        "a study is read again after the yes",
        COMPARING + "accept",
        "study, policy, held = (shown.study, shown.policy, shown.held)",
        "study, policy, held = (Agreement.read(shown.file), shown.policy, shown.held)",
        SWAPPED + "test_a_study_that_is_swapped_while_it_is_on_the_screen_is_not_approved",
        Change(COMPARING + "accept", "config.read_text(shown.file) != shown.text", "False"),
        Change(COMPARING + "accept", "_preview(home, study, policy, held, shown.code) != shown.preview", "False"),
    ),
    bug(
        "a ledger that has changed under the screen",
        COMPARING + "accept",
        "_preview(home, study, policy, held, shown.code) != shown.preview",
        "False",
        SWAPPED + "test_what_the_screen_said_of_the_ledger_must_still_hold",
    ),
    bug(
        "a yes for a study that nobody compared",
        COMPARING + "require_compared",
        "_drawn_number(home / NUMBERS).study == study.digest.hex()",
        "_drawn_number(home / NUMBERS).study",
        SWAPPED + "test_yes_without_a_question_takes_the_study_that_was_compared_and_no_other",
    ),
    bug(
        "numbers of another study count as typed",
        COMPARING + "drawn_for",
        "known = DrawnNumber(study=now, device=device, others=others, number=number)",
        "known = msgspec.structs.replace(known, study=now) if known else DrawnNumber("
        "study=now, device=device, others=others, number=number)",
        "tests/deploy/test_comparing.py::test_what_was_typed_is_kept_until_another_study_is_read_or_the_owner_says_no",
    ),
    bug(
        "a public table that is kept unchecked",
        "choral.deploy.enrolment:keep_test",
        "os.replace(copy, folder / TEST.replace('.*', ''.join(table.suffixes)))",
        "os.replace(table, folder / TEST.replace('.*', ''.join(table.suffixes)))",
        SWAPPED + "test_the_public_table_that_is_kept_is_the_one_that_was_checked",
    ),
    bug(
        "a home that others can exchange",
        OWNERSHIP + "check_ways",
        "place in (written, real) or not found.st_mode & stat.S_ISVTX",
        "place in (written, real)",
        OWNED + "test_a_home_below_a_folder_in_which_others_may_rename_is_refused_unless_it_has_the_sticky_bit",
    ),
    bug(
        "a home that others can write to",
        OWNERSHIP + "check_ways",
        "place in (written, real) or not found.st_mode & stat.S_ISVTX",
        "not found.st_mode & stat.S_ISVTX",
        OWNED + "test_a_home_in_which_others_may_write_is_refused_before_anything_is_put_there",
    ),
    bug(
        "a passphrase that others can change",
        OWNERSHIP + "check_secret",
        "_others_may(file.stat(), _READ_OR_WRITE)",
        "_others_may(file.stat(), 36)",
        OWNED + "test_a_passphrase_that_others_can_read_or_change_is_refused",
    ),
    bug(
        "a turn that is paid for on a full disk",
        "choral.core.vault:Vault.room",
        "len(self._sealed_bytes(expected)) + GROWTH",
        "0",
        "tests/protocol/test_vault.py::test_a_vault_without_room_says_so_before_anything_else_happens",
    ),
    bug(
        "a turn that is paid for without room for its keys",
        "choral.core.device:Device._pay",
        "self.vault.room(memory)",
        "self.vault.room()",
        "tests/protocol/test_device.py::test_there_is_room_for_the_keys_with_all_peers_before_anything_is_charged",
    ),
    bug(
        "charges of a round that nobody counts",
        "choral.core.balance:Balance.count",
        "[(charge.plan, None), (charge.plan, charge.round)]",
        "[(charge.plan, None)]",
        "tests/attacks/test_deployed_sites.py::test_a_crash_before_the_vault_has_noted_a_charge_allows_no_third_one",
    ),
]

# Frames that the server signs, answers that a card signs, and the gate.
ENVELOPE, FORGED = "choral.core.signed:", "tests/attacks/test_forged_frames.py::"
HEADS, GATE = "tests/protocol/test_envelope.py::", "tests/backends/test_flower_gate.py::"
SPEAKERS: list[Mutant] = [
    bug(
        "a frame that nobody signed is answered",
        "choral.deploy.agent:Agent.answer",
        "self.listener.opened(asked)",
        "asked",
        FORGED + "test_a_forged_end_of_a_study_is_refused_by_name_and_the_study_goes_on",
    ),
    bug(
        "a frame for another site is answered",
        ENVELOPE + "Listener.opened",
        "device != self.device",
        "False",
        HEADS + "test_a_frame_of_anybody_else_or_for_anybody_else_is_refused",
    ),
    bug(
        "a frame of another study is answered",
        ENVELOPE + "Listener.opened",
        "study != self.study",
        "False",
        FORGED + "test_a_frame_for_another_site_or_study_and_one_of_another_key_are_refused",
    ),
    bug(
        "a frame counts twice",
        ENVELOPE + "Listener.opened",
        "counter <= (last := self.heard())",
        "(last := self.heard()) < 0",
        HEADS + "test_a_frame_of_the_server_is_opened_once_and_a_later_one_after_it",
    ),
    bug(
        "a site forgets what it has heard",
        "choral.deploy.agent:Agent.__init__",
        "vault.change(heard=counter)",
        "None",
        FORGED + "test_a_frame_counts_once_also_after_the_site_was_started_again",
    ),
    bug(
        "a server counts from one again",
        "choral.deploy.serving:speaker_of",
        "max(before + 1, int(time.time()))",
        "1",
        FORGED + "test_a_server_that_is_started_again_or_restored_uses_no_counter_twice",
    ),
    bug(
        "an answer that nobody signed counts",
        "choral.backends.wire:Spoken.exchange",
        "answer_in(reply, heads[number], self._bundles[number])",
        "memoryview(reply)[72:]",
        FORGED + "test_an_answer_that_its_device_did_not_sign_is_missing_and_names_nobody",
    ),
    bug(
        "an answer fits every request",
        "choral.server.speaker:answer_in",
        "head",
        "b''",
        HEADS + "test_an_answer_counts_for_its_request_and_of_its_device_alone",
        Change(ENVELOPE + "answered", "bytes(memoryview(request)[:REQUEST_HEAD])", "b''"),
    ),
    bug(
        "an early end without a reason is signed",
        "choral.core.device:Device._close",
        "message.turn.round >= self._rounds",
        "True",
        FORGED + "test_a_site_signs_no_end_before_the_last_round_without_a_reason",
    ),
    bug(
        "a reason without a letter is one",
        "choral.core.messages:CloseEarly.says_why",
        "letter.isalnum()",
        "True",
        FORGED + "test_a_reason_that_says_nothing_is_none",
    ),
    bug(
        "a last round that failed counts as done",
        "choral.deploy.serving:Deployed.ended",
        "len(run.lines) < self.study.plan.rounds",
        "self._last_turn.round < self.study.plan.rounds",
        FORGED + "test_a_run_whose_last_round_was_tried_and_not_done_has_ended_early_on_the_screens_of_its_sites",
    ),
    bug(
        "a server without ML-KEM blames its devices",
        "choral.server.key_round:KeyRound.__init__",
        "require_available()",
        "None",
        FORGED + "test_a_server_without_ml_kem_ends_before_its_first_exchange_and_blames_nobody",
    ),
    bug(
        "a node may push what is no reply",
        "choral.backends.flower.gate:Replies._is_reply",
        "self._replied.get(said.reply_to_message_id) not in ('', said.message_id)",
        "False",
        GATE + "test_a_node_pushes_replies_to_what_it_was_handed_and_nothing_else",
    ),
    bug(
        "a node may speak for the server",
        "choral.backends.flower.gate:Replies._is_reply",
        "way != (request.node.node_id, SERVER)",
        "False",
        GATE + "test_a_node_pushes_replies_to_what_it_was_handed_and_nothing_else",
    ),
    bug(
        "names of objects as long as a node likes",
        "choral.backends.flower.gate:Replies._is_reply",
        "max(map(len, (said.message_id, *objects))) > _LONGEST_NAME",
        "False",
        GATE + "test_what_a_node_may_push_is_bounded_in_number_and_bytes",
    ),
    bug(
        "a reply may be as long as it likes",
        "choral.backends.flower.gate:Replies._is_piece",
        "sum(sizes.values()) <= self._most_bytes",
        "True",
        GATE + "test_what_a_node_may_push_is_bounded_in_number_and_bytes",
    ),
    bug(
        "strangers take the places of sites",
        "choral.backends.flower.gate:Places.take",
        "network in self._known",
        "False",
        GATE + "test_half_of_the_places_are_for_networks_from_which_a_node_has_signed_in",
    ),
    bug(
        "a crowd pushes out who comes alone",
        "choral.backends.flower.gate:Places.take",
        "other == largest",
        "True",
        GATE + "test_the_oldest_line_of_the_largest_crowd_makes_room",
    ),
    bug(
        "a silent line gets an object of TLS",
        "choral.backends.flower.gate:Gate._attend",
        "await _hello(connection)",
        "pass",
        GATE + "test_a_line_that_says_nothing_costs_no_object_of_tls",
    ),
]

# Pages, verdicts, and what `choral verify` compares.
SITE_PAGES, RUN_PAGES = "tests/report/test_site_page.py::", "tests/report/test_pages.py::"
VERIFY, VERIFIED = "choral.report.verify:", "tests/report/test_verify.py::"
TERMS = VERIFIED + "test_a_ledger_whose_charges_name_another_adversary_rule_or_adjacency_is_found"
PROBING = "choral.probes.round:"
WATCHED = (
    "tests/attacks/test_probes.py::"
    "test_a_false_answer_along_the_watched_direction_alone_fails_the_check_and_names_its_sender"
)
PAGES: list[Mutant] = [
    bug(
        "a site's page compared by its data",
        "choral.report.site_page:differences",
        "wrong or page == again",
        "wrong or not earlier",
        SITE_PAGES + "test_an_edited_page_differs_though_its_data_are_untouched",
    ),
    bug(
        "a site's page without failed attempts",
        "choral.deploy.status:claimed_of_the_run",
        "np.maximum(rounds[own], paid)",
        "rounds[own]",
        SITE_PAGES + "test_a_site_that_paid_for_attempts_that_failed_claims_what_they_cost",
    ),
    bug(
        "words of a report that are not compared",
        "choral.report.pages:check_pages",
        "writer == WRITER",
        "False",
        RUN_PAGES + "test_an_edited_page_is_refused",
    ),
    bug(
        "an older page that hides",
        "choral.report.pages:check_pages",
        'name.endswith(".html") and (odd := never_written(there, as_written))',
        "(odd := '')",
        RUN_PAGES + "test_a_page_of_another_version_shows_no_other_figure_or_term_and_has_nothing_that_hides_or_runs",
    ),
    bug(
        "a page under the name of any version",
        "choral.report.pages:impossible",
        "named[1] < form",
        "False",
        RUN_PAGES + "test_a_page_of_this_versions_run_passes_under_no_other_versions_name",
    ),
    bug(
        "any style on an older page",
        "choral.report.pages:never_written",
        "_digest(one) not in {*known, *_STYLES}",
        "False",
        RUN_PAGES + "test_a_page_of_another_version_shows_no_other_figure_or_term_and_has_nothing_that_hides_or_runs",
    ),
    bug(
        "terms of an older page that are not compared",
        "choral.report.pages:strange_terms",
        "sorted(_terms(text) - _terms(expected))",
        "[]",
        RUN_PAGES + "test_a_page_of_another_version_shows_no_other_figure_or_term_and_has_nothing_that_hides_or_runs",
    ),
    bug(
        "adjacency of a charge unread",
        VERIFY + "_ledgers",
        "(charge.rule, charge.adversary, charge.adjacency) != terms",
        "(charge.rule, charge.adversary) != terms[:2]",
        TERMS,
    ),
    bug(
        "rule of a charge unread",
        VERIFY + "_ledgers",
        "(charge.rule, charge.adversary, charge.adjacency) != terms",
        "(charge.adversary, charge.adjacency) != terms[1:]",
        TERMS,
    ),
    bug(
        "a limit on sums unread",
        VERIFY + "_ledgers",
        "(ledger.limit, ledger.sum_epsilon) != costs.ledger_limits(number)",
        "ledger.limit != costs.ledger_limits(number)[0]",
        VERIFIED + "test_a_ledger_with_another_limit_on_what_sums_show_is_found",
    ),
    bug(
        "a charge of another plan unread",
        VERIFY + "_ledgers",
        "any(charge.plan not in (costs.plan.digest, asked) for charge in ledger.balance.charges)",
        "False",
        VERIFIED + "test_a_charge_of_another_plan_is_found",
    ),
    bug(
        "names that are not those of the study",
        VERIFY + "_kind",
        "described != (study.digest.hex(), study.plan.digest, study.file.job, names)",
        "described[:3] != (study.digest.hex(), study.plan.digest, study.file.job)",
        VERIFIED + "test_a_device_under_another_name_than_in_the_study_is_found",
    ),
    bug(
        "rounds done unread",
        VERIFY + "_rounds",
        "result.rounds_done == done",
        "True",
        VERIFIED + "test_another_number_of_rounds_in_the_result_is_found",
    ),
    bug(
        "a watched direction outside the sum check",
        PROBING + "AskedProbes.belong_to",
        "adds_up({number: self.answers[number] for number in included}, self.expected(integers))",
        "adds_up({n: self.answers[n][: self.probes] for n in included}, self.expected(integers)[: self.probes])",
        WATCHED,
    ),
    bug(
        "a watched direction unread in an opened turn",
        PROBING + "_fault",
        "asked.expected(integers).tolist() != asked.answers[number].tolist()",
        "asked.expected(integers).tolist()[: asked.probes] != asked.answers[number].tolist()[: asked.probes]",
        WATCHED,
    ),
    bug(
        "no past that is watched",
        "choral.run.guard:Guard._watching",
        '[("", self.direction.bytes_), *self.evidence.to_watch(most - 1)]',
        '[("", self.direction.bytes_)]',
        "tests/run/test_guard.py::test_the_direction_is_watched_and_the_pasts_of_the_three_who_follow_them_most",
    ),
    bug(
        "a watched past that counts for nobody",
        "choral.probes.rules:Evidence.take",
        "device in seen.devices",
        "False",
        "tests/test_robust.py::test_a_quiet_push_is_named_by_its_watched_past_before_probes_alone_show_it",
    ),
    bug(
        "accuracy judges a rare class",
        "choral.planner.prospect:happened",
        "measured.rarest < RARE",
        "False",
        "tests/run/test_verdicts.py::test_where_a_class_is_rare_log_loss_and_area_decide_and_not_the_accuracy",
    ),
]

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]
