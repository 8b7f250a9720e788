"""Planted privacy bugs: each a small change of one function, and the test or audit that must notice it.

A bug names its function and the expression or statements that it replaces. Both are compared as syntax trees, so
neither comments, layout and quotes nor the function's place in its file matter (`planting`).
"""

from dataclasses import dataclass

from tests.mutants.planting import Change

LOCAL, CLIPPED = "choral.learning.local:", "choral.learning.clipped:"
RECIPE, DRAWING = "choral.learning.recipe:", "choral.engine.draws:"
COINS, PASSES = "choral.learning.batches.poisson:", "choral.learning.batches.partition:"
COMPILED_DRAWING = "choral.learning.batches.compiled_drawing:"
STREAMS, NOISE, COLUMNS = "choral.learning.streams:", "choral.learning.noise:", "choral.tables.columns:"
MECHANISMS = "choral.core.mechanisms:"
EXPOSURE = "choral.core.exposure:"
EVENTS, POISSON, PUBLISHED = "choral.core.events:", "choral.core.poisson:", "choral.accounting.published:"
BALANCE, FILTER, CHAIN = "choral.core.balance:Balance.", "choral.core.balance:PrivacyFilter.", "choral.core.sealed:"
MASKS, CODEC, PLAN = "choral.core.masks:", "choral.core.codec:", "choral.core.plan:"
DEVICE, ROUND = "choral.core.device:Device.", "choral.server.round:Round."
FINDINGS, WIRE = "choral.server.findings:Findings.", "choral.backends.wire:Wire."
PINNED, RUNS = "choral.deploy.home:", "choral.run.runs:"
ASKING = "choral.asking."
STOLEN = "tests/attacks/test_stolen_vault.py::"
ENCODER, ENCODED = "choral.tables.encoder:Encoder.", "tests/tables/test_encoder.py::"
PLACES, ENGINE = "choral.run.places:", "choral.engine.compiled:"


@dataclass(frozen=True)
class Mutant:
    """A bug: what it is, the changes that plant it, and who catches it."""

    name: str
    changes: tuple[Change, ...]
    caught_by: str


def bug(name: str, function: str, old: str, new: str, caught_by: str, *more: Change) -> Mutant:
    return Mutant(name, (Change(function, old, new), *more), caught_by)


REFERENCE = "tests/reference/test_step.py::"
PAPER = "tests/learning/test_local.py::test_a_local_update_is_the_papers_algorithm_in_double_precision_to_1e_5"
TIGHT = "lab/tests/audit/test_canary.py::test_the_bound_is_near_the_proved_figure_where_the_rule_is_tight"
SPREAD = (
    "lab/tests/audit/test_canary.py::test_a_device_without_the_canary_adds_pure_noise_of_the_law_that_is_drawn_for_it"
)
NO_BYTE = (
    "tests/audit/test_release_paths.py::"
    "test_with_the_update_pinned_a_replaced_training_record_changes_no_byte_of_30_runs"
)
SAME_ROWS = "tests/learning/test_batches.py::test_a_compiled_program_draws_the_rows_that_the_host_draws"
TOGETHER = "lab/tests/research/test_sweep.py::"
EQUAL_RATES = "tests/run/test_equal_rates.py::test_the_smallest_site_"
CHARGED_NOISE = "tests/secagg/test_strict.py::test_an_encoded_zero_is_noise_of_the_deviation_that_was_charged_for"
IN_PIECES = (
    "tests/learning/test_rounding.py::test_a_batch_of_several_pieces_is_added_in_float64_and_one_piece_in_float32"
)
KERNEL = "tests/learning/test_fused.py::test_a_step_is_the_one_in_double_precision_with_the_same_gaussians"
BLAMED = (
    "tests/attacks/test_misbehaving_devices.py::"
    "test_the_round_ends_with_the_others_and_nobody_honest_is_named_or_pays_more_than_twice"
)
FAR_OUT = "tests/learning/test_noise.py::test_secure_noise_far_out_is_as_fine_as_float32_at_every_depth"
RE_ORDERED = (
    "tests/attacks/test_deployed_sites.py::"
    "test_a_table_in_another_order_is_refused_until_it_is_approved_so_no_record_is_used_more_often_than_charged"
)

MUTANTS = [
    # Clipping and averaging
    bug("no clip", "choral.learning.clipped:clip_factor", "jnp.minimum(1, clip / jnp.maximum(norms, clip))",
        "jnp.ones_like(norms)", "tests/learning/test_local.py::test_no_row_whatever_it_holds_adds_more_than_the_clip"),
    bug("clip after averaging", LOCAL + "noisy_steps.noisy_sum",
        "total = batch_sum(model, recipe, numbers, shortcuts, tree, held, batch, count)",
        "from dataclasses import replace\n"
        "free = replace(recipe, clip=math.inf, noise=0.0)\n"
        "total = batch_sum(model, free, numbers, shortcuts, tree, held, batch, count)\n"
        "factor = clip_factor(tree_norm(total), recipe.clip * recipe.batch)\n"
        "total = jax.tree.map(lambda leaf: leaf * factor, total)\n", PAPER),
    bug("a clip of updates that is twice as long", LOCAL + "clipped_update",
        "clip_factor(tree_norm(update), numbers.update_clip)",
        "clip_factor(tree_norm(update), 2 * numbers.update_clip)",
        REFERENCE + "test_jax_clips_an_update_as_the_reference_does"),
    bug("half of the noise on an update", LOCAL + "clipped_update",
        "numbers.update_spread if recipe.update_noise else None",
        "numbers.update_spread / 2 if recipe.update_noise else None",
        REFERENCE + "test_jax_clips_an_update_as_the_reference_does"),
    bug("half of the noise on an update with its count", LOCAL + "counted_update",
        "counted + numbers.update_spread * draw(key, counted.shape, 0)",
        "counted + numbers.update_spread / 2 * draw(key, counted.shape, 0)",
        REFERENCE + "test_jax_counts_who_is_within_an_adaptive_clip_as_the_reference_does"),
    bug("half of the noise in a step", RECIPE + "TracedNumbers.of", "noise_on_sum(model, recipe, room)",
        "noise_on_sum(model, recipe, room) / 2", REFERENCE + "test_jax_takes_the_noisy_steps_of_the_reference"),
    bug("a clip of steps that is twice as long", "choral.learning.clipped:dense_factor.by",
        "clip_factor(length(jnp.stack(norms, axis=-1)), clip)",
        "clip_factor(length(jnp.stack(norms, axis=-1)), 2 * clip)",
        REFERENCE + "test_jax_takes_the_noisy_steps_of_the_reference"),
    bug("a mean over one device more", "choral.server_step:mean_scale", "grid / count", "grid / (count + 1)",
        REFERENCE + "test_a_round_moves_the_model_by_the_mean_of_its_devices"),
    bug("a clip of PyTorch's steps that is twice as long", "choral.learning.torch_steps:clip_factor",
        "(clip / norms).clamp(max=1.0)", "(2 * clip / norms).clamp(max=1.0)",
        "tests/reference/test_torch_step.py::test_pytorch_takes_the_steps_of_the_reference"),
    bug("half of the noise of PyTorch's steps", "choral.learning.torch_steps:TorchTrainer._updates",
        "float(numbers.spread) * drawn[:, step].double()", "float(numbers.spread) / 2 * drawn[:, step].double()",
        "tests/reference/test_torch_step.py::test_pytorch_takes_the_steps_of_the_reference"),
    bug("a clip of local work that is twice as long", "choral.learning.once:LocalWork.numbers",
        "self.clip", "2 * self.clip",
        REFERENCE + "test_noise_once_is_the_reference_within_the_share_that_its_noise_is_wider_for"),
    bug("half of the noise on an upload", "choral.learning.once:with_noise", "plan.noise * factor * noise",
        "plan.noise * factor * noise / 2", REFERENCE + "test_an_upload_has_its_noise_once_and_what_rounding_adds"),
    bug("a convolution that is not clipped", CLIPPED + "layered_clipped_sum", "clip_factor(norms, clip)",
        "jnp.ones_like(norms)",
        "tests/learning/test_layered.py::"
        "test_one_record_moves_the_sum_by_no_more_than_its_clip_and_what_float32_adds"),
    bug("a law that nobody draws any more in a new plan", PLAN + "Plan._require_retired",
        'self.law == RETIRED_LAW and ("law", RETIRED_LAW) not in self.retired', "False",
        "tests/plan/test_retired.py::test_a_new_plan_is_refused_with_the_last_version_that_ran_it"),
    bug("clip of each layer alone", CLIPPED + "dense_factor.by", "length(jnp.stack(norms, axis=-1))",
        "jnp.max(jnp.stack(norms, axis=-1), -1)",
        "tests/learning/test_local.py::test_the_closed_form_equals_per_example_gradients_to_1e_6"),
    bug("length of one of two opposite slopes", CLIPPED + "dense_factor.by", "jnp.float32(math.sqrt(2))",
        "jnp.float32(1)",
        "tests/learning/test_local.py::test_one_slope_that_stands_for_two_opposite_ones_has_their_factor"),
    bug("divisor is the actual batch size", LOCAL + "noisy_steps.noisy_sum",
        "return add_noise(model, total, spread, key, draw)",
        "return jax.tree.map(lambda leaf: leaf * recipe.batch / jnp.maximum(count, 1), "
        "add_noise(model, total, spread, key, draw))", PAPER),
    bug("records join a batch by their label", LOCAL + "batch_sum.part", "batch >= 0", "labels[batch] > 0", PAPER),
    # Sums of questions
    bug("several tables counted as one", ASKING + "cells:one_hots",
        "sum(min(block.width, 2) for block in blocks)", "min(max(block.width for block in blocks), 2)",
        "tests/asking/test_cross_tables.py::test_tables_of_several_columns_are_one_sum_of_blocks"),
    bug("moments without the root of 2", ASKING + "moments:Moments.summand",
        "math.sqrt(2) * 1.25 * len(self.columns) * UNIT", "1.25 * len(self.columns) * UNIT",
        "tests/asking/test_moments.py::test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it"),
    bug("a column of the root in place of two", ASKING + "quantiles:sensitivity",
        "int(apart.max())", "int(squares[-1])",
        "tests/asking/test_quantiles.py::test_no_two_rows_are_farther_apart_than_the_claim_and_some_reach_it"),
    bug("opposite gradients in the same cells left out", ASKING + "gradients:GradientRound.summand",
        "2.0 * longest", "2.0**0.5 * longest",
        "tests/asking/test_rounds.py::test_two_rows_that_differ_in_the_target_reach_the_claim"),
    bug("length of a gradient not checked", ASKING + "gradients:GradientRound.summand.total",
        "encoded.there & ((whole**2).sum(axis=0) <= longest**2)", "encoded.there",
        "tests/asking/test_rounds.py::test_a_row_that_is_too_long_in_whole_numbers_counts_for_nothing"),
    bug("a state that is not finite", ASKING + "fitting:finite", "np.all(np.abs(found) <= 1e6)", "True",
        "tests/asking/test_rounds.py::test_a_state_that_is_no_model_of_this_design_is_refused"),
    bug("an answer for each site", ASKING + "parameters:Parameters.strata",
        'ONE_SITE in (self.given.get("by"), *_items(self.given.get("by")))', "False",
        "tests/asking/test_survival.py::test_parameters_out_of_range_are_refused_before_a_table_is_read"),
    # Noise
    bug("noise divided by the cohort", RECIPE + "Recipe.of", "0.0 if plan.strict else plan.noise",
        "0.0 if plan.strict else plan.noise / plan.cohort", SPREAD),
    bug("the smallest site with the noise of the largest", RECIPE + "Recipe.of", "noise * (plan.batch / batch)",
        "noise / plan.most_weight", EQUAL_RATES + "adds_the_noise_that_its_own_figure_needs_and_so_does_every_other"),
    bug("noise left out", LOCAL + "noisy_steps.noisy_sum", "add_noise(model, total, spread, key, draw)",
        "add_noise(model, total, None, key, draw)", SPREAD),
    bug("a kernel that leaves the noise out", "choral.learning.fused:_steps_of_lanes.kernel.step",
        "plus(total.astype(jnp.float32), drawn, numbers[lane, 1])", "total.astype(jnp.float32)", KERNEL),
    bug("a kernel that adds in shortened products", "choral.learning.fused:_steps_of_lanes.kernel.step",
        "product(a.astype(jnp.float64), b.astype(jnp.float64))",
        "product(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)).astype(jnp.float64)", KERNEL),
    bug("a kernel with the same noise in every lane", "choral.learning.fused:_steps_of_lanes.kernel.step",
        "(keys[lane, which] for which in range(4))", "(keys[0, which] for which in range(4))", KERNEL),
    bug("noise at the first step only", LOCAL + "noisy_steps.noisy_sum",
        "add_noise(model, total, spread, key, draw)",
        "add_noise(model, total, spread, key, lambda *a: jnp.all(key == steps[2][0]) * draw(*a))", SPREAD),
    bug("the same noise at every step", DRAWING + "Drawing._together", "np.arange(self.plan.local_steps + 1)",
        "np.zeros(self.plan.local_steps + 1, dtype=np.int64)", SPREAD),
    bug("noise shared by the devices", DRAWING + "Drawing._keys",
        "streams.keys(self.seed, purpose, number, cohort)",
        'streams.keys(self.seed, purpose, number, cohort * (purpose != "noise"))',
        "tests/engine/test_compiled.py::"
        "test_the_same_seed_gives_the_same_bits_and_another_seed_round_or_device_others"),
    bug("seed used again in every round", STREAMS + "seed_words", 'f"choral/1|{seed}|{purpose}|{round_}"',
        'f"choral/1|{seed}|{purpose}|"',
        "tests/learning/test_batches.py::test_streams_of_different_seeds_purposes_rounds_and_devices_share_no_word"),
    bug("noise rounded to half precision", LOCAL + "add_noise", "deviation * draw(key, leaf.shape, start)",
        "jnp.float32(jnp.float16(deviation)) * draw(key, leaf.shape, start)",
        "tests/audit/test_sensitivity.py::test_the_smallest_noise_of_a_plan_is_there_in_full"),
    bug("deployed noise from a fixed key", STREAMS + "secure_words", "os.urandom(32)", "bytes(32)",
        "tests/learning/test_trainer.py::test_two_updates_are_never_the_same_and_differ_by_their_noise"),
    bug("deployed noise without its sign", NOISE + "secure_normal",
        "value[(drawn & np.uint64(1)).astype(bool)] *= -1", "",
        "tests/learning/test_noise.py::test_secure_noise_is_gaussian_and_never_the_same_twice"),
    bug("deployed noise of 53 bits", NOISE + "secure_normal", "ndtri(_small_uniform(drawn := secure_words(shape)))",
        "ndtri((((drawn := secure_words(shape)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54)", FAR_OUT),
    # Float32. Whether rows that are the worst in one order of addition show a product of all rows depends on the
    # processor: those with the widest registers add in many strands. So the layout of the sum is looked at.
    bug("a batch added in one product", LOCAL + "batch_sum", "pieces > 1", "False", IN_PIECES),
    bug("pieces added in one float", LOCAL + "batch_sum", "jax.tree.map(zeros_in_double, tree)",
        "jax.tree.map(jnp.zeros_like, tree)", IN_PIECES),
    bug("noise without what float32 adds", RECIPE + "noise_on_sum",
        "recipe.batch * recipe.noise * max(sensitivity_factor(model, one) for one in rooms)",
        "recipe.batch * recipe.noise",
        "tests/learning/test_rounding.py::"
        "test_the_noise_that_is_added_is_the_plans_times_what_float32_may_add"),
    bug("a drawn record moves the others", COINS + "PoissonDrawer.draw", "random is None and room <= ONE_PIECE", "True",
        "tests/learning/test_rounding.py::"
        "test_poisson_batches_that_are_deployed_or_in_pieces_leave_empty_places_among_the_records"),
    # Sampling
    bug("records drawn half as often again", COINS + "_inverse", "np.log1p(-batch / sizes)",
        "np.log1p(-np.minimum(1.0, 1.5 * batch / sizes))",
        "tests/learning/test_batches.py::test_poisson_batches_have_the_size_and_membership_of_independent_coins"),
    bug("an accelerator draws records twice as often", COINS + "thresholds", "min(batch, size)", "min(2 * batch, size)",
        SAME_ROWS),
    bug("an accelerator orders every pass alike", COMPILED_DRAWING + "CompiledPartition.draw",
        "number[..., :1] + ahead", "0 * number[..., :1] + 0 * ahead", SAME_ROWS),
    bug("an accelerator begins every round with a new pass", COMPILED_DRAWING + "CompiledPartition.draw",
        "before * self.steps if self.one_order else jnp.zeros_like(before)", "jnp.zeros_like(before)",
        SAME_ROWS),
    bug("the rows of another repeat", "choral_lab.research.sweep:drawn_together",
        "drawn.rows + rows_before", "drawn.rows",
        TOGETHER + "test_runs_of_several_repeats_are_the_runs_that_they_are_alone"),
    bug("a call for as many runs as there are", "choral_lab.research.sweep:runs_together",
        "MOST_RUNS - len(runs)", "0",
        TOGETHER + "test_no_bit_of_a_run_depends_on_the_runs_that_are_trained_with_it"),
    bug("runs go together whatever their form", "choral_lab.research.sweep_training:Companies.of",
        "isinstance(engine, CompiledEngine) and go_together(engine)", "True",
        "lab/tests/research/test_sweep_training.py::"
        "test_runs_that_do_not_go_together_are_trained_by_repeat_each_by_its_own_numbers"),
    bug("an accelerator draws the same batches in every round", "choral.engine.draws:DeviceDrawing.who",
        "0 if same else number", "1",
        "tests/engine/test_draws.py::test_rounds_that_stay_have_the_integers_of_rounds_that_the_host_draws"),
    bug("the same batch at every step of a pass", PASSES + "_short_passes", "step % per_pass[:, None]", "0 * step",
        "tests/learning/test_batches.py::test_a_pass_uses_no_record_twice_and_every_batch_is_full"),
    bug("a batch drawn twice", PASSES + "_short_passes", "first_step[:, None] + np.arange(steps)",
        "first_step[:, None] + np.maximum(np.arange(steps) - 1, 0)",
        "tests/learning/test_trainer.py::"
        "test_a_trainer_that_keeps_to_its_passes_is_never_refused_over_rounds_and_restarts"),
    bug("records used beyond what is charged", PASSES + "PassUses.count", "most > paid", "False",
        "tests/learning/test_trainer.py::test_a_batch_that_is_drawn_twice_is_refused_ahead_of_the_first_step"),
    bug("batches that their records' companions fill", COINS + "PoissonDrawer.room",
        "most < most_rows and steps * overflow(rows=most_rows, batch=batch, capacity=most) > chance", "False",
        "tests/learning/test_batches.py::"
        "test_the_companions_of_a_record_fill_no_batch_of_a_run_but_for_the_chance_that_is_charged"),
    bug("Poisson accounting on shuffled batches", MECHANISMS + "charging",
        "part.mechanism.of_device(part)", "POISSON",
        "tests/privacy/test_mechanisms.py::"
        "test_the_design_notes_figures_come_out_8_42_by_sampling_and_39_8_by_partition"),
    bug("a table whose order has changed", PINNED + "check_table", "found != approved", "False", RE_ORDERED),
    bug("a new table goes on in the old one's pass", PINNED + "passes_began",
        "sum(charge.plan == run for charge in charges) if since is None else since",
        "sum(charge.plan == run for charge in charges) if since else 0", RE_ORDERED),
    # Accounting
    bug("sensitivity of a removal for a replacement", MECHANISMS + "composed", "2 / part.noise_multiplier",
        "1 / part.noise_multiplier",
        TIGHT),
    bug("charged for r instead of r_eff", EXPOSURE + "Exposure.honest_noises",
        "self.cohort - self.dropouts - self.colluders", "self.cohort",
        "tests/privacy/test_mechanisms.py::test_one_step_a_round_divides_by_the_root_of_the_honest_noises"),
    bug("charged for one use of a record only", MECHANISMS + "composed", "uses / noises", "1 / noises",
        "tests/privacy/test_mechanisms.py::"
        "test_the_design_notes_figures_come_out_8_42_by_sampling_and_39_8_by_partition"),
    bug("sampled steps by removal", "choral.core.poisson:of_step", "cells(-1.0)", "cells(0.0)",
        "tests/privacy/test_poisson.py::test_one_step_is_the_pair_that_the_proof_names"),
    bug("rare failures not taken from δ", EVENTS + "epsilon_of", "delta - spent", "delta",
        "tests/privacy/test_events.py::test_an_events_own_delta_is_taken_from_the_whole"),
    bug("Theorem 1 called valid for stretching steps", PUBLISHED + "_stretching", "lipschitz(part)",
        "1.0 if lipschitz(part) is None else lipschitz(part)",
        "tests/privacy/test_published.py::test_theorem_1_is_valid_exactly_where_a_proved_rule_covers_it"),
    # Ledger
    bug("a full budget is spent on", BALANCE + "check",
        'if not after <= kept.limit.epsilon:\n    raise self._beyond(f"round {charge.round}", after, charge, kept)',
        "",
        "tests/privacy/test_ledger.py::test_the_charge_that_would_pass_the_limit_is_refused_and_leaves_every_byte"),
    bug("one charge pays for two uploads", BALANCE + "check",
        "(charge.plan, charge.round, charge.attempt) in self._seen", "False",
        "tests/privacy/test_ledger.py::test_the_same_round_and_attempt_is_not_charged_twice_not_even_later"),
    bug("a study that was chosen by results is composed as a loss distribution", FILTER + "_fixes",
        "if not self._charged:\n    return True", "return True",
        "tests/privacy/test_filter.py::"
        "test_a_server_that_chooses_its_last_study_by_the_results_so_far_stays_within_the_limit"),
    bug("leaks have no separate share of delta", FILTER + "_composed", "whole.delta > LEAK * delta",
        "whole.delta > delta", "tests/privacy/test_filter.py::test_leaks_can_not_be_traded_for_mu"),
    bug("an approval caps nothing", BALANCE + "check", "plan in self.open_plans", "False",
        "tests/attacks/test_deployed_sites.py::"
        "test_an_approval_caps_its_own_study_under_a_larger_limit_for_all"),
    bug("an old ledger is taken for the latest", CHAIN + "read", "before != (receipt.seal,)", "False",
        "tests/privacy/test_ledger.py::test_an_old_copy_is_refused_by_the_last_receipt"),
    bug("upload handed out before its charge", DEVICE + "_upload", "self._pay(turn)", "",
        "tests/protocol/test_device.py::test_charge_and_turn_are_durable_before_the_upload_is_handed_out"),
    # The secure sum
    bug("mask sign error", MASKS + "pair_mask", "return Mask(key, pair.own < pair.peer)", "return Mask(key, True)",
        "tests/secagg/test_masks.py::test_masks_cancel_on_every_graph_and_ring"),
    bug("self mask missing", DEVICE + "_upload",
        "[*masks.values(), own_mask]", "[*masks.values()]",
        "tests/protocol/test_exactness.py::test_the_opened_sum_is_the_plain_sum_in_random_cases"),
    bug("masks of a round that come again", MASKS + "round_context", 'round_number.to_bytes(8, "little")', 'b""',
        "tests/secagg/test_masks.py::test_everything_that_devices_must_have_seen_alike_is_in_the_context"),
    bug("check lanes off", CODEC + "Codec.decode", "words[dimensions:].tolist() != [count, 0]", "False",
        "tests/secagg/test_codec.py::test_one_changed_check_word_is_noticed"),
    bug("quantiser wraps", CODEC + "Codec._in_range",
        "len(values) and not (-limit <= values.min() and values.max() <= limit)", "False",
        "tests/secagg/test_codec.py::test_what_is_not_finite_or_beyond_the_range_is_refused_and_not_shown"),
    bug("grid as coarse as the noise", CODEC + "Codec.for_plan", "grid > noise / 3", "grid > noise * 1e9",
        "tests/secagg/test_codec.py::test_a_grid_coarser_than_a_third_of_the_noise_is_refused"),
    # Whole noise
    bug("no noise in strict mode", CODEC + "Codec.encode",
        "self.whole_noise(size, noise or Stream.fresh()) if self.whole else None", "None", CHARGED_NOISE),
    bug("whole noise from a fixed key", CODEC + "Codec.encode", "Stream.fresh()", "Stream(bytes(32))", CHARGED_NOISE),
    bug("whole noise without what rounding costs", CODEC + "sensitivity",
        "moved + math.sqrt(dimensions)", "moved",
        "tests/secagg/test_strict.py::test_no_record_moves_the_integers_by_more_than_it_is_charged_for"),
    bug("strict update as a difference of models", LOCAL + "noisy_steps", "recipe.steps == 1", "False",
        "tests/learning/test_strict.py::"
        "test_one_replaced_record_never_moves_the_integers_further_than_is_charged_for"),
    bug("whole noise of one device in a simulated sum", ENGINE + "CompiledEngine._whole_noise",
        "cohort if included is None else cohort[included]", "cohort[:1]",
        "tests/run/test_strict.py::test_the_noise_of_an_opened_sum_is_that_of_its_devices"),
    bug("whole noise in several local steps", PLAN + "require_law",
        'law in LEAST_SCALE and (local_steps != 1 or sampling != "partition")', "False",
        "tests/secagg/test_strict.py::test_a_plan_with_whole_noise_has_one_local_step_and_no_sampling"),
    bug("a rehearsal shows an update without its noise", PLACES + "Rehearsed._ways_of.fresh",
        "return trainer.update(model)", "self.latest[number] = trainer.update(model)\nreturn self.latest[number]",
        "tests/run/test_strict.py::test_a_rehearsal_shows_no_update_without_its_noise",
        Change(PLACES + "Rehearsed._keep", "self.latest[number] = "
               "mean(codec.decode(words, self.terms.parameters, count=1), 1, codec.grid)", "")),
    bug("threshold one below the safe bound", "choral.core.plan.secure_sum:SecureSum._require_safe",
        "self.cohort + self.colluders + 1", "self.cohort + self.colluders",
        "tests/attacks/test_lying_server.py::test_every_configuration_one_below_the_safe_bound_is_refused"),
    bug("a turn is answered twice", DEVICE + "_refuse_old", "last is not None and turn <= last", "False",
        "tests/protocol/test_device.py::test_it_refuses_the_same_turn_twice_or_going_back"),
    bug("self secret never changes", DEVICE + "_upload", "fresh_secret()", "bytes(31) + bytes([1])",
        "tests/protocol/test_device.py::test_self_secrets_are_fresh_in_every_turn"),
    bug("fewer survivors than planned are opened", DEVICE + "_reveal", "left < self.terms.secure.smallest_sum", "False",
        "tests/protocol/test_device.py::test_it_refuses_fewer_survivors_than_the_plan_opens"),
    bug("refusals for nothing", DEVICE + "_upload",
        "self._pay(turn)\nupdate = self._train(start, turn.round, turn.attempt)",
        "update = self._train(start, turn.round, turn.attempt)\nself._pay(turn)",
        "tests/protocol/test_device.py::test_it_does_not_look_at_its_data_before_its_ledger_has_agreed"),
    bug("a model that swallows the noise", DEVICE + "_check_model",
        "len(model) and not (-limit <= model.min() and model.max() <= limit)", "False",
        "tests/attacks/test_refusals.py::test_a_device_refuses_such_a_model_before_it_looks_at_its_data"),
    bug("a device that saw another round is added", ROUND + "_misled", "return misled", "return set()",
        "tests/attacks/test_inconsistent_rounds.py"
        "::test_a_device_that_was_shown_another_round_is_left_out_of_the_sum_and_stays_masked",
        Change(ROUND + "_lying", "left_out(pairs, self._cohort.context)", "set()")),
    bug("a device pays for a third attempt", DEVICE + "_refuse_another_charge",
        "(charged := self._charged(turn.round)) >= MOST_CHARGED", "(charged := self._charged(turn.round)) >= 99",
        "tests/protocol/test_device.py::"
        "test_it_pays_for_no_third_attempt_of_a_round_and_says_how_many_it_has_paid_for"),
    bug("a false envelope key is believed", ROUND + "_take_keys",
        "fingerprint(key, context) == laid[owner].takes", "True", BLAMED),
    bug("who broke the protocol is called again", WIRE + "attempt", "number not in self.named", "True", BLAMED),
    bug("an unsigned refusal is believed", FINDINGS + "refuse", "self.proves(sender, message)", "True",
        "tests/protocol/test_round.py::test_what_a_device_did_not_sign_is_ignored_and_reported_as_not_proved"),
    # Words
    bug("an error shows a cell", COLUMNS + "Numeric._numbers",
        "(_no_date if self.dates else _no_number)(source, self.name, strange, written)",
        "(_no_date if self.dates else _no_number)(f'{source}: {[*cells][strange[0]]}', self.name, strange, written)",
        "tests/audit/test_planted_values.py::test_no_refusal_of_a_table_shows_a_planted_cell"),
    bug("a refusal carries the device's reason", DEVICE + "answer", "self._refuse(turn, error.code)",
        "self._refuse(turn, str(error))",
        "tests/protocol/test_device.py::test_a_failed_training_is_reported_by_its_code_only"),
    bug("metrics of the training rows", "choral.run.runs:metrics", "study.split.test", "study.split.train", NO_BYTE),
    bug("run.json counts the labels", RUNS + "Run.described", "len(data.records.labels)",
        "int(data.records.labels.sum())", NO_BYTE),
    bug("run.json has the seed that draws a deployment's cohorts", "choral.deploy.serving:Deployed.described",
        "msgspec.structs.replace(about, study=self.agreement.digest.hex(), data=data)",
        "msgspec.structs.replace(about, study=self.agreement.digest.hex(), data=data, seed=self.study.seed)",
        "tests/deploy/test_serving.py::test_the_seed_that_draws_a_deployments_cohorts_is_written_nowhere"),
    bug("cells beyond their bounds are logged", COLUMNS + "Numeric.encode",
        "self._numbers(cells, source, written)",
        "(__import__('logging').debug('moved %s', [c for c in cells if float(c) > self.high]),"
        " self._numbers(cells, source, written))[1]",
        "tests/audit/test_planted_values.py::test_nothing_that_a_run_says_or_leaves_behind_holds_a_planted_value"),
    bug("the report says where the data lies", "choral.run.planning:_load", "Path(named).name", "str(named)",
        "tests/audit/test_planted_values.py::test_a_report_names_the_file_of_the_data_and_not_where_it_lies"),
    bug("a device's name is its nonce", DEVICE + "_get_ready", "os.urandom(NONCE_BYTES)",
        "self._identity.id.encode().ljust(NONCE_BYTES)[:NONCE_BYTES]",
        "tests/audit/test_planted_values.py::"
        "test_no_frame_of_a_rehearsal_holds_a_planted_value_or_a_row_as_the_device_encodes_it"),
    # Noise once (rule S7), and ledgers with two limits
    bug("an upload without its noise", "choral.learning.once:with_noise",
        "clean + plan.noise * factor * noise", "clean + 0.5 * plan.noise * factor * noise",
        "lab/tests/audit/test_once.py::"
        "test_an_adversary_that_sees_every_sum_measures_four_fifths_of_what_is_proved_and_no_more"),
    bug("local steps beyond 2/L", "choral.learning.once:LocalWork.steps", "2 * MARGIN", "2.5",
        "tests/learning/test_once.py::test_the_number_of_steps_depends_on_the_number_of_rows_alone"),
    bug("rows that are longer than declared", "choral.learning.once:shortened",
        "jnp.minimum(1, row_length / jnp.maximum(lengths, row_length))", "1.0",
        "tests/learning/test_once.py::test_padding_and_rows_that_are_not_finite_change_nothing"),
    bug("half of what one record moves", MECHANISMS + "movement",
        "2 * plan.clip / plan.batch * plan.mechanism.moving_time(plan)",
        "plan.clip / plan.batch * plan.mechanism.moving_time(plan)",
        "tests/privacy/test_mechanisms_noise_once.py::"
        "test_one_record_moves_an_upload_by_twice_the_clip_times_the_local_time_over_the_divisor"),
    bug("steps that fit the draw", "choral.learning.once:noisy_upload",
        "local_work(model, LocalWork.of(plan), parameters, features, labels, places)",
        "local_work(model, LocalWork.of(plan), parameters, features, labels)",
        "tests/run/test_once.py::test_the_number_of_steps_tells_nothing_of_who_was_drawn"),
    bug("three classes that are cut to a length", "choral.learning.once:pulls",
        "jnp.sum(jnp.abs(slope), axis=-1) / math.sqrt(2)", "_norms(slope)",
        "tests/learning/test_once.py::"
        "test_a_clipped_softmax_of_three_classes_is_still_the_gradient_of_a_convex_loss"),
    bug("whole noise as narrow as the Gaussian that it rounds", CODEC + "Codec._strict",
        "SMOOTHING if own.smooths(plan) else 0", "SMOOTHING if own.smooths(plan) and (not plan.once) else 0",
        "tests/privacy/test_mechanisms_noise_once.py::"
        "test_the_codec_leaves_room_for_what_the_gaussian_is_rounded_with"),
    bug("a device with many rows among narrower noises", "choral.learning.once:LocalWork.widening",
        "least + self.noises * (own - least)", "own",
        "tests/learning/test_once.py::"
        "test_a_device_with_many_rows_among_small_ones_has_the_noise_that_its_own_rounding_needs"),
    bug("each device's noise for its own room", "choral.learning.recipe:noise_on_sum",
        "(room, *recipe.rooms)", "(room,)",
        "tests/learning/test_rounding.py::"
        "test_the_noises_of_one_step_on_drawn_rows_are_alike_however_many_rows_a_device_has"),
    bug("a model that is too long is paid for", "choral.learning.once:OnceTraining.check",
        "require_bounded(parameters)", "return",
        "tests/deploy/test_once.py::"
        "test_a_server_cannot_send_a_model_on_which_rounding_is_not_bounded_and_nobody_pays_for_it"),
    # Units of privacy
    bug("a person whose rows are clipped one by one", "choral.learning.once:rows_of_persons",
        "used.astype(np.float64) / used.sum(axis=1, keepdims=True, dtype=np.float64)", "used.astype(np.float64)",
        "tests/learning/test_persons.py::"
        "test_one_person_moves_an_upload_with_noise_once_by_no_more_than_the_rule_says"),
    bug("persons that are drawn by their rows", "choral.tables.records:in_order",
        "np.argsort(np.argsort(first))[code.ravel()]", "np.arange(len(persons)) % len(first)",
        "tests/learning/test_persons.py::test_replacing_a_person_changes_no_other_unit"),
    bug("a person's charge that says record", "choral.core.entries:UploadCosts.charge",
        "adjacency_of(self.plan)", "'one record replaced'",
        "tests/run/test_persons.py::test_every_place_that_names_what_is_protected_says_person"),
    bug("a device's update clipped to twice its bound", RECIPE + "Recipe.of",
        "mechanism.upload_bound(plan)", "2 * mechanism.upload_bound(plan)",
        "tests/run/test_device_unit.py::test_a_device_clips_its_whole_update_and_no_record"),
    bug("a count that is not charged for", "choral.core.mechanisms:ClippedUpdate.moves",
        "math.hypot(2, COUNT_LENGTH)", "2.0",
        "tests/audit/test_sensitivity.py::"
        "test_no_clip_lets_an_update_and_its_count_move_further_together_than_is_charged_for"),
    bug("five rows at the price of one", "choral.accounting.groups:_scaled",
        "rows * event.mu", "event.mu",
        "tests/privacy/test_groups.py::"
        "test_gaussians_of_k_rows_have_k_times_the_mu_and_zcdp_k_squared_times_the_rho"),
    bug("a limit for sums that nobody checks", BALANCE + "_limiting",
        "self.limits", "[EVERYONE]",
        "tests/privacy/test_balances.py::test_either_limit_refuses_and_says_against_whom"),
    bug("uploads that are lost on the way to the balance of sums", BALANCE + "_note",
        "self._happened.append(happened)", "",
        "tests/privacy/test_balances.py::test_each_balance_composes_its_own_events"),
    # Private sums (rule S8)
    bug("noise for half of what one record moves", "choral.core.private_sums:SumPrice.noise_for",
        'require_number("l2", l2) / self.mu', 'require_number("l2", l2) / self.mu / 2',
        "lab/tests/audit/test_asked.py::test_the_deployed_noise_survives_and_nearly_all_of_the_claim_is_measured"),
    bug("questions without their factor", "choral.core.private_sums:SumPrice.noise_for",
        "2 ** max(0, math.ceil(math.log2(LEAST_SCALE / wanted)))", "1",
        "tests/privacy/test_private_sums.py::"
        "test_the_noise_never_costs_more_than_the_price_and_at_most_a_thousandth_less"),
    bug("more honest noises than there are", "choral.run.study:price_of",
        "secure.honest_noises(secure.adversary)", "secure.cohort",
        "tests/run/test_inquiry.py::test_where_nobody_may_drop_out_more_noises_count_and_the_noise_is_less"),
    bug("rows that are read before the charge", DEVICE + "_upload",
        "self._pay(turn)\nupdate = self._train(start, turn.round, turn.attempt)",
        "update = self._train(start, turn.round, turn.attempt)\nself._pay(turn)",
        "tests/protocol/test_respondent.py::"
        "test_only_the_sum_is_opened_and_each_device_checks_then_charges_then_reads"),
    bug("masks that fit any question", "choral.core.terms:Terms.digest",
        'described |= {"question": digest("question", self.question).hex(), "within": self.within.hex()}',
        'described |= {"within": self.within.hex()}',
        "tests/protocol/test_respondent.py::"
        "test_no_two_questions_share_terms_and_no_question_shares_them_with_training"),
    bug("a question that is asked for nothing", "choral.run.inquiry:_simulated",
        "ledgers.of_device[device].charge(asked.terms.charge(number))", "",
        "tests/run/test_inquiry.py::test_what_is_charged_is_the_price_of_the_study_by_rule_s8"),
    bug("a state that nobody looks at", DEVICE + "_upload", "self._check(start)", "pass",
        "tests/protocol/test_respondent.py::test_a_state_that_is_not_finite_is_refused_before_the_charge"),
    bug("a state that masks are not bound to", "choral.core.terms:Lists.context",
        "hashlib.sha256(model).digest()", 'hashlib.sha256(b"").digest()',
        "tests/protocol/test_respondent.py::test_devices_that_were_shown_different_states_never_open_a_sum"),
    bug("sums of models that nobody approved", "choral.run.questions:AskTerms.require_approved",
        "catalogue.approved_as(name) not in self.names", "False",
        "tests/run/test_modelling.py::test_a_site_approves_models_by_their_name_and_no_sum_goes_by_another"),
    bug("a model of T rounds that is said to cost one", "choral.run.inquiry:answer_privacy",
        "epsilon_of([price.everyone] * sums, delta)", "epsilon_of([price.everyone], delta)",
        "tests/run/test_modelling.py::test_the_charge_of_all_rounds_is_the_composition_that_is_printed"),
    # Probes
    bug("the sum still counts next to probes", MECHANISMS + "sum_uncounted",
        'if part.probes:\n    return f"each device answers {part.probes} probes of its update, '
        'so the server sees more than sums"', "pass",
        "tests/privacy/test_mechanisms.py::"
        "test_probes_leave_the_figure_against_everyone_and_take_all_of_that_with_the_secure_sum"),
    bug("probes of updates without noise", "choral.core.plan:Plan._require_probes", "self.noise == 0", "False",
        "tests/test_plan.py::"
        "test_probes_of_updates_without_noise_too_few_and_too_many_and_opened_turns_without_them_are_refused"),
    bug("probes where only the sum is limited", "choral.run.planning:_with_probes",
        'job.privacy.trusts_sum', "False",
        "tests/run/test_guard.py::test_probes_are_refused_where_the_secure_sum_is_what_protects"),
    bug("probes that a policy did not allow", "choral.deploy.home:Policy.check",
        "study.plan.probes and not self.probes", "False",
        "tests/deploy/test_policy.py::test_a_weaker_study_is_refused_with_the_one_thing_that_would_allow_it"),
    bug("a second answer in one turn", DEVICE + "_reply", "replace(live, kept=None)", "live",
        "tests/protocol/test_probing.py::test_a_second_probe_is_refused_and_ends_the_turn"),
    bug("probes that the server chose itself", "choral.probes.device:Probed.answer",
        "digests.get(number) != kept.upload", "False",
        "tests/protocol/test_probing.py::test_probes_over_a_foreign_list_of_digests_are_refused"),
    bug("one opened turn more than approved", "choral.probes.device:Probed.shown",
        "opened >= self.opened_turns", "opened > self.opened_turns",
        "tests/protocol/test_probing.py::"
        "test_opened_turns_are_counted_in_the_vault_and_the_next_is_refused_also_after_a_restart"),
    bug("a sum whatever the answers say", "choral.probes.round:AskedProbes.belong_to",
        "adds_up({number: self.answers[number] for number in included}, self.expected(integers))", "True",
        "tests/attacks/test_probes.py::"
        "test_a_false_answer_fails_the_check_and_the_opened_turn_names_its_sender_alone"),
    # Keys
    bug("chains that stay before the turn", "choral.core.device:ChainPairs.stepped",
        "msgspec.structs.replace(memory, chains=after)", "memory",
        STOLEN + "test_with_keys_that_are_erased_turn_by_turn_it_opens_none"),
    bug("the key of a round survives it", "choral.core.keys:Chains.taken",
        "(_step(round_key, _ROUND), _step(round_key, _ATTEMPTS))", "(round_key, _step(round_key, _ATTEMPTS))",
        "tests/secagg/test_ratchet.py::"
        "test_what_is_kept_after_a_turn_is_none_of_its_keys_nor_of_those_that_lead_to_them"),
    bug("keys outlive their run", "choral.core.device:Device._close",
        "self.vault.change(turn=END, chains=None, asking=None)", "self.vault.change(turn=END)",
        STOLEN + "test_the_end_of_a_run_erases_what_is_left"),
    bug("only X25519 is in the roots", "choral.core.keys:pair_roots", "shared + inner", "shared",
        "tests/secagg/test_hybrid.py::test_the_roots_change_with_everything_that_goes_in"),
    bug("offers that nobody signed", "choral.core.device:Offering._wrap",
        "terms.whole.bundles[number].check(\n"
        "    offer[PUBLIC_SIZE:], *offer_fields(terms.digest, message.turn, keys[number]))",
        "pass",
        "tests/protocol/test_pairing.py::"
        "test_offers_that_a_device_did_not_sign_for_these_terms_and_this_turn_are_refused"),
    bug("an old offer once more", "choral.core.device:Offering._wrap",
        "keys.get(self.number) != key.public", "False",
        "tests/protocol/test_pairing.py::test_its_own_offer_must_be_there_as_it_was_and_too_few_are_refused"),
    bug("weaker keys than the cards offer", "choral.deploy.home:Policy.check_keys", "not lacking", "False",
        "tests/attacks/test_weaker_keys.py::"
        "test_a_study_that_leaves_them_out_though_all_cards_offer_them_is_refused_whatever_is_allowed"),
    bug("a number that was drawn for another study", "choral.deploy.approving:drawn_for",
        "known is None or known.study != now", "known is None",
        "tests/deploy/test_comparing.py::"
        "test_a_number_is_drawn_after_its_study_was_read_and_belongs_to_no_other"),
    # Encoders
    bug("an encoder that sees all rows at once", ENCODER + "_in_some_order",
        "self.of_row(rows[number], number, source)",
        "self._session.run(None, {self._session.get_inputs()[0].name: rows})[0][number]",
        ENCODED + "test_one_record_moves_no_other_embedding_even_if_the_graph_mixes_rows"),
    # Arrays of a site
    bug("a digest of arrays without their numbers", "choral.tables.reading:Table.row_digests",
        "array.tobytes() + repr(tuple(own)).encode()", "repr(tuple(own)).encode()",
        "tests/tables/test_arrays.py::test_digests_see_every_number_label_and_place"),
    bug("Python objects in a site's arrays", "choral.tables.arrays:_arrays", "np.load(path, allow_pickle=False)",
        "np.load(path, allow_pickle=True)",
        "tests/tables/test_arrays.py::test_files_that_are_something_else_are_refused"),
    # PyTorch
    bug("a factor that float32 rounds by its own size", "choral.learning.torch_steps:in_float32",
        "torch.where(factors >= torch.finfo(torch.float32).tiny, factors, 0.0).float()", "factors.float()",
        "tests/learning/test_torch_steps.py::test_no_row_is_longer_than_the_clip_however_long_its_gradient_was"),
    bug("an input that magnifies what float32 rounds", "choral.learning.torch_steps:DensePart.squares",
        "of_a <= LONGEST_INPUT**2", "of_a < torch.inf",
        "tests/learning/test_torch_steps.py::test_no_row_is_longer_than_the_clip_however_long_its_gradient_was"),
    bug("a layer with hooks in closed form", "choral.learning.torch_steps:stack_of",
        "any(map(_changed, module.modules()))", "False",
        "tests/learning/test_torch_layers.py::test_layers_that_do_more_than_their_class_says_are_in_no_stack"),
    bug("a module that keeps rows in its buffers", "choral.learning.torch_steps:TorchModule._named",
        "one.clone()", "one",
        "tests/learning/test_torch_steps.py::test_a_buffer_that_a_call_writes_to_is_the_same_afterwards"),
    bug("a module that keeps rows elsewhere", "choral.learning.torch_door:_check_shapes",
        "kept != outside.kept or not np.array_equal(outputs, again)", "False",
        "tests/learning/test_torch_door.py::test_a_module_that_keeps_something_between_calls_is_refused"),
    bug("weights that nobody has called public as the start", "choral.learning.torch_steps:TorchModule._drawn",
        "own[name].fill_(torch.nan)", "pass",
        "tests/learning/test_torch_door.py::test_a_weight_that_no_layer_draws_is_not_the_start_unless_it_is_public"),
    bug("an encoder that nobody agreed on", ENCODER + "read", "sha256 not in (None, found)", "False",
        ENCODED + "test_a_changed_file_is_refused_before_it_runs"),
    bug("weights of an encoder that no digest covers", ENCODER + "_session",
        "options.add_session_config_entry(_OTHER_FILES, nothing)", "pass",
        ENCODED + "test_weights_in_another_file_are_refused_since_no_digest_covers_them"),
    bug("a run folder whose model was exchanged", "choral.run.result:read_model",
        'now.get(name) != named.get(name)', "False",
        "tests/run/test_opened.py::test_a_changed_or_unfinished_folder_is_refused"),
]  # fmt: skip
