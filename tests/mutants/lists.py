"""Planted bugs in lists as trees and in the server's threads: each check that is left out, and who notices."""

from tests.mutants.catalogue import bug

TREE, PART, SHOWN = "choral.core.tree:", "choral.core.roster_tree:", "choral.core.paths:Shown."
MASKS = "choral.core.masks:"
TREES, MEMBERS = "tests/secagg/test_tree.py::", "tests/secagg/test_roster_tree.py::"
PATHS = "tests/protocol/test_paths.py::"
SUM, SUMS = "choral.server.uploads:RunningSum.", "tests/secagg/test_uploads.py::"
VECTORS = TREES + "test_choral_answers_as_the_vector_says"
ASTRAY = PATHS + "test_a_device_refuses_a_neighbour_that_is_not_where_it_is_said_to_be"

LISTS = [
    bug("entries are hashed like nodes", TREE + "_leaf", 'f"{kind} leaf"', 'f"{kind} node"', VECTORS),
    bug("the index of an entry is not bound", TREE + "_leaf", 'index.to_bytes(8, "little")', "b''", VECTORS),
    bug("the length of a list is not bound", TREE + "_root", 'count.to_bytes(8, "little")', "b''",
        TREES + "test_another_entry_index_or_length_leads_to_another_root_or_to_none"),
    bug("an odd last node is copied", TREE + "_above", 'b"".join(nodes) + level[whole:]',
        'b"".join(nodes) + (_node(before, level[whole:], level[whole:]) if level[whole:] else b"")',
        TREES + "test_every_entry_of_a_list_of_any_length_has_a_path_to_the_root"),
    bug("a path of any length", TREE + "root_of", "len(path) != HASH_SIZE * path_length(index, count)", "False",
        TREES + "test_a_path_that_is_too_long_too_short_or_in_another_order_leads_nowhere"),
    bug("an entry beyond its list", TREE + "root_of", "not 0 <= index < count", "False",
        TREES + "test_another_entry_index_or_length_leads_to_another_root_or_to_none"),
    bug("siblings on either side", TREE + "root_of",
        "(sibling, node) if index % 2 else (node, sibling)", "sorted((sibling, node))",
        TREES + "test_every_entry_of_a_list_of_any_length_has_a_path_to_the_root"),
    bug("a device that is not enrolled", PART + "require_enrolled",
        "root_of(_ROSTER, _card(bundle), index=number, count=count, path=path) != root", "False", ASTRAY),
    bug("a card in the tree that nobody signed", PART + "require_enrolled", "bundle.verify()", "pass",
        MEMBERS + "test_whoever_is_shown_must_be_enrolled_under_that_number_and_have_signed_its_card"),
    bug("a device that is not in the cohort", PART + "require_in_cohort",
        "root_of(_COHORT, _ready(number, nonce), index=position, count=size, path=path) != root", "False", ASTRAY),
    bug("a cohort of any size by its root", SHOWN + "cohort",
        "not secure.smallest_sum <= message.size <= secure.cohort", "False",
        PATHS + "test_a_device_refuses_a_cohort_without_itself_too_small_too_large_or_of_a_bad_form"),
    bug("another nonce under the root", SHOWN + "cohort", "self._own.nonce != nonce", "False", VECTORS),
    bug("neighbours that the server chose", SHOWN + "_check_neighbours",
        "[member.position for member in self._members] != expected", "False",
        PATHS + "test_a_device_refuses_neighbours_that_the_graph_does_not_give_it"),
    bug("one key at two places of a cohort", SHOWN + "_check_distinct", "len(keys) != 2 * len(members)", "False",
        VECTORS),
    bug("ids that do not rise with numbers", SHOWN + "_check_distinct",
        "one.number < other.number and one.id < other.id", "True", VECTORS),
    bug("the root of the cohort is not in ctx", MASKS + "tree_context",
        'digest("tree context", config, roster, *turn, model, cohort)',
        'digest("tree context", config, roster, *turn, model)', VECTORS),
    bug("the root of the roster is not in ctx", MASKS + "tree_context",
        'digest("tree context", config, roster, *turn, model, cohort)',
        'digest("tree context", config, *turn, model, cohort)', VECTORS),
    bug("positions that are preferred", "choral.core.graph:Circle._circle",
        "np.diff(words[order]).all()", "True",
        "tests/secagg/test_graph.py::test_words_that_are_equal_are_drawn_again_so_that_no_position_is_preferred"),
    bug("two roots for a turn", "choral.core.paths:only_root",
        "any(seen == turn and other != root for seen, other in known)", "False",
        PATHS + "test_a_second_root_for_a_turn_is_refused_also_where_the_first_was_not_taken"),
    bug("roots are forgotten", "choral.core.device:Device._pay", "self._root is not None", "False",
        PATHS + "test_roots_of_turns_that_were_paid_for_are_kept_over_a_restart_and_until_other_terms_are_approved"),
    bug("a whole list where lists are trees", "choral.core.device:Device._check_cohort",
        "isinstance(message, Paths) != self.terms.trees", "False",
        PATHS + "test_trees_and_whole_lists_have_different_terms_and_neither_takes_the_others_message"),
    bug("strangers among the dropped", "choral.core.paths:PartOfCohort.may_hold",
        "all((number < self.terms.enrolled for number in numbers))", "True",
        PATHS + "test_a_drop_list_may_name_strangers_but_nobody_who_is_not_enrolled"),
    bug("roots that nobody signed", "choral.deploy.root_log:RootLog.check",
        'card.check(signature, "roots", self.signed)', "pass",
        "tests/deploy/test_root_log.py::test_a_file_that_its_device_did_not_sign_or_of_another_study_is_refused"),
    bug("a small study that says it is large", "choral.run.agreement:Agreement.of",
        "agreement.trees and protocol_of(agreement.job, agreement.file.devices) != LISTING", "False",
        "tests/attacks/test_weaker_keys.py::"
        "test_a_study_of_very_many_devices_has_lists_as_trees_and_needs_the_owners_word_for_its_keys"),
    # The server's threads
    bug("a sum that is read while threads add to it", SUM + "total", "self._wait(0)", "pass",
        SUMS + "test_nobody_waits_for_a_vector_as_long_as_few_are_under_way"),
    bug("sums of other threads are left out", SUM + "total",
        "add_vectors(first, others, threads=self._threads)", "pass",
        SUMS + "test_whatever_is_asked_in_whatever_order_the_sum_is_that_of_one_thread"),
    bug("a stretch that nobody adds", "choral.server.uploads:_bounds",
        "[words * (lines * number // parts) for number in range(parts)]",
        "[words * (lines * number // parts) for number in range(1, parts)] or [0]",
        SUMS + "test_threads_leave_out_no_word_and_add_none_twice"),
    bug("a sum with as many vectors as it likes", SUM + "add", "self._kept.sums", "self._threads",
        SUMS + "test_a_sum_keeps_no_more_vectors_than_it_may_and_than_its_threads_fill_stretches"),
]  # fmt: skip
