"""Rows dealt to devices, and each device's rows split for training, validation and test; all from a seed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError
from choral.learning.records import Labels, Records

Partition = Literal["even", "label-skew"]
PARTITIONS: tuple[Partition, ...] = ("even", "label-skew")
_SLICES = 10  # of a label that is a number: rows of one slice are dealt like rows of one class


def deal(
    labels: Labels, *, devices: int, partition: Partition = "even", skew: float = 0.5, seed: int = 0
) -> list[NDArray[np.intp]]:
    """The row numbers of each device: even shares at random, or shares of each label drawn from a Dirichlet(skew).

    >>> [len(rows) for rows in deal(np.zeros(10, dtype=np.int32), devices=3)]
    [4, 3, 3]
    """
    if not 1 <= devices <= len(labels):
        raise ConfigError(
            "CH102",
            f"{devices:,} devices for {len(labels):,} rows.",
            fix="Use at most one device per row, and at least 1.",
        )
    rng = np.random.default_rng([seed, 0xDEA1])
    if partition == "even":
        return [np.sort(rows) for rows in np.array_split(rng.permutation(len(labels)), devices)]
    shares: list[list[NDArray[np.intp]]] = [[] for _ in range(devices)]
    groups = np.floor((labels + 1) / 2 * _SLICES) if labels.dtype == np.float32 else labels
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        cuts = (np.cumsum(rng.dirichlet(np.full(devices, skew)))[:-1] * len(rows)).astype(int)
        for share, part in zip(shares, np.split(rows, cuts), strict=True):
            share.append(part)
    return [np.sort(np.concatenate(share)) for share in shares]


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """The same devices three times: rows to train on, to choose by, and to judge by."""

    train: Records
    validation: Records
    test: Records


def shares_of(size: int, *, device: int, seed: int, validation: float, test: float) -> list[NDArray[np.intp]]:
    """The numbers of a device's rows to train on, to choose by and to judge by, each ascending.

    >>> [len(rows) for rows in shares_of(10, device=0, seed=1, validation=0.1, test=0.2)]
    [7, 1, 2]
    """
    order = np.random.default_rng([seed, 0x5B117, device]).permutation(size)
    first = int(round((1 - validation - test) * size, 9))
    second = first + int(round(validation * size, 9))
    return [np.sort(rows) for rows in np.split(order, [first, second])]


def hold_out(records: Records, *, seed: int = 0, validation: float = 0.1, test: float = 0.1) -> Split:
    """Each device's rows split at random, 80/10/10 unless other shares are given; the training part is rounded down.

    >>> rows = Records.of([("a", np.eye(3052), np.arange(3052) % 2)])
    >>> split = hold_out(rows)
    >>> int(split.train.sizes[0]), int(split.validation.sizes[0]), int(split.test.sizes[0])
    (2441, 305, 306)
    """
    if min(validation, test) < 0 or validation + test >= 1:
        raise ConfigError(
            "CH102",
            f"validation {validation:g} and test {test:g} leave nothing to train on.",
            fix="Keep their sum below 1.",
        )
    parts: tuple[list[NDArray[np.intp]], ...] = ([], [], [])
    for device in range(records.devices):
        start, size = int(records.offsets[device]), int(records.sizes[device])
        shares = shares_of(size, device=device, seed=seed, validation=validation, test=test)
        for part, rows in zip(parts, shares, strict=True):
            part.append(start + rows)
    train, chosen, judged = (
        Records.taken(
            records.features, records.labels, dict(zip(records.names, part, strict=True)), classes=records.classes
        )
        for part in parts
    )
    return Split(train=train, validation=chosen, test=judged)
