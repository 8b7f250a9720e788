"""What a server reads from an update, shown on a public row: ordinary, with masks, and as an opened noisy sum."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from choral.accounting.proofs import against_everyone, rounds_each
from choral.config import parse
from choral.core.exposure import ADJACENCY, EVERYONE
from choral.core.keys import Identity, Roster, digest
from choral.core.masks import Stream, Words, add_masks, pair_mask, self_mask
from choral.core.plan import require_whole
from choral.engine.compiled import CompiledEngine
from choral.learning.clipped import clip_factor, clipped_sum, norm
from choral.learning.models import Model, logistic, mlp
from choral.run.folder import Watch, unheard, unwatched
from choral.run.planning import settle
from choral.run.study import Study
from choral.tables.records import Labels, Records
from choral_lab.attack.membership import FALSE_ALARMS, most_true_positives, sampling_error, true_positives
from choral_lab.attack.reconstruct import (
    Cells,
    Column,
    Reading,
    adult_columns,
    candidates,
    cells_matched,
    decode,
    label_of,
    rows_read,
)

Vector = NDArray[np.float32]
BATCHES = (1, 4, 8, 16)
HIDDEN = (64, 32)
SHOWN = ("age", "occupation", "education", "marital-status", "hours-per-week", "native-country")  # of 14 columns
LANES = 16  # copies of a device, with and without the row, in one call of the engine
STUDY = """
[privacy]
epsilon = {epsilon}
delta = 1e-5
[federation]
robust = false
devices = 16
cohort = 10
rounds = 20
[local]
steps = 10
batch = 244
step_size = 0.5
clip = 1.0
[data]
builtin = "adult"
label = "income"
[run]
seed = {seed}
"""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """How often a member is recognised at 1 % false alarms, measured, and what no attack can exceed."""

    target: str
    measured: float
    error: float  # of the measurement, with 99 % confidence
    bound: float | None  # nothing bounds it without noise


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """Everything that `choral attack` shows; the row is from the public UCI Adult data that comes with choral."""

    row: Cells
    label: str
    ordinary: dict[str, Reading]
    label_read: str
    batches: dict[int, int]
    masked: Reading
    masked_bytes: str
    opened: Reading
    guess: Reading
    membership: tuple[Membership, ...]
    epsilon: float
    rule: str

    shown: ClassVar = SHOWN
    data: ClassVar = "UCI Adult, public, bundled with choral"
    false_alarms: ClassVar = FALSE_ALARMS
    delta: ClassVar = 1e-5
    adjacency: ClassVar = ADJACENCY
    adversary: ClassVar = EVERYONE

    def as_dict(self) -> dict[str, object]:
        """The demonstration for machines."""
        always = ("shown", "data", "false_alarms", "delta", "adjacency", "adversary")
        return asdict(self) | {name: getattr(self, name) for name in always}


class Ordinary:
    """An ordinary federated device: one plain gradient step on a few rows, sent as it is."""

    def __init__(self, model: Model, parameters: Vector, features: Vector, labels: Labels) -> None:
        self.model, self.features, most = model, features, max(BATCHES)
        tree, rows = model.unravel(jnp.asarray(parameters)), jnp.asarray(features[:most])
        codes = jnp.asarray(labels[:most])
        # One compiled call for all sizes: rows beyond the batch have no weight.
        self._sum = jax.jit(lambda used: model.ravel(clipped_sum(model, tree, rows, codes, used, np.inf)))

    def update(self, size: int) -> Vector:
        """θ_i − θ after one step of size 1 on the first rows."""
        return np.asarray(-self._sum(jnp.arange(max(BATCHES)) < size) / size)

    def rows_read(self, columns: list[Column], size: int) -> int:
        """How many rows of a batch of this size can be read in full off its update."""
        read = rows_read(columns, candidates(self.model, self.update(size)))
        truths = [decode(columns, row) for row in self.features[:size]]
        return sum(any(cells_matched(columns, truth, one) == len(columns) for one in read) for truth in truths)


def masked_words(study: Study, update: Vector) -> Words:
    """The update as a device really sends it: encoded, with a self mask and one mask for each of its peers."""
    names = [f"device {number:02}" for number in range(study.plan.cohort)]
    identities = [Identity.fresh(name) for name in names]
    roster = Roster.of(identity.bundle for identity in identities)
    context = digest("demonstration", roster.digest)
    words = study.codec.encode(update, Stream.fresh())
    pairs = [identities[0].pair(other.bundle, b"demonstration") for other in identities[1:]]
    masks = [pair_mask(pair, context) for pair in pairs]
    secret = Stream.fresh().words(8, 32).tobytes()
    add_masks(words, [*masks, self_mask(secret, context, names[0])])
    return words


def read_words(study: Study, words: Words) -> Vector:
    """What the words would say if they were not masked."""
    steps = words[: study.model.size].astype(np.int64) - study.codec.largest
    return (steps * study.codec.grid).astype(np.float32)


def demonstrate(
    *,
    epsilon: float = 2.0,
    seed: int = 0,
    row: int = 0,
    watch: Watch = unwatched,
    reached: Callable[[], None] = unheard,
) -> Demonstration:
    """The attack on an ordinary update, on a masked one and on an opened sum, each with its bound."""
    study = settle(parse(STUDY.format(epsilon=epsilon, seed=seed)), reached=reached)
    columns, train = adult_columns(), study.split.train
    require_whole("row", row, least=0, most=int(train.sizes[0]) - max(BATCHES))
    features, labels = train.features_of(0)[row:], train.labels_of(0)[row:]
    truth, width = decode(columns, features[0]), features.shape[1]
    devices = {
        name: Ordinary(model, model.start(seed), features, labels)
        for name, model in (("logistic regression", logistic(width)), ("network", mlp(width, HIDDEN)))
    }
    network = devices["network"]
    engine = _engine(study, study.split.train)
    start, cohort = study.model.start(seed), np.arange(study.plan.cohort)
    words = masked_words(study, engine.updates(start, 1, np.array([0]))[0])
    opened = engine.train(start, 1, cohort)
    mean = engine.apply(start, opened.total, opened.count) - start
    return Demonstration(
        row=truth,
        label=study.data.classes[int(labels[0])],
        ordinary={
            name: Reading.of_update(device.model, columns, device.update(1), truth) for name, device in devices.items()
        },
        label_read=study.data.classes[label_of(network.model, network.update(1))],
        batches={size: network.rows_read(columns, size) for size in BATCHES},
        masked=Reading.of_update(study.model, columns, read_words(study, words), truth),
        masked_bytes=words.tobytes()[:8].hex(" "),
        opened=Reading.of_update(study.model, columns, mean, truth),
        guess=_common_guess(columns, study, truth),
        membership=(*_on_updates(study, watch), *_on_models(study, engine, seed, watch)),
        epsilon=study.costs.spent(0, rounds_each(study.plan), 1e-5),
        rule=study.costs.rule(0).rule,
    )


def _engine(study: Study, records: Records, **changes: Any) -> CompiledEngine:  # noqa: ANN401 - of the plan
    plan = replace(study.plan, devices=records.devices, cohort=min(study.plan.cohort, records.devices), **changes)
    return CompiledEngine(model=study.model, records=records, plan=plan, codec=study.codec, seed=study.seed)


def _common_guess(columns: list[Column], study: Study, truth: Cells) -> Reading:
    """Who sees nothing and says each column's most common cell: what a guess is worth."""
    rows = [decode(columns, row) for row in study.split.train.features_of(1)[:500]]
    cells = {column.name: Counter(one[column.name] for one in rows).most_common(1)[0][0] for column in columns}
    return Reading(cells=cells, matched=cells_matched(columns, truth, cells), of=len(columns))


def _on_updates(study: Study, watch: Watch, turns: int = 256) -> tuple[Membership, Membership]:
    """One row of a device, there or replaced, and the device's update of one round: plain, and as choral makes it.

    The adversary knows all other rows and all other devices' updates; its score is the push along the row's gradient.
    """
    train, model = study.split.train, study.model
    start = model.start(study.seed)
    gradient = model.ravel(
        jax.grad(model.loss)(model.unravel(jnp.asarray(start)), train.features[0], jnp.asarray(train.labels[0]))
    )
    along = np.asarray(gradient * clip_factor(norm(gradient), study.plan.clip))
    worlds = [(train.features_of(0), train.labels_of(0))]
    worlds.append((worlds[0][0].copy(), worlds[0][1].copy()))
    worlds[1][0][0], worlds[1][1][0] = train.features_of(1)[0], train.labels_of(1)[0]
    copies = Records.of([(str(lane), *worlds[lane % 2]) for lane in range(2 * LANES)], classes=train.classes)

    def measure(turns: int, **changes: Any) -> float:  # noqa: ANN401 - of the plan
        engine = _engine(study, copies, **changes)
        watched = watch(range(1, turns + 1), total=turns, label="ON UPDATES")
        scores = -np.concatenate([engine.updates(start, turn, np.arange(2 * LANES)) for turn in watched])
        return true_positives((scores @ along)[::2], (scores @ along)[1::2])

    ordinary = measure(1, noise=0.0, batch=int(train.sizes[0]), rows=int(train.sizes[0]), sampling="partition")
    ours = measure(turns)
    return (
        Membership(target="one ordinary update", measured=ordinary, error=0.0, bound=None),  # the same in every lane
        Membership(
            target="one update of choral",
            measured=ours,
            error=sampling_error(ours, turns * LANES, turns * LANES),
            bound=most_true_positives(study.costs.of(0).event(0)),
        ),
    )


def _on_models(study: Study, private: CompiledEngine, seed: int, watch: Watch) -> tuple[Membership, Membership]:
    """Rows of training and test, and their losses under a final model: trained without noise, and by the plan."""
    train, test, plan = study.split.train, study.split.test, study.plan
    lost = jax.vmap(study.model.loss, in_axes=(None, 0, 0))

    def measure(engine: CompiledEngine) -> tuple[float, float]:
        parameters = study.model.start(study.seed)
        rng = np.random.default_rng([seed, 0xF17A1])
        for number in watch(range(1, plan.rounds + 1), total=plan.rounds, label="ON MODELS"):
            cohort = np.sort(rng.choice(plan.devices, plan.cohort, replace=False))
            opened = engine.train(parameters, number, cohort)
            parameters = engine.apply(parameters, opened.total, opened.count)
        tree = study.model.unravel(jnp.asarray(parameters))
        members, strangers = (
            -np.asarray(lost(tree, jnp.asarray(part.features), jnp.asarray(part.labels))) for part in (train, test)
        )
        found = true_positives(members, strangers)
        return found, sampling_error(found, len(members), len(strangers))

    plain, ours = measure(_engine(study, train, noise=0.0)), measure(private)
    whole = against_everyone(study.costs.of(0).exposure(rounds_each(plan)))
    return (
        Membership(target="an ordinary final model", measured=plain[0], error=plain[1], bound=None),
        Membership(
            target="choral's final model", measured=ours[0], error=ours[1], bound=most_true_positives(whole.event)
        ),
    )
