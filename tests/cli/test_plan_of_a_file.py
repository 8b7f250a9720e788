"""`choral plan choral.toml`: the plan that `choral simulate` of the file would follow."""

import json

import numpy as np
import pytest

from choral import cli
from choral.core.plan import Plan

GIVEN = """
[federation]
devices = 4
cohort = 3
rounds = 2
[local]
steps = 2
batch = 20
step_size = 0.5
clip = 1.0
"""
OPEN = "[federation]\ndevices = 4\n"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(400, 3))
    lines = (",".join(f"{cell:.3f}" for cell in row) + f",{int(row[0] > 0)}" for row in rows)
    (tmp_path / "rows.csv").write_text("a,b,c,label\n" + "\n".join(lines) + "\n")

    def write(numbers, privacy="epsilon = 8.0\ndelta = 1e-4"):
        (tmp_path / "choral.toml").write_text(f'[data]\ncsv = "rows.csv"\n[privacy]\n{privacy}\n{numbers}')
        return "choral.toml"

    return write


def answer(capsys, *words):
    assert cli.main([*words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("numbers", [GIVEN, OPEN])
def test_the_plan_of_a_file_is_the_one_that_a_simulation_of_it_follows(file, capsys, numbers):
    path = file(numbers)
    reported = json.loads(answer(capsys, "plan", path, "--json"))
    run = json.loads(answer(capsys, "simulate", path, "--json"))
    digest = reported["plan"].pop("digest")
    assert reported["plan"] == run["plan"]
    assert digest == Plan.from_dict(run["plan"]).digest == json.loads(_about(run))["plan_digest"]
    proposed = ["cohort", "rounds", "batch", "local_steps", "step_size", "clip"]
    assert reported["proposed"] == ([] if numbers is GIVEN else proposed)
    assert reported["rows"] == {"least": 80, "most": 80, "all": 320}  # 400 rows on 4 devices, a fifth held out


def _about(run):
    with open(f"{run['folder']}/run.json") as about:
        return about.read()


def test_the_page_of_a_file_names_every_term_of_its_epsilon_and_writes_nothing(file, capsys, tmp_path):
    path = file(GIVEN)
    before = sorted(tmp_path.rglob("*"))
    text = " ".join(answer(capsys, "plan", path).split())
    assert "2 rounds · 3 of 4 devices per round" in text
    assert "(rule S5, δ = 0.0001, one record replaced)" in text
    assert "NEXT choral simulate choral.toml" in text
    assert json.loads(answer(capsys, "plan", path, "--json"))["plan"]["digest"] in text
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_without_noise_claims_no_epsilon(file, capsys):
    path = file(GIVEN, privacy="noise = 0.0")
    assert json.loads(answer(capsys, "plan", path, "--json"))["privacy"] is None
    assert "PROVED" not in answer(capsys, "plan", path)


def test_a_file_without_noise_and_with_a_tiny_delta_still_gets_its_numbers_proposed(file, capsys):
    reported = json.loads(answer(capsys, "plan", file(OPEN, privacy="noise = 0.0\ndelta = 1e-9"), "--json"))
    assert reported["plan"]["rounds"] > 0


@pytest.mark.parametrize(
    ("words", "what"),
    [(["--rounds", "3"], "--rounds is not used with a file"), (["--epsilon", "3"], "--epsilon is not used with")],
)
def test_flags_together_with_a_file_are_refused(file, capsys, words, what):
    assert cli.main(["plan", file(GIVEN), *words]) == 2
    assert what in capsys.readouterr().err


def test_without_a_file_the_flags_that_are_missing_are_named(capsys):
    assert cli.main(["plan", "--epsilon", "1", "--rows", "9"]) == 2
    assert "CH101 choral plan the following arguments are required: --devices, --features." in capsys.readouterr().err


@pytest.mark.parametrize(("numbers", "said"), [("devices = 10\ncohort = 10", "not proposed"), (
    "devices = 10\ncohort = 10\nrounds = 4\n[local]\nsteps = 3\nbatch = 8\nstep_size = 0.5\nclip = 1.0", "proposed: "),
    ("devices = 4", None), ("devices = 10\ncohort = 10\nrobust = true", None)])  # fmt: skip
def test_probes_are_weighed_against_the_figure_of_the_secure_sum(file, capsys, numbers, said):
    """Noise once has such a figure, and noise in several steps has none; small cohorts are proposed nothing."""
    path = file(f"[federation]\n{numbers}\n")
    reported = json.loads(answer(capsys, "plan", path, "--json"))["robust"]
    shown = answer(capsys, "plan", path)
    assert (reported is None) == (said is None) == ("ROBUST" not in shown)
    assert said is None or reported.startswith(said)
