"""A head on a frozen public encoder, next to networks that are trained whole at the same ε: `python -m bench.heads`.

The encoder and the rows are those of examples/gallery/images.py: public images carry no labels, and none of them is
among the sites' images. Each method sees the same sites and the same test rows for a seed. The whole network is the
better of two sizes, chosen on these very figures, so the comparison favours it. Logistic regression on the pixels is
shown as well. Run by itself it needs the repository's root on its path: `PYTHONPATH=.. python -m bench.heads`.
"""

import argparse
import json
from statistics import mean, stdev

import choral
from examples.gallery import images

ADVERSARIES = ("everyone", "server and colluders")
SEEDS, QUICK = 5, 2
WHOLE = {"network of 32": {"model": "mlp", "hidden": [32]}, "network of 8": {"model": "mlp", "hidden": [8]}}


def accuracies(against: str, seeds: int) -> dict[str, list[float]]:
    """The test accuracy of each method for each seed, at ε = 1 against this adversary."""
    _, rows, labels = images.images()
    budget = {**images.BUDGET, "against": against}
    found = {"head": [images.head(seed, against=against).test["accuracy"] for seed in range(1, seeds + 1)]}
    for name, settings in {**WHOLE, "logistic on pixels": {"model": "logistic"}}.items():
        runs = (choral.simulate((rows, labels), **budget, **settings, seed=seed) for seed in range(1, seeds + 1))
        found[name] = [run.test["accuracy"] for run in runs]
    return found


def head_minus_whole_points(found: dict[str, list[float]]) -> float:
    """How many points the head's mean accuracy is above that of the better whole network."""
    return 100 * (mean(found["head"]) - max(mean(found[name]) for name in WHOLE))


def measured(*, quick: bool) -> dict[str, object]:
    """Every method against each adversary, and the distance that the head gains."""
    declared: dict[str, object] = {}
    for against in ADVERSARIES:
        found = accuracies(against, QUICK if quick else SEEDS)
        declared[against] = {
            "epsilon": images.BUDGET["epsilon"],
            "accuracy": {name: round(mean(values), 4) for name, values in found.items()},
            "deviation": {name: round(stdev(values), 4) for name, values in found.items()},
            "head_minus_whole_points": round(head_minus_whole_points(found), 2),
        }
    return declared


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} seeds in place of {SEEDS}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    declared = measured(quick=args.quick)
    print(json.dumps(declared) if args.json else json.dumps(declared, indent=1))


if __name__ == "__main__":
    main()
