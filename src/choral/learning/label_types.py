"""The type of a label's classes: they are kept as texts, and given back as what they were."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from choral.learning.columns import Cell, is_missing

LabelType = Literal["text", "whole number", "number", "truth"]


def type_of_classes(classes: Sequence[object]) -> LabelType:
    """The type of declared classes, whatever the rows hold; texts that are all whole numbers are whole numbers.

    >>> type_of_classes(["0", "1"]), type_of_classes(["01", "1"]), type_of_classes([False, True])
    ('whole number', 'text', 'truth')
    """
    if classes and all(isinstance(one, str) and _is_whole(one) for one in classes):
        return "whole number"
    return type_of_labels(classes)


def type_of_labels(cells: Collection[Cell]) -> LabelType:
    """The type of a label's cells where nobody has declared the classes: that of the first one with a value.

    >>> type_of_labels([True, False]), type_of_labels([1.0, 2.0]), type_of_labels(["no"]), type_of_labels([0, None])
    ('truth', 'number', 'text', 'whole number')
    """
    first = next((cell for cell in cells if not is_missing(cell)), "")
    if isinstance(first, bool | np.bool_):
        return "truth"
    if isinstance(first, int | np.integer):
        return "whole number"
    return "number" if isinstance(first, float | np.floating) else "text"


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and str(int(text)) == text


_READ: dict[LabelType, Callable[[str], object]] = {
    "text": str,
    "whole number": lambda text: int(float(text)),
    "number": float,
    "truth": lambda text: text in ("True", "1"),
}


def typed(classes: Sequence[str], label_type: LabelType) -> NDArray[Any]:
    """The classes in their own type.

    >>> typed(("0", "1"), "whole number").dtype.kind, typed(("False", "True"), "truth").tolist()
    ('i', [False, True])
    """
    return np.array(list(map(_READ[label_type], classes)))
