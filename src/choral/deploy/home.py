"""A site's home: its keys, its ledger, the server that it knows, and what its owner approved, under which policy."""

import hashlib
import site
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.abc import SourceLoader
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.accounting.costs import Costs, most_uploads
from choral.accounting.proofs import rounds_each
from choral.config import BUILT_IN
from choral.core.errors import ConfigError, StorageError, TableError, TrustError
from choral.core.keys import HYBRID, Identity, available, check_name, require_available
from choral.core.ledger import Balance, Charge, Ledger, Reservation
from choral.core.plan import Budget
from choral.core.printable import count
from choral.core.sealed import Receipt
from choral.core.signed import END
from choral.core.vault import FileStore, Memory, Vault
from choral.deploy.certificates import fingerprint, host_of, node_key
from choral.deploy.ownership import check_owner, check_ways, keep, keep_json, private
from choral.learning.models import Maker
from choral.learning.once import OnceTraining
from choral.learning.trainer import LocalTraining
from choral.record import STUDY, KeptReceipt, converted, read_json
from choral.run.agreement import (
    FORMAT,
    Agreement,
    Enrolled,
    check_server_key,
    other_version,
    require_device_name,
    require_name,
    sent,
)
from choral.run.folder import read_parameters, tensors
from choral.run.study import check_columns, check_rows, encoder_of, plan_of_questions, reserve_questions, trainer_of
from choral.tables.cells import OPEN, Format
from choral.tables.encoder import Encoder
from choral.tables.reading import Table


class Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of Python that an owner trusts under the name that a study has for it; its imports are not pinned."""

    name: str  # module:function
    path: str
    sha256: str

    @classmethod
    def located(cls, name: str, path: Path | None) -> Self:
        """The code of a name in the file that is given, else in an installed module; none of it has run by then."""
        found = path or _installed(name.partition(":")[0])
        if found is None:
            raise TrustError(
                "CH603",
                f'the model "{name}" is of no installed module.',
                why="Code is not looked for in the current folder.",
                fix=f"Install it, or say which file it is, once you have read it: --trust-model {name}=FILE.",
            )
        return cls(name=name, path=str(found.resolve()), sha256=hashlib.sha256(_content(found)).hexdigest())

    def maker(self) -> Maker:
        """The function, run from the very bytes whose hash was compared; CH603 if the file has changed."""
        content = _content(Path(self.path))
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise TrustError(
                "CH603",
                f'the code of the model "{self.name}" has changed since it was approved.',
                where=self.path,
                fix="Put it back, or read it and approve it again: choral device approve STUDY …",
            )
        name, _, function = self.name.partition(":")

        def make(**shapes: int) -> object:
            loader = _Bytes(self.path, content)
            spec = spec_from_loader(name, loader, origin=self.path)
            assert spec is not None  # noqa: S101 - a loader was given
            module = module_from_spec(spec)
            sys.modules.setdefault(name, module)  # for what looks its own module up; never in place of another
            loader.exec_module(module)
            return getattr(module, function)(**shapes)

        return make


class _Bytes(SourceLoader):
    """A loader of one module from bytes in memory; it neither reads nor writes compiled files."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - of this one module
        return self.path

    def get_data(self, path: str | bytes) -> bytes:  # noqa: ARG002 - as above
        return self.content


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            "CH105", f"can't be read: {error.strerror}.", where=str(path), fix="Give the path of a file of Python."
        ) from None


def _installed(module: str) -> Path | None:
    """The file of an installed module, found by looking at folders: to import a part runs its whole package."""
    places: list[str] = _installed_at()
    origin = None
    names = module.split(".")
    for end in range(1, len(names) + 1):
        spec = PathFinder.find_spec(".".join(names[:end]), places)
        if spec is None:
            return None
        places, origin = list(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _installed_at() -> list[str]:
    """It is where packages are installed: neither the current folder nor what PYTHONPATH names."""
    return [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]


JOINED, APPROVAL, NODE_KEY, SOCKET, LOG = "site.json", "approval.json", "node.key", "agent.sock", "log.jsonl"
AUTHORITY, RECEIPTS, EMBEDDINGS = "authority.pem", "receipts", "embeddings"
FLOWER = "flower"  # the folder for what Flower writes: its database, its logs
T = TypeVar("T")

DELTA, CROWD = 1e-5, 2


class Invitation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """It is what a coordinator sends out: where the server is, the certificate by which sites know it, and its key."""

    format: int
    name: str
    address: str
    certificate: str
    server_key: str = ""  # under which it signs its frames; none in a home that joined with choral 0.2

    @classmethod
    def read(cls, path: str | Path) -> "Invitation":
        """The invitation in a file."""
        invitation = sent(path, cls)
        if invitation.format != FORMAT:
            raise other_version(f"the invitation has format {invitation.format}, this choral has {FORMAT}", str(path))
        check_server_key(invitation.server_key, invitation.format, str(path))
        host_of(invitation.address)  # refuses what is none
        require_name("the study's name", invitation.name)
        require_name("the server's address", invitation.address)
        _ = invitation.fingerprint  # refuses what is no certificate
        return invitation

    @property
    def fingerprint(self) -> str:
        """The certificate's SHA-256, to be compared by phone."""
        return fingerprint(self.certificate)


class Joined(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It says who this device is, and the server that it knows from its invitation."""

    name: str
    node: str
    server: Invitation
    offers: tuple[str, ...] = ()  # of its card; none on cards of 0.1


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """It is what the owner of the data agrees to, whatever a server proposes."""

    epsilon: float
    epsilon_sum: float | None = None  # the limit against a server that sees only sums, where the owner sets one
    delta: float = DELTA
    crowd: int = CROWD  # honest devices, this one among them, in any sum that the study's adversary can open
    colluders: int = 0  # devices that the study must count as helping its server
    curious: bool = False  # a secure sum that withstands only a server that follows the protocol will do
    struck: list[str] = []  # names of questions, and columns, that are not answered here, whatever the study allows
    probes: bool = False  # the server may ask for projections of this device's own noisy update, and open some turns
    models: list[str] = []  # "module:function" of others, which runs here; with "=FILE" from that file
    card_keys: bool = False  # keys of the cards will do, where a device of the study can't agree on others
    label: str = ""  # what the owner calls the data; shown here only
    encoder: str = ""  # the file through which this site's rows pass, where the study has an encoder

    @property
    def budget(self) -> Budget:
        """The most that the data may lose, in all runs together."""
        return Budget(epsilon=self.epsilon, delta=self.delta)

    @property
    def _files(self) -> dict[str, str]:
        """The file of each trusted name; empty where it is installed."""
        return {name: file for name, _, file in (model.partition("=") for model in self.models)}

    def code_of(self, study: Agreement) -> Code | None:
        """The code that the study's model runs here, where the owner says that it is; None of a model of choral."""
        kind = study.job.model_kind
        if kind in BUILT_IN:
            return None
        file = self._files[kind]
        return Code.located(kind, Path(file).expanduser() if file else None)

    def check(self, study: Agreement) -> None:
        """It raises CH603 with what is weaker than this policy; no code of the study's model has run by then."""
        kind, secure = study.job.model_kind, study.secure
        if kind not in (*BUILT_IN, *self._files):
            raise weaker(f'it runs the code of "{kind}" here', f"--trust-model {kind}=FILE, once you have read it")
        if study.job.data.encoder is not None and not self.encoder:
            raise weaker(
                f"its rows pass through the encoder {study.job.data.encoder_file}, and no file is named here",
                f"--encoder FILE, whose SHA-256 must be {study.job.data.encoder_sha256}",
            )
        if study.plan.noise <= 0:
            raise weaker("it adds no noise", "a study with epsilon in [privacy]")
        if not secure.lying and not self.curious:
            raise weaker("its sums withstand only a server that follows the protocol", "--allow-curious")
        if study.job.privacy.trusts_sum and self.epsilon_sum is None:
            raise weaker(
                "its ε holds only if the secure sum does, and the policy has a limit against everyone alone",
                "--max-epsilon-sum, and a --max-epsilon for the case that the sum does not hold",
            )
        if study.plan.probes and not self.probes:
            raise weaker(
                f"its server asks for {count(study.plan.probes, 'projection')} of this device's own noisy update "
                f"per round, and may see all of it in {count(study.plan.opened_turns, 'round')}; ε counts that already",
                "--allow-probes",
            )
        if secure.colluders < self.colluders:
            raise weaker(
                f"it counts {count(secure.colluders, 'device')} as helping its server, "
                f"the policy wants {self.colluders}",
                f"--colluders {secure.colluders}; or ask for a study with colluders = {self.colluders} in [federation]",
            )
        if (crowd := secure.honest_noises(secure.adversary)) < self.crowd:
            raise weaker(
                f"a sum may hide this device among {crowd} honest ones only, the policy wants {self.crowd}",
                f"--smallest-crowd {crowd}",
            )

    def check_keys(self, study: Agreement) -> None:
        """It raises CH610 for a study with weaker keys than its cards offer, or than the owner allows.

        The cards are signed by the devices, so no server can make a study look as if it could not have better ones.
        """
        lacking = [device.id for device in study.file.devices if HYBRID not in device.offers]
        if study.hybrid:
            require_available()
            if lacking:
                raise TrustError(
                    "CH610",
                    f'the study has hybrid keys, and the card of "{lacking[0]}" does not offer them.',
                    fix="Refused: let the coordinator enrol again.",
                )
        elif not lacking and not study.trees:
            raise TrustError(
                "CH610",
                "all devices offer keys with ML-KEM-768, and the study has the older keys of the cards.",
                fix="Refused: ask the coordinator by phone who changed it.",
            )
        elif not self.card_keys:
            because = "it has too many devices for others" if study.trees else f'"{lacking[0]}" offers no others'
            others = "" if study.trees else "That site can install this choral and join again; or "
            raise TrustError(
                "CH610",
                f"the study has the older keys of the cards, since {because}.",
                why="A stolen vault opens past uploads with them, and so may a later quantum computer.",
                fix=f"Refused. {others}{'A' if study.trees else 'a'}llow it: --allow-card-keys.",
            )


def weaker(what: str, way_out: str) -> TrustError:
    """The refusal of a study that asks for more than the policy grants."""
    return TrustError(
        "CH603",
        f"the study is weaker than this site's policy: {what}.",
        fix=f"Refused. Only the owner can allow it: {way_out}.",
    )


def trusting(study: Agreement, code: Code | None, encoder: Encoder | None = None) -> Agreement:
    """The study with its encoder and the code that its model runs here, compared with its hash.

    CH603 for code that is not pinned.
    """
    study = replace(study, encoder=encoder)
    kind = study.job.model_kind
    if kind in BUILT_IN:
        return study
    if code is None or code.name != kind:
        raise TrustError(
            "CH603",
            f'the code of the model "{kind}" is not pinned by the approval.',
            fix=f"Approve the study again: choral device approve STUDY … --trust-model {kind}=FILE",
        )
    return replace(study, maker=code.maker())


class Approval(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That the owner approved one study, for one table, under a policy."""

    study: str  # the digest, in hex
    at: str
    data: str
    policy: Policy
    table: str = ""  # the digest of what is read of the table; none before tables were pinned
    code: Code | None = None  # of a model that is somebody's own
    since: int = 0  # charges of this study when the passes over this table began
    written: Format = OPEN  # how the table is read from now on; before 0.3 only what its owner said of it
    rows: int = 0  # that are trained on; versions up to 0.2 did not keep it
    keys: bool = False  # whether the policy's word on keys was asked for; it was not in 0.1


def passes_began(run: str, charges: Iterable[Charge], since: int | None) -> int:
    """It says how many charges of a run came before the passes over the table; `since` is known of the same table only.

    With another table, or where nobody knows which one it was, a new pass begins and is charged from its first step:
    the rows may hold the same people in another order.

    >>> passes_began("run", [], 3), passes_began("run", [], None)
    (3, 0)
    """
    return sum(charge.plan == run for charge in charges) if since is None else since


def check_table(found: str, approved: str, *, data: Path) -> None:
    """It raises CH313 where the table is not the approved one, by the digests of what is read of both.

    >>> check_table("ab12", "ab12", data=Path("site.csv"))
    """
    if found != approved:
        raise TableError(
            "CH313",
            "the table is not the one that was approved: a declared cell, or the order of the rows, differs.",
            where=data.name,
            why="Records could be used more often than they are charged for.",
            fix="Put the table back as it was, or approve the new one: choral device approve STUDY …",
        )


_FORM = "3"  # earlier ones were kept before operators were read strictly, or without how cells are read: made again


@dataclass(frozen=True, kw_only=True, eq=False)
class KeepingEncoder(Encoder):
    """An encoder that keeps what it made of a table: a file for each table, encoder and declaration of columns."""

    home: Path = field(repr=False)

    @classmethod
    def at(cls, home: Path, study: Agreement, policy: Policy) -> Self | None:
        """The study's encoder from the file that the owner named, compared with the study's SHA-256 (CH324)."""
        if not policy.encoder:
            return None
        read = encoder_of(study.job, Path(policy.encoder).expanduser(), study.inputs)
        return None if read is None else cls(**{one.name: getattr(read, one.name) for one in fields(read)}, home=home)

    def of_table(self, table: Table) -> NDArray[np.float32]:
        """The embeddings of a table's rows: those that are kept, else made now and kept."""
        path = self.path_for(table)
        try:
            kept, about = read_parameters(path) if path.exists() else (None, {})
        except StorageError:  # damaged: what it held is made again
            kept, about = None, {}
        if kept is not None and about.get("rows") == str(table.rows) and len(kept) == table.rows:
            return kept
        made = super().of_table(table)
        keep(path, tensors(made, {"rows": str(table.rows), "encoder": self.sha256}))
        return made

    def path_for(self, table: Table) -> Path:
        """It is where the embeddings of a table are kept, by the digests of all that they follow from."""
        key = "\n".join((_FORM, table.digest(self.reads), repr(table.written), self.sha256, repr(self.inputs)))
        return self.home / EMBEDDINGS / f"{hashlib.sha256(key.encode()).hexdigest()}.safetensors"


SLACK = 1 + 1e-9  # the study's noise was solved for its ε to the last bits, perhaps on another machine


def reserve_in(
    book: Balance | Ledger,
    study: Agreement,
    costs: Costs,
    *,
    began: int = 0,
    needed: bool = True,
    most: int | None = None,
) -> None:
    """Reserve what an approval of the study allows, once, and free what other studies have reserved and never used.

    `began` is how many charges of the study came before the passes over the approved table: another table starts a new
    pass, which costs more than going on. CH401 where the limit does not pay for the planned uploads; unless they are
    `needed`, as many as it pays for. `most` is how many uploads the study may make, if not the usual allowance.
    """
    balance = book if isinstance(book, Balance) else book.balance
    for plan in balance.open_plans:
        if plan not in (study.run_name, plan_of_questions(study.run_name)):
            book.release(plan)
    if costs.questions is not None:  # first: the allowance for rounds that fail takes what is left
        reserve_questions(book, costs.questions, study.run_name)
    if more := _missing(balance, study, costs, began=began, needed=needed, most=most):
        book.reserve(more)


def _missing(
    balance: Balance, study: Agreement, costs: Costs, *, began: int, needed: bool, most: int | None
) -> Reservation | None:
    """It is what is still to be reserved: the planned uploads, and as much of the allowance as the limit pays for."""
    planned, made = rounds_each(study.plan), balance.charges_of(study.run_name)
    most = most_uploads(planned) if most is None else most
    if made >= most:
        return None
    all_of_them = costs.of(0).reservation(range(made - began, most - began), run=study.run_name)
    left, wanted, planned_ones = balance.left_of(study.run_name), [], 0
    for number, event in enumerate(all_of_them.uploads, start=made):
        if left[event] > 0:
            left[event] -= 1
        else:
            wanted.append(number - made)
            planned_ones += number < planned
    if not wanted:
        return None
    missing = all_of_them.only(wanted)
    count = balance.affordable(missing)
    if needed and count < planned_ones:
        whole = missing.first(planned_ones)
        if not balance.within(whole, slack=SLACK):
            balance.admissible(whole)  # says CH401, with the figures
    return missing.first(count) if count else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Holdings:
    """A device holds this for one study: its rows, ready to train on, what rounds cost, and its table's digest."""

    trainer: LocalTraining | OnceTraining
    costs: Costs
    table: str  # of what the study reads, in the order of its rows
    whole: str  # of all columns, in any order of rows
    written: Format  # how the table was read, with nothing left open


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
    ) -> Self:
        """A home with keys made here; with `again` one that is there keeps them and its ledger, for another server.

        Where an earlier join was cut off after it had made keys, those are kept, and this one goes on.
        """
        home = cls(path)
        offers = (HYBRID,) if available() else ()
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
        """It refuses to go on with a join by other keys than are here: no second identity takes their place."""
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
        """It says who this device is; CH802 where nobody has joined."""
        if not (self.path / JOINED).exists():
            raise StorageError(
                "CH802", "is no home of a device.", where=str(self.path), fix="choral device join INVITATION makes one."
            )
        return _decoded(self.path / JOINED, Joined)

    @property
    def approval(self) -> Approval:
        """It is what the owner approved, or CH603."""
        if not self.has_approved:
            raise TrustError(
                "CH603", "no study is approved here.", where=str(self.path), fix="choral device approve STUDY …"
            )
        return _decoded(self.path / APPROVAL, Approval)

    @property
    def has_approved(self) -> bool:
        """It says whether a study was approved here; `approved` checks whether that still holds."""
        return (self.path / APPROVAL).exists()

    @property
    def ledger_path(self) -> Path:
        """The ledger's file."""
        return self.path / "ledger"

    @property
    def socket(self) -> Path:
        """It is where the agent listens."""
        return self.path / SOCKET

    def receipt_path(self, study: Agreement) -> Path:
        """It is where this site keeps what it signed at the end of a study's run."""
        return self.path / RECEIPTS / f"{study.file.run}.json"

    def model_path(self, study: Agreement) -> Path:
        """It is where this site keeps the final model of a study's run, as it signed it."""
        return self.path / "models" / f"{study.file.run}.safetensors"

    def finished(self, study: Agreement) -> bool:
        """It says whether this site has signed the end of the study's run."""
        return self.receipt_path(study).exists()

    def early_end(self, study: Agreement) -> str:
        """The server's words why the study ended before its last round; empty where it did not, or has not ended."""
        path = self.receipt_path(study)
        return converted(read_json(path), KeptReceipt, path).early if path.exists() else ""

    def vault(self, passphrase: str | None = None) -> Vault:
        """The vault, opened; CH801 in a home of another user, CH618 in one that others may change."""
        if self.path.exists():
            check_owner(self.path)
            check_ways(self.path)
        return Vault.open(FileStore(self.path / "vault"), passphrase)

    def rotate(self, passphrase: str | None = None) -> None:
        """Make new keys for the device and for its node; CH800 while a study goes on, whose roster names the old ones.

        Its name, its limit and its ledger stay.
        """
        vault, joined = self.vault(passphrase), self.joined
        if self.has_approved and vault.memory.turn != END:
            raise StorageError(
                "CH800",
                "a study is approved here that has not ended.",
                where=str(self.path),
                why="Its roster names the present keys. What protects its uploads is renewed in the run by itself.",
                fix="Rotate after its end. If the keys were stolen: stop, tell the coordinator, join under another "
                "name.",
            )
        (self.path / APPROVAL).unlink(missing_ok=True)
        # If this is cut off anywhere below, no card fits the home, and rotating again repairs it.
        vault.renew(Identity.fresh(joined.name).to_bytes())
        offers = (HYBRID,) if available() else ()
        keep_json(self.path / JOINED, msgspec.structs.replace(joined, node=self.fresh_node_key(), offers=offers))

    def card(self, passphrase: str | None = None) -> Enrolled:
        """It is what the coordinator needs of this device; all of it is public."""
        return self.card_of(self.vault(passphrase).memory)

    def card_of(self, memory: Memory) -> Enrolled:
        """The same of what a vault that is open holds."""
        joined = self.joined
        return Enrolled.of(Identity(memory.id, memory.secret, joined.offers), joined.node)

    def check_known(self, study: Agreement, vault: Vault) -> None:
        """It raises CH601: the study names another server than the invitation, or other keys than this device has."""
        joined = self.joined
        server = (study.file.address, study.file.certificate, study.file.server_key)
        if server != (joined.server.address, joined.server.certificate, joined.server.server_key):
            raise TrustError(
                "CH601",
                "the server's address, certificate or key is not the one of the invitation.",
                fix="Ask the coordinator by phone; if it is right, join again with the new invitation and --again.",
            )
        own = self.card_of(vault.memory)
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

    def passes_began(self, study: Agreement, held: Holdings, charges: Sequence[Charge]) -> int:
        """It says how many charges of a study came before the passes over this table."""
        known = self.approval if self.has_approved else None
        goes_on = known is not None and (known.study, known.table) == (study.digest.hex(), held.table)
        return passes_began(study.run_name, charges, known.since if known is not None and goes_on else None)

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
        """The device holds this for its approved study; any other table than the approved one is refused (CH313)."""
        held = self.holdings(study, approval.policy, Path(approval.data), vault, approval.written)
        check_table(held.table, approval.table, data=Path(approval.data))
        return held


def receipt_of(vault: Vault) -> Receipt | None:
    """It is what the vault knows of its ledger: how long it was and how it ended, when last charged."""
    known = vault.memory.receipt
    return None if known is None else Receipt(entries=known[0], seal=known[1])


def _decoded(path: Path, kind: type[T]) -> T:
    return converted(read_json(path), kind, path, "Restore it, or join again.")
