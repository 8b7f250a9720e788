"""The server's half of signed frames: each is signed for one device, and answers count if their device signed them."""

import threading

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from choral.core.errors import TrustError
from choral.core.keys import Bundle, framed
from choral.core.messages import Vector
from choral.core.signed import (
    ANSWER,
    ANSWER_HEAD,
    FROM_DEVICE,
    FROM_SERVER,
    REPLY,
    REQUEST,
    SERVER_FRAME,
    VERSION,
    hashed,
    other_version,
)


class Speaker:
    """The server's half: it signs frames for devices, each under a counter that no other frame of the study has.

    `first` must be above every counter that was used before, also before a restart.
    """

    def __init__(self, key: Ed25519PrivateKey, *, study: bytes, first: int) -> None:
        self._key, self._study, self._next = key, study, first
        self._counting = threading.Lock()
        self._hashed: tuple[Vector, bytes] = (b"", hashed(b""))  # a cohort is sent one frame: it is hashed once

    def __repr__(self) -> str:
        return f"Speaker(next {self._next})"

    def head(self, device: int, frame: Vector) -> bytes:
        """Give what goes before the frame on its way to this device."""
        with self._counting:
            counter, self._next = self._next, self._next + 1
        known, known_hash = self._hashed  # of this call: another thread may be sending another frame
        if known is not frame:
            known_hash = hashed(frame)
            self._hashed = frame, known_hash
        fields = REQUEST.pack(FROM_SERVER, VERSION, 0, self._study, device, counter)
        return fields + self._key.sign(framed(SERVER_FRAME, fields, known_hash))


def answer_in(reply: Vector, head: bytes, bundle: Bundle) -> memoryview:
    """The answer in a reply to the request with this head: CH624 if it is not signed by this device's card for it."""
    view = memoryview(reply).cast("B")
    if len(view) < ANSWER_HEAD or view[:4] != FROM_DEVICE:
        raise _not_answered(bundle.id)
    fields, signature, answer = view[: REPLY.size], view[REPLY.size : ANSWER_HEAD], view[ANSWER_HEAD:]
    if (version := REPLY.unpack(fields)[1]) != VERSION:
        raise other_version(version)
    try:
        bundle.check(bytes(signature), ANSWER, bytes(fields), head, hashed(answer))
    except TrustError:
        raise _not_answered(bundle.id) from None
    return answer


def _not_answered(name: str) -> TrustError:
    return TrustError(
        "CH624",
        f'an answer in the name of "{name}" is not signed by its card\'s key for this request.',
        fix="It counts as missing; ask the site whether its node's key is in other hands.",
    )
