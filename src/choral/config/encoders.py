"""The settings of an encoder, checked together: what it is, and the range of what it gives."""

from typing import TYPE_CHECKING

from choral.core.errors import ConfigError, TableError

if TYPE_CHECKING:
    from choral.config import Job

_ONLY_WITH_ONE = ("encoder_sha256", "embeddings", "embedding_bounds", "text")


def check_encoder(job: "Job") -> None:
    """Nothing, or what is wrong with the settings of an encoder in [data]."""
    data = job.data
    if data.encoder is None:
        if key := next((key for key in _ONLY_WITH_ONE if getattr(data, key) is not None), None):
            raise ConfigError(
                "CH104",
                f"[data] has {key} and no encoder.",
                where=job.where("data", key),
                fix='Add encoder = "onnx:FILE", or take it out.',
            )
        return
    where = job.where("data", "encoder")
    if not data.encoder_file:
        fix = 'Must be "onnx:" and the path of a file. Suggested: "onnx:encoder.onnx"'
        raise ConfigError("CH102", "data.encoder names no ONNX file.", where=where, fix=fix)
    if data.embedding_bounds is None:
        raise TableError(
            "CH304",
            "[data] has an encoder and no embedding_bounds.",
            where=where,
            why="A range that is taken from the rows would reveal them.",
            fix="Set embedding_bounds = [-1, 1], say: the range of what the encoder gives for public rows.",
        )
    if data.text is not None and data.columns:
        raise ConfigError(
            "CH104",
            "[data] has text, which the encoder reads, and columns, which nothing would read.",
            where=job.where("data", "text"),
            fix="Keep one of them.",
        )
