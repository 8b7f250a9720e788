"""A fleet of 500 machines learns to predict failures. Each machine as a whole is hidden, with all of its rows."""

import numpy as np

import choral

MACHINES, EACH = 500, 40


def main() -> dict[str, object]:
    """The model's accuracy after each round."""
    rng = np.random.default_rng(5)
    sensors = rng.uniform(-1, 1, size=(MACHINES * EACH, 4)).astype(np.float32)
    failed = (sensors @ [2.0, -1.0, 1.0, 0.5] + rng.normal(0, 0.3, len(sensors)) > 0).astype(int)
    result = choral.simulate(
        (sensors, failed),
        devices=MACHINES,
        cohort=100,
        rounds=15,
        local_steps=5,
        batch=20,
        step_size=1.0,
        clip=0.5,
        unit="device",
        epsilon=6.0,
        delta=1e-5,
        seed=1,
    )
    claim = result.privacy.against_everyone
    return {
        "title": "Failures in a fleet of 500 machines",
        "x": "round",
        "y": "test accuracy",
        "lines": {"all machines together": [(row.round, row.test["accuracy"]) for row in result.history]},
        "anchors": {"a coin": 0.5},
        "claim": f"ε ≤ {claim.epsilon:.2f}: rule {claim.rule}, δ = 1e-5, {result.privacy.adjacency}, "
        f"against {claim.adversary}",
    }


if __name__ == "__main__":
    print(main())
