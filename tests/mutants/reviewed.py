"""What two reviews broke, item by item: planted bugs that take away exactly what was built against each.

The interfaces that the fixes brought did not exist before, so a test of them can't run on the state before. A bug that
removes one fix, and a test that fails with it, shows the same.
"""

from tests.mutants.catalogue import LOCAL, Mutant, bug

GATE, RELAY = "choral.backends.flower.gate:Gate.", "choral.backends.local_socket:"
CODE, SIGNATURES, SIGNED = "choral.deploy.home:", "choral.run.folder:", "choral.report.signed:"
READER, COSTS = "choral.record.reader:", "choral.accounting.costs:Costs."
KEYS, VAULT = "choral.core.keys:Bundle.", "choral.core.vault:Vault."

TO_THE_GATE, TO_THE_DOOR = "tests/backends/test_flower_gate.py::", "tests/backends/test_local_socket.py::"
STRANGERS, FORGED = "tests/backends/test_flower_strangers.py::", "tests/run/test_forged_runs.py::"
OWN_CODE, SITE = "tests/run/test_code.py::", "tests/deploy/test_site.py::"

REVIEWED: list[Mutant] = [
    # N: accounting
    bug("the charged δ is left out with the secure sum", COSTS + "epsilon_of_sums",
        "replace(loss.event, delta=charged)", "loss.event",
        "tests/privacy/test_costs.py::"
        "test_what_rounds_take_of_delta_counts_with_the_secure_sum_and_for_every_number_of_colluders"),
    bug("two homes over one table", "choral.deploy.approving:Register.check",
        "not self.second_home and (other := next(others, None)) is not None", "False",
        "tests/deploy/test_register.py::test_a_second_home_over_the_same_table_is_refused_and_named"),
    bug("a table that another order of rows hides", "choral.deploy.home:Home.holdings",
        "table.digest(sorted(table.columns), ordered=False)", "digest",
        "tests/deploy/test_register.py::"
        "test_neither_another_order_of_rows_nor_another_name_of_the_file_hides_the_table"),
    bug("an approval without its table", "choral.deploy.home:Home.approved_holdings",
        "check_table(held.table, approval.table, data=Path(approval.data))", "",
        "tests/attacks/test_deployed_sites.py::"
        "test_a_table_that_has_changed_in_a_declared_cell_stops_the_agent_and_one_that_has_not_does_not"),
    bug("numbers of an update that no list of releases names", "choral.run.runs:Run.outcome",
        "0 if self.sight is None else len(self.sight.computed)", "0",
        "tests/run/test_runs.py::"
        "test_every_number_of_an_update_that_a_report_shows_is_listed_among_the_releases"),
    bug("half of the noise", LOCAL + "add_noise", "deviation * draw(key, leaf.shape, start)",
        "0.5 * deviation * draw(key, leaf.shape, start)",
        "lab/tests/audit/test_white_box.py::test_an_adversary_that_sees_all_that_a_rule_grants_measures_four_fifths"
        "_of_what_is_proved_and_no_more"),
    # P1: a forged screen
    bug("an error with hidden characters", "choral.core.errors:ChoralError.__init__",
        "map(escaped, (what, where, why, fix))", "(what, where, why, fix)",
        "tests/test_printable.py::test_an_error_carries_nothing_hidden_in_any_of_its_parts"),
    bug("a name of two scripts", "choral.run.agreement:fault_of_name", "_mixture(name)", "''",
        "tests/test_printable.py::test_a_name_is_short_printable_and_of_one_script"),
    bug("a terminal that shows every character", "choral.cli.terminal:Filtered.write",
        'map(escaped, text.split("\\n"))', 'text.split("\\n")',
        "tests/cli/test_terminal.py::test_whatever_a_verb_prints_is_text_on_either_stream_and_lines_still_end"),
    # P2: memory before authentication
    bug("a refused body is read to its end", GATE + "_refuse", "line.body(_DRAINED_BYTES, keep=False)",
        "line.body(2**40)", STRANGERS + "test_two_hundred_mebibytes_without_a_key_take_no_memory_of_any_process"),
    bug("a body of any length", GATE + "_turn", 'int(headers.get(b"content-length", 0)) > self._most_bytes', "False",
        TO_THE_GATE + "test_a_body_longer_than_the_terms_need_is_not_read_even_from_an_enrolled_node"),
    bug("any number of requests under way", GATE + "_turn", "self._busy[node] >= AT_ONCE", "False",
        TO_THE_GATE + "test_one_node_cannot_have_more_requests_under_way_than_flower_makes"),
    bug("any number of connections", "choral.backends.flower.gate:Places.take", "len(waiting) >= self.most", "False",
        TO_THE_GATE + "test_six_addresses_without_a_key_keep_no_site_out"),
    bug("a head that may take for ever", GATE + "_turn", "asyncio.timeout(HEAD_SECONDS)", "asyncio.timeout(None)",
        TO_THE_GATE + "test_whoever_says_nothing_or_half_a_head_is_cut_off"),
    bug("a frame of any length at the door", RELAY + "_length", "length > most_bytes", "False",
        TO_THE_DOOR + "test_a_frame_longer_than_the_door_takes_is_not_waited_for"),
    bug("a silent caller at the door is waited for", RELAY + "_exactly",
        "connection.settimeout(max(0.001, end - time.monotonic()))", "",
        TO_THE_DOOR + "test_a_caller_that_falls_silent_is_left_and_the_next_is_answered"),
    bug("any number of callers at the door", RELAY + "serve", "connections.acquire(blocking=False)",
        "connections.acquire(blocking=False) or True",
        TO_THE_DOOR + "test_more_callers_than_a_device_can_have_are_turned_away"),
    # P3: other users of the machine
    bug("a door that others can open", RELAY + "listening", "path.chmod(0o600)", "path.chmod(0o666)",
        TO_THE_DOOR + "test_only_this_user_can_open_the_door"),
    bug("a task's token on a command line", "choral.backends.flower.conducting:work", "do(task.token)",
        "(__import__('subprocess').Popen([sys.executable, '-c', 'import time; time.sleep(60)', '--token', task.token]),"
        " do(task.token))[1]",
        STRANGERS + "test_no_token_or_secret_stands_on_a_command_line_while_a_run_is_under_way"),
    bug("a server that runs as root unasked", "choral.deploy.services:check_user",
        "user == _ROOT and not as_root", "False",
        "tests/cli/test_sites.py::"
        "test_a_server_is_not_run_as_root_or_made_a_service_of_roots_unless_that_is_said"),
    # P5: who a node is
    bug("a node is the device that it claims to be", "choral.backends.flower.grid:GridTransport._hear",
        "self._bound.get(was.node) != claimed", "False",
        "tests/backends/test_flower_grid.py::"
        "test_a_node_is_the_device_of_its_key_whatever_it_says_and_whoever_comes_first"),
    bug("an unsigned READY is believed", "choral.server.findings:Findings.proves",
        "self.terms.whole.bundles[sender].check(message.signature, *fields)", "",
        "tests/protocol/test_round.py::test_what_a_device_did_not_sign_is_ignored_and_reported_as_not_proved"),
    bug("a refusal that is not signed", "choral.core.signed:signed_refusal",
        "identity.sign(*refusal_fields(turn, code, cause))",
        "bytes(64)", "tests/protocol/test_device.py::test_every_refusal_is_signed_and_says_whose_doing_it_was"),
    # P6: forged runs
    bug("signatures leave the metrics out", SIGNATURES + "record_digest", 'name != "files"',
        'name not in ("files", "test", "baselines")', FORGED + "test_the_signatures_cover"),
    bug("signatures leave kind and seed out", SIGNATURES + "record_digest", "name != SIGNATURES",
        'name not in (SIGNATURES, "run.json")', FORGED + "test_the_signatures_cover"),
    bug("signatures leave the rounds out", SIGNATURES + "record_digest", "name != SIGNATURES",
        'name not in (SIGNATURES, "rounds.jsonl")', FORGED + "test_the_signatures_cover_every_line_of_a_round"),
    bug("a run of an unknown kind", READER + "_about", 'about.get("kind") not in KINDS', "False",
        FORGED + "test_an_unknown_kind_is_refused_by_every_verb"),
    bug("a deployment that no site signed", SIGNED + "_whole", "deployed and not signed", "False",
        "tests/deploy/test_serving.py::"
        "test_whatever_happens_while_sites_sign_the_run_has_its_result_and_is_not_verified_by_nobody"),
    # P8: colluders
    bug("no colluder is counted among four", "choral.core.plan.secure_sum:SecureSum.for_cohort",
        "max(cohort // 5, int(cohort >= 4))", "cohort // 5",
        "tests/plan/test_secure_sum.py::"
        "test_from_four_devices_on_one_colluder_at_least_is_counted_and_opens_nobody_alone"),
    # P9: somebody's own code
    bug("code that has changed since its approval", CODE + "Code.maker",
        "hashlib.sha256(content).hexdigest() != self.sha256", "False",
        OWN_CODE + "test_code_that_has_changed_since_the_approval_does_not_run"),
    bug("code from the current folder", CODE + "_installed_at", "[*site.getsitepackages(),"
        " *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]", "[str(Path.cwd()), *sys.path]",
        OWN_CODE + "test_code_in_the_current_folder_never_runs_because_its_name_is_trusted"),
    # P11
    bug("a home of another user", "choral.deploy.ownership:check_owner",
        "(owner := folder.stat().st_uid) != os.geteuid()", "(owner := folder.stat().st_uid) < 0",
        SITE + "test_a_home_or_a_study_that_belongs_to_another_user_is_not_taken"),
    bug("an empty passphrase seals", VAULT + "create", "passphrase is not None and not passphrase.strip()", "False",
        "tests/protocol/test_vault.py::test_an_empty_passphrase_seals_nothing_and_is_refused"),
    bug("a key of small order", KEYS + "_check_orders", "_of_small_order(key)", "False",
        SITE + "test_a_card_with_an_agreement_key_of_small_order_is_not_enrolled"),
    bug("a message that lives for ever", RELAY + "ask", "not 0 < timeout <= MOST_SECONDS", "False",
        "tests/backends/test_flower_processes.py::"
        "test_a_message_that_lives_for_ever_is_refused_and_the_relay_goes_on"),
    bug("drafts of killed processes stay", "choral.core.sealed:_sweep", "path.with_name(left).unlink()", "",
        "tests/privacy/test_durable.py::test_what_a_killed_process_left_of_a_file_is_gone_with_the_next_write"),
    bug("a run's name that leads out of its folder", "choral.run.agreement:check_run",
        'not re.fullmatch("[0-9A-Za-z_-]{1,64}", run)', "False",
        "tests/deploy/test_serving.py::test_a_runs_name_that_leads_out_of_its_folder_is_refused"),
    bug("a μ beyond all floats", "choral.core.events:_require_useful",
        "not (_SMALLEST <= number <= _LARGEST or (zero and number == 0))", "False",
        "tests/privacy/test_ledger.py::test_what_this_version_does_not_know_is_refused"),
    bug("a pipe in the place of a file", READER + "inside", "not stat.S_ISREG(found.st_mode)", "False",
        FORGED + "test_a_pipe_is_no_file_of_a_run"),
    bug("children with the whole environment", "choral.backends.flower.children:_spawn",
        "name in _NAMES or name in also or name.startswith(_PREFIXES)", "True",
        STRANGERS + "test_no_child_gets_more_of_the_environment_than_it_needs"),
]  # fmt: skip

# Each finding with the planted bugs that bring it back; what catches them is its test.
FINDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "N1": ("float32 sums that pass the sensitivity",
           ("a batch added in one product", "pieces added in one float", "noise without what float32 adds")),
    "N2": ("a ledger that adaptive studies deceive",
           ("a study that was chosen by results is composed as a loss distribution",
            "leaks have no separate share of delta")),
    "N3": ("noise with a coarse tail", ("deployed noise of 53 bits",)),
    "N4": ("a data file that nothing pins", ("a table whose order has changed", "an approval without its table")),
    "N5": ("figures without the charged δ", ("the charged δ is left out with the secure sum",)),
    "N6": ("a grid too coarse for few devices", ("grid as coarse as the noise",)),
    "N7": ("two homes over one table", ("two homes over one table", "a table that another order of rows hides")),
    "N8": ("a release that is not listed", ("numbers of an update that no list of releases names",)),
    "N9": ("audits too loose to fail", ("half of the noise",)),
    "P1": ("a forged approval screen",
           ("an error with hidden characters", "a name of two scripts", "a terminal that shows every character")),
    "P2": ("memory before authentication",
           ("a refused body is read to its end", "a body of any length", "any number of requests under way",
            "any number of connections", "a head that may take for ever", "a frame of any length at the door",
            "a silent caller at the door is waited for", "any number of callers at the door")),
    "P3": ("other users of the machine",
           ("a door that others can open", "a task's token on a command line", "a server that runs as root unasked")),
    "P4": ("one bad device empties every budget",
           ("a false envelope key is believed", "who broke the protocol is called again",
            "a device pays for a third attempt")),
    "P5": ("a node that claims to be another",
           ("a node is the device that it claims to be", "an unsigned READY is believed",
            "an unsigned refusal is believed", "a refusal that is not signed")),
    "P6": ("forged runs that verify",
           ("signatures leave the metrics out", "signatures leave kind and seed out", "signatures leave the rounds out",
            "a run of an unknown kind", "a deployment that no site signed")),
    "P7": ("an approved cost that is no limit", ("an approval caps nothing",)),
    "P8": ("a default that counts no colluder", ("no colluder is counted among four",)),
    "P9": ("code that is trusted by its name",
           ("code that has changed since its approval", "code from the current folder")),
    "P10": ("no lock for what a site installs", ()),  # a file: LOCK looks at its hashes
    "P11": ("a home, a passphrase, a key, a time, a draft, a name, a number, a pipe and an environment",
            ("a home of another user", "an empty passphrase seals", "a key of small order",
             "a message that lives for ever", "drafts of killed processes stay",
             "a run's name that leads out of its folder", "a μ beyond all floats", "a pipe in the place of a file",
             "children with the whole environment")),
}  # fmt: skip
LOCK = "tests/test_house.py::test_a_site_can_install_all_that_it_needs_by_hash_in_the_versions_that_are_tested_here"
