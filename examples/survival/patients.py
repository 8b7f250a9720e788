"""Patients whose lives were followed, from a package that ships them: the file is read, and none of its code is run."""

import csv
import importlib.util
import itertools
from pathlib import Path

from choral.core.errors import ConfigError

PACKAGE, FILE = "sksurv", "datasets/data/flchain.arff"
NAMES = ["age", "sex", "kappa", "lambda", "creatinine", "mgus", "days", "died"]
_AS_IN_FILE = {"days": "futime", "died": "death"}


def patients() -> list[dict[str, str]]:
    """7,871 residents of one county: age, sex, free light chains, creatinine, days until death or the last visit.

    Left out are three who died on the day of their first visit. A creatinine that was not measured is empty.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            "CH106", "the patients of this example are in scikit-survival.", fix='pip install "choral[survival]"'
        )
    lines = (Path(found.submodule_search_locations[0]) / FILE).read_text().splitlines()
    header = [line.split()[1] for line in lines if line.startswith("@attribute")]
    body = itertools.dropwhile(lambda line: line != "@data", lines)
    rows = [dict(zip(header, cells, strict=True)) for cells in csv.reader(itertools.islice(body, 1, None)) if cells]
    kept = [{name: row[_AS_IN_FILE.get(name, name)].replace("?", "") for name in NAMES} for row in rows]
    return [row for row in kept if float(row["days"]) > 0]


def write(folder: Path, sites: int) -> list[Path]:
    """One table per site, with every `sites`-th patient."""
    rows, paths = patients(), []
    for site in range(sites):
        paths.append(folder / f"hospital-{site + 1}.csv")
        with paths[-1].open("w", newline="") as file:
            writer = csv.DictWriter(file, NAMES)
            writer.writeheader()
            writer.writerows(rows[site::sites])
    return paths
