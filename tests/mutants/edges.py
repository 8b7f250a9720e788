"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug
from tests.mutants.planting import Change

SITE, COMPARING, OWNERSHIP = "choral.deploy.site:", "choral.deploy.comparing:", "choral.deploy.ownership:"
SWAPPED, OWNED = "tests/attacks/test_swapped_files.py::", "tests/deploy/test_ownership.py::"

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
APPROVALS: list[Mutant] = [
    bug(
        "a study is read again after the yes",
        SITE + "Home.accept",
        "study, policy, held = (shown.study, shown.policy, shown.held)",
        "study, policy, held = (Agreement.read(shown.file), shown.policy, shown.held)",
        SWAPPED + "test_a_study_that_is_swapped_while_it_is_on_the_screen_is_not_approved",
        Change(SITE + "Home.accept", "config.read_text(shown.file) != shown.text", "False"),
        Change(SITE + "Home.accept", "self._preview(study, policy, held, shown.code) != shown.preview", "False"),
    ),
    bug(
        "a ledger that has changed under the screen",
        SITE + "Home.accept",
        "self._preview(study, policy, held, shown.code) != shown.preview",
        "False",
        SWAPPED + "test_what_the_screen_said_of_the_ledger_must_still_hold",
    ),
    bug(
        "a yes for a study that nobody compared",
        COMPARING + "require_compared",
        "_read(home / FILE).study == study.digest.hex()",
        "_read(home / FILE).study",
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
        "choral.deploy.public_test:keep_test",
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
        "choral.protocol.vault:Vault.room",
        "len(self._sealed_bytes()) + _GROWTH",
        "0",
        "tests/protocol/test_vault.py::test_a_vault_without_room_says_so_before_anything_else_happens",
    ),
    bug(
        "charges of a round that nobody counts",
        "choral.privacy.balance:Balance.count",
        "[(charge.plan, None), (charge.plan, charge.round)]",
        "[(charge.plan, None)]",
        "tests/attacks/test_deployed_sites.py::test_a_crash_before_the_vault_has_noted_a_charge_allows_no_third_one",
    ),
]

# Frames that the server signs, answers that a card signs, and the gate.
SPEAKERS: list[Mutant] = []

# Pages, verdicts, and what `choral verify` compares.
PAGES: list[Mutant] = []

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]
