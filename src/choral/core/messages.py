"""The messages of a round, of a question and of a run's end as bytes: versioned, capped, checked before being believed.

A frame is magic ‖ version ‖ header length ‖ header ‖ zeros to a multiple of 8 ‖ vector. The header is a msgpack array
by a fixed schema; the vector (the model, or a masked update) is raw bytes, so that a million numbers are never parsed
or copied.
Lists inside a header are packed records: a 4-byte device number and a value of fixed width, numbers ascending.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from choral.core.errors import TrustError
from choral.core.keys import PUBLIC_SIZE

VERSION = 3
ASKING = 4  # the version of every frame that is about a question; a choral that knows none of them says so (CH602)
PROBING = 5  # the version of the frames that probes came with
AGREEING = 6  # the version of the frames by which devices agree on keys, and of the studies that have such keys
LISTING = 7  # the version of the frames with paths into trees, and of the studies whose lists are trees
ENDING = 8  # the version of the frame that ends a run before its last round
REASON_BYTES = 160
QUESTIONS = 2**31  # the number of the first question's turn: rounds of training are below
QUESTION_BYTES = 4096
MAGIC = b"chrl"
NONCE_BYTES = 16
DIGEST_BYTES = 32
SIGNATURE_BYTES = 64

_PREFIX = struct.Struct("<4sHI")
_NUMBER = struct.Struct("<I")
# A header's fixed fields fit into this; what grows with the cohort is capped by its records.
_HEADER_BYTES = 256

Vector = bytes | bytearray | memoryview
Whole = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
# ν and its signature, where READY rides on another message.
Announced = Annotated[
    bytes, msgspec.Meta(min_length=NONCE_BYTES + SIGNATURE_BYTES, max_length=NONCE_BYTES + SIGNATURE_BYTES)
]
Code = Annotated[str, msgspec.Meta(pattern=r"^CH[0-9]{3}\Z", max_length=5)]


class Turn(msgspec.Struct, array_like=True, frozen=True, order=True, forbid_unknown_fields=True):
    """Round t, attempt a: no device takes part in the same turn twice."""

    round: Whole
    attempt: Whole

    @property
    def asks(self) -> bool:
        """Tell whether the turn is about a question, and not a round of training."""
        return self.round >= QUESTIONS


class _Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    turn: Turn


class Call(_Message, frozen=True, tag=1):
    """Server to device: are you ready for this turn?"""


class Ready(_Message, frozen=True, tag=2):
    """Device to server: yes, and this is my fresh ν, signed with my identity key."""

    device: Whole
    nonce: Nonce
    signature: Signature


class Omega(_Message, frozen=True, tag=3):
    """Server to device: the cohort Ω with every ν, the agreed terms' digest, and the model as the vector."""

    terms: Digest
    cohort: bytes


class Upload(_Message, frozen=True, tag=4):
    """Device to server: its ctx, a commitment to σ, a bond with each neighbour, and the masked update as the vector.

    `checks` is what its self mask adds to the check lanes, where they have words to themselves.
    """

    device: Whole
    context: Digest
    commitment: Digest
    bonds: bytes
    checks: bytes


class Drop(_Message, frozen=True, tag=5):
    """Server to device: everybody who has dropped out of this turn so far."""

    dropped: bytes


class Edges(_Message, frozen=True, tag=6):
    """Device to server: this turn's pair keys with its neighbours among the dropped, all of them each time."""

    device: Whole
    keys: bytes


class Final(_Message, frozen=True, tag=7):
    """Server to device: open the envelopes of all who have not dropped out. May call for the next turn."""

    following: Turn | None  # no default: msgspec would take a header that leaves it out


class Opening(_Message, frozen=True, tag=8):
    """Device to server: the keys of the included devices' envelopes for it, and READY for the next turn if called."""

    device: Whole
    keys: bytes
    ready: Announced | None


class Refusal(_Message, frozen=True, tag=9):
    """Device to server: no, by this code, signed. Never the text: it might say more than the server should know.

    `cause` is whose doing it was: the device's own number, another device's, or None for the server and the way to it.
    """

    device: Whole
    code: Code
    cause: Whole | None
    signature: Signature


class Inquire(_Message, frozen=True, tag=10):
    """Server to device, in place of CALL: are you ready to answer this question? Its canonical JSON is all of it."""

    question: Annotated[bytes, msgspec.Meta(min_length=1, max_length=QUESTION_BYTES)]


class Probe(_Message, frozen=True, tag=11):
    """Server to device: the digests of all uploads of the turn, and what the server watches as the vector."""

    digests: bytes


class ProbeAnswer(_Message, frozen=True, tag=12):
    """Device to server: the projections of what it has masked, 8 bytes each, signed and little-endian."""

    device: Whole
    numbers: bytes


class Open(_Message, frozen=True, tag=13):
    """Server to device: show this turn's pair keys with all neighbours, since its sum failed, or for an audit."""


class OpenedKeys(_Message, frozen=True, tag=14):
    """Device to server: the keys; with them and its σ the server takes this one upload apart."""

    device: Whole
    keys: bytes


class Gather(_Message, frozen=True, tag=15):
    """Server to device: offer keys for the rounds from this turn's on, under the agreed terms."""

    terms: Digest


class Offer(_Message, frozen=True, tag=16):
    """Device to server: the public half of a key made for this agreement alone, signed with its identity key."""

    device: Whole
    key: Annotated[bytes, msgspec.Meta(min_length=PUBLIC_SIZE, max_length=PUBLIC_SIZE)]
    signature: Signature


class Offers(_Message, frozen=True, tag=17):
    """Server to device: the offers of all who take part in the agreement, each with its signature."""

    offers: bytes


class Wrapped(_Message, frozen=True, tag=18):
    """Device to server: a ciphertext for every device after it, in the order of numbers."""

    device: Whole
    ciphertexts: bytes


class Wraps(_Message, frozen=True, tag=19):
    """Server to device: the ciphertexts that the devices before it made for it."""

    ciphertexts: bytes


class Agreed(_Message, frozen=True, tag=22):
    """Device to server: the keys are in its vault; `session` is the digest of all offers as it saw them."""

    device: Whole
    session: Digest


class Paths(_Message, frozen=True, tag=23):
    """Server to device in place of OMEGA: the cohort's root and size, and the device and its neighbours with paths."""

    terms: Digest
    root: Digest
    size: Whole
    members: bytes


# The end of a run has its own tags, apart from those of a turn.


class Close(_Message, frozen=True, tag=20):
    """Server to device: the run ended with this turn; sign the digest of its record, and the model as the vector."""

    record: Digest


class CloseEarly(_Message, frozen=True, tag=24):
    """Server to device in place of CLOSE, before the last round: the same, and why the run ends, as UTF-8."""

    record: Digest
    reason: Annotated[bytes, msgspec.Meta(min_length=1, max_length=REASON_BYTES)]

    @property
    def says_why(self) -> bool:
        """Tell whether a person can read anything in the reason."""
        return any(letter.isalnum() for letter in self.reason.decode(errors="ignore"))


class Signed(_Message, frozen=True, tag=21):
    """Device to server: how many uploads it paid for, its receipt's commitment, and its signature under the end."""

    device: Whole
    paid: Whole
    receipt: Digest
    signature: Signature


Probing = Probe | ProbeAnswer | Open | OpenedKeys
Agreeing = Gather | Offer | Offers | Wrapped | Wraps | Agreed
OfATurn = Call | Ready | Omega | Paths | Upload | Drop | Edges | Final | Opening | Refusal | Inquire | Probing
Ending = Close | CloseEarly
Message = OfATurn | Agreeing | Ending | Signed
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Message)


def malformed(what: str) -> TrustError:
    """The one error for bytes that no honest party sends."""
    return TrustError("CH600", f"malformed message: {what}.", fix="Drop it; both sides must run the same choral.")


def encode(message: Message, vector: Vector = b"") -> bytes:
    r"""The message, and the vector where it carries one, as one frame.

    >>> encode(Call(turn=Turn(3, 0)))[:6]
    b'chrl\x03\x00'
    """
    return b"".join((*_head(message), vector))


def encode_before(message: Message, size: int) -> tuple[bytearray, memoryview]:
    """The frame of a message with room for a vector of so many bytes, and that room, which is never copied."""
    head = b"".join(_head(message))
    frame = bytearray(len(head) + size)
    frame[: len(head)] = head
    return frame, memoryview(frame)[len(head) :]


def _head(message: Message) -> tuple[bytes, bytes, bytes]:
    header = _encoder.encode(message)
    return _PREFIX.pack(MAGIC, _version(message), len(header)), header, bytes(_padding(len(header)))


def _version(message: Message) -> int:
    if isinstance(message, Probing):
        return PROBING
    if isinstance(message, Agreeing):
        return AGREEING
    if isinstance(message, Paths):
        return LISTING
    if isinstance(message, CloseEarly):
        return ENDING
    return ASKING if message.turn.asks else VERSION


def is_about_a_question(frame: Vector) -> bool:
    """Tell whether a frame belongs to a question's turn, by its first bytes."""
    return bytes(memoryview(frame).cast("B")[:6]) == MAGIC + ASKING.to_bytes(2, "little")


def _padding(header_bytes: int) -> int:
    """Zeros after a header: words that start at a multiple of 8 are added three times as fast."""
    return -(_PREFIX.size + header_bytes) % 8


def most_frame_bytes(*, vector_bytes: int, records_bytes: int) -> int:
    """The longest that a frame with such a vector and such records can be.

    >>> most_frame_bytes(vector_bytes=4_000_000, records_bytes=680)
    4000953
    """
    return _PREFIX.size + _HEADER_BYTES + records_bytes + 7 + vector_bytes


def decode(frame: Vector, *, vector_bytes: int, records_bytes: int) -> tuple[Message, memoryview]:
    """The message and a view of its vector, or CH600 or CH602; the caps are tested before any parsing.

    >>> message, vector = decode(encode(Call(turn=Turn(3, 0))), vector_bytes=0, records_bytes=0)
    >>> message
    Call(turn=Turn(round=3, attempt=0))
    """
    view = memoryview(frame).cast("B")
    if is_about_a_question(view):
        records_bytes = max(records_bytes, QUESTION_BYTES)
    most = most_frame_bytes(vector_bytes=vector_bytes, records_bytes=records_bytes)
    if not _PREFIX.size <= len(view) <= most:
        raise malformed(f"{len(view):,} bytes, expected {_PREFIX.size} to {most:,}")
    magic, version, header_bytes = _PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise malformed("it does not begin like one")
    if version not in (VERSION, ASKING, PROBING, AGREEING, LISTING, ENDING):
        raise TrustError(
            "CH602",
            f"the other side speaks protocol version {version}, this one {VERSION}.",
            fix="Install the same choral on both sides.",
        )
    end = _PREFIX.size + header_bytes
    start = end + _padding(header_bytes)
    if start > len(view) or header_bytes > _HEADER_BYTES + records_bytes or any(view[end:start]):
        raise malformed(f"a header of {header_bytes:,} bytes")
    try:
        message: Message = _decoder.decode(view[_PREFIX.size : end])
    except (msgspec.DecodeError, UnicodeDecodeError):
        # The library's own text is left out: it may quote what was sent.
        raise malformed("its header does not follow the schema") from None
    training_only, asking_only = (
        isinstance(message, Probing | Agreeing | Paths | CloseEarly),
        isinstance(message, Inquire),
    )
    if _version(message) != version or (training_only if message.turn.asks else asking_only):
        raise malformed("its turn is of another kind than its version")
    vector = view[start:]
    expected = vector_bytes if isinstance(message, Omega | Paths | Upload | Ending) else 0
    # What a server watches may have any length up to a model's; the device counts it in its own parameters.
    if len(vector) != expected and not (isinstance(message, Probe) and len(vector) <= vector_bytes):
        raise malformed(f"a vector of {len(vector):,} bytes, expected {expected:,}")
    return message, vector


def pack(records: Mapping[int, bytes]) -> bytes:
    r"""The records by ascending device number, each a 4-byte little-endian number and its value.

    >>> pack({7: b"ab", 2: b"cd"})
    b'\x02\x00\x00\x00cd\x07\x00\x00\x00ab'
    """
    return b"".join(_NUMBER.pack(number) + records[number] for number in sorted(records))


def pack_numbers(numbers: Iterable[int]) -> bytes:
    r"""Device numbers alone, ascending."""
    return pack(dict.fromkeys(numbers, b""))


def unpack(data: bytes, width: int, *, most: int) -> dict[int, bytes]:
    """The records that `pack` wrote, or CH600 if they are too many, cut short, unsorted or repeated.

    >>> unpack(pack({7: b"ab", 2: b"cd"}), 2, most=10)
    {2: b'cd', 7: b'ab'}
    """
    size = _NUMBER.size + width
    count, rest = divmod(len(data), size)
    if rest or count > most:
        raise malformed(f"{len(data):,} bytes of records of {size}, at most {most} expected")
    records = dict(struct.iter_unpack(f"{_NUMBER.format}{width}s", data))
    if len(records) != count or list(records) != sorted(records):
        raise malformed("device numbers unsorted or repeated")
    return records


def unpack_for(data: bytes, width: int, expected: set[int]) -> dict[int, bytes]:
    """The same for exactly these devices, or CH600."""
    records = unpack(data, width, most=len(expected))
    if records.keys() != expected:
        raise malformed("records for other devices than asked for")
    return records
