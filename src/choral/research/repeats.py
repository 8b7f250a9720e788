"""Means, spreads and paired differences over the repeats, and what they say."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TIE = 0.002  # of accuracy: less than this says nothing on 4,900 test rows


def last(curves: Sequence[Mapping[str, list[float]]], measure: str) -> list[float]:
    """The final value of a measure in each repeat.

    >>> last([{"train_loss": [0.7, 0.5]}, {"train_loss": [0.6, 0.4]}], "train_loss")
    [0.5, 0.4]
    """
    return [one[measure][-1] for one in curves]


def spread(values: list[float]) -> dict[str, Any]:
    """Mean and deviation over the repeats, and each of them.

    >>> spread([1.0, 3.0])
    {'mean': 2.0, 'std': 1.4142, 'each': [1.0, 3.0]}
    """
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": round(float(np.mean(values)), 6), "std": float(f"{std:.5g}"), "each": values}


def paired(ours: list[float], theirs: list[float], *, tie: float = TIE) -> dict[str, Any]:
    """Differences repeat by repeat, which the luck of a split drops out of, and what they say.

    >>> paired([0.85, 0.86], [0.84, 0.83])["verdict"], paired([0.85, 0.84], [0.84, 0.85])["verdict"]
    ('above in every repeat', 'tie')
    """
    each = [round(a - b, 6) for a, b in zip(ours, theirs, strict=True)]
    told = spread(each)
    if abs(told["mean"]) < tie:
        return {**told, "verdict": "tie"}
    side = "above" if told["mean"] > 0 else "below"
    all_of_them = all((one > 0) == (told["mean"] > 0) for one in each)
    return {**told, "verdict": f"{side} in every repeat" if all_of_them else f"{side} on average"}


def judged(difference: Mapping[str, Any], expected: str) -> str:
    """What paired differences say of the claim that they lie on one side.

    >>> judged({"verdict": "above in every repeat"}, "above"), judged({"verdict": "below on average"}, "above")
    ('holds, in every repeat', 'does not hold: the opposite, on average')
    """
    if difference["verdict"] == "tie":
        return "tie"
    side, _, how = difference["verdict"].partition(" ")
    if side == expected:
        return f"holds, {how}" if how == "in every repeat" else "holds on average only"
    return f"does not hold: the opposite, {how}"


def judged_over(symbol: str, differences: Mapping[str, Mapping[str, Any]], expected: str) -> str:
    """The same over a range, which is named where not all of it says the same.

    >>> up, tie = {"verdict": "above in every repeat"}, {"verdict": "tie"}
    >>> judged_over("ε", {"0.5": up, "1": up, "2": tie}, "above")
    'holds, in every repeat, at ε = 0.5 and 1; tie at ε = 2'
    """
    at: dict[str, list[str]] = {}
    for place, difference in differences.items():
        at.setdefault(judged(difference, expected), []).append(place)
    if len(at) == 1:
        return next(iter(at))
    joiner = ", at" if any("," in verdict for verdict in at) else " at"
    return "; ".join(
        f"{verdict}{joiner if ',' in verdict else ' at'} {symbol} = {_listed(places)}" for verdict, places in at.items()
    )


def _listed(places: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(places[:-1]), places[-1])))
