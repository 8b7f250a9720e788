"""Means, spreads and paired differences over the repeats."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from choral_lab.research.experiment import Curve

TIE = 0.002  # of accuracy: less than this says nothing on 4,900 test rows


class Spread(TypedDict):
    """Mean and deviation over the repeats, and each of them."""

    mean: float
    std: float
    each: list[float]


class Paired(Spread):
    """Differences repeat by repeat, and what they say."""

    verdict: str


def last(curves: Sequence[Curve], measure: str) -> list[float]:
    """The final value of a measure in each repeat.

    >>> last([{"train_loss": [0.7, 0.5]}, {"train_loss": [0.6, 0.4]}], "train_loss")
    [0.5, 0.4]
    """
    return [one[measure][-1] for one in curves]


def spread(values: list[float]) -> Spread:
    """Mean and deviation over the repeats, and each of them.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'std': 1.4142, 'each': [1.0, 3.0]}
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": round(float(np.mean(values)), 6), "std": float(f"{std:.5g}"), "each": values}


def paired(ours: list[float], theirs: list[float], *, tie: float = TIE) -> Paired:
    """Differences repeat by repeat, which the luck of a split drops out of, and what they say.

    >>> paired([0.85, 0.86], [0.84, 0.83])["verdict"], paired([0.85, 0.84], [0.84, 0.85])["verdict"]
    ('above in every repeat', 'tie')
    """
    each = [round(a - b, 6) for a, b in zip(ours, theirs, strict=True)]
    found = spread(each)
    if abs(found["mean"]) < tie:
        return {**found, "verdict": "tie"}
    side = "above" if found["mean"] > 0 else "below"
    all_of_them = all((one > 0) == (found["mean"] > 0) for one in each)
    return {**found, "verdict": f"{side} in every repeat" if all_of_them else f"{side} on average"}


def compared(**values: list[float]) -> dict[str, Spread]:
    """Two sets of values by their names, and their difference.

    >>> list(compared(ours=[1.0], theirs=[0.5]))
    ['ours', 'theirs', 'ours_minus_theirs']
    """
    ours, theirs = values
    return {**{one: spread(values[one]) for one in values}, f"{ours}_minus_{theirs}": paired(*values.values())}


def ends(lines: Mapping[str, Sequence[Curve]], measures: Sequence[str]) -> dict[str, dict[str, Spread]]:
    """Where each line ends, by every measure.

    >>> ends({"σ = 1": [{"loss": [2.0, 1.0]}, {"loss": [2.0, 3.0]}]}, ["loss"])["σ = 1"]["loss"]["mean"]
    2.0
    """
    return {name: {one: spread(last(curves, one)) for one in measures} for name, curves in lines.items()}


def differences(
    ours: Sequence[Curve], theirs: Sequence[Curve], measures: Sequence[str], *, look: int = -1
) -> dict[str, Paired]:
    """One line minus another, repeat by repeat, by every measure; at the end, or at another look.

    >>> differences([{"loss": [2.0, 1.0]}], [{"loss": [3.0, 0.5]}], ["loss"], look=0)["loss"]["mean"]
    -1.0
    """
    return {one: paired(*([curve[one][look] for curve in curves] for curves in (ours, theirs))) for one in measures}
