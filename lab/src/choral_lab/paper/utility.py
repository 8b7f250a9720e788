"""What a budget leaves of the accuracy: against the baselines at one ε, over many ε, published and proved."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from choral_lab import research
from choral_lab.paper.adult import COLLUDERS, NAMES, ROW_LENGTH, ROWS, Kind, experiment, task
from choral_lab.paper.claims import of_tradeoff, of_utility

PUBLISHED_DELTA, PROVED_DELTA = 1e-4, 1e-5
LOGISTIC = experiment("logistic", rounds=20, local_steps=10, batch=488, step_size=1.0)
NETWORK = experiment("network", rounds=50, local_steps=5, batch=488, step_size=1.0)
# The experiment without privacy that all others vary, and the budgets; of utility those that are proved.
UTILITY = {"logistic": (LOGISTIC, (1.0, 2.0)), "network": (NETWORK, (4.0,))}
TRADEOFF = {
    "logistic": (replace(LOGISTIC, local_steps=2, batch=1220), (0.25, 0.5, 1.0, 2.0, 10.0)),
    "network": (NETWORK, (0.5, 1.0, 2.0, 10.0)),
}

# What is tried, the same for both models, wide rather than fitted: nothing of a figure decided it. Step size times clip
# goes from 0.25 to 12; without a clip, steps of size 4 leave the range that a figure could show.
Choices = dict[str, tuple[float, ...]]
CLIPPED: Choices = {"step_size": (0.25, 1.0, 4.0), "clip": (1.0, 3.0)}
OTHERS: dict[research.Rule | None, Choices] = {
    None: {"step_size": (0.25, 0.5, 1.0, 2.0)},
    "clipped_updates": {"step_size": (0.25, 1.0), "update_clip": (0.03, 0.1, 0.3, 1.0)},
}
ONE_CLIP: Choices = {"clip": (1.0,)}  # at every ε of a trade-off several lines are tuned
QUICK: Choices = {"step_size": (1.0,), "clip": (3.0,), "update_clip": (0.3,), "local_steps": (30,)}
ONE_STEP = {"local_steps": 1, "batch": ROWS}  # for one step no smaller batch is better
CHANGED: dict[research.Rule | None, dict[str, Any]] = {
    "dp_sgd": ONE_STEP,
    "proved": {"sampling": "poisson"},
    "with_secure_sum": ONE_STEP,
}
SMALL_STEPS: dict[research.Rule | None, dict[str, Any]] = {  # rules that prove something for several steps, if smooth
    "with_secure_sum": {"step_size": 0.25},
}
# Noise once: steps on all rows, shorter than 2/L, as Rule S7 asks for; the noise grows with their number.
ONCE = {"batch": (ROWS,), "step_size": (0.25,), "noise_is_added": ("once",), "row_length": (ROW_LENGTH,)}
ONCE_TRIED: Choices = {"local_steps": (30, 100), "clip": (1.0, 3.0)}

Methods = Mapping[str, research.Method]  # by their ε

# The lines of either figure: by which rule, and their names.
METHODS: dict[str, tuple[research.Rule, str]] = {
    "ours": ("paper", "ours, ε = 10 as published"),
    "dp_sgd": ("dp_sgd", "DP-SGD, ε = 10 as published"),
    "local_noise": ("paper_without_secure_sum", "local noise, no secure sum, ε = 10 as published"),
    "dp_fedavg": ("clipped_updates", "DP-FedAvg, ε = 10 PROVED, trusted server"),
}
LINES: dict[str, tuple[research.Rule, str]] = {
    "with_secure_sum": ("paper", "with secure sum, ε as published"),
    "without_secure_sum": ("paper_without_secure_sum", "without, ε as published"),
    "dp_sgd": ("dp_sgd", "DP-SGD with secure sum, ε as published"),
    "proved": ("proved", "S5: ε PROVED against everyone"),
    "proved_with_secure_sum": ("with_secure_sum", f"S2 or S3: ε PROVED, secure sum, {COLLUDERS} of 10 collude"),
}
# Three rules at the same ε: what is published, and what is proved against everyone and with the secure sum.
THREE_RULES = (
    "Theorem 1: ε as published, server sees only sums",
    "S5: ε PROVED against everyone",
    f"S7: ε PROVED with secure sum, {COLLUDERS} of 10 collude",
)
PAIRS = {
    "with_minus_without": ("with_secure_sum", "without_secure_sum"),
    "with_minus_dp_sgd": ("with_secure_sum", "dp_sgd"),
    "proved_minus_published": ("proved", "with_secure_sum"),
    "secure_sum_minus_everyone": ("proved_with_secure_sum", "proved"),
    "noise_once_minus_everyone": ("noise_once", "proved"),
    "noise_once_minus_published": ("noise_once", "with_secure_sum"),
}


def _tried(base: research.Experiment, rule: research.Rule | None, only: Choices) -> list[research.Experiment]:
    choices = OTHERS.get(rule, CLIPPED)
    some = {name: only.get(name, choices[name]) for name in choices}
    found = research.grid(replace(base, **CHANGED.get(rule, {})), some)
    if rule in SMALL_STEPS and base.task.smoothness:
        found += research.grid(replace(base, **SMALL_STEPS[rule]), {"clip": only["clip"]})
    return found


def _once(base: research.Experiment, only: Choices) -> list[research.Experiment]:
    """Noise once with the secure sum; of a loss that is not convex Rule S7 says nothing."""
    if base.task.smoothness is None:
        return []
    some = {name: only.get(name, values) for name, values in ONCE_TRIED.items()}
    return research.grid(base, {**ONCE, **some})


class TunedLine(NamedTuple):
    """What is tried for a line, by which rule, and for which budgets."""

    tried: list[research.Experiment]
    rule: research.Rule
    epsilons: Sequence[float]
    delta: float


def _ahead(
    measurements: research.Measurements, free: Sequence[research.Experiment], lines: Iterable[TunedLine]
) -> None:
    """Train all candidates of a figure, before any is asked for: more of them then go through the rows together."""
    private = [one for line in lines for one in research.budgeted(*line)]
    measurements.together([*free, *private], "validation")


def utility(kind: Kind, measurements: research.Measurements, *, quick: bool) -> research.Found:
    """Ours and every baseline at ε = 10 by the published rule, without privacy, ours at a proved ε, and noise once."""
    (base, epsilons), only = UTILITY[kind], QUICK if quick else {}
    if quick:
        base, epsilons = replace(base, rounds=10), epsilons[-1:]
    candidates = _tried(base, None, only)
    wider = [replace(one, task=task(kind, "wide")) for one in candidates]
    methods = {
        name: TunedLine(_tried(base, rule, only), rule, [10.0], PUBLISHED_DELTA) for name, (rule, _) in METHODS.items()
    }
    others = {"proved": TunedLine(_tried(base, "proved", only), "proved", epsilons, PROVED_DELTA)}
    if tried := _once(base, only):
        others["once"] = TunedLine(tried, "with_secure_sum", epsilons, PROVED_DELTA)
        others["published"] = TunedLine(_tried(base, "paper", only), "paper", epsilons, PROVED_DELTA)
    _ahead(measurements, [*candidates, *wider], [*methods.values(), *others.values()])
    anchors = research.anchors(measurements, candidates)
    found = {name: research.tuned_over(measurements, *line)["10"] for name, line in methods.items()}
    at = {name: research.tuned_over(measurements, *line) for name, line in others.items()}
    proved, once, published = at["proved"], at.get("once", {}), at.get("published", {})
    compared = {"dp_sgd": found["dp_sgd"], "local_noise": found["local_noise"], "non_private": anchors.free}
    results = {
        **{name: one.results() for name, one in found.items()},
        "dp_fedavg": found["dp_fedavg"].results(non_private=anchors.free),
        **anchors.results(),
        "proved": {at: one.results(non_private=anchors.free) for at, one in proved.items()},
        **_at_one_epsilon(published, proved, once, anchors.free),
        **{f"ours_minus_{name}": found["ours"].minus(one) for name, one in compared.items()},
        "validation_accuracy_by_columns": research.compared(
            narrow=research.validated(measurements, candidates), wide=research.validated(measurements, wider)
        ),
    }
    best = max(proved, key=float)
    records = {METHODS[one][1]: found[one].curves for one in ("ours", "local_noise", "dp_sgd")}
    records[f"ours, ε = {best} PROVED against everyone (δ = 1e-5)"] = proved[best].curves
    device = {METHODS["dp_fedavg"][1]: found["dp_fedavg"].curves}
    free, levels = {"without privacy (FedAvg)": anchors.free.curves}, anchors.levels()
    title = f"{NAMES[kind]}, {base.rounds} rounds"
    shown = {f"{title}: {base.local_steps} local steps against one": records, f"{title}: a whole device hidden": device}
    if once:
        three = (methods[best].curves for methods in (published, proved, once))
        words = f"{NAMES[kind]}: one ε = {best}, three rules (δ = 1e-5, one record replaced)"
        shown[words] = dict(zip(THREE_RULES, three, strict=True))
    panels = [research.panel(words, free | lines, "test_accuracy", anchors=levels) for words, lines in shown.items()]
    name = f"{NAMES[kind]}, τ = {base.local_steps}, T = {base.rounds}"
    return research.Found(results=results, claims=of_utility(name, results), panels=panels)


def _at_one_epsilon(
    published: Methods, proved: Methods, once: Methods, free: research.Method
) -> dict[str, dict[str, object]]:
    """The same ε by three rules, for a results file; nothing where there is no third one."""
    if not once:
        return {}
    return {
        "published_at_proved_epsilon": {at: one.results(non_private=free) for at, one in published.items()},
        "noise_once": {at: one.results(non_private=free) for at, one in once.items()},
        "noise_once_minus_everyone": {at: one.minus(proved[at]) for at, one in once.items()},
        "noise_once_minus_published": {at: one.minus(published[at]) for at, one in once.items()},
    }


def tradeoff(kind: Kind, measurements: research.Measurements, *, quick: bool) -> research.Found:
    """Accuracy against ε at δ = 1e-4: with and without the secure sum as published, and as proved."""
    (base, epsilons), only = TRADEOFF[kind], QUICK if quick else ONE_CLIP
    if quick:
        base, epsilons = replace(base, rounds=10), (epsilons[0], epsilons[-1])
    lines = {
        name: TunedLine(_tried(base, rule, only), rule, epsilons, PUBLISHED_DELTA) for name, (rule, _) in LINES.items()
    }
    if tried := _once(base, only):
        lines["noise_once"] = TunedLine(tried, "with_secure_sum", epsilons, PUBLISHED_DELTA)
    candidates = _tried(base, None, only)
    _ahead(measurements, candidates, lines.values())
    anchors = research.anchors(measurements, candidates)
    found = {name: research.tuned_over(measurements, *line) for name, line in lines.items()}
    results = {
        **{name: {at: one.results() for at, one in methods.items()} for name, methods in found.items()},
        **anchors.results(),
        **{
            name: {at: one.minus(found[theirs][at]) for at, one in found[ours].items()}
            for name, (ours, theirs) in PAIRS.items()
            if ours in found
        },
        "proved_minus_non_private": {at: one.minus(anchors.free) for at, one in found["proved"].items()},
    }
    title = f"{NAMES[kind]}: accuracy against ε (δ = 1e-4, one record replaced)"
    shown = {title: {words: research.over_epsilon(found[name]) for name, (_, words) in LINES.items()}}
    if tried:
        rules = (found[name] for name in ("with_secure_sum", "proved", "noise_once"))
        three = (research.over_epsilon(methods) for methods in rules)
        shown[f"{title}, three rules"] = dict(zip(THREE_RULES, three, strict=True))
    levels = {"without privacy": research.spread(anchors.free.accuracy)["mean"], **anchors.levels()}
    panels = [
        research.panel(words, lines, "test_accuracy", over="ε", anchors=levels, log_x=True)
        for words, lines in shown.items()
    ]
    name = f"{NAMES[kind]}, τ = {base.local_steps}, T = {base.rounds}"
    return research.Found(results=results, claims=of_tradeoff(name, results), panels=panels)
