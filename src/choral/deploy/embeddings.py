"""A site's embeddings: made once of its table, and kept in its home, from where nothing sends them."""

import hashlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import StorageError
from choral.deploy.enrolment import keep
from choral.deploy.policy import Policy
from choral.run.agreement import Agreement
from choral.run.folder import read_parameters, tensors
from choral.run.study import encoder_of
from choral.tables.encoder import Encoder
from choral.tables.reading import Table

FOLDER = "embeddings"
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
        """Where the embeddings of a table are kept, by the digests of all that they follow from."""
        key = "\n".join((_FORM, table.digest(self.reads), repr(table.written), self.sha256, repr(self.inputs)))
        return self.home / FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()}.safetensors"
