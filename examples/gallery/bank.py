"""Five banks learn which card payments are fraud. No payment leaves its bank; one bank has agreed to a smaller ε."""

import numpy as np
import pandas

import choral

BANKS = ("Alder", "Birch", "Cedar", "Doum", "Elm")


def payments(rows: int = 6000) -> pandas.DataFrame:
    """Made-up payments: fraud is more common at night, abroad and for large amounts."""
    rng = np.random.default_rng(3)
    frame = pandas.DataFrame({
        "bank": rng.choice(BANKS, rows),
        "hour": rng.integers(0, 24, rows),
        "amount": np.clip(rng.lognormal(4, 1, rows), 1, 5000).round(2),
        "abroad": rng.choice(["no", "yes"], rows, p=[0.8, 0.2]),
    })  # fmt: skip
    night = (frame.hour < 6).astype(float)
    risk = 0.8 * night + 0.8 * (frame.abroad == "yes") + 2 * np.log10(frame.amount) - 4.6
    frame["fraud"] = np.where(risk + rng.normal(0, 0.6, rows) > 0, "yes", "no")
    return frame


def main() -> dict[str, object]:
    """The model's accuracy after each round, and what each bank has spent."""
    table = payments()
    result = choral.simulate(
        table,
        label="fraud",
        classes=["no", "yes"],
        device_column="bank",
        columns={
            "hour": {"bounds": [0, 23]},
            "amount": {"bounds": [1, 5000], "scale": "log"},
            "abroad": {"levels": ["no", "yes"]},
        },
        epsilon=2.0,
        delta=1e-5,
        limits={"Elm": 1.0},
        rounds=8,
        seed=1,
    )
    claim = result.privacy.against_everyone
    return {
        "title": "Fraud at five banks",
        "x": "round",
        "y": "test accuracy",
        "lines": {"all banks together": [(row.round, row.test["accuracy"]) for row in result.history]},
        "anchors": {"always no": float((table.fraud == "no").mean())},
        "claim": f"ε ≤ {claim.epsilon:.2f}: rule {claim.rule}, δ = 1e-5, {result.privacy.adjacency}, "
        f"against {claim.adversary}",
        "spent": {one.name: round(one.epsilon, 2) for one in result.privacy.devices},
    }


if __name__ == "__main__":
    print(main())
