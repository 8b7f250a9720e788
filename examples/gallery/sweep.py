"""A researcher asks what privacy costs: the same training at four values of ε."""

import numpy as np

import choral

EPSILONS = (0.1, 0.3, 1.0, 3.0)


def main() -> dict[str, object]:
    """Test accuracy against ε, and without noise."""
    rng = np.random.default_rng(7)
    rows = rng.uniform(-1, 1, size=(6000, 6)).astype(np.float32)
    labels = (rows @ [2, -1, 1, 0, 0.5, 0] + rng.normal(0, 0.4, 6000) > 0).astype(int)
    settings = {
        "devices": 10,
        "cohort": 10,
        "rounds": 10,
        "local_steps": 5,
        "batch": 96,
        "step_size": 1.0,
        "clip": 1.0,
        "delta": 1e-5,
    }
    runs = {epsilon: choral.simulate((rows, labels), epsilon=epsilon, seed=1, **settings) for epsilon in EPSILONS}
    free = choral.simulate((rows, labels), noise=0.0, seed=1, **settings)
    privacy = runs[EPSILONS[0]].privacy
    said = privacy.against_everyone
    return {
        "title": "What privacy costs",
        "x": "proved ε",
        "y": "test accuracy",
        "log_x": True,
        "lines": {"one training for each ε": [(epsilon, run.test["accuracy"]) for epsilon, run in runs.items()]},
        "anchors": {"without noise": free.test["accuracy"]},
        "claim": f"ε by rule {said.rule}, δ = 1e-5, {privacy.adjacency}, against {said.adversary}",
    }


if __name__ == "__main__":
    print(main())
