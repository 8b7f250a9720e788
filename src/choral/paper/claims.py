"""The paper's claims, each set against what was measured: holds, holds in a range, tie, or does not hold."""

from collections.abc import Mapping, Sequence
from typing import Any

Claim = list[str]  # the claim, the verdict, the figures
Pair = Mapping[str, Any]  # of numbers.paired
EVERYONE = "one record replaced, against the server and all other devices"


def judged(difference: Pair, expected: str) -> str:
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


def judged_over(symbol: str, differences: Mapping[str, Pair], expected: str) -> str:
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


def _number(value: float) -> str:
    rounded = round(value, 4) + 0.0  # no −0.0000
    return f"{rounded:.4f}".replace("-", "−") if abs(value) < 10 else f"{value:.1f}"


def _means(told: Mapping[str, Pair]) -> str:
    return ", ".join(_number(one["mean"]) for one in told.values())


def _each(difference: Pair) -> str:
    low, high = min(difference["each"]), max(difference["each"])
    return f"difference {_number(difference['mean'])} ({_number(low)} to {_number(high)})"


def of_convergence(
    name: str, second: str, grids: Mapping[str, Mapping[str, Any]], beside: Mapping[str, Mapping[str, Any]]
) -> list[Claim]:
    """Noise and local steps over 100 rounds; `second` is the measure beside accuracy."""
    claims = []
    for grid, found in grids.items():
        over = found["noise_minus_least"]
        levels = [level.removeprefix("σ = ") for level in found["by_noise"]]
        words = {"test_accuracy": "accuracy", second: _words(second)}
        for measure, expected in (("test_accuracy", "below"), (second, "above")):
            claims.append(
                [
                    f"{name}, {grid.split(',')[0]} grid, {found['columns']} columns: more noise than σ = {levels[0]},"
                    f" {'lower' if expected == 'below' else 'higher'} {words[measure]}",
                    judged_over(
                        "σ", {level.removeprefix("σ = "): one[measure] for level, one in over.items()}, expected
                    ),
                    f"{words[measure]} {', '.join(_number(one[measure]['mean']) for one in found['by_noise'].values())}"
                    f" at σ = {', '.join(levels)}",
                ]
            )
        if "by_local_steps" in found:
            claims += _of_local_steps(name, grid, second, found)
    for columns, told in beside.items():
        one = told["proved"]
        center, alone = (_number(told[anchor]["test_accuracy"]["mean"]) for anchor in ("centralised", "each_alone"))
        accuracy = {**one, "minus_non_private": one["minus_non_private"]["test_accuracy"]}
        claim, verdict, figures = _proved(f"{name}, {columns} columns", f"{one['epsilon']:g}", accuracy)
        beside_it = f"all rows in one place {center}, each device alone {alone}"
        claims.append([claim, verdict, f"{figures} at σ = {one['noise']:.2g}; {beside_it}"])
    return claims


def _proved(name: str, epsilon: str, one: Mapping[str, Any]) -> Claim:
    """What a proof against everyone leaves of the accuracy without privacy."""
    pair = one["minus_non_private"]
    return [
        f"{name} at a PROVED ε = {epsilon} (Rule S5, δ = 1e-5, {EVERYONE})",
        "keeps the accuracy: tie"
        if pair["verdict"] == "tie"
        else pair["verdict"].replace("below", "below no privacy").replace("above", "above no privacy"),
        f"{_number(one['test_accuracy']['mean'])}, against no privacy: {_each(pair)}",
    ]


def _words(measure: str) -> str:
    return "training loss" if measure == "train_loss" else "‖∇f‖²"


def _of_local_steps(name: str, grid: str, second: str, found: Mapping[str, Any]) -> list[Claim]:
    steps = list(found["by_local_steps"])
    range_ = f"{steps[-1]} against {steps[0].removeprefix('τ = ')}, σ = {found['noise']:g}, {grid} grid"
    start, end = found["most_steps_minus_one_at_first_look"], found["most_steps_minus_one_at_the_end"]
    return [
        [
            f"{name}: larger τ starts faster (after a tenth of the rounds, {range_})",
            judged(start["test_accuracy"], "above"),
            f"accuracy: {_each(start['test_accuracy'])}",
        ],
        [
            f"{name}: larger τ ends worse (after all rounds, {range_})",
            f"accuracy: {judged(end['test_accuracy'], 'below')}; {_words(second)}: {judged(end[second], 'above')}",
            f"accuracy: {_each(end['test_accuracy'])}; {_words(second)}: {_each(end[second])}",
        ],
    ]


def of_utility(name: str, local_steps: int, rounds: int, told: Mapping[str, Any]) -> list[Claim]:
    """Against the baselines at ε = 10 as published, and at a proved ε."""
    accuracy = {
        one: told[one]["test_accuracy"]["mean"]
        for one in ("ours", "dp_sgd", "local_noise", "dp_fedavg", "non_private", "centralised", "each_alone")
    }
    published, everyone = (
        told["ours"]["privacy"][key] for key in ("published", "proved_against_everyone")
    )  # fmt: skip
    loss = told["ours_minus_non_private"]
    device = told["dp_fedavg"]["privacy"]
    columns = told["validation_accuracy_by_columns"]
    return [
        [
            f"{name}, τ = {local_steps}, T = {rounds}, ε = 10 as published (Theorem 1, δ = 1e-4, one record replaced,"
            " against a server that sees only sums): several local steps beat DP-SGD",
            judged(told["ours_minus_dp_sgd"], "above"),
            f"ours {_number(accuracy['ours'])}, DP-SGD {_number(accuracy['dp_sgd'])},"
            f" {_each(told['ours_minus_dp_sgd'])}",
        ],
        [
            "… and cost nothing against no privacy",
            "holds: tie" if loss["verdict"] == "tie" else f"does not hold: {loss['verdict']}",
            f"without privacy {_number(accuracy['non_private'])}, {_each(loss)}; all rows in one place"
            f" {_number(accuracy['centralised'])}, each device alone {_number(accuracy['each_alone'])}",
        ],
        [
            "… and beat local noise without a secure sum (same rule for one device, against a server that sees every"
            " update)",
            judged(told["ours_minus_local_noise"], "above"),
            f"local noise {_number(accuracy['local_noise'])}, {_each(told['ours_minus_local_noise'])}",
        ],
        [
            "… at ε = 10",
            "a guarantee here" if published["valid"] else f"not a guarantee: {published['because']}",
            f"at the same noise and δ = 1e-4, ε = {everyone['epsilon']:.1f} is proved (Rule {everyone['rule']},"
            f" {EVERYONE})",
        ],
        *(_proved("The same training", epsilon, one) for epsilon, one in told["proved"].items()),
        [
            f"DP-FedAvg with a trusted server, ε = 10 (Rule S4, δ = 1e-4, {device['adjacency']}, against whoever sees"
            " the models)",
            "another promise; with 16 devices hiding a whole one ends"
            f" {'above' if accuracy['dp_fedavg'] > accuracy['each_alone'] else 'below'} what each device reaches alone",
            f"{_number(accuracy['dp_fedavg'])}, against no privacy: {_each(told['dp_fedavg']['minus_non_private'])}",
        ],
        [
            "Narrow declared ranges of the numbers instead of those that come with choral (FedAvg, validation rows)",
            judged(columns["narrow_minus_wide"], "above"),
            f"validation accuracy {_number(columns['narrow']['mean'])} and {_number(columns['wide']['mean'])}",
        ],
    ]


def of_tradeoff(name: str, local_steps: int, rounds: int, told: Mapping[str, Any]) -> list[Claim]:
    """Accuracy over ε, with and without the secure sum."""

    def over(key: str, expected: str, claim: str) -> Claim:
        places = ", ".join(told[key])
        return [claim, judged_over("ε", told[key], expected), f"differences {_means(told[key])} at ε = {places}"]

    accuracies = {epsilon: one["test_accuracy"] for epsilon, one in told["proved"].items()}
    return [
        over(
            "with_minus_without",
            "above",
            f"{name}, τ = {local_steps}, T = {rounds}, ε as published, δ = 1e-4: the secure sum keeps accuracy",
        ),
        over("with_minus_dp_sgd", "above", "… and several local steps beat DP-SGD at the same published ε"),
        over(
            "proved_minus_published",
            "below",
            f"A proof against everyone costs accuracy (Rule S5, δ = 1e-4, {EVERYONE}; against the published rule)",
        ),
        over(
            "secure_sum_minus_everyone",
            "above",
            "Counting on the secure sum gains accuracy at a PROVED ε (Rules S2 and S3, δ = 1e-4, one record replaced,"
            " against a server that sees only sums, helped by 2 of the 10 devices)",
        ),
        [
            f"At a PROVED ε against everyone (Rule S5, δ = 1e-4, {EVERYONE}) accuracy is that without privacy",
            judged_over("ε", told["proved_minus_non_private"], "below").replace("holds", "below"),
            f"{_means(accuracies)} at ε = {', '.join(accuracies)}; without privacy"
            f" {_number(told['non_private']['test_accuracy']['mean'])}",
        ],
    ]


def of_bounds(told: Mapping[str, Any]) -> list[Claim]:
    """Theorem 2 beside the mean of ‖∇f‖²."""
    claims = []
    for steps, found in told.items():
        measured = max(found["measured"]["each"])
        ends = {version: found[f"Theorem 2, {version}"]["mean"] for version in ("published", "corrected")}
        holds = [version for version, bound in ends.items() if measured <= bound]
        claims.append(
            [
                "Theorem 2 bounds the mean of ‖∇f‖² (regularised logistic regression, λ = 0.01, σ = 0.3, 100 rounds,"
                f" {steps})",
                f"{' and '.join(holds)}: holds here, in every repeat; in general only the corrected one does"
                if holds
                else "does not hold",
                f"measured {_number(found['measured']['mean'])}, published {_number(ends['published'])}, corrected"
                f" {_number(ends['corrected'])}",
            ]
        )
    return claims


def table(claims: Sequence[Claim]) -> str:
    """The claims as a table of Markdown.

    >>> print(table([["a", "holds", "1"]]))
    | claim | verdict | measured |
    |---|---|---|
    | a | holds | 1 |
    """
    head = ["| claim | verdict | measured |", "|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(claim)} |" for claim in claims)])
