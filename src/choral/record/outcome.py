"""A run as records: rounds, result, model, probes, answers, decisions, signatures, and a site's end."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta, field

from choral.core.plan import Against
from choral.record.fields import FlatPlan, Record
from choral.record.losses import LedgerLimit, LedgerOfSums, Spent, Statement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What a run may be judged by, the best figure first, with its name for people; a loss says little by itself.
MERITS = {"accuracy": "accuracy", "r2": "R²", "loss": "loss"}
_OF_HAZARDS = {"c_index": "c-index"}  # of a model that is made from sums
VerdictKind = Literal["better", "on par", "worse"]


class RoundLine(Record, frozen=True, kw_only=True):
    """One round; `wasted` are the devices that were charged in attempts that failed, each as often as charged.

    `spent` is ε of each device so far, where one process holds all ledgers. What a server found out about devices
    stands in the last five fields.
    """

    round: int
    seconds: float
    cohort: tuple[int, ...]
    included: tuple[int, ...]
    test: dict[str, float]
    note: str
    wasted: tuple[int, ...] = ()
    spent: tuple[float, ...] = ()
    spoilt: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    refused_because_of: dict[str, str] = field(default_factory=dict)
    broke_the_protocol: dict[str, str] = field(default_factory=dict)
    contradict_each_other: tuple[tuple[str, str], ...] = ()
    not_proved: dict[str, str] = field(default_factory=dict)


class Baselines(Record, frozen=True, kw_only=True):
    """The figures of other models on the same test rows, where they were asked for: the merit of each.

    `alone` is the mean over `alone_devices`, `most_common` that of always giving the same answer: the most common
    class, or the mean. Runs from before these fields were added have none, and their others were not converged.
    `alone_loss` and `alone_auc` are the means of the same devices' log loss and area under the ROC curve.
    """

    without_privacy: float | None
    alone: float | None
    alone_devices: int | None = None
    most_common: float | None = None
    alone_loss: float | None = None
    alone_auc: float | None = None

    def named(self) -> dict[str, float]:
        """Each figure that there is, by its name for people."""
        devices = "" if self.alone_devices is None else f", mean of {self.alone_devices}"
        values = {
            "without privacy": self.without_privacy,
            f"alone{devices}": self.alone,
            "always the same answer": self.most_common,
        }
        return {name: value for name, value in values.items() if value is not None}


class Measured(Record, frozen=True, kw_only=True):
    """It says how sure the test figures are, and how good the model is for each class.

    `error` is the standard error of the accuracy on so many test `rows`, and `loss_error` that of the log loss;
    `recall` is, of each class, the share of its rows that the model finds, where it has any. `rarest` is the share of
    the rarest class.
    """

    rows: int
    error: float | None = None
    recall: dict[str, float] = field(default_factory=dict)
    rarest: float | None = None
    loss_error: float | None = None

    @property
    def same_answer(self) -> bool:
        """It says whether the model gives one answer for all rows, of whatever class they are.

        >>> Measured(rows=9, recall={"no": 1.0, "yes": 0.0}).same_answer
        True
        """
        return (
            len(self.recall) > 1 and sorted(self.recall.values())[-2:] == [0.0, 1.0] and sum(self.recall.values()) == 1
        )


class GainOverAlone(Record, frozen=True, kw_only=True):
    """Joining was worth it or not: the run's figure less that of a device alone, and its standard error.

    Where a class is rare, `kind` follows from `less_loss` and `more_auc`, and not from `gain`. `same_answer` says that
    the model gives one answer for all rows.
    """

    kind: VerdictKind
    gain: float
    error: float | None = None
    less_loss: float | None = None
    more_auc: float | None = None
    same_answer: bool = False


class Sight(Record, frozen=True, kw_only=True):
    """The first numbers that one device computed, and what the server received of them."""

    device: str
    round: int
    computed: tuple[float, ...]
    received: tuple[int, ...] | None


class Release(Record, frozen=True, kw_only=True):
    """One thing that left the devices, and what protects it."""

    what: str
    to: str
    times: int
    protected_by: str


class Outcome(Record, frozen=True, kw_only=True):
    """The result of a run; `files` are the SHA-256 of the files that it vouches for.

    A server says in `claim` what its ε mean, and in `refused` which devices have refused permanently.
    """

    finished: str
    seconds: float
    rounds_done: int
    stopped: str
    wasted: tuple[int, ...]
    test: dict[str, float]
    measured: Measured | None = None
    baselines: Baselines
    verdict: GainOverAlone | None = None
    privacy: Statement
    claim: str | None = None
    refused: dict[str, str] | None = None
    sight: Sight | None
    releases: tuple[Release, ...]
    files: dict[str, str]


class EncoderCard(Record, frozen=True, kw_only=True):
    """The encoder that rows pass through before the model: its file and SHA-256, and what it reads and gives.

    `inputs` are the declared columns that it reads, or `text` is the one column of text.
    """

    file: str
    sha256: str
    embeddings: int
    bounds: tuple[int | float, int | float]
    text: str | None = None
    inputs: tuple[dict[str, object], ...] = ()


class ModelCard(Record, frozen=True, kw_only=True):
    """It is what is needed to use the parameters: kind, shapes, classes or the label's range, and what columns become.

    `label_type` is what the classes were before they became texts.
    """

    kind: str
    widths: tuple[int, ...]
    parameters: int
    classes: tuple[str, ...]
    label_bounds: tuple[int | float, int | float] | None
    features: tuple[str, ...]
    columns: tuple[dict[str, object], ...]
    label_type: Literal["text", "whole number", "number", "truth"] = "text"
    encoder: EncoderCard | None = None


def charged_rounds(lines: Iterable[RoundLine], devices: int, wasted: Iterable[int] = ()) -> "NDArray[np.int64]":
    """It counts charges of each device: included, or in an attempt that failed, or `wasted` after the last round.

    >>> line = RoundLine(round=1, seconds=0.1, cohort=(0, 2), included=(0, 2), test={}, note="", wasted=(2,))
    >>> charged_rounds([line], 3).tolist(), charged_rounds([line], 3, [1]).tolist()
    ([1, 0, 2], [1, 1, 2])
    """
    return _counted([*(device for line in lines for device in (*line.included, *line.wasted)), *wasted], devices)


def joined_rounds(lines: Iterable[RoundLine], devices: int) -> "NDArray[np.int64]":
    """In how many rounds each device took part.

    >>> line = RoundLine(round=1, seconds=0.1, cohort=(0, 2), included=(0, 2), test={}, note="", wasted=(2,))
    >>> joined_rounds([line], 3).tolist()
    [1, 0, 1]
    """
    return _counted([device for line in lines for device in line.included], devices)


def _counted(numbers: list[int], devices: int) -> "NDArray[np.int64]":
    import numpy as np  # an account of one device is a record, too, and loads no arrays

    return np.bincount(np.array(numbers, dtype=np.int64), minlength=devices)


def merit(test: Mapping[str, float]) -> tuple[str, float]:
    """The figure that a run is judged by, of those that were measured: its name for people, and its value.

    >>> merit({"loss": 0.3, "accuracy": 0.84}), merit({"r2": 0.5, "loss": 0.1, "rmse": 3.0})
    (('accuracy', 0.84), ('R²', 0.5))
    """
    known = MERITS | _OF_HAZARDS
    key = next((name for name in known if name in test), "loss")
    return known[key], test[key]


class Decision(Record, frozen=True, kw_only=True):
    """One decision about a device; `because` and `answers` are digests, of the file that says why and of probes.jsonl.

    `signature` is the coordinator's, under the study and all fields before it.
    """

    device: str
    excluded: bool
    because: str
    answers: str | None = None
    at: str
    signature: str = ""


Seed = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class ProbeLine(Record, frozen=True, kw_only=True):
    """The probes of one turn that ended in a sum; `choral verify` computes `refused`, `spared` and `named` again.

    `seed` follows from `context`, the uploads' `digests` and what was watched; in a run that can be repeated it follows
    from the run's seed, and both are left out. `answers` are P·x and, where a direction was watched, ⟨v, x⟩.
    `following` is the direction that the next round watches, in base64, and `scale` the size of one of its steps.
    """

    round: int
    attempt: int
    seed: Seed
    context: str | None = None
    digests: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[int, ...]]
    refused: dict[str, str] = field(default_factory=dict)
    spared: tuple[str, ...] = ()
    named: dict[str, int] = field(default_factory=dict)
    following: str = ""
    scale: float = 0.0


class AnsweredQuestion(Record, frozen=True, kw_only=True):
    """One opened sum. `question` is its canonical JSON; `total` has the noise in it, in units of 1/`factor`.

    `rows` are those of the included devices. `l2`, `factor` and `scale` follow from the question and the study, and
    `choral verify` works them out again.
    """

    number: int
    question: str
    words: str
    at: str
    included: tuple[int, ...]
    rows: int
    l2: float
    factor: int
    scale: int
    total: tuple[int, ...]
    state: str = ""  # SHA-256 of the public state that it was asked at, in hex: a round of a model has one


class SumModelLine(Record, frozen=True, kw_only=True):
    """models.jsonl: a model on sums, which follows from the answers that have these numbers.

    `state` is the model; `figures` say how well it does on rows that it was not made from, where there are any.
    """

    question: str
    words: str
    at: str
    numbers: tuple[int, ...]
    rows: int
    state: tuple[float, ...]
    figures: dict[str, float] = msgspec.field(default_factory=dict)


class AnswerPrivacy(Record, frozen=True, kw_only=True):
    """One answer costs this, and all questions of the study together that, against whom and by which rule."""

    rule: str
    delta: float
    adjacency: str
    epsilon: float
    epsilon_in_all: float
    adversary: str
    epsilon_sum: float
    epsilon_sum_in_all: float
    adversary_sum: str
    asked: int
    most: int
    from_register: bool = False
    sums: int = 1  # that the answer is made of: a model has one per round


class SiteQuestion(Record, frozen=True, kw_only=True):
    """A line of a site's own log: a question, written before its answer was charged and sent."""

    number: int
    words: str
    at: str


class CellsRead(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """It is what was read of a row: its cells, and how many of them are right."""

    cells: dict[str, str]
    matched: int
    of: int


class Target(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """It says how often the membership of a row was found, and the most that any attack can find."""

    target: str
    measured: float
    error: float
    bound: float | None


class ShownAttack(Record, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A demonstration. It is no part of the run, so fields that the report does not show may be there."""

    data: str
    row: dict[str, str]
    label: str
    shown: tuple[str, ...]
    ordinary: dict[str, CellsRead]
    label_read: str | None
    masked: CellsRead
    opened: CellsRead
    guess: CellsRead
    membership: tuple[Target, ...]
    epsilon: float
    rule: str
    delta: float
    adjacency: str
    adversary: str
    false_alarms: float

    def __post_init__(self) -> None:
        read = (self.masked.cells, self.opened.cells, *(one.cells for one in self.ordinary.values()))
        if "network" not in self.ordinary or any(
            name not in cells for cells in (self.row, *read) for name in self.shown
        ):
            raise ValueError("a column that is shown has not been read")


class Signer(Record, frozen=True, kw_only=True):
    """A device's public keys, what it signed or why it has not, and the salt where its ledger is public.

    Only runs of format 1 have the `ledger_seal`, and none of the four fields before it.
    """

    ALWAYS: ClassVar[frozenset[str]] = frozenset(("paid", "receipt", "salt", "why"))

    device: str
    identity: str
    agreement: str
    bundle_signature: str
    offers: tuple[str, ...] = ()  # of its card, which the signature covers; none on cards of 0.1
    paid: int | None = None
    receipt: str | None = None
    salt: str | None = None
    signature: str | None
    why: str = ""
    ledger_seal: str | None = None


class Signatures(Record, frozen=True, kw_only=True):
    """Every device's entry; version 1 covers the plan, the model and the ledger, version 2 the whole record."""

    version: int = 1
    devices: tuple[Signer, ...]


class KeptReceipt(Signer, frozen=True, kw_only=True):
    """It is what a site keeps about its signature: its entry, and the digests that it signed."""

    version: int
    run: str
    roster: str
    record: str
    model: str
    ledger: str
    early: str = ""  # why the run ended before its last round, in the server's words; not under the signature


class SiteEnd(Record, frozen=True, kw_only=True):
    """One study's end at one site; everything in it can be computed again from the site's home."""

    device: str
    study: str
    study_digest: str
    safety_number: str
    run: str
    approved: str
    table: str  # the name of its file
    rows: int  # that the site trained on, or that the plan asks for at least where an older version approved it
    rows_known: bool
    columns: tuple[str, ...]
    label: str
    parties: tuple[str, ...]
    server: str  # the address
    plan: FlatPlan
    against: Against
    privacy: Statement  # of the run, by the public numbers of the plan: what the coordinator's report claims, too
    paid: int  # uploads of this run that the ledger paid for
    record: str  # the digest of the run's record, as this site signed it
    model: str  # SHA-256 of the final parameters, as this site signed them
    ledger: str  # the ledger's lines and its last seal when the site signed
    limit: LedgerLimit
    reserved: float  # what is proved of the whole ledger: all uploads that studies have reserved or made
    spent: Spent
    with_secure_sum: LedgerOfSums | None = None
    pages: int = 1  # the form of pages when the study was enrolled, or a later one: it has no page of an earlier one
