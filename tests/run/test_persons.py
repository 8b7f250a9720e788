"""Persons as units end to end: a table with five visits per patient, and every place that names what is protected."""

import json
import re

import numpy as np
import pandas
import pytest

from choral import config
from choral.accounting.ledger_statement import adjacency_of_all, statement_of
from choral.cli import main
from choral.core.balance import Balance
from choral.core.entries import Charge, Reservation
from choral.core.errors import ChoralError
from choral.core.events import Gaussian
from choral.core.exposure import MIXED_ADJACENCY
from choral.core.ledger import Ledger
from choral.deploy.approving import approve
from choral.deploy.home import Policy
from choral.record import read_run
from choral.report.verify import verify
from choral.run.planning import settle
from choral.run.runs import Run
from tests.run.consortium import JOB, Consortium

PERSON = "one person replaced (all of at most 5 rows)"


def visits(patients: int = 240, seed: int = 0) -> pandas.DataFrame:
    """Four clinics whose patients come five times each."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), 5)
    severity = np.repeat(rng.uniform(-1, 1, patients), 5)
    pulse = np.clip(severity + rng.normal(0, 0.2, len(patient)), -1, 1)
    table = {
        "clinic": [f"clinic {number % 4}" for number in patient],
        "patient_id": patient,
        "pulse": pulse,
        "age": np.repeat(rng.uniform(-1, 1, patients), 5),
        "ill": np.where(pulse + rng.normal(0, 0.3, len(patient)) > 0, "yes", "no"),
    }
    return pandas.DataFrame(table).sample(frac=1, random_state=seed)


SETTINGS = {
    "label": "ill", "classes": ["no", "yes"], "device_column": "clinic", "cohort": 4, "rounds": 2, "local_steps": 2,
    "step_size": 0.5, "clip": 1.0, "epsilon": 2.0, "delta": 1e-4,
    "columns": {name: {"bounds": [-1, 1]} for name in ("pulse", "age")},
}  # fmt: skip
PERSONS = {"unit": "person", "person": "patient_id", "rows_per_person": 5}
ONCE = {"noise_is_added": "once", "local_steps": None, "step_size": None, "clip": None}


def study(**changes):
    return settle(config.job_of(**SETTINGS | PERSONS | changes), visits())


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({"batch": 12}, "S5"),
        (ONCE, "S7"),
        pytest.param({"local_steps": 1, "law": "discrete_gaussian", "batch": 12}, "S6", marks=pytest.mark.long),
    ],
    ids=["every step", "once", "whole noise"],
)
def test_a_simulation_and_a_rehearsal_of_persons_have_the_same_integers(how, rule):
    settled = study(seed=3, **how)
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    privacy = [run.finish().privacy for run in runs]
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert np.abs(runs[0].parameters).max() > 0
    assert privacy[0].adjacency == PERSON and privacy[0].several is None
    assert (privacy[0].against_everyone.rule, privacy[0].against_everyone.epsilon <= 2.0) == (rule, True)
    assert settled.plan.rows == 48 and settled.rows.tolist() == [48] * 4  # of 60 patients each, not of 300 visits


def run_of(folder, kind, **settings):
    """A run of this kind by a choral.toml, in a folder of its own."""
    visits().to_csv(folder / "visits.csv", index=False)
    (folder / "choral.toml").write_text(config.job_of(**SETTINGS | settings, csv="visits.csv").text)
    assert main(["plan", str(folder / "choral.toml")]) == 0
    assert main([kind, str(folder / "choral.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_every_place_that_names_what_is_protected_says_person(tmp_path, capsys):
    folder = run_of(tmp_path, "rehearse", **PERSONS | ONCE)
    reported = capsys.readouterr().out
    assert "192 persons to train on" in reported and "one record replaced" not in reported and PERSON in reported
    record = read_run(folder)
    assert record.about.plan.to_dict()["rows_per_person"] == 5
    assert record.finished.privacy.adjacency == PERSON == record.about.planned.adjacency
    spent = statement_of(Ledger.read(next((folder / "ledgers").iterdir()))).spent
    assert spent.adjacency == PERSON
    page = re.sub(r"\s+", " ", (folder / "report.html").read_text())
    assert PERSON in page and "one record replaced" not in page and "192 persons" in page
    assert PERSON in (folder / "privacy.yaml").read_text()
    assert verify(folder).good


def test_a_report_on_records_says_what_five_rows_of_one_person_cost(tmp_path, capsys):
    folder = run_of(tmp_path, "simulate", **ONCE, ignore=["patient_id"])
    several = read_run(folder).finished.privacy.several
    assert several.rows == 5 and 2.0 < several.at_two_sites < several.epsilon
    assert "Rows are counted, not persons" in (folder / "report.html").read_text()
    assert verify(folder).good
    result = json.loads((folder / "result.json").read_text())
    result["privacy"]["several"]["epsilon"] /= 2
    (folder / "result.json").write_text(json.dumps(result))
    assert not verify(folder).good
    numbers = (
        "--rounds 2 --local-steps 1 --cohort 4 --devices 4 --rows 240 --batch 240 --noise 0.02 --clip 1 --delta 1e-5"
    )
    assert main(["account", *numbers.split(), "--together", "7"]) == 0
    assert "7 rows of one person replaced" in capsys.readouterr().out


def test_persons_are_dealt_whole_where_one_table_is_shared_out():
    table = visits().drop(columns="clinic")
    job = config.job_of(**SETTINGS | PERSONS | {"device_column": None, "devices": 3, "cohort": 3, "batch": 12}, seed=1)
    data = settle(job, table).data
    owners = [
        set(data.persons[start:end]) for start, end in zip(data.records.offsets, data.records.offsets[1:], strict=False)
    ]
    assert sum(map(len, owners)) == 240 == len(set.union(*owners))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"person": None}, "CH103"),
        ({"rows_per_person": None}, "CH103"),
        ({"unit": "record"}, "CH104"),
        ({"person": "name"}, "CH302"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_charged(changes, code):
    with pytest.raises(ChoralError, match=code):
        study(**changes)


def test_a_row_without_a_person_is_refused():
    table = visits().astype({"patient_id": object})
    table.iloc[3, 1] = None
    with pytest.raises(ChoralError, match="CH301"):
        settle(config.job_of(**SETTINGS | PERSONS), table)


def test_a_ledger_of_several_units_claims_what_all_of_them_cover():
    charge = Charge(rule="S7", plan="a", round=1, event=Gaussian(mu=0.1), adjacency=PERSON)
    assert Charge.from_dict(charge.to_dict()) == charge
    reserved = Reservation(rule="S7", plan="a", uploads=(Gaussian(mu=0.1),), adjacency=PERSON)
    assert Reservation.from_dict(reserved.to_dict()) == reserved
    balance = Balance(device="site-a", limit=study().limits[0])
    balance.take(charge)
    assert adjacency_of_all(balance) == PERSON
    balance.take(Charge(rule="S5", plan="b", round=1, event=Gaussian(mu=0.1)))
    assert adjacency_of_all(balance) == MIXED_ADJACENCY


def test_a_site_trains_on_the_persons_of_its_table_and_sees_that_in_what_it_approves(tmp_path):
    job = JOB.replace("[privacy]", '[privacy]\nunit = "person"').replace(
        "[data]", '[data]\nperson = "name"\nrows_per_person = 2', 1
    )
    sites = Consortium(tmp_path, job=job)
    rows = sites.tables["hill"].read_text().splitlines()
    name = rows[1].split(",")[1]
    sites.tables["hill"].write_text("\n".join([*rows[:3], rows[3].replace(rows[3].split(",")[1], name), *rows[4:]]))
    study, policy = sites.study / "study.toml", Policy(epsilon=4.0, delta=1e-4)
    reported = approve(sites.homes["hill"], study, policy, sites.tables["hill"], record=True)
    assert (reported.rows, reported.unit, reported.adjacency) == (
        79,
        "person",
        "one person replaced (all of at most 2 rows)",
    )
    reserved = Ledger.read(sites.homes["hill"].ledger_path).entries[-1]
    assert reserved["adjacency"] == reported.adjacency
    changed = study.read_text().replace('unit = "person"', 'unit = "record"').replace("rows_per_person = 2", "")
    (tmp_path / "changed.toml").write_text(changed)
    with pytest.raises(ChoralError, match=r"CH10|CH204"):
        approve(sites.homes["lake"], tmp_path / "changed.toml", policy, sites.tables["lake"])
