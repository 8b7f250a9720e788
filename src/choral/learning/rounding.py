"""What float32 adds to one record's part in a batch's sum: kept small by how sums are laid out, and paid for in noise.

docs/accounting.md, "Arithmetic", proves the bounds. All are relative to the clip G, and all are public: they depend on
the model's shape and on the room of a batch, never on a value.
"""

import math
from collections.abc import Iterable
from itertools import pairwise

UNIT = 2.0**-24  # v: what one operation in float32 may be off by, relatively
ONE_PIECE = 384  # rows: so many are added in one product; a batch with more room is added in pieces
PIECE = 128  # rows of such a piece, at most
BLOCK = 4096  # numbers whose squares are added in one go; longer vectors have the norm of their blocks' norms
SMALLEST_CLIP, LARGEST_CLIP = 2.0**-32, 2.0**32  # beyond, numbers of the size that is bounded here vanish or overflow


def pieces(room: int, most: int | None = None) -> tuple[int, int]:
    """How many pieces a batch with this room is added in, and the rows of each; of at most `most` rows, if given.

    >>> pieces(340), pieces(2440), pieces(2440, most=50)
    ((1, 340), (20, 122), (49, 50))
    """
    if most is None:
        most = ONE_PIECE if room <= ONE_PIECE else PIECE
    count = -(-room // most)
    return count, -(-room // count)


def strict_rows(room: int) -> int:
    """The rows of a piece in the strict mode: ⌈√room⌉, so that no number is rounded often on its way.

    >>> strict_rows(100), strict_rows(101)
    (10, 11)
    """
    return math.isqrt(room - 1) + 1


def in_sum(room: int) -> float:
    """e: so much of G the errors of two neighbouring batches' sums have at most, together.

    Only one piece differs. In whatever order its p products are added, all numbers that are rounded on the way have a
    length of at most p(p + 3)/2 gradients together. The second term is more than what adding the pieces in float64
    takes: it was for two numbers of float32, and stays, so that no plan's noise changes.

    >>> round(in_sum(128), 5), round(in_sum(384), 5), round(in_sum(10_000), 5), round(in_sum(2**24), 3)
    (0.001, 0.00886, 0.00098, 0.032)
    """
    count, rows = pieces(room)
    one_piece = rows * (rows + 3) * UNIT * (1 + 2 * rows * UNIT)
    return one_piece + (0 if count == 1 else 4 * UNIT**2 * rows * (count + 1) ** 2)


def worst_rooms(least: int, most: int) -> tuple[int, ...]:
    """Rooms one of which has an error of a sum that no room from `least` to `most` passes.

    Up to `ONE_PIECE` it grows with the room; beyond, with the number of full pieces.

    >>> worst_rooms(40, 48), worst_rooms(300, 400), worst_rooms(400, 450)
    ((48,), (384, 512), (512,))
    """
    if most <= ONE_PIECE:
        return (most,)
    full = -(-most // PIECE) * PIECE
    return (ONE_PIECE, full) if least <= ONE_PIECE else (full,)


def in_norm(length: int) -> float:
    """How many roundings the norm of a vector of this length is off by, at most.

    >>> in_norm(104), in_norm(10**6)
    (56.0, 2178.5)
    """
    if length <= BLOCK:
        return length / 2 + 4
    return in_norm(BLOCK) + in_norm(-(-length // BLOCK))


def in_clipping(lengths: Iterable[int]) -> float:
    """c: by how much of G a clipped gradient may be too long, where its parts have these lengths.

    Each part's norm, the norm of these, a quotient and two products, with room for a few roundings of each.

    >>> in_clipping([8866]) < 1.3e-4
    True
    """
    return of_parts(map(in_norm, lengths))


def of_dense_stack(widths: tuple[int, ...]) -> float:
    """c for a dense stack, whose layers' norms are products of two: that of the layer's input and that of its slopes.

    >>> of_dense_stack((104, 64, 32, 2)) < 1.2e-5
    True
    """
    return of_parts(in_norm(fan) + in_norm(out) for fan, out in pairwise(widths))


def of_parts(roundings_of: Iterable[float]) -> float:
    """c where the norms of a gradient's parts are off by so many roundings.

    >>> of_parts([56.0]) == in_clipping([104])
    True
    """
    parts = list(roundings_of)
    roundings = max(parts) + in_norm(len(parts)) + 64
    return roundings * UNIT / (1 - roundings * UNIT)
