"""The study file: everything public that server and sites fix before round 0, and the digest that they compare.

It holds the card of every device, and the coordinator's choral.toml, which must say all that only the rows could tell.
"""

import json
import re
import secrets
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from numpy.typing import NDArray

from choral import __version__, config
from choral.config import BUILT_IN, Job
from choral.config.toml import to_toml
from choral.core.errors import ConfigError, PlanError, TableError, TrustError
from choral.core.keys import HYBRID, Bundle, Identity, Roster, digest, safety_number
from choral.core.messages import AGREEING, LISTING, QUESTION_BYTES, VERSION, most_frame_bytes
from choral.core.plan import Plan, SecureSum, secure_sum
from choral.core.printable import is_shown
from choral.core.terms import WHOLE, WHOLE_LISTS, Terms
from choral.learning.models import Maker
from choral.learning.persons import grouped
from choral.probes import extension_of
from choral.run.study import Study, codec_of, declared_columns, encoder_of, limits_of, maker_in, model_of
from choral.tables.arrays import array_features
from choral.tables.cells import OPEN, Faults, Format, TableFaults
from choral.tables.columns import Categorical, Numeric, declare, encode, type_of_classes
from choral.tables.encoder import Encoder, about_encoder, embedding_columns
from choral.tables.reading import Table
from choral.tables.records import Labels, Records, Split, by, names_in
from choral.tables.sources import Dataset, Reading, encode_labels, read_one, with_outcome
from choral.trees import lists_of

LONGEST_NAME = 64
# The mixtures that Unicode's security report (UTS 39, "highly restrictive") finds safe in addition to a single script.
_TOGETHER = (
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA"},
    {"LATIN", "CJK", "HANGUL"},
    {"LATIN", "CJK", "BOPOMOFO"},
)
_MOST_MARKS = 2  # accents on one letter; more of them would be drawn over the lines around it


def require_name(what: str, name: str) -> None:
    """It raises CH102 for a text that is no name that people can tell from others.

    >>> require_name("the study's name", "hearts")
    """
    if fault := fault_of_name(name):
        raise no_name(what, fault)


def require_device_name(name: str) -> None:
    """The same for a device, in whose name a comma would make one device look like two.

    >>> require_device_name("hospital-a")
    """
    require_name("a device's name", name)
    if "," in name:
        raise no_name("a device's name", "has a comma")


def no_name(what: str, fault: str) -> ConfigError:
    """The refusal of a name; the name itself is not repeated."""
    return ConfigError(
        "CH102", f"{what} {fault}.", fix=f"Use 1 to {LONGEST_NAME} printable characters, letters of one script."
    )


class Enrolled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A device as the study names it: its bundle in hex, and the key by which the transport knows its node.

    A card of 0.1 offers nothing; such cards, and the digests of studies with them, stay as they are.
    """

    id: str
    identity: str
    agreement: str
    signature: str
    node: str
    node_signature: str
    offers: tuple[str, ...] = ()

    @classmethod
    def of(cls, identity: Identity, node: str) -> Self:
        """The public card of a device: its signed bundle, and its node's key under its signature."""
        bundle = identity.bundle
        return cls(
            id=bundle.id,
            identity=bundle.identity.hex(),
            agreement=bundle.agreement.hex(),
            signature=bundle.signature.hex(),
            node=node,
            node_signature=identity.sign("node key", node.encode()).hex(),
            offers=bundle.offers,
        )

    @property
    def text(self) -> str:
        """The file of a card, which a device sends to the coordinator."""
        head = "# The public card of a choral device: send it to the coordinator.\n"
        return head + to_toml(msgspec.to_builtins(self))

    @property
    def bundle(self) -> Bundle:
        """The bundle, its form, the node's key and the signature over that checked."""
        try:
            identity, agreement, signature, signed = (
                bytes.fromhex(text) for text in (self.identity, self.agreement, self.signature, self.node_signature)
            )
        except ValueError:
            raise TrustError("CH600", "a device's keys are not written in hex.", fix="Get its card again.") from None
        bundle = Bundle(id=self.id, identity=identity, agreement=agreement, signature=signature, offers=self.offers)
        bundle.verify()
        bundle.check(signed, "node key", self.node.encode())
        _check_node_key(self.node)
        return bundle


def _check_node_key(public: str) -> None:
    try:
        key: object = load_ssh_public_key(public.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise TrustError("CH600", "a node's key is no key of an elliptic curve.", fix="Get the device's card again.")


FORMAT, UNSIGNED = 2, 1  # of studies and invitations: now with the server's key, and before
LONGEST_ANSWER = 2**16 + 8  # numbers in a deployed answer to a question: the largest table, its rows and its checks
ASK_AGAIN = "Get the file again."
T = TypeVar("T")


class StudyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The fields of study.toml, in their order; `job` is the coordinator's choral.toml, word for word.

    `server_key` is the Ed25519 key under which the server speaks, in hex; a study of format 1 has none.
    """

    format: int
    name: str
    run: str  # random: two runs of one plan never share a turn
    choral: str
    protocol: int
    address: str
    deadline: float
    certificate: str
    server_key: str = ""
    job: str
    plan: Mapping[str, object]
    secure_sum: Mapping[str, object]
    devices: list[Enrolled]


JOB = "choral.toml of the study"


@dataclass(frozen=True, kw_only=True, eq=False)
class Agreement:
    """A study file, read and checked: the keys, terms and digest that sites approve, and the study that follows."""

    file: StudyFile
    maker: Maker | None = None  # of a model that is code; whoever reads the file says where it comes from
    encoder: Encoder | None = None  # likewise

    def with_code_in(self, folder: Path) -> Self:
        """The same for its coordinator, whose own model is installed or lies in this folder, as the encoder does."""
        kind, file = self.job.model_kind, folder / Path(self.job.data.encoder_file).name
        encoder = encoder_of(self.job, file, self.inputs) if file.is_file() else None
        return replace(self, maker=None if kind in BUILT_IN else maker_in(kind, folder), encoder=encoder)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The agreement in a study file, or what is wrong with it."""
        return cls.of(config.read_text(path), str(path))

    @classmethod
    def of(cls, text: str, where: str) -> Self:
        """The agreement that a text describes; another format or protocol is refused (CH602)."""
        content = config.read_toml(text, source=where, fix=ASK_AGAIN)
        for name, known in (("format", (FORMAT, UNSIGNED)), ("protocol", (VERSION, AGREEING, LISTING))):
            if content.get(name, known[0]) not in known:
                own = " and ".join(map(str, sorted(known)))
                raise other_version(f"the study has {name} {content[name]}, this choral has {own}", where)
        agreement = cls(file=converted(content, StudyFile, where))
        check_server_key(agreement.file.server_key, agreement.file.format, where)
        check_run(agreement.file.run, where)
        check_deployable(agreement.job)
        if agreement.trees and protocol_of(agreement.job, agreement.file.devices) != LISTING:
            raise PlanError(
                "CH204",
                f"the study has lists as trees for {len(agreement.file.devices):,} devices.",
                where=where,
                fix=f"Lists are trees above {WHOLE_LISTS:,} devices, without questions and probes. {ASK_AGAIN}",
            )
        if not (agreement.plan.devices == len(agreement.roster) and agreement.secure.cohort >= agreement.plan.cohort):
            raise PlanError(
                "CH204",
                f"the plan is for {agreement.plan.devices} devices, cohorts of {agreement.plan.cohort}; "
                f"{len(agreement.roster)} are enrolled, and a sum takes {agreement.secure.cohort}.",
                where=where,
                fix="Enrol again: choral server enrol.",
            )
        planned, asked = agreement.plan, agreement.job
        if (planned.unit, planned.rows_per_person) != (asked.privacy.unit, asked.data.rows_per_person or 0):
            what = f'the plan protects a {planned.unit} with other numbers than unit = "{asked.privacy.unit}" says.'
            raise PlanError("CH204", what, where=where, fix="Enrol again: choral server enrol.")
        return agreement

    @property
    def text(self) -> str:
        """The study file."""
        head = "# A choral study: all of it is public. Compare it with all other sites before you approve it.\n"
        return head + to_toml(msgspec.to_builtins(self.file))

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over every field: a change of any word, key or number changes it."""
        text = json.dumps(msgspec.to_builtins(self.file), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return digest("study", text.encode())

    @property
    def safety_number(self) -> str:
        """The digits by which people know that they hold the same study."""
        return safety_number(self.digest)

    @cached_property
    def job(self) -> Job:
        """The coordinator's choral.toml, without what was removed since."""
        return config.parse(self.file.job, source=JOB, recorded=True)

    @cached_property
    def plan(self) -> Plan:
        """The plan."""
        try:
            return Plan.from_dict(self.file.plan)
        except PlanError as error:
            if error.code == "CH204":
                raise
            raise ConfigError("CH102", f"has the wrong form: {error.what}", where="plan", fix=ASK_AGAIN) from None

    @cached_property
    def secure(self) -> SecureSum:
        """It says how sums are protected."""
        return converted(secure_sum.meant_by(self.file.secure_sum), SecureSum, "secure_sum")

    @cached_property
    def roster(self) -> Roster:
        """The devices' bundles, every signature checked."""
        return Roster.of(device.bundle for device in self.file.devices)

    @property
    def server_key(self) -> bytes:
        """The key under which the server speaks; CH602 for a study of before, in which anybody may speak as it."""
        if self.file.format == UNSIGNED:
            raise TrustError(
                "CH602",
                "the study has format 1, in which no frame of the server is signed: whoever reaches a site can speak"
                " in its place.",
                why="Nothing was sent and nothing was charged.",
                fix="Run it to its end with choral 0.2, on all sides; or enrol again: choral server init, in a new "
                "folder. Its ledgers, records and pages stay readable here.",
            )
        return bytes.fromhex(self.file.server_key)

    def require_runnable(self) -> None:
        """Refuse what can be read but not run: a study of before (CH602), or with what was removed since (CH101)."""
        _ = self.server_key
        self.plan.require_present("the study")
        config.parse(self.file.job, source=JOB)

    @property
    def hybrid(self) -> bool:
        """It says whether keys are agreed in the run, with ML-KEM-768, and erased by turns: if all cards offer it."""
        return self.file.protocol == AGREEING

    @property
    def trees(self) -> bool:
        """It says whether cohorts are shown by paths, with the keys of the cards: in studies of very many devices."""
        return self.file.protocol == LISTING

    @cached_property
    def columns(self) -> tuple[Numeric | Categorical, ...]:
        """The columns that the model reads, in their declared order: of the table, or embeddings."""
        return columns_of(self.job)

    @cached_property
    def inputs(self) -> tuple[Numeric | Categorical, ...]:
        """The declared columns of the table, in their declared order."""
        return inputs_of(self.job)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the columns of the table that the model, or the encoder before it, reads."""
        text = self.job.data.text
        return tuple(column.name for column in self.inputs) if text is None else (text,)

    @cached_property
    def target(self) -> Numeric | Categorical:
        """The label: one of its declared classes, or a number between its declared bounds."""
        data = self.job.data
        if data.label_bounds is not None:
            return Numeric(name=data.label, low=data.label_bounds[0], high=data.label_bounds[1])
        return Categorical(name=data.label, levels=tuple(data.class_names or ()))

    def table_in(self, path: Path, written: Format = OPEN) -> Table:
        """The table in a file, by what its owner says of its format, else the job, else the file's header line."""
        data = self.job.data
        how = Reading(
            label=self.target.name,
            classes=data.classes,
            row_shape=data.row_shape,
            written=written.over(data.written),
        )
        return with_outcome(read_one(path, how), self.target.name, written.outcome, list(self.reads))

    def encoded(self, table: Table) -> tuple[NDArray[np.float32], Labels]:
        """Features and labels of a table, by the declared columns alone; what a site can't change, it can ask for."""
        faults = Faults()
        with faults:
            features = self._features(table)
        with faults:
            labels = encode_labels(table, self.target)
        try:
            faults.refuse()
            return features, labels
        except TableError as error:
            if isinstance(error, TableFaults):
                raise
            asked = f"Correct your file; or ask the coordinator, whose choral.toml declares the columns: {error.fix}"
            raise TableError(error.code, error.what, where=error.where, why=error.why, fix=asked) from None

    def _features(self, table: Table) -> NDArray[np.float32]:
        if (shape := self.job.data.row_shape) is not None and table.arrays is None:
            raise TableError(
                "CH318",
                f"is a table, and the study's rows are arrays of {by(tuple(shape))}.",
                where=table.source,
                fix="Give an .npz file, or a folder of images.",
            )
        if self.job.data.encoder is None:
            return encode(table, self.columns) if table.arrays is None or shape is None else table.arrays
        if self.encoder is None:
            raise TrustError(
                "CH603",
                f"the encoder {self.job.data.encoder_file} is not here.",
                fix="Put it into the study's folder; a site gives it when it approves: --encoder FILE.",
            )
        return self.encoder.scaled(self.encoder.of_table(table))

    def units_of(self, table: Table) -> tuple[NDArray[np.float32], Labels]:
        """It is what a device trains on: the encoded rows, or the persons where they are the unit."""
        features, labels = self.encoded(table)
        if (person := self.job.data.person) is None:
            return features, labels
        units = grouped(features, labels, names_in(person, [table]), self.plan.rows_per_person)
        return units, np.zeros(len(units), labels.dtype)

    def digest_of(self, table: Table) -> str:
        """SHA-256 of all that training and questions read of a table, in the order of its rows."""
        person = () if self.job.data.person is None else (self.job.data.person,)
        asked = declared_columns(self.job) if self.job.ask.allowed else ()
        return table.digest(list(dict.fromkeys((*self.reads, self.target.name, *person, *asked))))

    @cached_property
    def settled(self) -> Study:
        """The study for every way to run it: no row is here, and every device counts as the smallest of the plan.

        A model that is code is made only where somebody has said which code it is.
        """
        kind, plan = self.job.model_kind, self.plan
        if kind not in BUILT_IN and self.maker is None:
            raise TrustError("CH603", f'the model "{kind}" is code that nobody trusts here.', fix="Do not run it.")
        features = features_of(self.job)
        classes = self.target.levels if isinstance(self.target, Categorical) else ()
        many = f"{'about' if plan.weighed else 'at least'} {plan.rows:,}"
        no_rows = np.empty((0, *row_of(self.job)))
        records = Records.of([(bundle.id, no_rows, ()) for bundle in self.roster], classes=len(classes))
        data = Dataset(
            records=records,
            features=features,
            classes=classes,
            columns_from="declared",
            columns=self.columns,
            target=self.target if isinstance(self.target, Numeric) else None,
            encoder=self.encoder,
            label_type=type_of_classes(self.job.data.classes or ()),
            notes=(f"each site has {many} rows; nobody else knows how many", *self._about_encoder),
        )
        model = model_of(self.job, shape=row_of(self.job), classes=len(classes), maker=self.maker)
        return Study(
            name=self.file.name,
            job=self.job,
            seed=secrets.randbits(62),  # from the system's randomness, and never written down
            seeded=False,
            data=data,
            split=Split(train=records, validation=records, test=records),
            rows=np.full(plan.devices, plan.rows),
            model=model,
            plan=plan,
            secure=self.secure,
            codec=codec_of(plan, self.secure, model),
            limits=limits_of(self.job, data),
            source="the sites' own files",
            in_memory=False,
        )

    @property
    def _about_encoder(self) -> tuple[str, ...]:
        data = self.job.data
        if data.embedding_bounds is None:
            return ()
        digest, count = data.encoder_sha256 or "", data.embeddings or 0
        return about_encoder(data.encoder_file, digest, count, data.embedding_bounds)

    @property
    def run_name(self) -> str:
        """It is what charges and terms call this run: its plan, and the digest of everything else."""
        return f"{self.plan.digest}:{self.digest.hex()}"

    @cached_property
    def terms(self) -> Terms:
        """Every turn is bound to them; the codec is not given but computed, so no server can choose a coarse grid."""
        return Terms(
            roster=self.roster,
            secure=self.secure,
            codec=self.settled.codec,
            parameters=self.settled.trained.size,
            plan=self.run_name,
            hybrid=self.hybrid,
            lists=lists_of(self.roster) if self.trees else WHOLE,
            extension=extension_of(self.plan),
        )

    @property
    def frame_bytes(self) -> int:
        """The most that any message may take; a study that may ask has room for the longest answers."""
        terms = self.terms
        if not self.job.ask.allowed:
            return terms.frame_bytes
        records = max(terms.records_bytes, QUESTION_BYTES)
        return max(terms.frame_bytes, most_frame_bytes(vector_bytes=8 * LONGEST_ANSWER, records_bytes=records))


def protocol_of(job: Job, devices: Sequence[Enrolled]) -> int:
    """The protocol of a study: lists as trees if it is large enough and nothing in it needs whole ones, else by cards.

    Above so many devices they can't agree on hybrid keys either: each would need an offer of every other.
    """
    if len(devices) > WHOLE_LISTS and not (job.ask.allowed or job.federation.robust):
        return LISTING
    return AGREEING if all(HYBRID in device.offers for device in devices) else VERSION


def check_server_key(key: str, of_format: int, where: str) -> None:
    """It raises CH102 for a server's key that is none, or that is given where a file's format has none.

    >>> check_server_key("", UNSIGNED, "study.toml")
    """
    if not re.fullmatch(r"[0-9a-f]{64}" if of_format == FORMAT else "", key):
        what = f"server_key has {len(key)} characters, which a file of format {of_format} has not."
        raise ConfigError("CH102", what, where=where, fix=ASK_AGAIN)


def check_run(run: str, where: str) -> None:
    """It raises CH102 for a run's name that could lead out of the folder that is named after it.

    >>> check_run("9f3c77aa", "study.toml")
    """
    if not re.fullmatch(r"[0-9A-Za-z_-]{1,64}", run):
        what = "the run's name is not 1 to 64 letters, digits, hyphens or underscores."
        raise ConfigError("CH102", what, where=where, fix=ASK_AGAIN)


def converted(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """The content as this kind, every field checked; unknown ones are refused."""
    known = {field.name for field in fields(kind)} if is_dataclass(kind) else content.keys()
    try:
        if unknown := content.keys() - known:
            raise msgspec.ValidationError(f"unknown key {min(unknown)!r}")
        return msgspec.convert(content, type=kind, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError("CH102", f"has the wrong form: {error}.", where=where, fix=ASK_AGAIN) from None


def other_version(what: str, where: str) -> TrustError:
    """The refusal of a file that another choral wrote."""
    return TrustError("CH602", f"{what}.", where=where, fix=f"Install the choral that wrote it; this is {__version__}.")


def sent(path: str | Path, kind: type[T]) -> T:
    """It is what a file that somebody sent holds, every field checked."""
    return converted(config.read_toml(config.read_text(path), source=str(path), fix=ASK_AGAIN), kind, str(path))


def check_deployable(job: Job) -> None:
    """It refuses a job that can't run between organisations: a seed, or something that only the rows could tell."""
    if job.run.seed is not None:
        raise PlanError(
            "CH203",
            f"seed = {job.run.seed} is set, but this is a deployment: predictable noise is no noise.",
            where=job.where("run", "seed"),
            fix="Take it out.",
        )
    of_one_table = ("builtin", "device_column", "limit_column", "labels")
    for table, key in (*(("data", name) for name in of_one_table), ("privacy", "limits")):
        if getattr(getattr(job, table), key) is not None:
            raise ConfigError(
                "CH104",
                f"[{table}] {key} is set, but in a deployment each site has its own file and its own limit.",
                where=job.where(table, key),
                fix="Take it out.",
            )
    if job.leaves_kind_open:
        raise ConfigError(
            "CH104",
            '[model] kind = "auto" in a deployment.',
            where=job.where("model", "kind"),
            why="Each site approves a model that is named.",
            fix="Name the kind that choral plan proposes.",
        )
    if job.on_sums:
        raise ConfigError(
            "CH104",
            f'[model] kind = "{job.model.kind}" in a deployment, which asks for such a model by a question.',
            where=job.where("model", "kind"),
            fix=f"Leave it out, set [ask] epsilon, and use choral ask STUDY {job.model.kind} …",
        )
    if job.federation.rows is None:
        raise ConfigError(
            "CH103",
            "[federation] has no rows.",
            where=job.where("federation"),
            why="The plan needs the rows that every site has at least, and nobody may count them.",
            fix="Set rows = …, a number that every site can promise.",
        )
    read = job.data.columns or job.data.text or job.data.row_shape
    if not read or not (job.data.classes or job.data.label_bounds):
        missing = "columns, and no row_shape" if not read else "classes or label_bounds"
        raise TableError(
            "CH304",
            f"[data] declares no {missing}.",
            where=job.where("data"),
            why="Taking them from the rows would reveal them.",
            fix='Declare [data.columns.NAME] with bounds or levels for each, and classes = ["…", "…"] of the label.',
        )
    _check_encoder(job)
    inputs_of(job)


def _check_encoder(job: Job) -> None:
    """It raises CH103 for an encoder that is not pinned: sites must approve one file and one number of weights."""
    data = job.data
    if data.encoder is None or (data.encoder_sha256 and data.embeddings):
        return
    known = encoder_of(job) if (job.folder / data.encoder_file).exists() else None
    digest = f'encoder_sha256 = "{known.sha256}"' if known else "encoder_sha256, what sha256sum prints of the file"
    raise ConfigError(
        "CH103",
        f"[data] has an encoder and no {'embeddings' if data.encoder_sha256 else 'encoder_sha256'}.",
        where=job.where("data", "encoder"),
        why="Every site must use exactly the file that it approved.",
        fix="Set embeddings, how many numbers it gives per row." if data.encoder_sha256 else f"Set {digest}.",
    )


def check_names(file: "StudyFile", job: Job) -> None:
    """It raises CH102 for a name in a new study that people could take for another one, or that can't be shown."""
    for what, name in (
        ("the study's name", file.name),
        ("the run's name", job.run.name),
        ("the study's run", file.run),
        ("the study's version of choral", file.choral),
        ("the server's address", file.address),
        ("the model's kind", job.model_kind),
    ):
        require_name(what, name)
    for device in file.devices:
        require_device_name(device.id)
    data = job.data
    words = [("a class", word) for word in data.class_names or ()] + [("the label's name", data.label)]
    words += [("a column's name", name) for name in (data.person, data.text) if name is not None]
    words += [("the encoder's file", data.encoder_file)] if data.encoder_file else []
    for column in inputs_of(job):
        levels = column.levels if isinstance(column, Categorical) else ()
        words += [("a column's name", column.name), *(("a level", level) for level in levels)]
    for what, word in words:
        if fault := fault_of_word(word):
            raise no_name(what, fault)


def fault_of_name(name: str) -> str:
    r"""Why people could take a name for another one, or nothing: for studies, devices, addresses and models.

    >>> fault_of_name("hospital-a"), fault_of_name("h\u043espital-a")
    ('', 'mixes CYRILLIC and LATIN letters')
    """
    if fault := _fault_of_form(name):
        return fault
    if unicodedata.normalize("NFKC", name) != name:
        return "has characters that stand for others, such as wide letters or ligatures"
    return _mixture(name)


def fault_of_word(word: str) -> str:
    r"""The same for words of a table, such as columns and levels: each of their parts keeps to one script.

    >>> fault_of_word("\u03b2-blocker"), fault_of_word("\u0430ge")
    ('', 'mixes CYRILLIC and LATIN letters')
    """
    return _fault_of_form(word) or next(filter(None, map(_mixture, re.split(r"[\W\d_]+", word))), "")


def _fault_of_form(name: str) -> str:
    if not is_shown(name):
        return "has characters that can't be printed"
    if not 0 < len(name) <= LONGEST_NAME:
        return f"has {len(name):,} characters, where 1 to {LONGEST_NAME} are allowed"
    if name != name.strip():
        return "begins or ends with a space"
    marks = "".join("m" if unicodedata.category(character) in ("Mn", "Me") else " " for character in name)
    return "has too many accents on one letter" if "m" * (_MOST_MARKS + 1) in marks else ""


def _mixture(text: str) -> str:
    found = set(_scripts(text))
    if len(found) < 2 or any(found <= allowed for allowed in _TOGETHER):
        return ""
    return f"mixes {' and '.join(sorted(found))} letters"


def _scripts(text: str) -> Iterator[str]:
    """The script of every letter, which is how its Unicode name begins; signs such as µ belong to none."""
    for character in text:
        name = unicodedata.name(character, "")
        if character.isalpha() and re.search(r"LETTER|IDEOGRAPH|SYLLABLE", name):
            yield re.split(r"[ -]", name)[0]


def columns_of(job: Job) -> tuple[Numeric | Categorical, ...]:
    """The columns that the model reads: those that a job declares, or the embeddings that an encoder makes of them."""
    data = job.data
    if data.embedding_bounds is None:
        return inputs_of(job)
    return embedding_columns(data.embeddings or 1, data.embedding_bounds)


def row_of(job: Job) -> tuple[int, ...]:
    r"""The shape of a row as the model takes it: the declared one, or one axis with the features of the columns.

    >>> from choral.config import parse
    >>> row_of(parse("privacy.epsilon = 2.0\ndata.row_shape = [8, 8]"))
    (8, 8)
    """
    if job.data.row_shape is not None and job.data.embedding_bounds is None:
        return tuple(job.data.row_shape)
    return (sum(len(column.features) for column in columns_of(job)),)


def features_of(job: Job) -> tuple[str, ...]:
    """The names of the features that the model takes."""
    columns = columns_of(job)
    return tuple(name for column in columns for name in column.features) if columns else array_features(row_of(job))


def inputs_of(job: Job) -> tuple[Numeric | Categorical, ...]:
    """The columns that a job declares, in their order."""
    settings = job.data
    left_out = {settings.label, settings.person, *(settings.ignore or ())}
    where = job.where("data", "columns")
    return tuple(
        declare(name, declared, where=where)
        for name, declared in (settings.columns or {}).items()
        if name not in left_out
    )
