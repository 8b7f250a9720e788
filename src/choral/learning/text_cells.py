"""The cells of one column of a file, kept as blocks of text: a Python string per cell takes ten times the file."""

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")
_BETWEEN = "\x1f"  # the unit separator of ASCII, which hardly any cell holds


class Cells(Collection[str]):
    r"""The cells of a column in their order; a block whose cells hold the separator stays as it came.

    >>> cells = Cells([("25", "38"), ("a", "b\x1fc")])
    >>> len(cells), list(cells)
    (4, ['25', '38', 'a', 'b\x1fc'])
    """

    def __init__(self, blocks: Sequence[Sequence[str]] = ()) -> None:
        self._blocks: list[str | tuple[str, ...]] = []
        self._count = 0
        for block in blocks:
            self.add(block)

    def add(self, cells: Sequence[str]) -> None:
        """Add some cells at the end."""
        text = _BETWEEN.join(cells)
        self._blocks.append(text if text.count(_BETWEEN) == len(cells) - 1 else tuple(cells))
        self._count += len(cells)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(block.split(_BETWEEN) if isinstance(block, str) else block for block in self._blocks)

    def __contains__(self, cell: object) -> bool:
        return any(cell == other for other in self)

    def numbers(self) -> NDArray[np.float64] | None:
        """The cells as finite numbers, as `float` reads them; None where one of them may be none.

        >>> Cells([("1", " 2.5 ")]).numbers().tolist(), Cells([("1", "")]).numbers()
        ([1.0, 2.5], None)
        """
        try:
            parts = [_numbers(block) for block in self._blocks]
        except (DeprecationWarning, ValueError):
            return None
        found = np.concatenate([np.empty(0), *parts])
        return found if len(found) == self._count and bool(np.isfinite(found).all()) else None


def _numbers(block: str | tuple[str, ...]) -> NDArray[np.float64]:
    """The numbers of a block, or whatever error says that there is something else in it."""
    if isinstance(block, str):
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # numpy's, where a text does not end with its numbers
            found = np.fromstring(block, dtype=np.float64, sep=_BETWEEN)
        if not (found == -1).any():  # which numpy also makes of blanks
            return found
        block = tuple(block.split(_BETWEEN))
    return np.array([float(cell) for cell in block])


class Remembered(dict[str, Value], Generic[Value]):
    """What a function says of each text, asked once for each different one: columns repeat themselves.

    >>> lengths = Remembered(len)
    >>> lengths["abc"], lengths["abc"], len(lengths)
    (3, 3, 1)
    """

    def __init__(self, of: Callable[[str], Value]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, text: str) -> Value:
        value = self[text] = self._of(text)
        return value


def each(of: Callable[[Any], Value], cells: Collection[Any]) -> Iterator[Value]:
    """What a function says of each cell; of a file's cells, which are all texts, it is asked once per text."""
    return map(Remembered(of).__getitem__ if isinstance(cells, Cells) else of, cells)
