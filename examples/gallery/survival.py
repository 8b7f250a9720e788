"""Four clinics compare how long patients stay well with two treatments. Nothing is trained: one question is asked."""

import numpy as np
import pandas

import choral


def patients(rows: int = 8000) -> pandas.DataFrame:
    """Made-up patients: the new treatment keeps them well for longer."""
    rng = np.random.default_rng(11)
    arm = rng.choice(["new", "usual"], rows)
    relapse = rng.exponential(np.where(arm == "new", 900, 500))
    watched = rng.uniform(200, 1000, rows)
    return pandas.DataFrame({
        "arm": arm,
        "days": np.minimum(relapse, watched).round(),
        "relapsed": np.where(relapse <= watched, "yes", "no"),
    })  # fmt: skip


def main() -> dict[str, object]:
    """The share of patients who are still well, by treatment and day."""
    study = choral.rehearsal(
        patients(),
        devices=4,
        label="relapsed",
        classes=["no", "yes"],
        columns={"arm": {"levels": ["new", "usual"]}, "days": {"bounds": [0, 1000]}},
        epsilon=2.0,
        delta=1e-5,
        ask={"epsilon": 1.0, "most": 1, "names": ["km"]},
        seed=1,
    )
    answer = study.ask.km(time="days", event="relapsed", occurred="yes", by=["arm"], until=600, bins=12)
    said = answer.privacy
    return {
        "title": "Still well, by treatment",
        "x": "days",
        "y": "share of patients",
        "lines": {
            arm: [(row["time"], row["estimate"]) for row in answer.rows if row["arm"] == arm]
            for arm in ("new", "usual")
        },
        "anchors": {},
        "claim": f"ε ≤ {said.epsilon:.2f}: rule {said.rule}, δ = 1e-5, {said.adjacency}, "
        "against the server and all other devices together",
    }


if __name__ == "__main__":
    print(main())
