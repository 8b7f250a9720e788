"""What a budget leaves of the accuracy: against DP-SGD at one ε, over many ε, by the published and the proved rules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from choral.paper.experiment import Curve, Experiment, Kind, Shelf, alone, grid, last, paired, spread, tuned
from choral.paper.panels import line, panel
from choral.privacy.calibrate import Rule

PUBLISHED_DELTA, PROVED_DELTA = 1e-4, 1e-5


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One utility figure: rounds and local steps as the paper has them, ε by its rule, and what is proved beside."""

    model: Kind
    rounds: int
    local_steps: int
    batch: int
    step_sizes: tuple[float, ...]
    clips: tuple[float, ...]
    epsilon: float = 10.0
    proved: tuple[float, ...] = (1.0, 2.0)

    def base(self) -> Experiment:
        """The experiment without privacy that all others vary."""
        return Experiment(
            model=self.model,
            rounds=self.rounds,
            local_steps=self.local_steps,
            batch=self.batch,
            step_size=self.step_sizes[0],
        )


UTILITY = {
    "logistic": Setting(
        model="logistic", rounds=20, local_steps=10, batch=488, step_sizes=(0.5, 1.0, 2.0, 4.0), clips=(1.0, 3.0)
    ),
    "network": Setting(
        model="network",
        rounds=50,
        local_steps=5,
        batch=488,
        step_sizes=(1.0, 2.0),
        clips=(3.0, 6.0),
        proved=(4.0,),
    ),
}


def utility(kind: Kind, shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """Ours and DP-SGD at ε = 10 by the published rule, without privacy, and ours at a proved ε."""
    setting = UTILITY[kind]
    if quick:
        setting = replace(setting, rounds=20, step_sizes=(1.0,), clips=(3.0,), proved=setting.proved[-1:])
    private = {"step_size": setting.step_sizes, "clip": setting.clips}
    base = setting.base()
    # Steps of size 4 without a clip leave the range that any figure could show.
    free_sizes = {"step_size": tuple(size for size in setting.step_sizes if size <= 2.0)}
    free = _tuned(shelf, grid(base, free_sizes))
    ours = _tuned(shelf, grid(base, private), "paper", setting.epsilon, PUBLISHED_DELTA)
    # One step a round on all rows: for one step no smaller batch is better by the printed formula.
    one_step = replace(base, local_steps=1, batch=2440)
    dp_sgd = _tuned(shelf, grid(one_step, private), "dp_sgd", setting.epsilon, PUBLISHED_DELTA)
    sampled = replace(base, sampling="poisson")
    proved = {
        f"{epsilon:g}": _tuned(shelf, grid(sampled, private), "proved", epsilon, PROVED_DELTA)
        for epsilon in setting.proved
    }
    without = free.accuracy
    best = proved[max(proved, key=float)]
    lines = {
        "without privacy (FedAvg)": free,
        f"ours, ε = {setting.epsilon:g} as published": ours,
        f"DP-SGD, ε = {setting.epsilon:g} as published": dp_sgd,
        f"ours, ε = {max(proved, key=float)} PROVED (δ = 1e-5)": best,
    }
    return {
        "ours": ours.told(),
        "dp_sgd": dp_sgd.told(),
        "non_private": free.told(),
        "centralised": {"test_accuracy": spread(last(shelf.curves(_central(free.chosen[0])), "test_accuracy"))},
        "each_alone": {"test_accuracy": spread([alone(one, n) for n, one in enumerate(free.chosen)])},
        "proved": {
            name: {**one.told(), "minus_non_private": paired(one.accuracy, without)} for name, one in proved.items()
        },
        "ours_minus_dp_sgd": paired(ours.accuracy, dp_sgd.accuracy),
        "ours_minus_non_private": paired(ours.accuracy, without),
        "panels": [
            panel(
                f"{'Logistic regression' if kind == 'logistic' else 'Network 64-32'}, {setting.rounds} rounds:"
                f" {setting.local_steps} local steps against one",
                "round",
                "test accuracy",
                [line(name, method.curves, "test_accuracy") for name, method in lines.items()],
            )
        ],
    }


@dataclass(frozen=True, kw_only=True)
class Method:
    """What was chosen for each repeat, what it reached, and what may be said of its privacy."""

    chosen: list[Experiment]
    curves: list[Curve]
    privacy: dict[str, Any] | None

    @property
    def accuracy(self) -> list[float]:
        """Test accuracy at the end of each repeat."""
        return last(self.curves, "test_accuracy")

    def told(self) -> dict[str, Any]:
        """The method for a results file."""
        return {
            "test_accuracy": spread(self.accuracy),
            "validation_loss": spread(last(self.curves, "validation_loss")),
            "chosen": [one.described() for one in self.chosen],
            "privacy": self.privacy,
        }


def _tuned(
    shelf: Shelf, candidates: Sequence[Experiment], rule: Rule | None = None, epsilon: float = 0.0, delta: float = 0.0
) -> Method:
    """The best candidate of each repeat, each with the least noise for the budget if a rule is given."""
    if rule is not None:
        candidates = [one.within(rule, epsilon=epsilon, delta=delta) for one in candidates]
    chosen, curves = tuned(shelf, candidates)
    return Method(chosen=chosen, curves=curves, privacy=chosen[0].privacy(rule, delta) if rule else None)


def _central(free: Experiment) -> Experiment:
    """All rows in one place: every device in every round, one step each, as many steps as the federated run makes."""
    return replace(free, cohort=16, local_steps=1, rounds=free.rounds * free.local_steps)


TRADEOFF = {
    "logistic": Setting(
        model="logistic", rounds=20, local_steps=2, batch=1220, step_sizes=(1.0, 2.0), clips=(1.0, 3.0)
    ),
    "network": Setting(model="network", rounds=50, local_steps=5, batch=488, step_sizes=(0.25, 1.0), clips=(3.0,)),
}
EPSILONS = {"logistic": (0.25, 0.5, 1.0, 2.0, 5.0, 10.0), "network": (0.5, 1.0, 2.0, 10.0)}
LINES: dict[str, Rule] = {
    "with secure sum, ε as published": "paper",
    "without, ε as published": "paper_without_secure_sum",
    "ε PROVED against everyone (Poisson)": "proved",
}


def tradeoff(kind: Kind, shelf: Shelf, *, quick: bool) -> dict[str, Any]:
    """Accuracy against ε at δ = 1e-4: with and without the secure sum as published, and as proved."""
    setting = TRADEOFF[kind]
    if quick:
        setting = replace(setting, rounds=20, step_sizes=setting.step_sizes[:1], clips=setting.clips[-1:])
    base, epsilons = setting.base(), EPSILONS[kind][::3] if quick else EPSILONS[kind]
    free = _tuned(shelf, grid(base, {"step_size": setting.step_sizes}))
    private = {"step_size": setting.step_sizes, "clip": setting.clips}
    found: dict[str, dict[str, Method]] = {}
    for name, rule in LINES.items():
        start = replace(base, sampling="poisson") if rule == "proved" else base
        found[name] = {
            f"{epsilon:g}": _tuned(shelf, grid(start, private), rule, epsilon, PUBLISHED_DELTA) for epsilon in epsilons
        }
    with_sum, without_sum, proved = (found[name] for name in LINES)
    over = [float(epsilon) for epsilon in with_sum]
    shown = [
        line(name, [{"epsilon": over, "test_accuracy": values} for values in _by_repeat(methods)], "test_accuracy",
             over="epsilon")
        for name, methods in found.items()
    ]  # fmt: skip
    flat = [{"epsilon": over, "test_accuracy": [value] * len(over)} for value in free.accuracy]
    return {
        "with_secure_sum": {epsilon: method.told() for epsilon, method in with_sum.items()},
        "without_secure_sum": {epsilon: method.told() for epsilon, method in without_sum.items()},
        "proved": {epsilon: method.told() for epsilon, method in proved.items()},
        "non_private": free.told(),
        "with_minus_without": {
            epsilon: paired(with_sum[epsilon].accuracy, without_sum[epsilon].accuracy) for epsilon in with_sum
        },
        "proved_minus_non_private": {epsilon: paired(proved[epsilon].accuracy, free.accuracy) for epsilon in proved},
        "panels": [
            panel(
                f"{'Logistic regression' if kind == 'logistic' else 'Network 64-32'}: accuracy against ε (δ = 1e-4)",
                "ε",
                "test accuracy",
                [*shown, line("without privacy", flat, "test_accuracy", over="epsilon")],
                log_x=True,
            )
        ],
    }


def _by_repeat(methods: dict[str, Method]) -> list[list[float]]:
    """For each repeat its accuracies over ε."""
    return [list(values) for values in zip(*(method.accuracy for method in methods.values()), strict=True)]
