"""A site's home: its keys, its ledger, the server that it knows, and the study that its owner approved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import numpy as np

from choral import config
from choral.accounting.calibrate import within_draws
from choral.core.chain import Receipt
from choral.core.costs import Costs, spare_uploads
from choral.core.display import figures_up, up
from choral.core.errors import ConfigError, StorageError, TrustError
from choral.core.events import epsilon_of
from choral.core.exposure import rounds_each
from choral.core.keys import HYBRID, Identity, available, check_name
from choral.core.ledger import Charge, Ledger
from choral.core.mechanisms import mechanism_of
from choral.core.printable import count
from choral.core.rules import seen_by
from choral.core.vault import FileStore, Memory, Vault
from choral.deploy import pinned
from choral.deploy.certificates import node_key
from choral.deploy.comparing import COMPARED, drawn_for, require_compared
from choral.deploy.embeddings import KeepingEncoder
from choral.deploy.enrolment import AUTHORITY, STUDY, Invitation, Joined, card_of, keep, keep_json, private
from choral.deploy.ownership import check_owner, check_ways
from choral.deploy.pinned import Approval
from choral.deploy.policy import Policy, trusting, weaker
from choral.deploy.preview import Preview
from choral.deploy.register import Holder, Register
from choral.deploy.reserving import SLACK, asks_in_words, balances_under, check_spare, reserve_in
from choral.learning.once import OnceTraining
from choral.learning.trainer import LocalTraining
from choral.record import converted, read_json
from choral.run.agreement import Agreement
from choral.run.code import Code
from choral.run.deployable import check_names
from choral.run.devices import trainer_of
from choral.run.enrolled import Enrolled
from choral.run.names import require_device_name
from choral.run.study import check_columns, check_rows
from choral.tables.cells import OPEN, Format

JOINED, APPROVAL, NODE_KEY, SOCKET, LOG = "site.json", "approval.json", "node.key", "agent.sock", "log.jsonl"
RECEIPTS = "receipts"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class Holdings:
    """What a device holds for one study: its rows, ready to train on, what rounds cost it, and its table's digest."""

    trainer: LocalTraining | OnceTraining
    costs: Costs
    table: str  # of what the study reads, in the order of its rows
    whole: str  # of all columns, in any order of rows
    written: Format  # how the table was read, with nothing left open


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownStudy:
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
    register: Register | None
    preview: Preview


class Home:
    """The folder of one site, for its owner's eyes only; one home is one table, one ledger and one identity."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def join(
        cls,
        path: Path,
        invitation: Invitation,
        name: str,
        *,
        passphrase: str | None = None,
        again: bool = False,
        plain: bool = False,
    ) -> Self:
        """A home with keys made here; with `again` one that is there keeps them and its ledger, for another server.

        Where an earlier join was cut off after it had made keys, those are kept, and this one goes on. A `plain` card
        is one that choral 0.1 can read.
        """
        home = cls(path)
        offers = (HYBRID,) if available() and not plain else ()
        _ = invitation.fingerprint
        check_ways(path)
        if (path / JOINED).exists():
            if not again or home.joined.name != name:
                raise StorageError(
                    "CH800",
                    f'is the home of "{home.joined.name}" already.',
                    where=str(path),
                    fix="Choose another --home; or --again, with the same --name, to follow another invitation.",
                )
            (path / APPROVAL).unlink(missing_ok=True)  # first: nothing is approved for the other server
            node = home.joined.node if (path / NODE_KEY).exists() else home.fresh_node_key()
            keep(path / AUTHORITY, invitation.certificate)
            keep_json(path / JOINED, msgspec.structs.replace(home.joined, node=node, server=invitation, offers=offers))
            return home
        check_name(name)
        require_device_name(name)
        if FileStore(path / "vault").exists():
            home._check_goes_on(name, passphrase)
            (path / APPROVAL).unlink(missing_ok=True)
        else:
            private(path)
            memory = Memory(id=name, secret=Identity.fresh(name).to_bytes())
            Vault.create(FileStore(path / "vault"), memory, passphrase)
        node = home.fresh_node_key()
        keep(path / AUTHORITY, invitation.certificate)
        keep_json(path / JOINED, Joined(name=name, node=node, server=invitation, offers=offers))
        return home

    def fresh_node_key(self) -> str:
        """The public half of a new key for the server's gate; the card that is sent next carries it."""
        secret, public = node_key()
        keep(self.path / NODE_KEY, secret.decode())
        return public

    def _check_goes_on(self, name: str, passphrase: str | None) -> None:
        """Nothing, or why a join can't go on with the keys that are here: no second identity takes their place."""
        vault = self.vault(passphrase)
        if vault.memory.id != name:
            raise StorageError(
                "CH800",
                f'holds the keys of "{vault.memory.id}", from a join that was cut off.',
                where=str(self.path),
                fix=f'Go on with --name "{vault.memory.id}", or choose another --home.',
            )
        if passphrase is not None and not vault.sealed:
            raise StorageError(
                "CH803",
                "the vault of a join that was cut off is there, and not sealed.",
                where=str(self.path),
                fix="Go on without --passphrase-file, or choose another --home.",
            )

    @property
    def joined(self) -> Joined:
        """Who this device is; CH802 where nobody has joined."""
        if not (self.path / JOINED).exists():
            raise StorageError(
                "CH802", "is no home of a device.", where=str(self.path), fix="choral device join INVITATION makes one."
            )
        return _decoded(self.path / JOINED, Joined)

    @property
    def approval(self) -> Approval:
        """What the owner approved, or CH603."""
        if not self.has_approved:
            raise TrustError(
                "CH603", "no study is approved here.", where=str(self.path), fix="choral device approve STUDY …"
            )
        return _decoded(self.path / APPROVAL, Approval)

    @property
    def has_approved(self) -> bool:
        """Whether a study was approved here; `approved` checks whether that still holds."""
        return (self.path / APPROVAL).exists()

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.path / "ledger"

    @property
    def socket(self) -> Path:
        """Where the agent listens."""
        return self.path / SOCKET

    def receipt_path(self, study: Agreement) -> Path:
        """Where this site keeps what it signed at the end of a study's run."""
        return self.path / RECEIPTS / f"{study.file.run}.json"

    def vault(self, passphrase: str | None = None) -> Vault:
        """The vault, opened; CH801 in a home of another user, CH618 in one that others may change."""
        if self.path.exists():
            check_owner(self.path)
            check_ways(self.path)
        return Vault.open(FileStore(self.path / "vault"), passphrase)

    def card(self, passphrase: str | None = None) -> Enrolled:
        """What the coordinator needs of this device; all of it is public."""
        return self._card_of(self.vault(passphrase).memory)

    def _card_of(self, memory: Memory) -> Enrolled:
        joined = self.joined
        return card_of(Identity(memory.id, memory.secret, joined.offers), joined.node)

    def check_known(self, study: Agreement, vault: Vault) -> None:
        """Nothing, or CH601: the study names another server than the invitation, or other keys than this device has."""
        joined = self.joined
        server = (study.file.address, study.file.certificate, study.file.server_key)
        if server != (joined.server.address, joined.server.certificate, joined.server.server_key):
            raise TrustError(
                "CH601",
                "the server's address, certificate or key is not the one of the invitation.",
                fix="Ask the coordinator by phone; if it is right, join again with the new invitation and --again.",
            )
        own = self._card_of(vault.memory)
        listed = next((device for device in study.file.devices if device.id == own.id), None)
        if listed is None or (listed.bundle, listed.node) != (own.bundle, own.node):
            raise TrustError(
                "CH601",
                f'the study does not hold the keys of device "{own.id}" as they are here.',
                fix="Send the card again; never take part under keys that somebody else made.",
            )

    def holdings(self, study: Agreement, policy: Policy, data: Path, vault: Vault, written: Format = OPEN) -> Holdings:
        """The table by the study's declared columns, and its costs; CH305 with fewer rows than the plan is for."""
        table = study.table_in(data, written)
        features, labels = study.units_of(table)
        digest = study.digest_of(table)
        trainer = trainer_of(
            study.settled.trained,
            study.plan,
            features,
            labels,
            secret=vault.memory.secret,
            run=study.run_name,
            rounds=0,
            table=digest,
        )
        if policy.delta > 1 / len(labels):
            raise ConfigError(
                "CH102", f"δ = {policy.delta:g}.", fix=f"Must be at most 1/rows (here {1 / len(labels):.1e}): --delta."
            )
        check_columns(study.job, table)
        check_rows(study.job, table.rows)
        costs = Costs(
            plan=study.plan, secure=study.secure, rows=np.array([len(labels)]), limits=(policy.budget,),
            names=(self.joined.name,), questions=study.settled.costs.questions,
        )  # fmt: skip
        return Holdings(
            trainer=trainer, costs=costs, table=digest, whole=table.digest(sorted(table.columns), ordered=False),
            written=table.written,
        )  # fmt: skip

    def open_ledger(self, vault: Vault, policy: Policy | None = None) -> Ledger:
        """The ledger for writing, with the limits of this policy if one is given; an old one is refused (CH402)."""
        receipt = receipt_of(vault)
        if policy is None:
            return Ledger.open(self.ledger_path, device=self.joined.name, receipt=receipt)
        limit, sum_epsilon = policy.budget, policy.epsilon_sum
        if receipt is None and not self.ledger_path.exists():
            return Ledger.open(self.ledger_path, limit=limit, sum_epsilon=sum_epsilon, device=self.joined.name)
        ledger = Ledger.open(self.ledger_path, receipt=receipt)
        if (ledger.limit, ledger.sum_epsilon) != (limit, sum_epsilon):
            ledger.set_limit(limit, sum_epsilon)
        return ledger

    def approve(
        self,
        study_file: Path,
        policy: Policy,
        data: Path,
        *,
        passphrase: str | None = None,
        record: bool = False,
        register: Register | None = None,
        written: Format = OPEN,
    ) -> Preview:
        """What the study would cost and send, recorded if wanted, for who has no screen to wait at."""
        shown = self.propose(study_file, policy, data, passphrase=passphrase, register=register, written=written)
        if record:
            self.accept(shown, passphrase=passphrase)
        return shown.preview

    def propose(
        self,
        study_file: Path,
        policy: Policy,
        data: Path,
        *,
        passphrase: str | None = None,
        register: Register | None = None,
        written: Format = OPEN,
        compared: bool = False,
        spare: bool = False,
    ) -> ShownStudy:
        """What the study would cost and send, after one round of training that stays here; nothing is approved by it.

        With the `register` of this machine's homes, a table that another of them has approved is refused (CH314).
        With `compared`, the study must be the one that was read here last, whose number the others were given (CH614).
        With `spare`, the limit must have room for attempts that fail (CH413).
        """
        text = config.read_text(study_file)
        study = Agreement.of(text, str(study_file))
        check_names(study.file, study.job)
        vault = self.vault(passphrase)
        _ = study.server_key  # refuses a study of before, in which anybody may speak as the server
        self.check_known(study, vault)
        if compared:
            require_compared(self.path, study)
        policy.check(study)
        policy.check_keys(study)
        within_draws(study.plan)  # here alone: a study that was approved by an earlier version goes on
        code = policy.code_of(study)
        study = trusting(study, code, KeepingEncoder.at(self.path, study, policy))
        held = self.holdings(study, policy, data, vault, written)
        if register is not None:
            register.check(held.whole, self._holder(vault))
        keep(self.path / COMPARED, study.text)
        preview = self._preview(study, policy, held, code)
        if spare:
            self._check_spare(study, policy, held)
        held.trainer.trial(study.settled.trained.start(0))
        return ShownStudy(
            study=study, file=study_file, text=text, policy=policy, data=data, held=held, code=code,
            register=register, preview=preview,
        )  # fmt: skip

    def accept(self, shown: ShownStudy, *, passphrase: str | None = None) -> None:
        """Record what was shown, as it was shown: CH617 where its file, or this home, is no longer what it was then."""
        study, policy, held = shown.study, shown.policy, shown.held
        if config.read_text(shown.file) != shown.text:
            raise _no_longer_shown("the study's file was exchanged while it was on the screen", shown.file)
        if self._preview(study, policy, held, shown.code) != shown.preview:
            raise _no_longer_shown("this home was shown another study since, or its ledger has changed", self.path)
        with self.open_ledger(self.vault(passphrase), policy) as ledger:
            vault = self.vault(passphrase)  # read under the lock: what an agent wrote last is in it
            holder = self._holder(vault)
            if shown.register is not None:
                shown.register.check(held.whole, holder)
            since = self._passes_began(study, held, ledger.balance.charges)
            reserve_in(ledger, study, held.costs, began=since)
            vault.change(receipt=(ledger.receipt.entries, ledger.receipt.seal))
        if shown.register is not None:
            shown.register.add(held.whole, holder)
        vault.approve(roster=study.terms.roster_digest, terms=study.terms.digest)
        keep(self.path / STUDY, study.text)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        approval = Approval(
            study=study.digest.hex(), at=now, data=str(shown.data.resolve()), policy=policy, table=held.table,
            code=shown.code, since=since, written=held.written, rows=held.trainer.rows, keys=True,
        )  # fmt: skip
        keep_json(self.path / APPROVAL, approval)

    def _holder(self, vault: Vault) -> Holder:
        return Holder(identity=self._card_of(vault.memory).identity, home=str(self.path.resolve()))

    def _passes_began(self, study: Agreement, held: Holdings, charges: Sequence[Charge]) -> int:
        known = self.approval if self.has_approved else None
        goes_on = known is not None and (known.study, known.table) == (study.digest.hex(), held.table)
        return pinned.passes_began(study.run_name, charges, known.since if known is not None and goes_on else None)

    def _preview(self, study: Agreement, policy: Policy, held: Holdings, code: Code | None) -> Preview:
        planned, delta, limit = rounds_each(study.plan), policy.delta, policy.epsilon
        cost, by = held.costs.spent(0, planned, delta), held.costs.rule(0)
        if cost > limit * SLACK:
            raise weaker(
                f"its {count(planned, 'round')} would cost ε = {figures_up(cost, 4)} at δ = {delta:g} ({by.adjacency}, "
                f"rule {by.rule}, against {by.adversary}), the policy grants {limit:g}",
                _way_out(held.costs.spent(0, planned + spare_uploads(planned), delta), planned),
            )
        balances = balances_under(policy.budget, policy.epsilon_sum, self.ledger_path, device=self.joined.name)
        balance, terms = balances.everyone, study.terms
        spent, began = balance.reserved, self._passes_began(study, held, balance.charges)
        spent_of_sums = 0.0 if policy.epsilon_sum is None else balances.sums.reserved
        before = balance.terms  # of what earlier studies took: neighbours may differ in something else there
        reserve_in(balances, study, held.costs, began=began)
        uploads = balance.uploads_of(study.run_name)
        return Preview(
            study=study.file.name,
            safety_number=study.safety_number,
            own_number=drawn_for(self.path, self.joined.name, study).number,
            hybrid=study.hybrid,
            device=self.joined.name,
            devices=terms.ids,
            device_numbers=tuple(bundle.safety_number for bundle in study.roster),
            columns=study.reads,
            shape=tuple(study.job.data.row_shape or ()),
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
            noise_on=mechanism_of(study.plan).noise_on,
            delta=delta,
            epsilon_a_round=epsilon_of([held.costs.event(0, 0)], delta),
            epsilon_planned=cost,
            epsilon_sum_planned=held.costs.epsilon_of_sums(held.costs.exposure(0, planned), delta),
            sum_rule=held.costs.rule_of_sums(0),
            sum_adversary=seen_by(study.plan, study.secure, "server and colluders"),
            uploads=uploads,
            epsilon_uploads=held.costs.spent(0, uploads, delta),
            epsilon_spent_before=spent,
            terms_before=before,
            epsilon_limit=limit,
            epsilon_sum_limit=policy.epsilon_sum,
            epsilon_sum_spent_before=spent_of_sums,
            smallest_sum=study.secure.smallest_sum,
            colluders=study.secure.colluders,
            crowd=study.secure.honest_noises(study.secure.adversary),
            lying=study.secure.lying,
            probes=study.plan.probes,
            opened_turns=study.plan.opened_turns,
            asks=asks_in_words(study, held.costs, delta, policy.struck),
        )

    def _check_spare(self, study: Agreement, policy: Policy, held: Holdings) -> None:
        """Nothing, or CH413 where the limits have no room for attempts that fail."""
        balances = balances_under(policy.budget, policy.epsilon_sum, self.ledger_path, device=self.joined.name)
        reserve_in(balances, study, held.costs, began=self._passes_began(study, held, balances.everyone.charges))
        check_spare(balances, study, held.costs, self.ledger_path)

    def approved(self, vault: Vault) -> tuple[Agreement, Approval]:
        """The study that was approved, as it was approved: any later change of it, or of the server, is refused."""
        approval, study = self.approval, Agreement.read(self.path / STUDY)
        if study.digest.hex() != approval.study:
            raise TrustError(
                "CH603",
                "the study is not the one that was approved here.",
                where=str(self.path / STUDY),
                fix="Approve it again: choral device approve STUDY …",
            )
        self.check_known(study, vault)
        approval.policy.check(study)
        if approval.keys:
            approval.policy.check_keys(study)
        return trusting(study, approval.code, KeepingEncoder.at(self.path, study, approval.policy)), approval

    def approved_holdings(self, study: Agreement, approval: Approval, vault: Vault) -> Holdings:
        """What the device holds for its approved study; any other table than the approved one is refused (CH313)."""
        held = self.holdings(study, approval.policy, Path(approval.data), vault, approval.written)
        pinned.check_table(held.table, approval.table, data=Path(approval.data))
        return held


def _no_longer_shown(what: str, where: Path) -> TrustError:
    return TrustError(
        "CH617",
        f"{what}. Nothing was recorded.",
        where=str(where),
        fix="Ask the coordinator by phone who changed it; then look at it again: choral device approve STUDY …",
    )


def receipt_of(vault: Vault) -> Receipt | None:
    """What the vault knows of its ledger: how long it was and how it ended, when last charged."""
    known = vault.memory.receipt
    return None if known is None else Receipt(entries=known[0], seal=known[1])


def _decoded(path: Path, kind: type[T]) -> T:
    return converted(read_json(path), kind, path, "Restore it, or join again.")


def _way_out(cost: float, planned: int) -> str:
    """The limit that pays for the planned rounds, and for the attempts that may fail without which none is approved."""
    if not math.isfinite(cost):
        return "a larger --delta"
    return f"--max-epsilon {up(cost)}, which has room for {count(spare_uploads(planned), 'attempt')} that may fail"
