"""Accuracy at equal proved ε, compared with Opacus on every device: `python -m bench.accuracy [--quick] [--json]`.

Both sides have the same rows, split, start, cohorts, steps, step size and clip, on Poisson batches of the same mean
size, and five seeds. The baseline is Opacus inside each device, averaged after every round. It is trained twice:
- `same_guarantee`: with the noise for which ε is proved for one record REPLACED (Rule S5), as choral's is;
- `own_accountant`: with the noise that Opacus's accountant finds for the same ε and one record ADDED OR REMOVED: the
  weaker promise, which needs less noise.
The device that takes part most often sets the noise, for both. The second data set is made here, from a fixed seed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.setup import ROOT, python_of

DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Task:
    """One data set and model, with the settings that both sides share."""

    data: str
    epsilon: float
    hidden: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


LOGISTIC = {"rounds": 20, "local_steps": 10, "batch": 244, "step_size": 4.0, "clip": 1.0}
NETWORK = {"rounds": 50, "local_steps": 5, "batch": 244, "step_size": 1.0, "clip": 3.0}
TASKS = {
    "adult_logistic_1": Task(data="adult", epsilon=1.0, settings=LOGISTIC),
    "adult_logistic_4": Task(data="adult", epsilon=4.0, settings=LOGISTIC),
    "adult_mlp_4": Task(data="adult", epsilon=4.0, hidden=(64, 32), settings=NETWORK),
    "clusters_mlp_4": Task(data="clusters", epsilon=4.0, hidden=(64, 32), settings=NETWORK),
}


def clusters(rows: int = 40_000) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Four classes of three Gaussian clusters each, in ten of twenty directions, 5 % of the labels drawn again.

    >>> features, labels = clusters(1000)
    >>> features.shape, sorted(set(labels.tolist()))
    ((1000, 20), [0, 1, 2, 3])
    """
    rng = np.random.default_rng(20)
    centres = rng.normal(0, 0.45, size=(12, 10))
    which = rng.integers(0, 12, rows)
    features = rng.normal(0, 0.3, size=(rows, 20))
    features[:, :10] += centres[which]
    labels = np.where(rng.random(rows) < 0.05, rng.integers(0, 4, rows), which % 4)
    return np.clip(features, -1, 1).astype(np.float32), labels


def ours(task: Task, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One run of choral: what came out, and all that a peer needs to do the same."""
    from choral.accounting.proofs import rounds_each
    from choral.config import job_of
    from choral.run.planning import settle
    from choral.run.runs import Run

    model: dict[str, Any] = {"model": "mlp", "hidden": list(task.hidden)} if task.hidden else {"model": "logistic"}
    given = {
        "devices": 16,
        "cohort": 10,
        "epsilon": task.epsilon,
        "delta": DELTA,
        "seed": seed,
        **task.settings,
        **model,
    }
    given |= {"builtin": "adult"} if task.data == "adult" else {}
    study = settle(job_of(**given), None if task.data == "adult" else clusters())
    result = Run("simulation", study).finish()
    claim = result.privacy.against_everyone
    reported = {"accuracy": result.test["accuracy"], "epsilon": claim.epsilon, "rule": claim.rule,
            "adjacency": result.privacy.adjacency, "adversary": claim.adversary}  # fmt: skip
    plan, train, test = study.plan, study.split.train, study.split.test
    shared = {
        "arrays": {"features": train.features, "labels": train.labels, "offsets": train.offsets,
                   "test_features": test.features, "test_labels": test.labels, "start": study.model.start(0)},
        "layers": list(study.model.widths),
        "cohorts": [line.included for line in result.history],
        "steps": plan.local_steps, "batch": plan.batch, "rate": plan.batch / plan.rows,
        "step_size": plan.step_size, "clip": plan.clip, "most_rounds": rounds_each(plan), "seed": seed,
        "noise_multiplier": plan.noise * plan.batch / plan.clip, "epsilon": task.epsilon, "delta": DELTA,
    }  # fmt: skip
    return reported, shared


def theirs(shared: dict[str, Any], *, own_accountant: bool) -> dict[str, Any]:
    """The same with Opacus inside every device."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", **shared["arrays"])
        asked = {name: value for name, value in shared.items() if name != "arrays"} | {"file": f"{folder}/data.npz"}
        asked |= {"noise_multiplier": None} if own_accountant else {}
        done = subprocess.run(
            [python_of("opacus"), "-m", "bench.peers.opacus_federation"],
            cwd=ROOT / "lab", input=json.dumps(asked), capture_output=True, text=True, check=True,
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(values: list[float]) -> dict[str, float]:
    """Mean, least and most of the seeds.

    >>> summary([0.5, 0.25, 0.75])
    {'mean': 0.5, 'least': 0.25, 'most': 0.75}
    """
    chosen = (statistics.fmean(values), min(values), max(values))
    return dict(zip(("mean", "least", "most"), (round(value, 4) for value in chosen), strict=True))


def compare(task: Task, seeds: int) -> dict[str, Any]:
    """One task over all seeds; differences are ours minus theirs, seed by seed."""
    runs = [ours(task, seed) for seed in range(1, seeds + 1)]
    first = runs[0][0]
    found: dict[str, Any] = {
        "data": task.data, "model": f"mlp {list(task.hidden)}" if task.hidden else "logistic", **task.settings,
        "epsilon": max(reported["epsilon"] for reported, _ in runs), "delta": DELTA, "seeds": seeds,
        **{name: first[name] for name in ("rule", "adjacency", "adversary")},
        "choral": summary([reported["accuracy"] for reported, _ in runs]),
    }  # fmt: skip
    for name in ("same_guarantee", "own_accountant"):
        if not python_of("opacus").exists():
            found[f"opacus_{name}"] = {"mean": None, "reason": "opacus is not installed here; see make bench-setup"}
            continue
        peers = [theirs(shared, own_accountant=name == "own_accountant") for _, shared in runs]
        gaps = [reported["accuracy"] - peer["accuracy"] for (reported, _), peer in zip(runs, peers, strict=True)]
        found[f"opacus_{name}"] = summary([peer["accuracy"] for peer in peers]) | {
            "difference": summary(gaps),
            "noise_multiplier": round(peers[0]["noise_multiplier"], 4),
            "epsilon_add_or_remove": round(max(peer["epsilon_add_or_remove"] for peer in peers), 4),
        }
    found["noise_multiplier"] = round(runs[0][1]["noise_multiplier"], 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed of logistic regression on Adult")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", nargs="*", choices=list(TASKS), help="these tasks only")
    args = parser.parse_args()
    names = args.only or (["adult_logistic_1"] if args.quick else list(TASKS))
    found = {}
    for name in names:
        found[name] = compare(TASKS[name], 1 if args.quick else 5)
        print(f"{name}: {json.dumps(found[name])}", file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps(found))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    main()
