"""What travels in a Flower message: bytes one way, bytes or the code of a refusal back."""

from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from choral.backends import relay
from choral.errors import DeploymentError
from choral.protocol.messages import Vector

KIND = "query"  # Flower's name for a message that is neither training nor evaluation


def parcel(data: Vector) -> RecordDict:
    """Bytes as Flower carries them: an array, which it cuts into pieces that fit its requests.

    >>> unpacked(parcel(b"frame"))
    b'frame'
    """
    return RecordDict({"parcel": ArrayRecord({"bytes": Array("uint8", (len(data),), "bytes", bytes(data))})})


def unpacked(content: RecordDict) -> bytes | None:
    """The bytes of a parcel, or None for anything else."""
    record = content.get("parcel")
    array = record.get("bytes") if isinstance(record, ArrayRecord) else None
    return None if array is None else array.data


def relayed(message: Message, door: Path) -> Message:
    """The answer of the process behind the door. Whatever goes wrong there, only a code leaves this machine."""
    try:
        reply = parcel(relay.ask(door, unpacked(message.content) or b"", timeout=message.metadata.ttl))
    except DeploymentError as error:
        reply = RecordDict({"refusal": ConfigRecord({"code": error.code})})
    return Message(reply, reply_to=message)
