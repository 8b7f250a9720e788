"""The paper's claims, each set against what was measured: holds, holds in a range, tie, or does not hold."""

from collections.abc import Mapping
from typing import Any

from choral_lab.research import Claims, Side, difference, judged, judged_over, kept, means, number, reached

Results = Mapping[str, Any]  # what a results file holds
EVERYONE = "one record replaced, against the server and all other devices"
SUMS = "one record replaced, against a server that sees only sums"
HELPED = f"{SUMS}, helped by 2 of the 10 devices"
PROVED = f"(Rule S5, δ = 1e-5, {EVERYONE})"
NOT_CONVEX = "no third line: Rule S7 is proved for convex losses, and a network's loss is not convex"
ANCHORS = {"centralised": "all rows in one place", "each_alone": "each device alone"}
# What a measure is called, and where it goes when a model gets worse.
WORSE: dict[str, tuple[str, str, Side]] = {
    "test_accuracy": ("accuracy", "lower", "below"),
    "train_loss": ("training loss", "higher", "above"),
    "squared_gradient_norm": ("‖∇f‖²", "higher", "above"),
}


def of_convergence(name: str, grids: Results, compared: Results) -> Claims:
    """Noise and local steps over 100 rounds."""
    claims = {}
    for grid, found in grids.items():
        place, (least, *_) = f"{name}, {grid.split(',')[0]} grid, {found['columns']} columns", found["by_noise"]
        for measure in found["by_noise"][least]:
            ends = {at: one[measure] for at, one in found["by_noise"].items()}
            over = {at: one[measure] for at, one in found["noise_minus_least"].items()}
            word, order, worse = WORSE[measure]
            said = judged_over("σ", over, worse), f"{word} {means('σ', ends)}"
            claims[f"{place}: more noise than {least}, {order} {word}"] = said
        if "by_local_steps" in found:
            one, *_, most = found["by_local_steps"]
            where = f"{most} against {one.removeprefix('τ = ')}, σ = {found['noise']:g}, {grid} grid"
            start = found["most_steps_minus_one_at_first_look"]["test_accuracy"]
            faster = judged(start, "above"), f"accuracy: {difference(start)}"
            claims[f"{name}: larger τ starts faster (after a tenth of the rounds, {where})"] = faster
            end = [(*WORSE[measure], pair) for measure, pair in found["most_steps_minus_one_at_the_end"].items()]
            claims[f"{name}: larger τ ends worse (after all rounds, {where})"] = (
                "; ".join(f"{word}: {judged(pair, worse)}" for word, _, worse, pair in end),
                "; ".join(f"{word}: {difference(pair)}" for word, _, _, pair in end),
            )
    for columns, results in compared.items():
        for epsilon, one in results["proved"].items():
            verdict, figures = kept(one)
            figures += f" at σ = {one['chosen'][0]['noise']:.2g}; {reached(results, **ANCHORS)}"
            claims[f"{name}, {columns} columns, at a PROVED ε = {epsilon} {PROVED}"] = verdict, figures
    return claims


def of_utility(name: str, results: Results) -> Claims:
    """Against the baselines at ε = 10 as published, and at a proved ε."""
    device, columns, privacy = (
        results["dp_fedavg"],
        results["validation_accuracy_by_columns"],
        results["ours"]["privacy"],
    )
    published, everyone = privacy["published"], privacy["proved_against_everyone"]
    step, loss, local = (results[f"ours_minus_{one}"] for one in ("dp_sgd", "non_private", "local_noise"))
    untrusted, trusted = "against a server that sees every update", "against whoever sees the models"
    side = "above" if device["test_accuracy"]["mean"] > results["each_alone"]["test_accuracy"]["mean"] else "below"
    return {
        f"{name}, ε = 10 as published (Theorem 1, δ = 1e-4, {SUMS}): several local steps beat DP-SGD": (
            judged(step, "above"),
            f"{reached(results, ours='ours', dp_sgd='DP-SGD')}, {difference(step)}",
        ),
        "… and cost nothing against no privacy": (
            "holds: tie" if loss["verdict"] == "tie" else f"does not hold: {loss['verdict']}",
            f"{reached(results, non_private='without privacy')}, {difference(loss)}; {reached(results, **ANCHORS)}",
        ),
        f"… and beat local noise without a secure sum (same rule for one device, {untrusted})": (
            judged(local, "above"),
            f"{reached(results, local_noise='local noise')}, {difference(local)}",
        ),
        "… at ε = 10": (
            "a guarantee here" if published["valid"] else f"not a guarantee: {published['because']}",
            f"at the same noise and δ = 1e-4, ε = {everyone['epsilon']:.1f} is proved (Rule {everyone['rule']},"
            f" {EVERYONE})",
        ),
        **{f"The same training at a PROVED ε = {at} {PROVED}": kept(one) for at, one in results["proved"].items()},
        **_of_noise_once(results, "1e-5"),
        f"DP-FedAvg with a trusted server, ε = 10 (Rule S4, δ = 1e-4, {device['privacy']['adjacency']}, {trusted})": (
            f"another promise; with 16 devices hiding a whole one ends {side} what each device reaches alone",
            kept(device)[1],
        ),
        "Narrow declared ranges of the numbers instead of those that come with choral (FedAvg, validation rows)": (
            judged(columns["narrow_minus_wide"], "above"),
            f"validation accuracy {number(columns['narrow']['mean'])} and {number(columns['wide']['mean'])}",
        ),
    }


def _of_noise_once(results: Results, delta: str) -> Claims:
    """Rule S7 with the secure sum, against what is proved against everyone and what is published, at the same ε."""
    rule = f"Noise once with the secure sum at a PROVED ε (Rule S7, δ = {delta}, {HELPED})"
    if "noise_once" not in results:
        return {rule: (NOT_CONVEX, "not measured")}
    methods = results["noise_once"]
    accuracies = means("ε", {at: one["test_accuracy"] for at, one in methods.items()})
    steps = sorted({tried["local_steps"] for one in methods.values() for tried in one["tried"]})
    everyone, published = results["noise_once_minus_everyone"], results["noise_once_minus_published"]
    return {
        f"{rule}, τ = {' or '.join(map(str, steps))}, gains accuracy over Rule S5 against everyone at the same ε": (
            judged_over("ε", everyone, "above"),
            f"{accuracies}; differences {means('ε', everyone)}",
        ),
        "… and costs accuracy against the published rule at the same ε": (
            judged_over("ε", published, "below"),
            f"differences {means('ε', published)}",
        ),
    }


def of_tradeoff(name: str, results: Results) -> Claims:
    """Accuracy over ε, with and without the secure sum."""
    everyone, paper = f"Rule S5, δ = 1e-4, {EVERYONE}", "against the published rule"
    helped = f"Rules S2 and S3, δ = 1e-4, {HELPED}"
    claimed: dict[str, tuple[str, Side]] = {
        f"{name}, ε as published, δ = 1e-4: the secure sum keeps accuracy": ("with_minus_without", "above"),
        "… and several local steps beat DP-SGD at the same published ε": ("with_minus_dp_sgd", "above"),
        f"A proof against everyone costs accuracy ({everyone}; {paper})": ("proved_minus_published", "below"),
        f"Counting on the secure sum gains accuracy at a PROVED ε ({helped})": ("secure_sum_minus_everyone", "above"),
    }
    accuracies = means("ε", {at: one["test_accuracy"] for at, one in results["proved"].items()})
    return {
        **{
            claim: (judged_over("ε", results[key], side), f"differences {means('ε', results[key])}")
            for claim, (key, side) in claimed.items()
        },
        **_of_noise_once(results, "1e-4"),
        f"At a PROVED ε against everyone ({everyone}) accuracy is that without privacy": (
            judged_over("ε", results["proved_minus_non_private"], "below").replace("holds", "below"),
            f"{accuracies}; {reached(results, non_private='without privacy')}",
        ),
    }
