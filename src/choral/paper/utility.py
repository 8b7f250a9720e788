"""What a budget leaves of the accuracy: against the baselines at one ε, over many ε, published and proved."""

from dataclasses import dataclass, replace
from typing import Any

from choral import research
from choral.paper.adult import COLLUDERS, NAMES, ROWS, Columns, Kind, experiment, task
from choral.paper.claims import of_tradeoff, of_utility

PUBLISHED_DELTA, PROVED_DELTA = 1e-4, 1e-5

# The grids of every method and of both models, wide rather than fitted: nothing of a figure decided them.
# Step size times clip goes from 0.25 to 12; without a clip, steps of size 4 leave the range that a figure could show.
STEP_SIZES, CLIPS = (0.25, 1.0, 4.0), (1.0, 3.0)
FREE_SIZES = (0.25, 0.5, 1.0, 2.0)
UPDATE_SIZES, UPDATE_CLIPS = (0.25, 1.0), (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One figure: the experiment without privacy that all others vary, the budgets, and what is tried."""

    base: research.Experiment
    epsilons: tuple[float, ...] = (10.0,)
    proved: tuple[float, ...] = ()
    step_sizes: tuple[float, ...] = STEP_SIZES
    clips: tuple[float, ...] = CLIPS
    free_sizes: tuple[float, ...] = FREE_SIZES
    update_sizes: tuple[float, ...] = UPDATE_SIZES
    update_clips: tuple[float, ...] = UPDATE_CLIPS

    def quickly(self) -> "Setting":
        """The same with one candidate each, and the ends of the budgets."""
        ends = tuple(dict.fromkeys((self.epsilons[0], self.epsilons[-1])))
        one = replace(
            self, step_sizes=(1.0,), clips=(3.0,), free_sizes=(1.0,), update_sizes=(1.0,), update_clips=(0.3,)
        )
        return replace(one, base=replace(self.base, rounds=10), epsilons=ends, proved=self.proved[-1:])

    def named(self, kind: Kind) -> str:
        """The figure in a claim."""
        return f"{NAMES[kind]}, τ = {self.base.local_steps}, T = {self.base.rounds}"

    def free(self) -> list[research.Experiment]:
        """What is tried without privacy."""
        return research.grid(self.base, {"step_size": self.free_sizes})

    def tried(self, rule: research.Rule) -> list[research.Experiment]:
        """What is tried under a rule; of the secure sum something is proved for one step a round, or for small ones."""
        choices = {"step_size": self.step_sizes, "clip": self.clips}
        one_step = replace(self.base, local_steps=1, batch=ROWS)  # for one step no smaller batch is better
        if rule == "clipped_updates":
            return research.grid(self.base, {"step_size": self.update_sizes, "update_clip": self.update_clips})
        if rule == "proved":
            return research.grid(replace(self.base, sampling="poisson"), choices)
        if rule == "dp_sgd":
            return research.grid(one_step, choices)
        if rule == "with_secure_sum":
            small = research.grid(self.base, {"step_size": (0.25,), "clip": self.clips})
            return [*research.grid(one_step, choices), *(small if self.base.task.smoothness else [])]
        return research.grid(self.base, choices)

    def within(self, shelf: research.Shelf, rule: research.Rule, epsilon: float, delta: float) -> research.Method:
        """The best of what is tried under a rule, in a budget."""
        return research.tuned(shelf, self.tried(rule), rule, epsilon, delta)


UTILITY = {
    "logistic": Setting(
        base=experiment("logistic", rounds=20, local_steps=10, batch=488, step_size=1.0), proved=(1.0, 2.0)
    ),
    "network": Setting(base=experiment("network", rounds=50, local_steps=5, batch=488, step_size=1.0), proved=(4.0,)),
}
RULES: dict[str, research.Rule] = {
    "ours": "paper",
    "dp_sgd": "dp_sgd",
    "local_noise": "paper_without_secure_sum",
    "dp_fedavg": "clipped_updates",
}


def utility(kind: Kind, shelf: research.Shelf, *, quick: bool) -> dict[str, Any]:
    """Ours and every baseline at ε = 10 by the published rule, without privacy, and ours at a proved ε."""
    setting = UTILITY[kind].quickly() if quick else UTILITY[kind]
    (epsilon,) = setting.epsilons
    free, anchors = research.anchors(shelf, setting.free())
    found = {name: setting.within(shelf, rule, epsilon, PUBLISHED_DELTA) for name, rule in RULES.items()}
    proved = {f"{one:g}": setting.within(shelf, "proved", one, PROVED_DELTA) for one in setting.proved}
    ours, best = found["ours"].accuracy, max(proved, key=float)
    told = {
        **{name: method.told() for name, method in found.items()},
        "dp_fedavg": found["dp_fedavg"].told(non_private=free),
        "non_private": free.told(),
        **anchors,
        "proved": {name: one.told(non_private=free) for name, one in proved.items()},
        "ours_minus_dp_sgd": research.paired(ours, found["dp_sgd"].accuracy),
        "ours_minus_local_noise": research.paired(ours, found["local_noise"].accuracy),
        "ours_minus_non_private": research.paired(ours, free.accuracy),
        "validation_accuracy_by_columns": _by_columns(kind, shelf, setting),
    }
    for_records = {
        "without privacy (FedAvg)": free,
        f"ours, ε = {epsilon:g} as published": found["ours"],
        f"local noise, no secure sum, ε = {epsilon:g} as published": found["local_noise"],
        f"DP-SGD, ε = {epsilon:g} as published": found["dp_sgd"],
        f"ours, ε = {best} PROVED against everyone (δ = 1e-5)": proved[best],
    }
    for_devices = {
        "without privacy (FedAvg)": free,
        f"DP-FedAvg, ε = {epsilon:g} PROVED, trusted server": found["dp_fedavg"],
    }

    def shown(what: str, methods: dict[str, research.Method]) -> dict[str, Any]:
        lines = [research.line(name, method.curves, "test_accuracy") for name, method in methods.items()]
        title = f"{NAMES[kind]}, {setting.base.rounds} rounds: {what}"
        return research.panel(title, "round", "test accuracy", lines, anchors=research.levels(anchors))

    return {
        **told,
        "claims": of_utility(setting.named(kind), told),
        "panels": [
            shown(f"{setting.base.local_steps} local steps against one", for_records),
            shown("a whole device hidden", for_devices),
        ],
    }


def _by_columns(kind: Kind, shelf: research.Shelf, setting: Setting) -> dict[str, Any]:
    """FedAvg's best validation accuracy with either set of declared ranges: what the choice between them rests on."""

    def best(columns: Columns) -> list[float]:
        tried = [replace(one, task=task(kind, columns)) for one in setting.free()]
        curves = ([shelf.curve(one, repeat, "validation") for one in tried] for repeat in range(shelf.repeats))
        return [max(research.last(found, "validation_accuracy")) for found in curves]

    narrow, wide = best("narrow"), best("wide")
    difference = research.paired(narrow, wide)
    return {"narrow": research.spread(narrow), "wide": research.spread(wide), "narrow_minus_wide": difference}


# Clip 1 alone: at every ε of these figures several lines are tuned.
TRADEOFF = {
    "logistic": Setting(
        base=experiment("logistic", rounds=20, local_steps=2, batch=1220, step_size=1.0),
        epsilons=(0.25, 0.5, 1.0, 2.0, 10.0),
        clips=(1.0,),
    ),
    "network": replace(UTILITY["network"], epsilons=(0.5, 1.0, 2.0, 10.0), clips=(1.0,)),
}
LINES: dict[research.Rule, tuple[str, str]] = {
    "paper": ("with_secure_sum", "with secure sum, ε as published"),
    "paper_without_secure_sum": ("without_secure_sum", "without, ε as published"),
    "dp_sgd": ("dp_sgd", "DP-SGD with secure sum, ε as published"),
    "proved": ("proved", "ε PROVED against everyone"),
    "with_secure_sum": ("proved_with_secure_sum", f"ε PROVED, secure sum, {COLLUDERS} of 10 collude"),
}


def tradeoff(kind: Kind, shelf: research.Shelf, *, quick: bool) -> dict[str, Any]:
    """Accuracy against ε at δ = 1e-4: with and without the secure sum as published, and as proved."""
    setting = TRADEOFF[kind].quickly() if quick else TRADEOFF[kind]
    free, anchors = research.anchors(shelf, setting.free())
    found = {
        name: {f"{one:g}": setting.within(shelf, rule, one, PUBLISHED_DELTA) for one in setting.epsilons}
        for rule, (name, _) in LINES.items()
    }

    def against(ours: str, theirs: str) -> dict[str, Any]:
        pairs = zip(found[ours].items(), found[theirs].values(), strict=True)
        return {epsilon: research.paired(one.accuracy, other.accuracy) for (epsilon, one), other in pairs}

    told = {
        **{name: {epsilon: method.told() for epsilon, method in methods.items()} for name, methods in found.items()},
        "non_private": free.told(),
        **anchors,
        "with_minus_without": against("with_secure_sum", "without_secure_sum"),
        "with_minus_dp_sgd": against("with_secure_sum", "dp_sgd"),
        "proved_minus_published": against("proved", "with_secure_sum"),
        "secure_sum_minus_everyone": against("proved_with_secure_sum", "proved"),
        "proved_minus_non_private": {
            epsilon: research.paired(one.accuracy, free.accuracy) for epsilon, one in found["proved"].items()
        },
    }
    shown = []
    for name, words in LINES.values():
        by_repeat = zip(*(method.accuracy for method in found[name].values()), strict=True)
        curves = [{"ε": list(setting.epsilons), "test_accuracy": list(values)} for values in by_repeat]
        shown.append(research.line(words, curves, "test_accuracy", over="ε"))
    levels = {"without privacy": free.told()["test_accuracy"]["mean"], **research.levels(anchors)}
    title = f"{NAMES[kind]}: accuracy against ε (δ = 1e-4)"
    return {
        **told,
        "claims": of_tradeoff(setting.named(kind), told),
        "panels": [research.panel(title, "ε", "test accuracy", shown, anchors=levels, log_x=True)],
    }
