"""A site's personal model: made at the site from the shared model and the site's own table, kept in its home.

Nothing of it is sent, signed or charged. The agent knows nothing of it.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import StorageError, TableError
from choral.deploy.home import Home, check_table
from choral.deploy.ownership import keep
from choral.learning.personal import KAPPA, Personal, Rows, Standing, in_words, personal, side_by_side
from choral.record import ModelCard, read_json
from choral.run.agreement import Agreement
from choral.run.folder import parameter_bytes, read_parameters, tensors
from choral.run.result import TrainedModel, model_card
from choral.tables.reading import Table

FILE, PAGE = "personal.safetensors", "personal.html"
NOT_PRIVATE = (
    "This model is not private. It was fitted to this site's rows without noise: whoever reads this file, or may ask "
    "the model many questions, can learn about single rows. Keep it at the site."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnModel:
    """It is what a site sees of its personal model; `standings` is empty without validation rows."""

    device: str
    study: str
    proposed: float
    own: Personal
    trained: TrainedModel = field(repr=False)
    card: ModelCard = field(repr=False)
    plan_digest: str
    rows: int
    judges: int
    repeated: int  # validation rows that the shared model may have been trained on: they judge nothing
    standings: dict[str, Standing]
    path: Path

    @property
    def words(self) -> str:
        """Whose model it is, by its κ."""
        return in_words(self.own.kappa, self.proposed)

    def to_dict(self) -> dict[str, object]:
        """The same for machines, without a parameter."""
        return {
            "device": self.device,
            "study": self.study,
            "file": str(self.path),
            "proposed": self.proposed,
            "kappa": self.own.kappa if np.isfinite(self.own.kappa) else None,
            "words": self.words,
            "because": self.own.because,
            "rows": self.rows,
            "validation_rows": self.judges,
            "repeated_rows": self.repeated,
            "standings": {name: standing.to_dict() for name, standing in self.standings.items()},
            "not_private": NOT_PRIVATE,
        }


def make_personal(
    home: Home,
    *,
    validation: Path | None = None,
    model: Path | None = None,
    kappa: float = KAPPA,
    passphrase: str | None = None,
) -> OwnModel:
    """The site's personal model, written into its home.

    `validation` is a table of rows that the run was not trained on; `model` the coordinator's model.safetensors, where
    this site was not there when the run ended.
    """
    study, approval = home.approved(home.vault(passphrase))
    settled, shared = study.settled, shared_model(home, study, model)
    table = study.table_in(Path(approval.data), approval.written)
    check_table(study.digest_of(table), approval.table, data=Path(approval.data))
    train, judges, repeated = study.encoded(table), None, 0
    if validation is not None:
        judges, repeated = _unseen(study, table, study.table_in(validation, approval.written))
    own = personal(settled.model, shared, train, judges, kappa=kappa)
    unit = 1.0 if settled.data.target is None else settled.data.target.unit
    standings = {} if judges is None else side_by_side(settled.model, shared, train, judges, own.kappa, unit=unit)
    made = OwnModel(
        device=home.joined.name,
        study=study.file.name,
        proposed=kappa,
        own=own,
        trained=_trained(study, own.parameters),
        card=model_card(settled.model, settled.data),
        plan_digest=study.plan.digest,
        rows=len(train[1]),
        judges=0 if judges is None else len(judges[1]),
        repeated=repeated,
        standings=standings,
        path=home.path / FILE,
    )
    about = {
        "format": "choral flat vector",
        "study": study.digest.hex(),
        "kappa": f"{own.kappa:g}",
        "words": made.words,
    }
    keep(made.path, tensors(own.parameters, {**about, "privacy": NOT_PRIVATE}))
    return made


def predictor(
    home: Home, *, personal: bool = False, model: Path | None = None, passphrase: str | None = None
) -> tuple[TrainedModel, Agreement]:
    """It is what predicts at this site, the shared model or its personal one, and the study whose columns it reads."""
    study, _ = home.approved(home.vault(passphrase))
    if not personal:
        return _trained(study, shared_model(home, study, model)), study
    path = home.path / FILE
    if not path.exists():
        raise StorageError("CH802", "there is no personal model here.", where=str(path), fix="choral device personal")
    parameters, about = read_parameters(path)
    if about.get("study") != study.digest.hex():
        raise StorageError(
            "CH802", "is of another study than is approved here.", where=str(path), fix="choral device personal"
        )
    return _trained(study, _fitting(study, parameters, path, own=True)), study


def shared_model(home: Home, study: Agreement, model: Path | None = None) -> NDArray[np.float32]:
    """The final model of the run, as this site signed it, or from a file that must be the one that it signed."""
    kept, receipt = home.model_path(study), home.receipt_path(study)
    path = kept if model is None else model
    if not path.exists():
        raise StorageError(
            "CH802",
            "the final model of the run is not here.",
            where=str(path),
            why="A site keeps it when it signs the end of the run.",
            fix="Run the agent until the run has ended, or give the coordinator's model.safetensors as --model.",
        )
    parameters = _fitting(study, read_parameters(path)[0], path)
    if receipt.exists() and read_json(receipt)["model"] != hashlib.sha256(parameter_bytes(parameters)).hexdigest():
        raise StorageError(
            "CH802",
            "is not the model that this site signed when the run ended.",
            where=str(path),
            fix="Get model.safetensors of the run again.",
        )
    return parameters


def _fitting(
    study: Agreement, parameters: NDArray[np.float32], path: Path, *, own: bool = False
) -> NDArray[np.float32]:
    model = study.settled.model
    size = (model.whole or model).size if own else model.size  # a personal model has its private parameters, too
    if parameters.shape != (size,) or parameters.dtype != np.float32 or not np.isfinite(parameters).all():
        raise StorageError(
            "CH802", f"does not hold {size:,} finite numbers, as the study's model has.", where=str(path)
        )  # fmt: skip
    return parameters


def _trained(study: Agreement, parameters: NDArray[np.float32]) -> TrainedModel:
    data, model = study.settled.data, study.settled.model
    return TrainedModel(
        model=model if len(parameters) == model.size else model.whole or model,
        parameters=parameters,
        classes=data.classes,
        columns=data.columns,
        target=data.target,
        label_type=data.label_type,
        encoder=data.encoder,
    )


def _unseen(study: Agreement, table: Table, more: Table) -> tuple[Rows, int]:
    """The validation rows that are no rows of the table, and how many are: by those a site alone would look best."""
    names = [*study.reads, study.target.name]
    seen, rows = set(table.row_digests(names)), list(more.row_digests(names))
    fresh = [number for number, row in enumerate(rows) if row not in seen]
    if not fresh:
        raise TableError(
            "CH308",
            f"all {len(rows):,} validation rows are rows that the shared model was trained on.",
            where=more.source,
            why="On them a model of this site alone would look best, whatever it is worth.",
            fix="Give rows that are not in the approved table, or none.",
        )
    features, labels = study.encoded(more)
    return (features[fresh], labels[fresh]), len(rows) - len(fresh)
