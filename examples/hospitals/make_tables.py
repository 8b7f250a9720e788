"""Write the tables of the three made-up hospitals, and a public one for the coordinator; the same every time.

    python make_tables.py [FOLDER]

No row is of a real person: ages, pressures and the rest are drawn by a seeded generator, and the outcome follows from
them by a formula with some chance in it.
"""

import csv
import sys
from pathlib import Path

import numpy as np

COLUMNS = ("age", "systolic", "cholesterol", "smoker", "ward", "readmitted")
WARDS = ("cardiology", "surgery", "other")
# Name -> rows, mean age, seed. Each hospital has its own kind of patients, and its own order of columns.
TABLES = {"hospital-a": (1200, 71, 1), "hospital-b": (900, 58, 2), "hospital-c": (1500, 63, 3), "public": (600, 64, 4)}


def rows(count: int, mean_age: float, seed: int) -> list[dict[str, object]]:
    """So many made-up patients."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(mean_age, 12, count), 18, 99).round()
    systolic = np.clip(rng.normal(118 + 0.25 * (age - 50), 15, count), 80, 230).round()
    cholesterol = np.clip(rng.normal(5.2, 1.0, count), 2, 12).round(1)
    smoker, ward = rng.random(count) < 0.3, rng.integers(0, len(WARDS), count)
    risk = 0.06 * (age - 65) + 0.03 * (systolic - 122) + 0.5 * (cholesterol - 5.2) + 1.1 * smoker - 0.35
    readmitted = rng.random(count) < 1 / (1 + np.exp(-2 * risk))
    return [
        {
            "age": int(age[i]),
            "systolic": int(systolic[i]),
            "cholesterol": float(cholesterol[i]),
            "smoker": "yes" if smoker[i] else "no",
            "ward": WARDS[ward[i]],
            "readmitted": "yes" if readmitted[i] else "no",
        }
        for i in range(count)
    ]


def main(folder: Path) -> None:
    """Write one CSV for each."""
    for number, (name, shape) in enumerate(TABLES.items()):
        order = COLUMNS[number:] + COLUMNS[:number]
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, order, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows(*shape))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
