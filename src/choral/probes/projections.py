"""Probes: a few random whole-number projections of what a device has masked, drawn after all uploads are fixed.

Answers are exact whole numbers, so those of all included devices add up to the projections of the opened sum, or
somebody has answered falsely. docs/secure-sum.md has the proofs, docs/accounting.md says what an answer costs.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from choral.core.codec import Integers
from choral.core.keys import digest
from choral.core.masks import BLOCK, Stream

ANSWER_BYTES = 8  # of one answer, signed: integers are below 2^23, so models of up to 2^32 numbers fit
MOST_WATCHED = 4  # vectors that a server may name itself: with them, PROBE is no longer than a model
_NUMBER_BYTES = 4

Answers = NDArray[np.int64]
Watched = NDArray[np.int8]  # one row for each watched vector


def upload_digest(context: bytes, id: str, words: bytes | bytearray | memoryview) -> bytes:
    """Give what fixes an upload before anybody knows the probes: H("upload", ctx, id, words).

    >>> upload_digest(b"ctx", "a", b"12") == upload_digest(b"ctx", "a", b"13")
    False
    """
    return digest("upload", context, id.encode(), bytes(words))


def probe_seed(context: bytes, digests: Mapping[int, bytes], watched: bytes = b"") -> bytes:
    """The seed of a turn's probes follows from every upload's digest, by device number, and what the server watches.

    >>> probe_seed(b"ctx", {0: bytes(32)}) == probe_seed(b"ctx", {1: bytes(32)})
    False
    """
    records = b"".join(number.to_bytes(_NUMBER_BYTES, "little") + digests[number] for number in sorted(digests))
    return digest("probe", context, records, digest("watched", watched))


def probe_rows(seed: bytes, probes: int, parameters: int) -> Iterator[NDArray[np.int64]]:
    """The rows of P, one after the other: odd numbers from −255 to 255, eight keystream bits each.

    They are wide, and never 0: with ±1, two equal numbers of an update would cancel in all rows with chance 2^-m.

    >>> [row.tolist() for row in probe_rows(bytes(32), 1, 4)] == [[(2 * byte - 255) for byte in
    ...     Stream(bytes(32)).words(2, 16).tobytes()]]
    True
    """
    stream, room = Stream(seed), bytearray(parameters + BLOCK)
    for _ in range(probes):
        stream.into(memoryview(room), parameters)
        yield 2 * np.frombuffer(room, np.uint8, count=parameters).astype(np.int64) - 255


def watched_of(data: bytes | memoryview, parameters: int) -> Watched:
    """The watched vectors that a message carries, one signed byte for each parameter.

    >>> watched_of(bytes([1, 255]), 2).tolist()
    [[1, -1]]
    """
    return np.frombuffer(data, np.int8).reshape(-1, parameters)


def answers_of(seed: bytes, probes: int, integers: Integers, watched: Watched | None = None) -> Answers:
    """P·x and then W·x in whole numbers: what a device answers, and what the answers of all must add up to.

    >>> answers_of(bytes(32), 2, np.array([1, 0])).tolist() == [int(row[0]) for row in probe_rows(bytes(32), 2, 2)]
    True
    """
    values = integers.astype(np.int64)
    asked = [np.dot(row, values) for row in probe_rows(seed, probes, len(values))]
    if watched is not None:
        asked += [np.dot(row.astype(np.int64), values) for row in watched]
    return np.array(asked, np.int64)


def adds_up(answers: Mapping[int, Answers], expected: Answers) -> bool:
    """Tell whether the answers of all included devices are together those of the opened sum, to the last unit.

    >>> adds_up({0: np.array([1, 2]), 1: np.array([3, -5])}, np.array([4, -3]))
    True
    """
    # As unbounded integers: devices choose their answers, and a sum that wraps could agree by a multiple of 2^64.
    said = [sum(column) for column in zip(*(answer.tolist() for answer in answers.values()), strict=True)]
    return bool(said == expected.tolist())
