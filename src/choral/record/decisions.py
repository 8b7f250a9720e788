"""decisions.jsonl of a study's folder: whom its coordinator leaves out, and whom it takes back."""

from choral.record.fields import Record


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
