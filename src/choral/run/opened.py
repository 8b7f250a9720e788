"""A finished run read back from its folder: the model predicts again, and all that was claimed comes with it."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral import config
from choral.config import Job
from choral.core.errors import ConfigError, StorageError
from choral.learning.models import KINDS, Model
from choral.learning.torch_door import named_maker
from choral.record import ModelCard, ModelShape, RunRecord, converted, of_right_form, read_json, read_run
from choral.run.folder import hashes, read_parameters
from choral.run.result import Result
from choral.run.sum_study import SumCoordinates
from choral.tables.columns import Categorical, Numeric
from choral.tables.encoder import Encoder

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
