"""The paper's claims, each set against what was measured: holds, holds in a range, tie, or does not hold."""

from collections.abc import Iterable, Mapping
from typing import Any

from choral.research import judged, judged_over

Claim = list[str]  # the claim, the verdict, the figures
Told = Mapping[str, Any]  # what a results file holds
EVERYONE = "one record replaced, against the server and all other devices"


def _number(value: float) -> str:
    rounded = round(value, 4) + 0.0  # no −0.0000
    return f"{rounded:.4f}".replace("-", "−") if abs(value) < 10 else f"{value:.1f}"


def _means(spreads: Iterable[Told]) -> str:
    return ", ".join(_number(one["mean"]) for one in spreads)


def _accuracy(method: Told) -> str:
    return _number(method["test_accuracy"]["mean"])


def _each(difference: Told) -> str:
    low, high = min(difference["each"]), max(difference["each"])
    return f"difference {_number(difference['mean'])} ({_number(low)} to {_number(high)})"


def _anchored(told: Told) -> str:
    return f"all rows in one place {_accuracy(told['centralised'])}, each device alone {_accuracy(told['each_alone'])}"


def _proved(name: str, epsilon: str, one: Told) -> Claim:
    """What a proof against everyone leaves of the accuracy without privacy."""
    pair = one["minus_non_private"]
    side, _, rest = pair["verdict"].partition(" ")
    return [
        f"{name} at a PROVED ε = {epsilon} (Rule S5, δ = 1e-5, {EVERYONE})",
        "keeps the accuracy: tie" if side == "tie" else f"{side} no privacy {rest}",
        f"{_accuracy(one)}, against no privacy: {_each(pair)}",
    ]


def of_convergence(name: str, second: tuple[str, str], grids: Told, beside: Told) -> list[Claim]:
    """Noise and local steps over 100 rounds; `second` is the measure beside accuracy, and its name."""
    claims = []
    for grid, found in grids.items():
        levels = [level.removeprefix("σ = ") for level in found["by_noise"]]
        for (measure, word), order, expected in (
            (("test_accuracy", "accuracy"), "lower", "below"),
            (second, "higher", "above"),
        ):
            over = zip(levels[1:], found["noise_minus_least"].values(), strict=True)
            claims.append(
                [
                    f"{name}, {grid.split(',')[0]} grid, {found['columns']} columns: more noise than σ = {levels[0]},"
                    f" {order} {word}",
                    judged_over("σ", {level: one[measure] for level, one in over}, expected),
                    f"{word} {_means(one[measure] for one in found['by_noise'].values())} at σ = {', '.join(levels)}",
                ]
            )
        if "by_local_steps" in found:
            claims += _of_local_steps(name, grid, second, found)
    for columns, told in beside.items():
        for epsilon, one in told["proved"].items():
            *said, figures = _proved(f"{name}, {columns} columns,", epsilon, one)
            claims.append([*said, f"{figures} at σ = {one['chosen'][0]['noise']:.2g}; {_anchored(told)}"])
    return claims


def _of_local_steps(name: str, grid: str, second: tuple[str, str], found: Told) -> list[Claim]:
    steps, (measure, word) = list(found["by_local_steps"]), second
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
            f"accuracy: {judged(end['test_accuracy'], 'below')}; {word}: {judged(end[measure], 'above')}",
            f"accuracy: {_each(end['test_accuracy'])}; {word}: {_each(end[measure])}",
        ],
    ]


def of_utility(name: str, told: Told) -> list[Claim]:
    """Against the baselines at ε = 10 as published, and at a proved ε."""
    ours, device, columns = told["ours"], told["dp_fedavg"], told["validation_accuracy_by_columns"]
    published, everyone = (ours["privacy"][key] for key in ("published", "proved_against_everyone"))
    loss = told["ours_minus_non_private"]
    above = device["test_accuracy"]["mean"] > told["each_alone"]["test_accuracy"]["mean"]
    return [
        [
            f"{name}, ε = 10 as published (Theorem 1, δ = 1e-4, one record replaced,"
            " against a server that sees only sums): several local steps beat DP-SGD",
            judged(told["ours_minus_dp_sgd"], "above"),
            f"ours {_accuracy(ours)}, DP-SGD {_accuracy(told['dp_sgd'])}, {_each(told['ours_minus_dp_sgd'])}",
        ],
        [
            "… and cost nothing against no privacy",
            "holds: tie" if loss["verdict"] == "tie" else f"does not hold: {loss['verdict']}",
            f"without privacy {_accuracy(told['non_private'])}, {_each(loss)}; {_anchored(told)}",
        ],
        [
            "… and beat local noise without a secure sum (same rule for one device, against a server that sees every"
            " update)",
            judged(told["ours_minus_local_noise"], "above"),
            f"local noise {_accuracy(told['local_noise'])}, {_each(told['ours_minus_local_noise'])}",
        ],
        [
            "… at ε = 10",
            "a guarantee here" if published["valid"] else f"not a guarantee: {published['because']}",
            f"at the same noise and δ = 1e-4, ε = {everyone['epsilon']:.1f} is proved (Rule {everyone['rule']},"
            f" {EVERYONE})",
        ],
        *(_proved("The same training", epsilon, one) for epsilon, one in told["proved"].items()),
        [
            f"DP-FedAvg with a trusted server, ε = 10 (Rule S4, δ = 1e-4, {device['privacy']['adjacency']}, against"
            " whoever sees the models)",
            "another promise; with 16 devices hiding a whole one ends"
            f" {'above' if above else 'below'} what each device reaches alone",
            f"{_accuracy(device)}, against no privacy: {_each(device['minus_non_private'])}",
        ],
        [
            "Narrow declared ranges of the numbers instead of those that come with choral (FedAvg, validation rows)",
            judged(columns["narrow_minus_wide"], "above"),
            f"validation accuracy {_number(columns['narrow']['mean'])} and {_number(columns['wide']['mean'])}",
        ],
    ]


def of_tradeoff(name: str, told: Told) -> list[Claim]:
    """Accuracy over ε, with and without the secure sum."""

    def over(key: str, expected: str, claim: str) -> Claim:
        figures = f"differences {_means(told[key].values())} at ε = {', '.join(told[key])}"
        return [claim, judged_over("ε", told[key], expected), figures]

    accuracies = _means(one["test_accuracy"] for one in told["proved"].values())
    return [
        over(
            "with_minus_without",
            "above",
            f"{name}, ε as published, δ = 1e-4: the secure sum keeps accuracy",
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
            f"{accuracies} at ε = {', '.join(told['proved'])}; without privacy {_accuracy(told['non_private'])}",
        ],
    ]


def of_bounds(told: Told) -> list[Claim]:
    """Theorem 2 beside the mean of ‖∇f‖²."""
    claims = []
    for steps, found in told.items():
        ends = {version: found[f"Theorem 2, {version}"]["mean"] for version in ("published", "corrected")}
        holds = [version for version, bound in ends.items() if max(found["measured"]["each"]) <= bound]
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
