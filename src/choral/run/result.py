"""A run leaves this in your hands: a model that predicts, what it cost, and the folder that proves it."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.accounting.words import up
from choral.config import Job
from choral.core.errors import ConfigError, StorageError, TableError
from choral.learning.evaluate import explained, predict
from choral.learning.models import KINDS, Model
from choral.learning.torch_door import named_maker
from choral.record import (
    Baselines,
    EncoderCard,
    ModelCard,
    ModelShape,
    RoundLine,
    RunRecord,
    Statement,
    converted,
    of_right_form,
    read_json,
    read_run,
)
from choral.run.folder import hashes, read_parameters
from choral.run.modelling import SumCoordinates
from choral.tables.cells import OPEN, Format, level_of
from choral.tables.columns import Categorical, LabelType, Numeric, encode, typed
from choral.tables.encoder import Encoder
from choral.tables.reading import DataSource, Table, from_frame
from choral.tables.records import Records, by
from choral.tables.sources import Dataset


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """Parameters with all that turns rows of a table into predictions, by scikit-learn's names."""

    model: Model = field(repr=False)
    parameters: NDArray[np.float32] = field(repr=False)
    classes: tuple[str, ...]
    columns: tuple[Numeric | Categorical, ...] = field(repr=False)
    target: Numeric | None = field(repr=False)  # how the label was scaled, where it is a number
    label_type: LabelType = "text"
    encoder: Encoder | None = field(default=None, repr=False)  # what rows pass through before the model
    sums: SumCoordinates | None = field(default=None, repr=False)  # what reads rows for a model made from sums
    written: Format = field(default=OPEN, repr=False)  # how texts in the cells of a data frame are read

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes in their own type, in the order of `predict_proba`; none where the label is a number."""
        return typed(self.classes, self.label_type)

    @property
    def ranks(self) -> bool:
        """It says whether the model orders rows by their hazard, and knows no classes."""
        return self.sums is not None and self.sums.ranks

    def predict_proba(self, rows: DataSource) -> NDArray[np.float64]:
        """The probability of each class for each row; rows as a data frame with the table's columns, or encoded."""
        if self.target is not None:
            raise ConfigError("CH102", "the label is a number: no class has a probability.", fix="Use predict.")
        if self.ranks:
            raise ConfigError("CH102", "a model of hazards gives no class a probability.", fix="Use predict.")
        outputs = predict(self.model, self.parameters, self.features_of(rows)).astype(np.float64)
        if outputs.shape[1] == 1:
            outputs = np.concatenate([np.zeros_like(outputs), outputs], axis=1)
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, rows: DataSource) -> NDArray[Any]:
        """The likeliest class of each row, in the classes' own type; or its number, in the label's own unit.

        A model of hazards gives the logarithm of each row's hazard, relative to a typical one.
        """
        if self.ranks:
            return predict(self.model, self.parameters, self.features_of(rows))[:, 0].astype(np.float64)
        if self.target is not None:
            return self.target.decode(predict(self.model, self.parameters, self.features_of(rows))[:, 0])
        return np.asarray(self.classes_[self.predict_proba(rows).argmax(axis=1)])

    def score(self, rows: DataSource, labels: Sequence[object]) -> float:
        """The share of rows whose predicted class is the given one; or, of numbers, R²."""
        if self.ranks:
            raise ConfigError("CH102", "a model of hazards has no classes to score.", fix="Use predict, and by_group.")
        found = self.predict(rows)
        if len(found) != len(labels):
            raise TableError(
                "CH312", f"{len(found):,} rows and {len(labels):,} labels.", fix="Give a label for each row."
            )
        if self.target is not None:
            given = np.asarray(labels, dtype=np.float64)
            return explained(float(np.square(given - found.astype(np.float64)).sum()), given) or 0.0
        names = [level_of(value) for value in found.tolist()]
        return float(np.mean([name == level_of(label) for name, label in zip(names, _plain(labels), strict=True)]))

    def module(self) -> Any:  # noqa: ANN401 - PyTorch is an extra
        """The nn.Module that was trained, with its trained parameters, in evaluation mode; CH104 for other models."""
        if self.model.outside is None:
            raise ConfigError(
                "CH104",
                f'the model "{self.model.name}" is no PyTorch module.',
                fix="Its parameters are result.parameters; result.model.unravel(…) gives them their shapes.",
            )
        return self.model.outside.trained(self.parameters)

    def features_of(self, rows: DataSource) -> NDArray[np.float32]:
        """Rows as the model takes them: of a table its declared columns, scaled, or the embeddings of its rows."""
        if isinstance(rows, Table) and rows.arrays is not None:
            rows = rows.arrays
        if self.sums is not None:
            return self.sums.of_table(rows)
        if self.encoder is not None:
            if isinstance(rows, np.ndarray):
                return self.encoder.scaled(self.encoder.embed(rows.astype(np.float32)))
            return self.encoder.scaled(self.encoder.of_table(from_frame(rows, self.written)))
        if isinstance(rows, np.ndarray):
            if rows.shape[1:] != self.model.row:
                raise TableError(
                    "CH312",
                    f"rows have shape {rows.shape}, the model takes {by(self.model.row)} features.",
                    fix="Give a data frame with the table's columns, or rows × features.",
                )
            return rows.astype(np.float32)
        return encode(from_frame(rows, self.written), self.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Result(TrainedModel):
    """A trained model with scikit-learn's interface, and the privacy statement of the run that made it."""

    privacy: Statement = field(repr=False)
    test: dict[str, float]
    baselines: Baselines
    history: list[RoundLine] = field(repr=False)
    record: RunRecord = field(repr=False)
    folder: Path | None = None
    judged: Records | None = field(default=None, repr=False)  # test rows, where this process holds those of all sites

    def __repr__(self) -> str:
        """It shows the figures, and the ε proved against everyone, with its rule, δ, adjacency and adversary."""
        privacy, proved = self.privacy, self.privacy.against_everyone
        claim = privacy.none or (
            f"ε ≤ {up(proved.epsilon)} (δ = {privacy.delta:g}, {privacy.adjacency}, rule {proved.rule}, "
            f"against {proved.adversary})"
        )
        test = ", ".join(f"{name} {value:.4g}" for name, value in self.test.items())
        where = "" if self.folder is None else f", folder {self.folder}"
        return f"<{type(self).__name__} of {self.model.name}: {test or 'no test rows'}; {claim}{where}>"


def model_shape(model: Model) -> ModelShape:
    """The kind of a model and its size, for run.json."""
    return ModelShape(kind=model.name, hidden=tuple(model.hidden), parameters=model.size)


def model_card(model: Model, data: Dataset) -> ModelCard:
    """It is what is needed to use the parameters, for model.json."""
    return ModelCard(
        kind=model.name,
        widths=tuple(model.widths),
        parameters=model.size,
        classes=data.classes,
        label_bounds=data.label_bounds,
        features=data.features,
        columns=tuple(_described(column) for column in data.columns),
        label_type=data.label_type,
        encoder=None if data.encoder is None else _encoder_card(data.encoder, len(data.features)),
    )


def _encoder_card(encoder: Encoder, embeddings: int) -> EncoderCard:
    return EncoderCard(
        file=encoder.file,
        sha256=encoder.sha256,
        embeddings=embeddings,
        bounds=encoder.bounds,
        text=encoder.text,
        inputs=tuple(_described(column) for column in encoder.inputs),
    )


def _plain(labels: DataSource) -> list[object]:
    """Labels as Python's own values: NumPy's own may be written with their type."""
    return list(labels.tolist() if hasattr(labels, "tolist") else labels)


def _described(column: Numeric | Categorical) -> dict[str, object]:
    """A column as plain values; whether it holds dates only if it does, as cards from before have it."""
    described = {"type": type(column).__name__, **asdict(column)}
    return {name: value for name, value in described.items() if (name, value) != ("dates", False)}


GivenModel: TypeAlias = Model | Callable[..., object]  # a model, what makes one of features= and classes=, a module
_TYPES: dict[str, type[Numeric] | type[Categorical]] = {"Numeric": Numeric, "Categorical": Categorical}
_PLACE = re.compile(r"x\d+(_\d+)*")  # the name of a number in an array


def read_model(folder: str | Path) -> tuple[RunRecord, ModelCard, NDArray[np.float32]]:
    """A finished run, its model's card and parameters; CH802 where they are not those that the run wrote."""
    folder = Path(folder)
    record = read_run(folder)
    now, named = hashes(folder), record.finished.files
    if changed := [name for name in ("model.json", "model.safetensors") if now.get(name) != named.get(name)]:
        raise StorageError(
            "CH802", "is not the one that the run wrote.", where=str(folder / changed[0]), fix="See choral verify RUN."
        )
    card = converted(read_json(folder / "model.json"), ModelCard, folder / "model.json")
    return record, card, read_parameters(folder / "model.safetensors")[0]


def opened(folder: str | Path, *, model: GivenModel | None = None, encoder: str | Path | None = None) -> Result:
    """The result of a finished run; `model` where it is somebody's own code, `encoder` where its file has moved.

    No code is looked for: a folder may come from anybody, and it must not say what runs here.
    """
    record, card, parameters = read_model(folder)
    with of_right_form(record.folder):
        columns = tuple(_column(described) for described in card.columns)
        job = config.parse(record.about.job, source=record.about.job_source or "run.json")
        sums = SumCoordinates(job, parameters) if record.about.sums is not None else None
        made = _model(card, record, model) if sums is None else sums.model(card.kind, len(parameters))
    if parameters.shape != (made.size,) or not np.isfinite(parameters).all():
        raise StorageError(
            "CH802", f"does not hold the {made.size:,} finite numbers of the model.", where=str(record.folder)
        )
    result = record.finished
    return Result(
        model=made,
        parameters=parameters,
        classes=card.classes,
        columns=columns,
        target=None if card.label_bounds is None else _target(job, card.label_bounds),
        label_type=card.label_type,
        encoder=_encoder(card, job, encoder),
        sums=sums,
        written=job.data.written,
        privacy=result.privacy,
        test=result.test,
        baselines=result.baselines,
        history=record.rounds,
        record=record,
        folder=record.folder,
    )


def _target(job: Job, bounds: tuple[float, float]) -> Numeric:
    return Numeric(name=job.data.label, low=float(bounds[0]), high=float(bounds[1]))


def _column(described: dict[str, object]) -> Numeric | Categorical:
    kind = _TYPES[str(described["type"])]
    return msgspec.convert({key: one for key, one in described.items() if key != "type"}, kind)


def built_in(card: ModelCard, about: ModelShape) -> Model | None:
    """The model of a card, made again, if it is one of choral's own; one of the same name that is not has no sizes."""
    kind = KINDS.get(card.kind)
    if kind is None or not (card.widths or about.hidden):
        return None
    return kind.make(row_shape(card.features), len(card.classes), about.hidden)


def _model(card: ModelCard, record: RunRecord, given: GivenModel | None) -> Model:
    shape, known = row_shape(card.features), built_in(card, record.about.model)
    if known is not None:
        return known
    if given is None:
        raise ConfigError(
            "CH110",
            f'the model "{card.kind}" is code that the folder does not hold.',
            where=str(record.folder),
            fix='Give your function: choral.open("…", model=function).',
        )
    make = named_maker(given)[1]
    made = make(features=shape if len(shape) > 1 else shape[0], classes=len(card.classes))
    if not isinstance(made, Model):
        raise ConfigError("CH102", f"model= gives a {type(made).__name__}.", fix="Give what the run was made with.")
    return made


def row_shape(features: tuple[str, ...]) -> tuple[int, ...]:
    """The shape of a row by the names of its features: the last number of an array is at its far corner.

    >>> row_shape(("x0_0", "x0_1", "x1_0", "x1_1")), row_shape(("age", "sex=F"))
    ((2, 2), (2,))
    """
    if not all(map(_PLACE.fullmatch, features)):
        return (len(features),)
    shape = tuple(int(place) + 1 for place in features[-1].removeprefix("x").split("_"))
    return shape if math.prod(shape) == len(features) else (len(features),)


def _encoder(card: ModelCard, job: Job, path: str | Path | None) -> Encoder | None:
    if card.encoder is None:
        return None
    file = Path(path) if path is not None else job.folder / (job.data.encoder_file or card.encoder.file)
    if not file.is_file():
        raise ConfigError(
            "CH105",
            f"the encoder {card.encoder.file} of the run is not there.",
            where=str(file),
            fix='Say where it is: choral.open("…", encoder=FILE), or choral predict … --encoder FILE.',
        )
    return Encoder.read(
        file,
        bounds=card.encoder.bounds,
        sha256=card.encoder.sha256,
        text=card.encoder.text,
        inputs=tuple(map(_column, card.encoder.inputs)),
        embeddings=card.encoder.embeddings,
    )
