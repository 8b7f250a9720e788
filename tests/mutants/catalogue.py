"""Planted privacy bugs: each a small change of the source, and the test or audit that must notice it."""

from dataclasses import dataclass

LOCAL, DRAWING = "learning/local.py", "backends/drawing.py"
COINS, PASSES = "learning/batches/poisson.py", "learning/batches/partition.py"
STREAMS, NOISE, COLUMNS = "learning/streams.py", "learning/noise.py", "learning/columns.py"
MECHANISMS, PARTITION = "privacy/mechanisms/__init__.py", "privacy/mechanisms/partition.py"
EXPOSURE, EVENTS, POISSON = "privacy/exposure.py", "privacy/events.py", "privacy/poisson.py"
LEDGER, CHAIN, PUBLISHED = "privacy/balance.py", "privacy/chain.py", "privacy/published.py"
MASKS, CODEC, PLAN, DEVICE = "secagg/masks.py", "secagg/codec.py", "plan.py", "protocol/device.py"
ROUND, FINDINGS, WIRE = "protocol/round.py", "protocol/findings.py", "backends/wire.py"
ROUND, PINNED = "protocol/round.py", "run/pinned.py"
RUNS, STUDY, PLACES, ENGINE = "run/runs.py", "run/study.py", "run/places.py", "backends/vectorised.py"


@dataclass(frozen=True)
class Mutant:
    """A bug: what it is, the file of src/choral that it is planted in, what it replaces, and who catches it."""

    name: str
    file: str
    changes: tuple[tuple[str, str], ...]
    caught_by: str


def bug(name: str, file: str, old: str, new: str, caught_by: str, *more: tuple[str, str]) -> Mutant:
    return Mutant(name, file, ((old, new), *more), caught_by)


PAPER = "tests/learning/test_local.py::test_a_local_update_is_the_papers_algorithm_in_double_precision_to_1e_5"
TIGHT = "tests/audit/test_canary.py::test_the_bound_is_near_the_proved_figure_where_the_rule_is_tight"
SPREAD = "tests/audit/test_canary.py::test_a_device_without_the_canary_adds_pure_noise_of_the_law_that_is_drawn_for_it"
NO_BYTE = (
    "tests/audit/test_release_paths.py::"
    "test_with_the_update_pinned_a_replaced_training_record_changes_no_byte_of_30_runs"
)
CHARGED_NOISE = "tests/secagg/test_strict.py::test_an_encoded_zero_is_noise_of_the_deviation_that_was_charged_for"
BATCH = "        total = batch_sum(model, recipe, usual, finite, tree, features, labels, batch, count)  # lines 6, 7\n"
FLOAT_SUM = (
    "tests/learning/test_float_sum.py::test_one_record_moves_the_sum_of_a_whole_table_by_no_more_than_twice_the_clip"
)
BLAMED = (
    "tests/attacks/test_misbehaving_devices.py::"
    "test_the_round_ends_with_the_others_and_nobody_honest_is_named_or_pays_more_than_twice"
)
FAR_OUT = "tests/learning/test_noise.py::test_secure_noise_far_out_is_as_fine_as_float32_at_every_depth"

MUTANTS = [
    # Clipping and averaging
    bug("no clip", LOCAL, "jnp.minimum(1, clip / jnp.maximum(norms, clip))", "jnp.ones_like(norms)",
        "tests/learning/test_local.py::test_no_row_whatever_it_holds_adds_more_than_the_clip"),
    bug("clip after averaging", LOCAL, BATCH,
        "        free = replace(recipe, clip=math.inf, noise=0.0)\n"
        "        total, _ = batch_sum(model, free, usual, finite, tree, features, labels, batch, count)\n"
        "        factor = clip_factor(norm(model.ravel(total)), recipe.clip * recipe.batch)\n"
        "        total = jax.tree.map(lambda leaf: leaf * factor, total), None\n", PAPER,
        ("import dataclass\n", "import dataclass, replace\n")),
    bug("clip of each layer alone", LOCAL, "norm(jnp.stack(norms, axis=-1))", "jnp.max(jnp.stack(norms, axis=-1), -1)",
        "tests/learning/test_local.py::test_the_closed_form_equals_per_example_gradients_to_1e_6"),
    bug("divisor is the actual batch size", LOCAL, "leaf / recipe.batch, noisy)",
        "leaf / jnp.maximum(count, 1), noisy)", PAPER),
    bug("records join a batch by their label", LOCAL, "< count) & (batch >= 0)\n",
        "< count) & (labels[batch] > 0)\n", PAPER),
    # Noise
    bug("noise divided by the cohort", LOCAL, "0.0 if plan.strict else plan.noise\n",
        "0.0 if plan.strict else plan.noise / plan.cohort\n", SPREAD),
    bug("noise left out", LOCAL, "add_noise(model, total, spread, key, draw)",
        "add_noise(model, total, 0.0, key, draw)", SPREAD),
    bug("noise at the first step only", LOCAL, "total, spread, key, draw)",
        "total, spread, key, lambda *a: first * draw(*a))", SPREAD,
        ("count: Array, key: Array) -> Tree:", "count: Array, key: Array, first=1.0) -> Tree:"),
        ("noisy = noisy_gradient(tree, batch, count, key)", "noisy = noisy_gradient(tree, batch, count, key, first)"),
        ("(batch, count, key) = state, given", "(batch, count, key, first) = state, given"),
        ("(batches, counts, keys[:-1]))", "(batches, counts, keys[:-1], 1.0 * (jnp.arange(len(batches)) == 0)))")),
    bug("the same noise at every step", DRAWING, "steps = np.arange(self.plan.local_steps + 1)",
        "steps = np.zeros(self.plan.local_steps + 1, dtype=np.int64)", SPREAD),
    bug("noise shared by the devices", DRAWING, '"noise", number, cohort)',
        '"noise", number, cohort * 0)',
        "tests/backends/test_vectorised.py::"
        "test_the_same_seed_gives_the_same_bits_and_another_seed_round_or_device_others"),
    bug("seed used again in every round", STREAMS, "|{purpose}|{round_}", "|{purpose}|",
        "tests/learning/test_batches.py::test_streams_of_different_seeds_purposes_rounds_and_devices_share_no_word"),
    bug("noise rounded to half precision", LOCAL, "[deviation * draw(",
        "[jnp.float32(jnp.float16(deviation)) * draw(",
        "tests/audit/test_sensitivity.py::test_the_smallest_noise_of_a_plan_is_there_in_full"),
    bug("deployed noise from a fixed key", STREAMS, "algorithms.AES256(os.urandom(32))", "algorithms.AES256(bytes(32))",
        "tests/learning/test_trainer.py::test_two_updates_are_never_the_same_and_differ_by_their_noise"),
    bug("deployed noise without its sign", NOISE, "    value[(drawn & np.uint64(1)).astype(bool)] *= -1\n", "",
        "tests/learning/test_noise.py::test_secure_noise_is_gaussian_and_never_the_same_twice"),
    bug("deployed noise of 53 bits", NOISE, "ndtri(_small_uniform(drawn := secure_words(shape)))",
        "ndtri((((drawn := secure_words(shape)) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54)", FAR_OUT),
    # Float32
    bug("a batch added in one product", LOCAL, "    if pieces > 1:\n", "    if False:\n", FLOAT_SUM),
    bug("pieces added in one float", LOCAL, "        low = low + (", "        low = low + 0 * (",
        "tests/learning/test_rounding.py::"
        "test_pieces_are_added_in_two_floats_all_but_exactly_when_compiled"),
    bug("noise without what float32 adds", LOCAL, " * sensitivity_factor(model, room)\n", "\n",
        "tests/learning/test_rounding.py::"
        "test_the_noise_that_is_added_is_the_plans_times_what_float32_may_add"),
    bug("a drawn record moves the others", COINS, "        if random is None and room <= ONE_PIECE:\n",
        "        if True:\n",
        "tests/learning/test_rounding.py::"
        "test_poisson_batches_that_are_deployed_or_in_pieces_leave_empty_places_among_the_records"),
    # Sampling
    bug("records drawn half as often again", COINS, "np.log1p(-batch / sizes)",
        "np.log1p(-np.minimum(1.0, 1.5 * batch / sizes))",
        "tests/learning/test_batches.py::test_poisson_batches_have_the_size_and_membership_of_independent_coins"),
    bug("the same batch at every step of a pass", PASSES, "step % per_pass[:, None]", "0 * step",
        "tests/learning/test_batches.py::test_a_pass_uses_no_record_twice_and_every_batch_is_full"),
    bug("a batch drawn twice", PASSES, "    step = first_step[:, None] + np.arange(steps)\n",
        "    step = first_step[:, None] + np.maximum(np.arange(steps) - 1, 0)\n",
        "tests/learning/test_trainer.py::"
        "test_a_trainer_that_keeps_to_its_passes_is_never_refused_over_rounds_and_restarts"),
    bug("records used beyond what is charged", PASSES, "        if most > paid:\n", "        if False:\n",
        "tests/learning/test_trainer.py::test_a_batch_that_is_drawn_twice_is_refused_ahead_of_the_first_step"),
    bug("batches that their records' companions fill", COINS, "        while most < most_rows and steps *",
        "        while False and steps *",
        "tests/learning/test_batches.py::"
        "test_the_companions_of_a_record_fill_no_batch_of_a_run_but_for_the_chance_that_is_charged"),
    bug("Poisson accounting on shuffled batches", MECHANISMS, "mechanism_of(part).of_device(part)", "POISSON",
        "tests/privacy/test_mechanisms.py::"
        "test_the_design_notes_figures_come_out_8_42_by_sampling_and_39_8_by_partition"),
    bug("a table whose order has changed", PINNED, "    if found != approved:\n", "    if False:\n",
        "tests/attacks/test_deployed_sites.py::"
        "test_a_table_in_another_order_is_refused_until_it_is_approved_so_no_record_is_used_more_often_than_charged"),
    bug("a new table goes on in the old one's pass", PINNED, "for charge in charges) if since is None else since",
        "for charge in charges) if since else 0",
        "tests/attacks/test_deployed_sites.py::"
        "test_a_table_in_another_order_is_refused_until_it_is_approved_so_no_record_is_used_more_often_than_charged"),
    # Accounting
    bug("sensitivity of a removal for a replacement", PARTITION, "mu=2 / part.noise_multiplier * math.sqrt(uses",
        "mu=1 / part.noise_multiplier * math.sqrt(uses", TIGHT),
    bug("charged for r instead of r_eff", EXPOSURE, "self.cohort - self.dropouts - self.colluders if", "self.cohort if",
        "tests/privacy/test_mechanisms.py::test_one_step_a_round_divides_by_the_root_of_the_honest_noises"),
    bug("charged for one use of a record only", PARTITION, "math.sqrt(uses / honest",
        "math.sqrt(1 / honest",
        "tests/privacy/test_mechanisms.py::"
        "test_the_design_notes_figures_come_out_8_42_by_sampling_and_39_8_by_partition"),
    bug("sampled steps by removal", POISSON, "NeighboringRelation.REPLACE_ONE", "NeighboringRelation.ADD_OR_REMOVE_ONE",
        "tests/privacy/test_poisson.py::test_one_step_is_the_pair_that_the_proof_names"),
    bug("rare failures not taken from δ", EVENTS, "left = delta - spent", "left = delta",
        "tests/privacy/test_events.py::test_an_events_own_delta_is_taken_from_the_whole"),
    bug("Theorem 1 called valid for stretching steps", PUBLISHED, "    if stretch is None:\n        return False, (",
        "    if stretch is None:\n        return True, (",
        "tests/privacy/test_published.py::test_theorem_1_is_valid_exactly_where_a_proved_rule_covers_it"),
    # Ledger
    bug("a full budget is spent on", LEDGER,
        "if not after <= self.limit.epsilon:  # so that NaN is refused too\n            raise self._beyond(f\"round",
        "if False:\n            raise self._beyond(f\"round",
        "tests/privacy/test_ledger.py::test_the_charge_that_would_pass_the_limit_is_refused_and_leaves_every_byte"),
    bug("one charge pays for two uploads", LEDGER,
        "if (charge.plan, charge.round, charge.attempt) in self._seen:", "if False:",
        "tests/privacy/test_ledger.py::test_the_same_round_and_attempt_is_not_charged_twice_not_even_later"),
    bug("a study that was chosen by results is composed as a loss distribution", LEDGER,
        "        if not self.charges:\n            return True\n", "        return True\n",
        "tests/privacy/test_filter.py::"
        "test_a_server_that_chooses_its_last_study_by_the_results_so_far_stays_within_the_limit"),
    bug("leaks have no share of delta of their own", LEDGER, "if whole.delta > LEAK * delta:",
        "if whole.delta > delta:", "tests/privacy/test_filter.py::test_leaks_can_not_be_traded_for_mu"),
    bug("an approval caps nothing", LEDGER, "if charge.plan in self.open_plans:", "if False:",
        "tests/attacks/test_deployed_sites.py::"
        "test_an_approval_caps_its_own_study_under_a_larger_limit_for_all"),
    bug("an old ledger is taken for the latest", CHAIN, "    if receipt is None:\n        return\n", "    return\n",
        "tests/privacy/test_ledger.py::test_an_old_copy_is_refused_by_the_last_receipt"),
    bug("upload handed out before its charge", DEVICE, "        self._pay(turn)\n", "",
        "tests/protocol/test_device.py::test_charge_and_turn_are_durable_before_the_upload_is_handed_out"),
    # The secure sum
    bug("mask sign error", MASKS, "return (Mask(rising, lower),)", "return (Mask(rising, True),)",
        "tests/secagg/test_masks.py::test_masks_cancel_on_every_graph_ring_and_mode"),
    bug("self mask missing", DEVICE,
        "            masks.append(self_mask(secret, cohort.context, self._identity.id))\n", "",
        "tests/protocol/test_exactness.py::test_the_opened_sum_is_the_plain_sum_in_random_cases"),
    bug("masks of a round that come again", MASKS, 'round.to_bytes(8, "little"), ', "",
        "tests/secagg/test_masks.py::test_everything_that_devices_must_have_seen_alike_is_in_the_context"),
    bug("check lanes off", CODEC, "if lanes[0] != count or any(lanes[1:]):", "if False:",
        "tests/secagg/test_codec.py::test_one_changed_check_word_is_noticed"),
    bug("quantiser wraps", CODEC, "if len(values) and not (-limit <= values.min() and values.max() <= limit):",
        "if False:",
        "tests/secagg/test_codec.py::test_what_is_not_finite_or_beyond_the_range_is_refused_and_not_shown"),
    bug("grid as coarse as the noise", CODEC, "grid > step_noise / 3:", "grid > step_noise * 1e9:",
        "tests/secagg/test_codec.py::test_a_grid_coarser_than_a_third_of_the_noise_is_refused"),
    # Whole noise
    bug("no noise in strict mode", CODEC,
        'self.whole_noise(size, noise or Stream.fresh()) if self.law in LEAST_SCALE else None', "None", CHARGED_NOISE),
    bug("whole noise from a fixed key", CODEC, "noise or Stream.fresh()", "noise or Stream(bytes(32))", CHARGED_NOISE),
    bug("whole noise without what rounding costs", CODEC, " + math.sqrt(dimensions)) * _SLACK", ") * _SLACK",
        "tests/secagg/test_strict.py::test_no_record_moves_the_integers_by_more_than_it_is_charged_for"),
    bug("strict update as a difference of models", LOCAL,
        "    if recipe.steps == 1:  #", "    if False:  #",
        "tests/learning/test_strict.py::"
        "test_one_replaced_record_never_moves_the_integers_further_than_is_charged_for"),
    bug("whole noise of one device in a simulated sum", ENGINE, "cohort if included is None else cohort[included]:",
        "cohort[:1]:", "tests/run/test_strict.py::test_the_noise_of_an_opened_sum_is_that_of_its_devices"),
    bug("whole noise in several local steps", PLAN, 'if law in LEAST_SCALE and (local_steps', "if 0 and (local_steps",
        "tests/secagg/test_strict.py::test_a_plan_with_whole_noise_has_one_local_step_and_no_sampling"),
    bug("a rehearsal shows an update without its noise", PLACES, "            return trainer.update(model)\n",
        "            self.latest[number] = trainer.update(model)\n            return self.latest[number]\n",
        "tests/run/test_strict.py::test_a_rehearsal_shows_no_update_without_its_noise",
        ("self.latest[number] = mean(", "_ = (")),
    bug("threshold one below the safe bound", PLAN, "least = self.cohort + self.colluders + 1",
        "least = self.cohort + self.colluders",
        "tests/attacks/test_lying_server.py::test_every_configuration_one_below_the_safe_bound_is_refused"),
    bug("a turn is answered twice", DEVICE, "if last is not None and turn <= last:", "if False:",
        "tests/protocol/test_device.py::test_it_refuses_the_same_turn_twice_or_going_back"),
    bug("self secret never changes", DEVICE, "secret = fresh_secret()", "secret = bytes(31) + bytes([1])",
        "tests/protocol/test_device.py::test_self_secrets_are_fresh_in_every_turn"),
    bug("fewer survivors than planned are opened", DEVICE, "if left < self.terms.secure.smallest_sum:", "if False:",
        "tests/protocol/test_device.py::test_it_refuses_fewer_survivors_than_the_plan_opens"),
    bug("refusals for nothing", DEVICE,
        "        self._pay(turn)\n        update = self._train(start, turn.round, turn.attempt)\n",
        "        update = self._train(start, turn.round, turn.attempt)\n        self._pay(turn)\n",
        "tests/protocol/test_device.py::test_it_does_not_look_at_its_data_before_its_ledger_has_agreed"),
    bug("a model that swallows the noise", DEVICE,
        "if len(model) and not (-limit <= model.min() and model.max() <= limit):", "if False:",
        "tests/attacks/test_refusals.py::test_a_device_refuses_such_a_model_before_it_looks_at_its_data"),
    bug("a device that saw another round is added", ROUND, "        return misled\n", "        return set()\n",
        "tests/attacks/test_inconsistent_rounds.py"
        "::test_a_device_that_was_shown_another_round_is_left_out_of_the_sum_and_stays_masked",
        ("left_out(pairs, self._cohort.context)", "set()")),
    bug("a device pays for a third attempt", DEVICE, ">= MOST_CHARGED:", ">= 99:",
        "tests/protocol/test_device.py::"
        "test_it_pays_for_no_third_attempt_of_a_round_and_says_how_many_it_has_paid_for"),
    bug("a false envelope key is believed", ROUND, "== mine[owner].takes", "!= b''", BLAMED),
    bug("who broke the protocol is called again", WIRE, "if number not in self.named)", "if number >= 0)", BLAMED),
    bug("an unsigned refusal is believed", FINDINGS, "        if self.proves(sender, message):\n", "        if True:\n",
        "tests/protocol/test_round.py::test_what_a_device_did_not_sign_is_ignored_and_told_as_not_proved"),
    # Words
    bug("an error shows a cell", COLUMNS, "row {row:,} is not a finite number.'", "row {row:,} is {cell}, no number.'",
        "tests/audit/test_planted_values.py::test_no_refusal_of_a_table_shows_a_planted_cell"),
    bug("a refusal carries the device's reason", DEVICE, "self._refuse(turn, error.code))",
        "self._refuse(turn, str(error)))",
        "tests/protocol/test_device.py::test_a_failed_training_is_told_by_its_code_only"),
    bug("metrics of the training rows", RUNS, "metrics(study.model, parameters, study.split.test,",
        "metrics(study.model, parameters, study.split.train,", NO_BYTE),
    bug("run.json counts the labels", RUNS, "len(data.records.labels)", "int(data.records.labels.sum())", NO_BYTE),
    bug("cells beyond their bounds are logged", COLUMNS,
        "        numbers = np.clip(parse_numbers(cells, source=source, name=self.name), self.low, self.high)\n",
        "        __import__('logging').debug('moved %s', [c for c in cells if float(c) > self.high])\n"
        "        numbers = np.clip(parse_numbers(cells, source=source, name=self.name), self.low, self.high)\n",
        "tests/audit/test_planted_values.py::test_nothing_that_a_run_says_or_leaves_behind_holds_a_planted_value"),
    bug("the report says where the data lies", STUDY, "Path(named).name if", "str(named) if",
        "tests/audit/test_planted_values.py::test_a_report_names_the_file_of_the_data_and_not_where_it_lies"),
    bug("a device's name is its nonce", DEVICE, "nonce = os.urandom(NONCE_BYTES)",
        "nonce = self._identity.id.encode().ljust(NONCE_BYTES)[:NONCE_BYTES]",
        "tests/audit/test_planted_values.py::"
        "test_no_frame_of_a_rehearsal_holds_a_planted_value_or_a_row_as_the_device_encodes_it"),
]  # fmt: skip
