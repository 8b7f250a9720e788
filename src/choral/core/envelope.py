"""Who speaks: each frame of a deployment's server is signed for one device, and each answer by that device's card.

What carries frames between machines may let others speak: on a network with many nodes, one node can hand another a
message as if the server had sent it. So a frame travels behind a head and an answer behind another:

    head of a frame    magic ‖ version ‖ study's digest ‖ device's number ‖ counter ‖ the server's signature
    head of an answer  magic ‖ version ‖ the device's signature, under the whole request that it answers

The counter of a server only grows, and a device keeps the last one that it has accepted: no frame counts twice. An
answer is bound to its request, counter included, so it fits no other. Both heads have a multiple of 8 bytes, since
words that start there are added three times as fast. The frames inside stay as they are.
"""

import hashlib
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity, framed
from choral.core.messages import SIGNATURE_BYTES, Vector

VERSION = 1
FROM_SERVER, FROM_DEVICE = b"chrs", b"chra"
_SERVER_FRAME, _ANSWER = "server frame", "device answer"  # labels of what is signed
REQUEST = struct.Struct("<4sHH32sQQ")  # magic, version, zeros, study, device, counter
_REPLY = struct.Struct("<4sHH")  # magic, version, zeros
REQUEST_HEAD, ANSWER_HEAD = REQUEST.size + SIGNATURE_BYTES, _REPLY.size + SIGNATURE_BYTES


def _hashed(frame: Vector) -> bytes:
    return hashlib.sha256(frame).digest()


class Speaker:
    """The server's half: it signs frames for devices, each under a counter that no other frame of the study has.

    `first` must be above every counter that was used before, also before a restart.
    """

    def __init__(self, key: Ed25519PrivateKey, *, study: bytes, first: int) -> None:
        self._key, self._study, self._next = key, study, first
        self._counting = threading.Lock()
        self._hashed: tuple[Vector, bytes] = (b"", _hashed(b""))  # a cohort is sent one frame: it is hashed once

    def __repr__(self) -> str:
        return f"Speaker(next {self._next})"

    def head(self, device: int, frame: Vector) -> bytes:
        """What goes before the frame on its way to this device.

        >>> speaker = Speaker(Ed25519PrivateKey.generate(), study=bytes(32), first=7)
        >>> len(speaker.head(2, b"frame")) == REQUEST_HEAD
        True
        """
        with self._counting:
            counter, self._next = self._next, self._next + 1
        known, hashed = self._hashed  # of this call: another thread may be sending another frame
        if known is not frame:
            hashed = _hashed(frame)
            self._hashed = frame, hashed
        fields = REQUEST.pack(FROM_SERVER, VERSION, 0, self._study, device, counter)
        return fields + self._key.sign(framed(_SERVER_FRAME, fields, hashed))


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
            raise _other_version(version)
        try:
            key = Ed25519PublicKey.from_public_bytes(self.server_key)
            key.verify(bytes(signature), framed(_SERVER_FRAME, bytes(fields), _hashed(frame)))
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
    """The answer to a request, signed by the device under the request's head, and so under the frame in it.

    >>> site, request = Identity.fresh("a"), bytes(REQUEST_HEAD) + b"frame"
    >>> bytes(answer_in(answered(site, request, b"answer"), bytes(REQUEST_HEAD), site.bundle))
    b'answer'
    """
    fields = _REPLY.pack(FROM_DEVICE, VERSION, 0)
    signature = identity.sign(_ANSWER, fields, bytes(memoryview(request)[:REQUEST_HEAD]), _hashed(answer))
    return b"".join((fields, signature, answer))


def answer_in(reply: Vector, head: bytes, bundle: Bundle) -> memoryview:
    """The answer in a reply to the request with this head: CH624 if it is not signed by this device's card for it."""
    view = memoryview(reply).cast("B")
    if len(view) < ANSWER_HEAD or view[:4] != FROM_DEVICE:
        raise _not_answered(bundle.id)
    fields, signature, answer = view[: _REPLY.size], view[_REPLY.size : ANSWER_HEAD], view[ANSWER_HEAD:]
    if (version := _REPLY.unpack(fields)[1]) != VERSION:
        raise _other_version(version)
    try:
        bundle.check(bytes(signature), _ANSWER, bytes(fields), head, _hashed(answer))
    except TrustError:
        raise _not_answered(bundle.id) from None
    return answer


def _not_signed(why: str) -> TrustError:
    return TrustError(
        "CH622",
        f"a frame is not one of the study's server for this device: {why}.",
        why="Whoever can reach the node may have sent it; nothing was done and nothing was charged.",
        fix="If it happens again, tell the coordinator: somebody else speaks in the server's place.",
    )


def _not_answered(name: str) -> TrustError:
    return TrustError(
        "CH624",
        f'an answer in the name of "{name}" is not signed by its card\'s key for this request.',
        fix="It counts as missing; ask the site whether its node's key is in other hands.",
    )


def _other_version(version: int) -> TrustError:
    return TrustError(
        "CH602",
        f"a frame or an answer names version {version} of signatures, this choral has version {VERSION}.",
        why="It is not signed in a way that can be checked here, so anybody may have made it.",
        fix="Ask the other side which choral it has; if it is the same, somebody else speaks in its place.",
    )
