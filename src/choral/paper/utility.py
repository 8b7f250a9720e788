"""What a budget leaves of the accuracy: against the baselines at one ε, over many ε, published and proved."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from choral.paper.adult import Columns, Kind
from choral.paper.claims import of_tradeoff, of_utility
from choral.paper.experiment import COLLUDERS, Experiment
from choral.paper.numbers import paired, spread
from choral.paper.panels import line, panel
from choral.paper.tuning import Method, Shelf, anchors_of, grid, levels, tuned
from choral.privacy.calibrate import Rule

PUBLISHED_DELTA, PROVED_DELTA = 1e-4, 1e-5
NAMES = {"logistic": "Logistic regression", "network": "Network 32-16"}

# The grids of every method and of both models, wide rather than fitted: nothing of a figure decided them.
# Step size times clip goes from 0.25 to 12; without a clip, steps of size 4 leave the range that a figure could show.
STEP_SIZES, CLIPS = (0.25, 1.0, 4.0), (1.0, 3.0)
FREE_SIZES = (0.25, 0.5, 1.0, 2.0)
UPDATE_SIZES, UPDATE_CLIPS = (0.25, 1.0), (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One figure: rounds and local steps as the paper has them, the batch, the budgets, and what is tried."""

    model: Kind
    rounds: int
    local_steps: int
    batch: int
    epsilons: tuple[float, ...] = (10.0,)
    proved: tuple[float, ...] = ()
    step_sizes: tuple[float, ...] = STEP_SIZES
    clips: tuple[float, ...] = CLIPS
    free_sizes: tuple[float, ...] = FREE_SIZES
    update_clips: tuple[float, ...] = UPDATE_CLIPS

    def quickly(self) -> "Setting":
        """The same with one candidate each, and the ends of the budgets."""
        ends = tuple(dict.fromkeys((self.epsilons[0], self.epsilons[-1])))
        return replace(
            self,
            rounds=10,
            epsilons=ends,
            proved=self.proved[-1:],
            step_sizes=(1.0,),
            clips=(3.0,),
            free_sizes=(1.0,),
            update_clips=(0.3,),
        )

    def base(self) -> Experiment:
        """The experiment without privacy that all others vary."""
        return Experiment(
            model=self.model, rounds=self.rounds, local_steps=self.local_steps, batch=self.batch, step_size=1.0
        )

    def private(self, base: Experiment) -> list[Experiment]:
        """What is tried of a method that clips gradients."""
        return grid(base, {"step_size": self.step_sizes, "clip": self.clips})

    def free(self) -> list[Experiment]:
        """What is tried without privacy."""
        return grid(self.base(), {"step_size": self.free_sizes})

    def one_step(self) -> Experiment:
        """One step a round on all rows: for one step no smaller batch is better."""
        return replace(self.base(), local_steps=1, batch=2440)


UTILITY = {
    "logistic": Setting(model="logistic", rounds=20, local_steps=10, batch=488, proved=(1.0, 2.0)),
    "network": Setting(model="network", rounds=50, local_steps=5, batch=488, proved=(4.0,)),
}


def utility(kind: Kind, shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """Ours and every baseline at ε = 10 by the published rule, without privacy, and ours at a proved ε."""
    setting = UTILITY[kind].quickly() if quick else UTILITY[kind]
    base, epsilon = setting.base(), setting.epsilons[0]
    free, anchors = anchors_of(shelf, setting.free())

    def within(candidates: list[Experiment], rule: Rule, epsilon: float, delta: float) -> Method:
        return tuned(shelf, candidates, rule, epsilon, delta)

    ours = within(setting.private(base), "paper", epsilon, PUBLISHED_DELTA)
    local = within(setting.private(base), "paper_without_secure_sum", epsilon, PUBLISHED_DELTA)
    dp_sgd = within(setting.private(setting.one_step()), "dp_sgd", epsilon, PUBLISHED_DELTA)
    updates = grid(base, {"step_size": UPDATE_SIZES, "update_clip": setting.update_clips})
    dp_fedavg = within(updates, "clipped_updates", epsilon, PUBLISHED_DELTA)
    poisson = setting.private(replace(base, sampling="poisson"))
    proved = {f"{one:g}": within(poisson, "proved", one, PROVED_DELTA) for one in setting.proved}
    best = max(proved, key=float)
    lines = {
        "without privacy (FedAvg)": free,
        f"ours, ε = {epsilon:g} as published": ours,
        f"local noise, no secure sum, ε = {epsilon:g} as published": local,
        f"DP-SGD, ε = {epsilon:g} as published": dp_sgd,
        f"ours, ε = {best} PROVED against everyone (δ = 1e-5)": proved[best],
    }
    told = {
        "ours": ours.told(),
        "dp_sgd": dp_sgd.told(),
        "local_noise": local.told(),
        "dp_fedavg": {**dp_fedavg.told(), "minus_non_private": paired(dp_fedavg.accuracy, free.accuracy)},
        "non_private": free.told(),
        **anchors,
        "proved": {
            name: {**one.told(), "minus_non_private": paired(one.accuracy, free.accuracy)}
            for name, one in proved.items()
        },
        "ours_minus_dp_sgd": paired(ours.accuracy, dp_sgd.accuracy),
        "ours_minus_local_noise": paired(ours.accuracy, local.accuracy),
        "ours_minus_non_private": paired(ours.accuracy, free.accuracy),
        "validation_accuracy_by_columns": _by_columns(shelf, setting),
    }
    title = f"{NAMES[kind]}, {setting.rounds} rounds"
    return {
        **told,
        "claims": of_utility(NAMES[kind], setting.local_steps, setting.rounds, told),
        "panels": [
            panel(
                f"{title}: {setting.local_steps} local steps against one",
                "round",
                "test accuracy",
                [line(name, method.curves, "test_accuracy") for name, method in lines.items()],
                anchors=levels(anchors),
            ),
            panel(
                f"{title}: a whole device hidden",
                "round",
                "test accuracy",
                [
                    line("without privacy (FedAvg)", free.curves, "test_accuracy"),
                    line(f"DP-FedAvg, ε = {epsilon:g} PROVED, trusted server", dp_fedavg.curves, "test_accuracy"),
                ],
                anchors=levels(anchors),
            ),
        ],
    }


def _by_columns(shelf: Shelf, setting: Setting) -> dict[str, Any]:
    """FedAvg's best validation accuracy with either set of declared ranges: what the choice between them rests on."""

    def best(columns: Columns, repeat: int) -> float:
        candidates = grid(replace(setting.base(), columns=columns), {"step_size": setting.free_sizes})
        return max(shelf.curve(one, repeat, "validation")["validation_accuracy"][-1] for one in candidates)

    narrow, wide = ([best(columns, n) for n in range(shelf.repeats)] for columns in ("narrow", "wide"))
    return {"narrow": spread(narrow), "wide": spread(wide), "narrow_minus_wide": paired(narrow, wide)}


# Clip 1 alone: at every ε of these figures several lines are tuned.
TRADEOFF = {
    "logistic": Setting(
        model="logistic",
        rounds=20,
        local_steps=2,
        batch=1220,
        epsilons=(0.25, 0.5, 1.0, 2.0, 10.0),
        clips=(1.0,),
    ),
    "network": Setting(
        model="network", rounds=50, local_steps=5, batch=488, epsilons=(0.5, 1.0, 2.0, 10.0), clips=(1.0,)
    ),
}
LINES: dict[Rule, tuple[str, str]] = {
    "paper": ("with_secure_sum", "with secure sum, ε as published"),
    "paper_without_secure_sum": ("without_secure_sum", "without, ε as published"),
    "dp_sgd": ("dp_sgd", "DP-SGD with secure sum, ε as published"),
    "proved": ("proved", "ε PROVED against everyone"),
    "with_secure_sum": ("proved_with_secure_sum", f"ε PROVED, secure sum, {COLLUDERS} of 10 collude"),
}


def tradeoff(kind: Kind, shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """Accuracy against ε at δ = 1e-4: with and without the secure sum as published, and as proved."""
    setting = TRADEOFF[kind].quickly() if quick else TRADEOFF[kind]
    free, anchors = anchors_of(shelf, setting.free())
    found = {
        name: {
            f"{epsilon:g}": tuned(shelf, _tried(setting, rule), rule, epsilon, PUBLISHED_DELTA)
            for epsilon in setting.epsilons
        }
        for rule, (name, _) in LINES.items()
    }
    over = list(setting.epsilons)
    shown = [
        line(
            words,
            [{"epsilon": over, "test_accuracy": values} for values in _by_repeat(found[name])],
            "test_accuracy",
            over="epsilon",
        )
        for name, words in LINES.values()
    ]

    def against(ours: str, theirs: str) -> dict[str, Any]:
        pairs = zip(found[ours].items(), found[theirs].values(), strict=True)
        return {epsilon: paired(one.accuracy, other.accuracy) for (epsilon, one), other in pairs}

    told = {
        **{name: {epsilon: method.told() for epsilon, method in methods.items()} for name, methods in found.items()},
        "non_private": free.told(),
        **anchors,
        "with_minus_without": against("with_secure_sum", "without_secure_sum"),
        "with_minus_dp_sgd": against("with_secure_sum", "dp_sgd"),
        "proved_minus_published": against("proved", "with_secure_sum"),
        "secure_sum_minus_everyone": against("proved_with_secure_sum", "proved"),
        "proved_minus_non_private": {
            epsilon: paired(method.accuracy, free.accuracy) for epsilon, method in found["proved"].items()
        },
    }
    return {
        **told,
        "claims": of_tradeoff(NAMES[kind], setting.local_steps, setting.rounds, told),
        "panels": [
            panel(
                f"{NAMES[kind]}: accuracy against ε (δ = 1e-4)",
                "ε",
                "test accuracy",
                shown,
                anchors={"without privacy": free.told()["test_accuracy"]["mean"], **levels(anchors)},
                log_x=True,
            )
        ],
    }


def _tried(setting: Setting, rule: Rule) -> list[Experiment]:
    """What is tried under a rule; of the secure sum something is proved for one step a round, or for small steps."""
    if rule == "proved":
        return setting.private(replace(setting.base(), sampling="poisson"))
    if rule == "dp_sgd":
        return setting.private(setting.one_step())
    if rule == "with_secure_sum":
        small = grid(setting.base(), {"step_size": (0.25,), "clip": setting.clips})
        return [*setting.private(setting.one_step()), *(small if setting.model == "logistic" else [])]
    return setting.private(setting.base())


def _by_repeat(methods: Mapping[str, Method]) -> list[list[float]]:
    """For each repeat its accuracies over ε."""
    return [list(values) for values in zip(*(method.accuracy for method in methods.values()), strict=True)]
