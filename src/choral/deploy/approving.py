"""An owner decides about a study: what it would cost and send, whether all sites hold the same one, and the record.

Sites find out by phone that they hold the same study: each reads six digits, and each two compare six more. A site
draws its number after it has read the study, so nobody can choose a study by it. The check of two sites is a hash of
the study and of their two numbers: two different studies give the same one by chance only, however long one has
searched. No third site has a part in it, or the last one to speak could choose its number so that checks agree.
"""

import math
import os
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import msgspec

from choral import config
from choral.accounting.costs import NO_LIMIT, Costs, spare_uploads
from choral.accounting.ledger_statement import terms_of
from choral.accounting.proofs import rounds_each
from choral.accounting.reserves import within_draws
from choral.accounting.words import seen_by, up, words_of
from choral.core.errors import LedgerError, StorageError, TableError, TrustError
from choral.core.events import epsilon_of
from choral.core.exposure import ADJACENCY, EVERYONE, SUMS
from choral.core.keys import digest, safety_number
from choral.core.ledger import Balance, Ledger
from choral.core.plan import Budget
from choral.core.printable import count, figures_up
from choral.core.private_sums import RULE
from choral.core.vault import Vault
from choral.deploy.home import (
    APPROVAL,
    SLACK,
    Approval,
    Code,
    Holdings,
    Home,
    KeepingEncoder,
    Policy,
    reserve_in,
    trusting,
    weaker,
)
from choral.deploy.ownership import keep, keep_json
from choral.record import STUDY, converted, read_json
from choral.run.agreement import Agreement, check_names
from choral.run.folder import write_whole
from choral.run.questions import AskTerms
from choral.tables.cells import OPEN, Format

_NO_MORE = "the limit pays for no more, and each attempt that fails costs a round"


@dataclass(frozen=True, kw_only=True, eq=False)
class ProposedStudy:
    """A study as it was read once, with all that an approval would fix; `preview` is what its owner is shown of it.

    What is recorded is this value. The files that it was read from may be exchanged while somebody reads the screen.
    """

    study: Agreement
    file: Path
    text: str
    policy: Policy
    data: Path
    held: Holdings
    code: Code | None
    register: "Register | None"
    preview: SimpleNamespace


def approve(
    home: Home,
    study_file: Path,
    policy: Policy,
    data: Path,
    *,
    passphrase: str | None = None,
    record: bool = False,
    register: "Register | None" = None,
    written: Format = OPEN,
) -> SimpleNamespace:
    """It is what the study would cost and send, recorded if wanted, for who has no screen to wait at."""
    shown = propose(home, study_file, policy, data, passphrase=passphrase, register=register, written=written)
    if record:
        accept(home, shown, passphrase=passphrase)
    return shown.preview


def propose(
    home: Home,
    study_file: Path,
    policy: Policy,
    data: Path,
    *,
    passphrase: str | None = None,
    register: "Register | None" = None,
    written: Format = OPEN,
    compared: bool = False,
    spare: bool = False,
) -> ProposedStudy:
    """It is what the study would cost and send, after one round of training that stays here; nothing is approved by it.

    With the `register` of this machine's homes, a table that another of them has approved is refused (CH314).
    With `compared`, the study must be the one that was read here last, whose number the others were given (CH614).
    With `spare`, the limit must have room for attempts that fail (CH413).
    """
    text = config.read_text(study_file)
    study = Agreement.of(text, str(study_file))
    check_names(study.file, study.job)
    vault = home.vault(passphrase)
    study.require_runnable()
    home.check_known(study, vault)
    if compared:
        require_compared(home.path, study)
    policy.check(study)
    policy.check_keys(study)
    within_draws(study.plan)  # here alone: a study that was approved by an earlier version goes on
    code = policy.code_of(study)
    study = trusting(study, code, KeepingEncoder.at(home.path, study, policy))
    held = home.holdings(study, policy, data, vault, written)
    if register is not None:
        register.check(held.whole, _holder(home, vault))
    keep(home.path / COMPARED, study.text)
    preview = _preview(home, study, policy, held, code)
    if spare:
        _check_spare(home, study, policy, held)
    held.trainer.trial(study.settled.trained.start(0))
    return ProposedStudy(
        study=study, file=study_file, text=text, policy=policy, data=data, held=held, code=code,
        register=register, preview=preview,
    )  # fmt: skip


def accept(home: Home, shown: ProposedStudy, *, passphrase: str | None = None) -> None:
    """Record what was shown, as it was shown: CH617 where its file, or this home, is no longer what it was then."""
    study, policy, held = shown.study, shown.policy, shown.held
    if config.read_text(shown.file) != shown.text:
        raise _no_longer_shown("the study's file was exchanged while it was on the screen", shown.file)
    if _preview(home, study, policy, held, shown.code) != shown.preview:
        raise _no_longer_shown("this home was shown another study since, or its ledger has changed", home.path)
    with home.open_ledger(home.vault(passphrase), policy) as ledger:
        vault = home.vault(passphrase)  # read under the lock: what an agent wrote last is in it
        holder = _holder(home, vault)
        if shown.register is not None:
            shown.register.check(held.whole, holder)
        since = home.passes_began(study, held, ledger.balance.charges)
        reserve_in(ledger, study, held.costs, began=since)
        vault.change(receipt=(ledger.receipt.entries, ledger.receipt.seal))
    if shown.register is not None:
        shown.register.add(held.whole, holder)
    vault.approve(roster=study.terms.roster_digest, terms=study.terms.digest)
    keep(home.path / STUDY, study.text)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    approval = Approval(
        study=study.digest.hex(), at=now, data=str(shown.data.resolve()), policy=policy, table=held.table,
        code=shown.code, since=since, written=held.written, rows=held.trainer.rows, keys=True,
    )  # fmt: skip
    keep_json(home.path / APPROVAL, approval)


def _holder(home: Home, vault: Vault) -> "Holder":
    return Holder(identity=home.card_of(vault.memory).identity, home=str(home.path.resolve()))


def _preview(home: Home, study: Agreement, policy: Policy, held: Holdings, code: Code | None) -> SimpleNamespace:
    """An approval would mean this, in numbers and names, as machines and people are shown it; it stays here."""
    planned, delta, limit = rounds_each(study.plan), policy.delta, policy.epsilon
    cost, by = held.costs.spent(0, planned, delta), held.costs.rule(0)
    if cost > limit * SLACK:
        raise weaker(
            f"its {count(planned, 'round')} would cost ε = {figures_up(cost, 4)} at δ = {delta:g} ({by.adjacency}, "
            f"rule {by.rule}, against {by.adversary}), the policy grants {limit:g}",
            _way_out(held.costs.spent(0, planned + spare_uploads(planned), delta), planned),
        )
    balance = balance_under(policy.budget, policy.epsilon_sum, home.ledger_path, device=home.joined.name)
    terms = study.terms
    spent, began = balance.reserved, home.passes_began(study, held, balance.charges)
    spent_of_sums = 0.0 if policy.epsilon_sum is None else balance.against(SUMS).reserved
    before = terms_of(balance)  # of what earlier studies took: neighbours may differ in something else there
    reserve_in(balance, study, held.costs, began=began)
    uploads = balance.uploads_of(study.run_name)
    return SimpleNamespace(
        study=study.file.name,
        safety_number=study.safety_number,
        own_number=drawn_for(home.path, home.joined.name, study).number,  # six digits for comparing the study
        hybrid=study.hybrid,  # whether keys are agreed in the run and erased turn by turn
        device=home.joined.name,
        devices=terms.ids,
        device_numbers=tuple(bundle.safety_number for bundle in study.roster),
        columns=study.reads,
        shape=tuple(study.job.data.row_shape or ()),  # of a row, where rows are arrays and have no columns
        encoder=policy.encoder and f"{policy.encoder} (SHA-256 {study.job.data.encoder_sha256})",
        label=study.target.name,
        classes=study.settled.data.classes,
        model=study.settled.model.name if code is None else code.name,
        code_path="" if code is None else code.path,
        code_sha256="" if code is None else code.sha256,
        parameters=terms.parameters,
        rows=held.trainer.rows,
        rounds=study.plan.rounds,
        planned_rounds=planned,
        upload_bytes=terms.upload_bytes,
        download_bytes=terms.model_bytes,
        rule=by.rule,
        adjacency=by.adjacency,
        unit=study.plan.unit,
        adversary=by.adversary,
        law=study.plan.law,
        noise=study.plan.noise,
        noise_on=words_of(study.plan).noise_on,
        delta=delta,
        epsilon_a_round=epsilon_of([held.costs.of(0).event(0)], delta),
        epsilon_planned=cost,
        epsilon_sum_planned=held.costs.epsilon_of_sums(held.costs.of(0).exposure(planned), delta),
        sum_rule=held.costs.rule_of_sums(0),
        sum_adversary=seen_by(study.plan, study.secure, "server and colluders"),
        uploads=uploads,  # the most that this approval allows: what is planned, and an allowance for what fails
        epsilon_uploads=held.costs.spent(0, uploads, delta),
        epsilon_spent_before=spent,
        terms_before=before,  # what earlier charges cover together, by which rules and against whom
        epsilon_limit=limit,
        epsilon_sum_limit=policy.epsilon_sum,
        epsilon_sum_spent_before=spent_of_sums,
        smallest_sum=study.secure.smallest_sum,
        colluders=study.secure.colluders,
        crowd=study.secure.honest_noises(study.secure.adversary),
        lying=study.secure.lying,  # whether the sum withstands a server that lies, and not only a curious one
        probes=study.plan.probes,
        opened_turns=study.plan.opened_turns,
        asks=asks_in_words(study, held.costs, delta, policy.struck),
    )


def _check_spare(home: Home, study: Agreement, policy: Policy, held: Holdings) -> None:
    """It raises CH413 where the limits have no room for attempts that fail."""
    balance = balance_under(policy.budget, policy.epsilon_sum, home.ledger_path, device=home.joined.name)
    reserve_in(balance, study, held.costs, began=home.passes_began(study, held, balance.charges))
    check_spare(balance, study, held.costs, home.ledger_path)


def _no_longer_shown(what: str, where: Path) -> TrustError:
    return TrustError(
        "CH617",
        f"{what}. Nothing was recorded.",
        where=str(where),
        fix="Ask the coordinator by phone who changed it; then look at it again: choral device approve STUDY …",
    )


def _way_out(cost: float, planned: int) -> str:
    """The limit that pays for the planned rounds, and for the attempts that may fail without which none is approved."""
    if not math.isfinite(cost):
        return "a larger --delta"
    return f"--max-epsilon {up(cost)}, which has room for {count(spare_uploads(planned), 'attempt')} that may fail"


# The limits of an approval


def balance_under(limit: Budget, sum_epsilon: float | None, ledger: Path, *, device: str) -> Balance:
    """A ledger's balance as it would be under these limits, in memory; empty where there is no ledger yet."""
    if not ledger.exists():
        return Balance(device=device, limit=limit, sum_epsilon=sum_epsilon)
    balance = Ledger.read(ledger).balance
    balance.adopt()
    balance.set_limit(limit, sum_epsilon)
    return balance


def check_spare(balance: Balance, study: Agreement, costs: Costs, ledger: Path) -> None:
    """It raises CH413 where limits pay for the planned rounds of a new study and for too few attempts that fail.

    `balance` has reserved the study by now; `ledger` is the file that it was read from.
    """
    planned, run = rounds_each(study.plan), study.run_name
    wanted, spare = spare_uploads(planned), balance.uploads_of(run) - planned
    if spare >= wanted or balance.charges_of(run):
        return
    free = balance_under(
        replace(balance.limit, epsilon=NO_LIMIT),
        None if balance.sum_epsilon is None else NO_LIMIT,
        ledger,
        device=balance.device,
    )
    reserve_in(free, study, costs, most=planned + wanted)
    limits = f"--max-epsilon {up(free.reserved)}"
    if balance.sum_epsilon is not None:
        limits += f" --max-epsilon-sum {up(free.against(SUMS).reserved)}"
    raise LedgerError(
        "CH413",
        f"the limit pays for the {count(planned, 'planned round')} and {count(spare, 'failed attempt')}, "
        f"{wanted} is the least.",
        why="An attempt that fails is charged, too: each one more would cost the study a round of this site.",
        fix=f"Only the owner can decide: {limits} has room for {wanted}; --no-spare approves without.",
    )


def cap_in_words(*, planned: int, uploads: int, epsilon: float, terms: str) -> str:
    """It is what the approval screen says of the cap; `terms` are δ, adjacency, rule and adversary.

    >>> print(cap_in_words(planned=13, uploads=17, epsilon=2.3, terms="δ = 1e-05, …")[:76])
    at most 17 uploads (4 more than planned, for attempts that fail), so at most
    """
    more = uploads - planned
    extra = f"{more} more than planned, for attempts that fail" if more > 0 else _NO_MORE
    cap = f"at most {count(uploads, 'upload')} ({extra})"
    return f"{cap}, so at most ε = {up(epsilon)}, whatever the server asks ({terms})"


def asks_in_words(study: Agreement, costs: Costs, delta: float, struck: Collection[str] = ()) -> str:
    """It is what the approval screen says of questions; empty where the study may ask none."""
    if costs.questions is None:
        return ""
    terms = AskTerms.of(study.job, run=study.run_name, devices=len(study.roster)).without(struck)
    epsilon, price = epsilon_of([costs.questions.reserved], delta), costs.questions
    return (
        f"at most {count(price.most, 'question')} ({', '.join(terms.names)}) about the columns "
        f"{', '.join(terms.columns)}; "
        f"all of them together cost ε = {up(epsilon)} (δ = {delta:g}, {ADJACENCY}, rule {RULE}, against {EVERYONE}), "
        "which is part of the planned ε. choral device questions shows each in words"
    )


# The tables of this machine

TABLES = "tables.json"
ALLOW = "--second-home"


class Holder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The home that approved a table: its device's public identity, in hex, and where it was then."""

    identity: str
    home: str


class Register:
    """The tables that were approved by this user on this machine; a home that was moved is known by its identity.

    It is there to notice an accident, two budgets over one table, and no proof that there is only one.
    """

    def __init__(self, *, second_home: bool = False) -> None:
        self.path, self.second_home = _state_folder() / TABLES, second_home

    def check(self, table: str, holder: Holder) -> None:
        """It raises CH314 where another home has approved the table with this digest, unless a second is wanted."""
        others = (known for known in self._tables().get(table, ()) if known.identity != holder.identity)
        if not self.second_home and (other := next(others, None)) is not None:
            raise TableError(
                "CH314",
                f"this table was approved in another home, {other.home}, which has its own ledger.",
                why="The same people would lose privacy by both ledgers, and neither counts the other.",
                fix=f"Approve it in that home; or add {ALLOW}, if you mean to spend both budgets on these people.",
            )

    def add(self, table: str, holder: Holder) -> None:
        """Note that a home has approved a table."""
        tables = self._tables()
        others = [known for known in tables.get(table, ()) if known.identity != holder.identity]
        tables[table] = [*others, holder]
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fix = "Free some space, fix the folder's permissions, or set XDG_STATE_HOME."
        write_whole(self.path, msgspec.json.format(msgspec.json.encode(tables)), mode=0o600, fix=fix)

    def _tables(self) -> dict[str, list[Holder]]:
        if not self.path.exists():
            return {}
        try:
            return msgspec.convert(read_json(self.path), type=dict[str, list[Holder]])
        except msgspec.ValidationError:
            raise TableError(
                "CH314", "can't be read: nobody knows which tables are approved here.", where=str(self.path),
                fix="Restore it; or delete it, if each table has one home.",
            ) from None  # fmt: skip


def _state_folder() -> Path:
    """It is where this user's programs keep what they remember, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "choral"


# The number that sites compare

NUMBERS = "compare.json"
COMPARED = "compared.toml"  # the study whose number was drawn, as it was read here
DIGITS = 6


class DrawnNumber(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """compare.json: the study that a site has read, who takes part in it, and the number that the site drew for it.

    `typed` are the numbers of other sites, as far as the owner has typed them.
    """

    study: str  # the digest, in hex
    device: str
    others: tuple[str, ...]
    number: str
    typed: dict[str, str] = {}

    @property
    def study_number(self) -> str:
        """The 60 digits of the study, for comparing in writing: long enough without anything drawn."""
        return safety_number(bytes.fromhex(self.study))

    def with_typed(self, numbers: Iterable[str]) -> Self:
        """The same with the numbers of more sites, each as NAME=NUMBER; CH614 for what is no such thing."""
        typed = dict(self.typed)
        for one in numbers:
            name, _, number = one.rpartition("=")
            if name not in self.others:
                raise _no_number(f"{len(self.others)} other sites are in the study, and none of them was named")
            typed[name] = _digits(number)
        return msgspec.structs.replace(self, typed=typed)

    @property
    def forgotten(self) -> Self:
        """The same without what was typed."""
        return msgspec.structs.replace(self, typed={})

    @property
    def checks(self) -> dict[str, str]:
        """The check with each site whose number was typed, in the order of the study."""
        study, mine = bytes.fromhex(self.study), (self.device, self.number)
        return {name: check_of(study, mine, (name, self.typed[name])) for name in self.others if name in self.typed}

    @property
    def missing(self) -> list[str]:
        """The sites whose number was not typed."""
        return [name for name in self.others if name not in self.typed]


def drawn_for(home: Path, device: str, study: Agreement) -> DrawnNumber:
    """The number of this site for a study: drawn when the study is first read here, and kept while it is the same."""
    path, now = home / NUMBERS, study.digest.hex()
    known = _drawn_number(path) if path.exists() else None
    if known is None or known.study != now:
        others = tuple(bundle.id for bundle in study.roster if bundle.id != device)
        number = f"{secrets.randbelow(10**DIGITS):0{DIGITS}}"
        known = DrawnNumber(study=now, device=device, others=others, number=number)
        keep_json(path, known)
    return known


def require_compared(home: Path, study: Agreement) -> None:
    """It raises CH614 for a study whose number this site has never shown: nobody can have compared it."""
    if (home / NUMBERS).exists() and _drawn_number(home / NUMBERS).study == study.digest.hex():
        return
    raise TrustError(
        "CH614",
        "the study is not the one whose number was shown here last, so nobody has compared it.",
        where=str(home / COMPARED),
        why="Without a comparison a coordinator could give each site a study with false keys.",
        fix="Look at it first, without --yes: choral device approve STUDY …; then compare, and then add --yes.",
    )


def keep_typed(home: Path, drawn: DrawnNumber) -> None:
    """Keep the numbers that the owner has typed: nobody types them twice."""
    keep_json(home / NUMBERS, drawn)


def last_drawn(home: Path) -> DrawnNumber:
    """The number that was drawn last, or CH802 where no study was read yet."""
    if not (home / NUMBERS).exists():
        fix = "choral device approve STUDY … shows one first."
        raise StorageError("CH802", "no study was read here yet.", where=str(home), fix=fix)
    return _drawn_number(home / NUMBERS)


def check_of(study: bytes, one: tuple[str, str], other: tuple[str, str]) -> str:
    """The six digits that two sites with the same study see, each given by its name and its number.

    >>> check_of(b"study", ("a", "417093"), ("b", "582044")) == check_of(b"study", ("b", "582044"), ("a", "417093"))
    True
    """
    fields = [part.encode() for site in sorted((one, other)) for part in site]
    return f"{int.from_bytes(digest('compare', study, *fields), 'big') % 10**DIGITS:0{DIGITS}}"


def _digits(number: str) -> str:
    digits = number.replace(" ", "").replace("-", "")
    if not (digits.isascii() and digits.isdecimal() and len(digits) == DIGITS):
        raise _no_number(
            f"a number has {len(digits)} characters, or some that are no digits; it must have {DIGITS} digits"
        )
    return digits


def _no_number(what: str) -> TrustError:
    return TrustError("CH614", f"{what}.", fix="Type NAME=NUMBER for each other site, as it was read to you.")


def _drawn_number(path: Path) -> DrawnNumber:
    return converted(read_json(path), DrawnNumber, path, "Delete it.")
