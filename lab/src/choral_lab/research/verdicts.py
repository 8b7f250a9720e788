"""What paired differences say of a claim, and the figures in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from choral_lab.research.repeats import Paired, Spread

Claims = dict[str, tuple[str, str]]  # of each claim the verdict, and the figures
Side = Literal["above", "below"]
Results = Mapping[str, Any]  # what a results file holds


def judged(difference: Paired, expected: Side) -> str:
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


def judged_over(symbol: str, differences: Mapping[str, Paired], expected: Side) -> str:
    """The same over a range, which is named where not all of it says the same.

    >>> up, tie = {"verdict": "above in every repeat"}, {"verdict": "tie"}
    >>> judged_over("ε", {"0.5": up, "1": up, "2": tie}, "above")
    'holds, in every repeat, at ε = 0.5 and 1; tie at ε = 2'
    """
    at: dict[str, list[str]] = {}
    for place, difference in differences.items():
        at.setdefault(judged(difference, expected), []).append(place.removeprefix(f"{symbol} = "))
    if len(at) == 1:
        return next(iter(at))
    joiner = ", at" if any("," in verdict for verdict in at) else " at"
    return "; ".join(
        f"{verdict}{joiner if ',' in verdict else ' at'} {symbol} = {_listed(places)}" for verdict, places in at.items()
    )


def _listed(places: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(places[:-1]), places[-1])))


def number(value: float) -> str:
    """A figure of a table: four decimals below ten, one above.

    >>> number(0.85191), number(-0.00004), number(-0.0057), number(11.52)
    ('0.8519', '0.0000', '−0.0057', '11.5')
    """
    rounded = round(value, 4) + 0.0  # no −0.0000
    return f"{rounded:.4f}".replace("-", "−") if abs(value) < 10 else f"{value:.1f}"


def means(symbol: str, spreads: Mapping[str, Spread]) -> str:
    """The means over a range, which is named.

    >>> means("σ", {"σ = 1": {"mean": 0.25}, "σ = 2": {"mean": 0.5}})
    '0.2500, 0.5000 at σ = 1, 2'
    """
    places = ", ".join(one.removeprefix(f"{symbol} = ") for one in spreads)
    return f"{', '.join(number(one['mean']) for one in spreads.values())} at {symbol} = {places}"


def difference(pair: Spread) -> str:
    """Paired differences in words: their mean, the lowest and the highest.

    >>> difference({"mean": 0.25, "each": [0.5, 0.0]})
    'difference 0.2500 (0.0000 to 0.5000)'
    """
    return f"difference {number(pair['mean'])} ({number(min(pair['each']))} to {number(max(pair['each']))})"


def reached(results: Results, **names: str) -> str:
    """Test accuracies of a results file, each under a name.

    >>> reached({"dp_sgd": {"test_accuracy": {"mean": 0.8385}}}, dp_sgd="DP-SGD")
    'DP-SGD 0.8385'
    """
    return ", ".join(f"{words} {number(results[name]['test_accuracy']['mean'])}" for name, words in names.items())


def kept(method: Results) -> tuple[str, str]:
    """What a method leaves of the accuracy without privacy: a verdict, and the figures.

    >>> pair = {"mean": -0.01, "each": [-0.01], "verdict": "below in every repeat"}
    >>> kept({"test_accuracy": {"mean": 0.84}, "minus_non_private": pair})
    ('below no privacy in every repeat', '0.8400, against no privacy: difference −0.0100 (−0.0100 to −0.0100)')
    """
    accuracy, pair = method["test_accuracy"], method["minus_non_private"]
    side, _, how = pair["verdict"].partition(" ")
    verdict = "keeps the accuracy: tie" if side == "tie" else f"{side} no privacy {how}"
    return verdict, f"{number(accuracy['mean'])}, against no privacy: {difference(pair)}"
