"""Three hospitals ask how many, which range and how long patients live, then make a hazard model: all within ε = 2.

Run it as `python -m examples.survival.survival FOLDER`. Both studies are rehearsed, with keys, masks and every
message. Their ε, 0.5 and 1.5, add up to 2, and each includes a training that is reserved and not run here.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

import choral
from examples.survival.patients import write

DELTA = 1e-5
# Known without looking at a patient. Nobody knows the range of the blood values yet.
KNOWN: dict[str, dict[str, Any]] = {
    "age": {"bounds": [50, 105]},
    "sex": {"levels": ["F", "M"]},
    "mgus": {"levels": ["no", "yes"]},
    "days": {"bounds": [0, 5215]},
}
BLOOD = ["kappa", "lambda", "creatinine"]
SURVIVAL: dict[str, Any] = {"time": "days", "event": "died", "occurred": "dead", "until": 5000}


def study(folder: Path, name: str, *, epsilon: float, ask: dict[str, Any], **settings: Any) -> Any:  # noqa: ANN401
    """A study of the three hospitals in which nobody drops out, so that the noise of all three is in every sum."""
    return choral.rehearsal(
        str(folder / "hospital-*.csv"), out=folder / name, name=name, epsilon=epsilon, delta=DELTA, cohort=3, rounds=1,
        local_steps=1, batch=20, step_size=0.5, clip=1.0, sampling="partition", label="died", classes=["alive", "dead"],
        ask={"dropouts": False, **ask}, **settings,
    )  # fmt: skip


def explored(folder: Path, **settings: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401 - for tests, a seed
    """The columns of the second study: what is known, and the private bounds of the blood values."""
    allowed = [*KNOWN, *BLOOD, "died"]
    first = study(
        folder, "first", epsilon=0.5, ask={"epsilon": 0.45, "most": 3, "columns": allowed}, columns=KNOWN, ignore=BLOOD,
        **settings,
    )  # fmt: skip
    old = first.ask.count(where="age>=80").rows[0]
    print(f"patients of 80 years or more: {old['estimate']:,.0f} (95 %: {old['low']:,.0f} to {old['high']:,.0f})")
    for row in first.ask.table(columns=["mgus"], by=["sex"]).rows:
        print(f"  mgus {row['mgus']}, {row['sex']}: {row['estimate']:,.0f} ({row['low']:,.0f} to {row['high']:,.0f})")
    found = first.ask.bounds(columns=BLOOD)
    print(found.answer.block)
    bounds: dict[str, dict[str, Any]] = tomllib.loads(found.answer.block)["data"]["columns"]
    bounds["creatinine"]["missing"] = 1.0  # a usual one, for patients in whom it was not measured
    return KNOWN | bounds


def main(folder: Path, **settings: Any) -> tuple[Any, Any]:  # noqa: ANN401 - for tests, a seed
    """The survival curves of women and men, and the model."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder, 3)
    columns = explored(folder, **settings)
    second = study(folder, "second", epsilon=1.5, ask={"epsilon": 1.4, "most": 13}, columns=columns, **settings)
    curve = second.ask.km(**SURVIVAL, by=["sex"], bins=10)
    curve.plot(folder / "survival.svg")
    for row in curve.rows[9::10]:
        ends = f"95 %: {row['low']:.3f} to {row['high']:.3f}"
        print(f"alive after {row['time']:,.0f} days, {row['sex']}: {row['estimate']:.3f} ({ends})")
    assert curve.test is not None
    print(f"log-rank: statistic {curve.test['statistic']:.1f}, p = {curve.test['p']:.2g}")
    model = second.ask.hazard(**SURVIVAL, columns=["age", "sex", *BLOOD], bins=10)
    for row in model.rows:
        effect = f"{row['estimate']:.2f} (noise {row['noise_sd']:.2f})"
        print(f"log hazard ratio of half the range of {row['column']}: {effect}")
    print(f"c-index on patients that the model was not made from: {model.figures['c_index']:.3f}")
    for name, privacy in (("curve", curve.privacy), ("model", model.privacy)):
        print(
            f"{name}: ε ≤ {privacy.epsilon:.3f} against {privacy.adversary}, ε ≤ {privacy.epsilon_sum:.3f} against "
            f"{privacy.adversary_sum} (rule {privacy.rule}, δ = {privacy.delta:g}, {privacy.adjacency})"
        )
    return curve, model


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "survival-study"))
