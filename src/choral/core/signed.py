"""All that identity keys sign: readiness, refusals, offers, the end of a run, and the frames of a deployment.

What carries frames between machines may let others speak: on a network with many nodes, one node can hand another a
message as if the server had sent it. So a frame travels behind a head and an answer behind another:

    head of a frame    magic ‖ version ‖ study's digest ‖ device's number ‖ counter ‖ the server's signature
    head of an answer  magic ‖ version ‖ the device's signature, under the whole request that it answers

The counter of a server only grows, and a device keeps the last one that it has accepted: no frame counts twice. An
answer is bound to its request, counter included, so it fits no other. Both heads have a multiple of 8 bytes, since
words that start there are added three times as fast. The frames inside stay as they are.
"""

import hashlib
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity, digest, framed
from choral.core.messages import SIGNATURE_BYTES, Refusal, Turn, Vector
from choral.core.sealed import Receipt

# What such a code tells of is the device's own affair: its table, ledger, update, training or disk.
_OWN = ("CH3", "CH4", "CH5", "CH7", "CH8")
SIGNED = "end of run"
SALT_BYTES = 16
END = Turn(2**32 - 1, 2**32 - 1)  # a device that has signed the end of a run takes no turn after this one
VERSION = 1
FROM_SERVER, FROM_DEVICE = b"chrs", b"chra"
SERVER_FRAME, ANSWER = "server frame", "device answer"  # labels of what is signed
REQUEST = struct.Struct("<4sHH32sQQ")  # magic, version, zeros, study, device, counter
REPLY = struct.Struct("<4sHH")  # magic, version, zeros
REQUEST_HEAD, ANSWER_HEAD = REQUEST.size + SIGNATURE_BYTES, REPLY.size + SIGNATURE_BYTES


def ready_fields(turn: Turn, nonce: bytes) -> tuple[str, *tuple[bytes, ...]]:
    """Give what a device signs as it says that it is ready: a label, the turn and its ν.

    Not the terms: a device that approved others must be able to say so, and masks are bound to them anyway.
    """
    return "ready", _of(turn), nonce


def refusal_fields(turn: Turn, code: str, cause: int | None) -> tuple[str, *tuple[bytes, ...]]:
    """Give what a device signs as it refuses: a label, the turn, the code, and whose doing it was."""
    return "refusal", _of(turn), code.encode(), b"" if cause is None else _number(cause)


def signed_refusal(identity: Identity, number: int, turn: Turn, code: str, *, blamed: int | None = None) -> Refusal:
    """A device's signed no, which says whose doing it was: its own, that of the blamed peer, or the server's."""
    cause = number if code.startswith(_OWN) else blamed
    signature = identity.sign(*refusal_fields(turn, code, cause))
    return Refusal(turn=turn, device=number, code=code, cause=cause, signature=signature)


def _of(turn: Turn) -> bytes:
    return _number(turn.round) + _number(turn.attempt)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def offer_fields(terms: bytes, turn: Turn, key: bytes) -> tuple[str, *tuple[bytes, ...]]:
    """Give what a device signs as it offers a key: a label, the terms, the first turn that it is for, and the key."""
    return "offer", terms, _of(turn), key


# How many uploads of this run the ledger has paid for, and how the ledger ends now.
Account = Callable[[], tuple[int, Receipt]]


@dataclass(frozen=True, kw_only=True)
class Closing:
    """All that a device states when a run ends.

    It knows by itself which run it took part in and with whom (`run`, `roster`), how many uploads its ledger has paid
    for (`paid`), and how that ledger ends (`receipt`, a commitment). It was handed the final parameters (`model`, their
    SHA-256) and the digest of the run's record (`record`). It can't check these two; by its signature nobody can put
    others in their place later.
    """

    run: str
    roster: bytes
    record: bytes
    model: bytes
    paid: int
    receipt: bytes

    @property
    def fields(self) -> tuple[bytes, ...]:
        """The fields under the signature, in their order."""
        return self.run.encode(), self.roster, self.record, self.model, str(self.paid).encode(), self.receipt

    def signed_by(self, identity: Identity) -> bytes:
        """The device's signature under the statement."""
        return identity.sign(SIGNED, *self.fields)

    def check(self, bundle: Bundle, signature: bytes) -> None:
        """Raise a TrustError unless this device signed the statement."""
        bundle.check(signature, SIGNED, *self.fields)


@dataclass(frozen=True, kw_only=True)
class SignedEnd:
    """All that a device keeps of the end that it signed: with the salt it can show which receipt it meant."""

    closing: Closing
    signature: bytes
    entries: int
    seal: str
    salt: bytes


def committed(entries: int, seal: str, salt: bytes) -> bytes:
    """A ledger's receipt behind a salt.

    A bare seal would tell too much: it is a hash over few unknowns, so whoever has it can try out how many rows the
    device has. With the salt, which nobody else knows, the device can show later which receipt it meant.
    """
    return digest("receipt", salt, str(entries).encode(), seal.encode())


def sign_end(
    identity: Identity, *, run: str, roster: bytes, record: bytes, model: Vector, paid: int, entries: int, seal: str
) -> SignedEnd:
    """The end of a run, signed by this device; `entries` and `seal` are its ledger's receipt."""
    salt = os.urandom(SALT_BYTES)
    closing = Closing(
        run=run,
        roster=roster,
        record=record,
        model=hashlib.sha256(model).digest(),
        paid=paid,
        receipt=committed(entries, seal, salt),
    )
    signature = closing.signed_by(identity)
    return SignedEnd(closing=closing, signature=signature, entries=entries, seal=seal, salt=salt)


def hashed(frame: Vector) -> bytes:
    """SHA-256 of a frame."""
    return hashlib.sha256(frame).digest()


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A device's half: it opens what the server of its study has signed for it, each frame once.

    `heard` returns the last counter that was accepted, and `hear` keeps another durably.
    """

    study: bytes
    server_key: bytes
    device: int
    heard: Callable[[], int]
    hear: Callable[[int], None]

    def opened(self, request: Vector) -> memoryview:
        """The frame of a request: CH622 if it is not signed by the server for this device, CH623 if it is not new.

        Its counter is kept before anything else is done with the frame: a restart lets no replay in.
        """
        view = memoryview(request).cast("B")
        if len(view) < REQUEST_HEAD or view[:4] != FROM_SERVER:
            raise _not_signed("it has no signature of the study's server")
        fields, signature, frame = view[: REQUEST.size], view[REQUEST.size : REQUEST_HEAD], view[REQUEST_HEAD:]
        _, version, _, study, device, counter = REQUEST.unpack(fields)
        if version != VERSION:
            raise other_version(version)
        try:
            key = Ed25519PublicKey.from_public_bytes(self.server_key)
            key.verify(bytes(signature), framed(SERVER_FRAME, bytes(fields), hashed(frame)))
        except InvalidSignature:
            raise _not_signed("its signature is not that of the study's server") from None
        if study != self.study:
            raise _not_signed("the server signed it for another study")
        if device != self.device:
            raise _not_signed(f"the server signed it for device {device}, and this is device {self.device}")
        if counter <= (last := self.heard()):
            raise TrustError(
                "CH623",
                f"a frame of the server came again, or late: its number is {counter}, the last one was {last}.",
                fix="Drop it. If the server's folder was restored from a backup, set its clock and start it again.",
            )
        self.hear(counter)
        return frame


def answered(identity: Identity, request: Vector, answer: Vector) -> bytes:
    """The answer to a request, signed by the device under the request's head, and so under the frame in it."""
    fields = REPLY.pack(FROM_DEVICE, VERSION, 0)
    signature = identity.sign(ANSWER, fields, bytes(memoryview(request)[:REQUEST_HEAD]), hashed(answer))
    return b"".join((fields, signature, answer))


def _not_signed(why: str) -> TrustError:
    return TrustError(
        "CH622",
        f"a frame is not one of the study's server for this device: {why}.",
        why="Whoever can reach the node may have sent it; nothing was done and nothing was charged.",
        fix="If it happens again, tell the coordinator: somebody else speaks in the server's place.",
    )


def other_version(version: int) -> TrustError:
    """The refusal of a head whose version can't be checked here."""
    return TrustError(
        "CH602",
        f"a frame or an answer names version {version} of signatures, this choral has version {VERSION}.",
        why="It is not signed in a way that can be checked here, so anybody may have made it.",
        fix="Ask the other side which choral it has; if it is the same, somebody else speaks in its place.",
    )
