"""A process that does the server's work on one range of the words: `python -m choral.backends.crew_worker`, by a crew.

Commands come over standard input, each as a length and a msgpack array; uploads and the sum are in files that it shares
with the server. Masked words and keys that devices have revealed to the server are all that it sees.
"""

import mmap
import os
import sys
from collections.abc import Sequence
from typing import IO

import msgspec
import numpy as np

from choral.protocol.bonds import SealedSecret
from choral.secagg.masks import BLOCK, CHUNK_BYTES, Mask, Words, add_masks, ring


class Begin(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A new turn: the sum begins with zeros."""


class AddUpload(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Add the upload that begins at this byte of the file of uploads, or take it back."""

    offset: int
    adds: bool


class AddMasks(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Add or subtract the masks of these keys, and say when all that was asked for is done."""

    masks: tuple[tuple[bytes, bool], ...]


class OpenSecrets(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Open these self secrets and send them back, each empty where its shares do not give it."""

    secrets: tuple[SealedSecret, ...]


Command = Begin | AddUpload | AddMasks | OpenSecrets
_decoder = msgspec.msgpack.Decoder(Command)
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


class Part:
    """One range of the words, from a whole block of keystream on: what it does never touches any other word."""

    def __init__(self, uploads: int, total: Words, start: int, stop: int) -> None:
        self._uploads, self._words, self._start = uploads, total[start:stop], start * total.dtype.itemsize
        self._buffer = bytearray(min(CHUNK_BYTES, max(self._words.nbytes, 1)))

    def do(self, command: Begin | AddUpload | AddMasks) -> None:
        """Carry out a command that changes the sum."""
        match command:
            case Begin():
                self._words[:] = 0
            case AddUpload(offset, adds):
                self._add(offset + self._start, np.add if adds else np.subtract)
            case AddMasks(masks):
                chosen = [Mask(key, adds) for key, adds in masks]
                add_masks(self._words, chosen, skipped=self._start // BLOCK, adders=1)

    def _add(self, offset: int, combine: np.ufunc) -> None:
        """Read the range of an upload piece by piece, so that a process needs a megabyte for any of them."""
        step = len(self._buffer) // self._words.dtype.itemsize
        for start in range(0, len(self._words), step):
            part = self._words[start : start + step]
            view = memoryview(self._buffer)[: part.nbytes]
            done = os.preadv(self._uploads, [view], offset + start * part.dtype.itemsize)
            if done != part.nbytes:
                raise OSError(f"{done} of {part.nbytes} bytes of an upload")
            combine(part, np.frombuffer(view, part.dtype), out=part)


def main(arguments: Sequence[str]) -> None:
    """Work until standard input ends, which it does with the server."""
    uploads, total, bits, start, stop = map(int, arguments)
    part = Part(uploads, shared_words(total, bits), start, stop)
    while (data := receive(sys.stdin.buffer)) is not None:
        command = _decoder.decode(data)
        if isinstance(command, OpenSecrets):
            send(sys.stdout.buffer, [secret.opened() or b"" for secret in command.secrets])
            continue
        part.do(command)
        if isinstance(command, AddMasks):
            send(sys.stdout.buffer, True)


if __name__ == "__main__":
    main(sys.argv[1:])
