"""What travels in a Flower message: bytes one way, bytes or the code of a refusal back."""

from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from choral.backends import local_socket
from choral.core.errors import CODES, DeploymentError
from choral.core.messages import Vector

KIND = "query"  # Flower's name for a message that is neither training nor evaluation


def packed(data: Vector) -> ArrayRecord:
    """Bytes as Flower carries them: an array, which it cuts into pieces that fit its requests.

    Equal arrays are kept and carried once, whatever goes with them in a message.
    """
    return ArrayRecord({"bytes": Array("uint8", (len(data),), "bytes", bytes(data))})


def parcel(data: Vector) -> RecordDict:
    """A message's content that is these bytes.

    >>> unpacked(parcel(b"frame"))
    b'frame'
    """
    return with_head(b"", packed(data))


def with_head(head: bytes, record: ArrayRecord) -> RecordDict:
    """The same of bytes that are packed already, with a head before them.

    >>> unpacked(with_head(b"head ", packed(b"frame")))
    b'head frame'
    """
    return RecordDict({"parcel": record, **({"head": ConfigRecord({"bytes": head})} if head else {})})


def unpacked(content: RecordDict) -> bytes | None:
    """The bytes of a parcel, its head first, or None for anything else."""
    record, before = content.get("parcel"), content.get("head")
    array = record.get("bytes") if isinstance(record, ArrayRecord) else None
    head = before.get("bytes") if isinstance(before, ConfigRecord) else b""
    return None if array is None or not isinstance(head, bytes) else head + array.data


def refused_by(content: RecordDict) -> str:
    """The code in a refusal of the machine that a message came to; empty for anything else.

    >>> refused_by(RecordDict({"refusal": ConfigRecord({"code": "CH901"})})), refused_by(parcel(b"frame"))
    ('CH901', '')
    """
    record = content.get("refusal")
    code = record.get("code") if isinstance(record, ConfigRecord) else None
    return code if isinstance(code, str) and code in CODES else ""


def relayed(message: Message, door: Path) -> Message:
    """The answer of the process behind the door. Whatever goes wrong there, only a code leaves this machine."""
    try:
        reply = parcel(local_socket.ask(door, unpacked(message.content) or b"", timeout=message.metadata.ttl))
    except DeploymentError as error:
        reply = RecordDict({"refusal": ConfigRecord({"code": error.code})})
    return Message(reply, reply_to=message)
