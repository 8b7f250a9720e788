"""A process that does the server's work on one range of the words: `python -m choral.backends.crew_worker`, by a crew.

Commands come over standard input, each as a length and a msgpack array; the sum is in a file that all of them share.
Masked words and keys that devices have revealed to the server are all that it sees.
"""

import mmap
import sys
from collections.abc import Iterable, Sequence
from typing import IO

import msgspec
import numpy as np

from choral.protocol.bonds import SealedSecret
from choral.secagg.masks import BLOCK, Mask, Words, add_masks, ring


class AddMasks(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Add or subtract the masks of these keys on the process's range, and say when it is done."""

    masks: tuple[tuple[bytes, bool], ...]


class OpenSecrets(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Open these self secrets and send them back, each empty where its shares do not give it."""

    secrets: tuple[SealedSecret, ...]


_decoder = msgspec.msgpack.Decoder(AddMasks | OpenSecrets)
_SIZE = 4  # bytes of a length


def send(stream: IO[bytes], message: object) -> None:
    """Write one message behind its length."""
    data = msgspec.msgpack.encode(message)
    stream.write(len(data).to_bytes(_SIZE, "little") + data)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    r"""The next message, or None at the end.

    >>> import io
    >>> receive(io.BytesIO(b"\x01\x00\x00\x00x")), receive(io.BytesIO())
    (b'x', None)
    """
    size = stream.read(_SIZE)
    if len(size) < _SIZE:
        return None
    data = stream.read(int.from_bytes(size, "little"))
    return data if len(data) == int.from_bytes(size, "little") else None


def shared_words(file: int, bits: int) -> Words:
    """All words of a file that several processes hold in their memory."""
    return np.frombuffer(mmap.mmap(file, 0), ring(bits))


def add_on(words: Words, masks: Iterable[Mask], start: int, stop: int) -> None:
    """Add masks to one range of the words, which begins with a whole block of keystream.

    >>> words, mask = np.zeros(20, "<u4"), Mask(bytes(32), adds=True)
    >>> add_on(words, [mask], 0, 16); add_on(words, [mask], 16, 20)
    >>> add_masks(words, [mask.undone()]); int(words.max())
    0
    """
    add_masks(words[start:stop], masks, skipped=start * words.dtype.itemsize // BLOCK, adders=1)


def main(arguments: Sequence[str]) -> None:
    """Work until standard input ends, which it does with the server."""
    file, bits, start, stop = map(int, arguments)
    words = shared_words(file, bits)
    while (data := receive(sys.stdin.buffer)) is not None:
        command = _decoder.decode(data)
        if isinstance(command, OpenSecrets):
            send(sys.stdout.buffer, [secret.opened() or b"" for secret in command.secrets])
        else:
            add_on(words, [Mask(key, adds) for key, adds in command.masks], start, stop)
            send(sys.stdout.buffer, True)


if __name__ == "__main__":
    main(sys.argv[1:])
