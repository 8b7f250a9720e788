"""A process that does a part of the server's work: `python -m choral.backends.crew_worker`, started by a crew.

Commands come over standard input, each as a length and a msgpack array; sums of masks go into a file that it shares.
Masked words and keys that devices have revealed to the server are all that it sees.
"""

import mmap
import sys
from collections.abc import Sequence
from typing import IO

import msgspec
import numpy as np

from choral.core.bonds import SealedSecret
from choral.core.masks import Mask, Words, add_masks, ring


class ClearWords(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """Begin a new sum of masks at zero. It is not answered."""


class AddMasks(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Add the masks of these keys, each with its sign, to the process's own words, and say when it is done."""

    masks: tuple[tuple[bytes, bool], ...]


class OpenSecrets(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Open these self secrets and send them back, each empty where its shares do not give it."""

    secrets: tuple[SealedSecret, ...]


_decoder = msgspec.msgpack.Decoder(ClearWords | AddMasks | OpenSecrets)
_SIZE = 4  # bytes of a length


def send(stream: IO[bytes], message: object) -> None:
    """Write one message behind its length."""
    data = msgspec.msgpack.encode(message)
    left = memoryview(len(data).to_bytes(_SIZE, "little") + data)
    while left:  # a stream without a buffer may take less than all of it
        left = left[stream.write(left) :]
    stream.flush()


def receive(stream: IO[bytes], *, most: int = 2**32) -> bytes | None:
    r"""The next message, or None at the end.

    >>> import io
    >>> receive(io.BytesIO(b"\x01\x00\x00\x00x")), receive(io.BytesIO())
    (b'x', None)
    """
    size = _exactly(stream, _SIZE)
    length = most + 1 if size is None else int.from_bytes(size, "little")
    return _exactly(stream, length) if length <= most else None


def _exactly(stream: IO[bytes], size: int) -> bytes | None:
    """So many bytes, or None if the stream ends before; one without a buffer may give them in pieces."""
    data = b""
    while len(data) < size:
        piece = stream.read(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def shared_words(file: int, bits: int) -> Words:
    """All words of a file that several processes hold in their memory."""
    return np.frombuffer(mmap.mmap(file, 0), ring(bits))


def main(arguments: Sequence[str]) -> None:
    """Work until standard input ends, which it does with the server."""
    file, bits, start, stop = map(int, arguments)
    words = shared_words(file, bits)[start:stop]
    while (data := receive(sys.stdin.buffer)) is not None:
        command = _decoder.decode(data)
        match command:
            case ClearWords():
                words[:] = 0
            case AddMasks():
                add_masks(words, [Mask(key, adds) for key, adds in command.masks], adders=1)
                send(sys.stdout.buffer, True)
            case OpenSecrets():
                send(sys.stdout.buffer, [secret.opened() or b"" for secret in command.secrets])


if __name__ == "__main__":
    main(sys.argv[1:])
