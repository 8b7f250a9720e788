"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug

# Reading: a record's features are a function of that record and of public numbers.
READING: list[Mutant] = []

# Answers to questions, and their intervals.
ANSWERS: list[Mutant] = []

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
SITE_PAGES, RUN_PAGES = "tests/report/test_site_page.py::", "tests/report/test_pages.py::"
VERIFY, VERIFIED = "choral.report.verify:", "tests/report/test_verify.py::"
TERMS = VERIFIED + "test_a_ledger_whose_charges_name_another_adversary_rule_or_adjacency_is_found"
PROBING = "choral.protocol.probing:"
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
        "choral.deploy.site_result:_of_the_run",
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
        'name.endswith(".html") and (odd := never_written(there))',
        "(odd := '')",
        RUN_PAGES + "test_a_page_of_another_version_shows_no_other_epsilon_and_has_nothing_that_hides_or_runs",
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
        "adds_up({n: self.answers[n][: self.terms.probes] for n in included}, "
        "self.expected(integers)[: self.terms.probes])",
        WATCHED,
    ),
    bug(
        "a watched direction unread in an opened turn",
        PROBING + "_fault",
        "asked.expected(integers).tolist() != asked.answers[number].tolist()",
        "asked.expected(integers).tolist()[: terms.probes] != asked.answers[number].tolist()[: terms.probes]",
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
        "choral.robust:Evidence.take",
        "device in seen.devices",
        "False",
        "tests/test_robust.py::test_a_quiet_push_is_named_by_its_watched_past_before_probes_alone_show_it",
    ),
    bug(
        "accuracy judges a rare class",
        "choral.planner.worth_joining:happened",
        "measured.rarest < RARE",
        "False",
        "tests/run/test_verdicts.py::test_where_a_class_is_rare_log_loss_and_area_decide_and_not_the_accuracy",
    ),
]

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]
