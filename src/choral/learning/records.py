"""What the devices hold, as arrays: one flat block of rows and an offset for each device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import TableError

Labels: TypeAlias = NDArray[np.number[Any]]  # int32 for classes by number, float32 for numbers scaled to −1…1


def by(shape: tuple[int, ...]) -> str:
    """A shape for people.

    >>> by((5,)), by((8, 8))
    ('5', '8 × 8')
    """
    return " × ".join(map(str, shape))


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The rows of all devices, those of device i at offsets[i] to offsets[i + 1]; devices may differ in size.

    >>> records = Records.of([("a", [[0.0], [1.0]], [0, 1]), ("b", [[2.0]], [1])])
    >>> records.sizes.tolist(), records.features_of(1).tolist()
    ([2, 1], [[2.0]])
    """

    features: NDArray[np.float32]
    labels: Labels
    offsets: NDArray[np.int64]
    names: tuple[str, ...]
    classes: int = 2  # 0 where the label is a number

    def __post_init__(self) -> None:
        shapes_agree = (
            self.features.ndim >= 2
            and self.labels.shape == (len(self.features),)
            and self.offsets.shape == (len(self.names) + 1,)
            and self.offsets[0] == 0
            and self.offsets[-1] == len(self.features)
            and bool(np.all(np.diff(self.offsets) >= 0))
        )
        if not shapes_agree:
            raise TableError(
                "CH312",
                f"features {self.features.shape}, labels {self.labels.shape} and {len(self.names)} devices do not fit.",
                fix="Give one label per row, and offsets that start at 0 and end at the number of rows.",
            )

    @classmethod
    def of(cls, devices: Sequence[tuple[str, Any, Any]], *, classes: int = 2) -> Self:
        """Records from (name, features, labels) of each device; the labels are float32 where there are no classes."""
        sizes = [len(labels) for _, _, labels in devices]
        kind = np.int32 if classes else np.float32
        return cls(
            features=np.concatenate([np.asarray(rows, dtype=np.float32) for _, rows, _ in devices]),
            labels=np.concatenate([np.asarray(labels, dtype=kind) for _, _, labels in devices]),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            names=tuple(name for name, _, _ in devices),
            classes=classes,
        )

    @classmethod
    def taken(
        cls,
        features: NDArray[np.float32],
        labels: Labels,
        rows_of: Mapping[str, NDArray[np.intp]],
        *,
        classes: int = 2,
    ) -> Self:
        """Records of these rows of one block, by device; taken in one go, however many devices there are.

        >>> Records.taken(np.eye(3), np.arange(3), {"a": np.array([2]), "b": np.array([0, 1])}).labels.tolist()
        [2, 0, 1]
        """
        rows = np.concatenate(list(rows_of.values()))
        return cls(
            features=np.asarray(features, dtype=np.float32)[rows],
            labels=labels.astype(np.int32 if classes else np.float32, copy=False)[rows],
            offsets=np.cumsum([0, *map(len, rows_of.values())]).astype(np.int64),
            names=tuple(rows_of),
            classes=classes,
        )

    @property
    def devices(self) -> int:
        """n, the number of devices."""
        return len(self.names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row's features: (d,) in a table, (height, width) of an image, and so on."""
        return self.features.shape[1:]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """m of each device."""
        return np.diff(self.offsets)

    def features_of(self, device: int) -> NDArray[np.float32]:
        """The rows of one device, without a copy."""
        return self.features[self.offsets[device] : self.offsets[device + 1]]

    def labels_of(self, device: int) -> Labels:
        """The labels of one device, without a copy."""
        return self.labels[self.offsets[device] : self.offsets[device + 1]]
