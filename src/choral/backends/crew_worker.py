"""A process that does a part of the server's work: `python -m choral.backends.crew_worker`, started by a crew.

Commands come over standard input, each as a length and a msgpack array; sums of masks go into a file that it shares.
Masked words and keys that devices have revealed to the server are all that it sees.
"""

import mmap
import sys
from collections.abc import Iterable, Sequence
from typing import IO

import msgspec
import numpy as np

from choral.protocol.bonds import SealedSecret
from choral.secagg.masks import Mask, Words, add_masks, ring


class AddMasks(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Add up the masks of these keys, each with its sign, in the process's own words, and say when it is done."""

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


def sum_of_masks(words: Words, masks: Iterable[Mask]) -> None:
    """Write the sum of masks in the place of whatever was there.

    >>> words = np.ones(3, "<u4")
    >>> sum_of_masks(words, []); words.tolist()
    [0, 0, 0]
    """
    words[:] = 0
    add_masks(words, masks, adders=1)


def main(arguments: Sequence[str]) -> None:
    """Work until standard input ends, which it does with the server."""
    file, bits, start, stop = map(int, arguments)
    words = shared_words(file, bits)[start:stop]
    while (data := receive(sys.stdin.buffer)) is not None:
        command = _decoder.decode(data)
        if isinstance(command, OpenSecrets):
            send(sys.stdout.buffer, [secret.opened() or b"" for secret in command.secrets])
        else:
            sum_of_masks(words, [Mask(key, adds) for key, adds in command.masks])
            send(sys.stdout.buffer, True)


if __name__ == "__main__":
    main(sys.argv[1:])
