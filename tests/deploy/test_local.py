"""A deployment on one machine: real Flower, real processes, and nothing left behind."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from choral.backends.flower.node import LET_IN
from choral.cli import main
from choral.core.errors import ConfigError, DeploymentError, TableError
from choral.deploy import local, services
from choral.deploy.status import status
from tests.backends.wrong_clock import wrong_clock
from tests.run import consortium

ROOT = Path(__file__).parents[2]
HERE = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def start(*words):
    # Who starts tests in the background may have the keyboard's signal ignored, and children inherit that.
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "from choral.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "deploy", *words]
    return subprocess.Popen(command, env=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def pids_of(words):
    """The processes whose command holds these words."""
    return [pid for pid, command in commands() if words in command]


def processes_under(folder):
    """The commands of other processes that name a folder in their words."""
    return [command for pid, command in commands() if str(folder) in command and pid != os.getpid()]


def commands():
    """Every process and its words."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        yield int(path.parent.name), words


def gone(folder, seconds=20):
    end = time.monotonic() + seconds
    while (left := processes_under(folder)) and time.monotonic() < end:
        time.sleep(0.2)
    return not left


@pytest.fixture
def job(tmp_path):
    """A choral.toml with a file for each of three sites."""
    (tmp_path / "sites").mkdir()
    for seed, name in enumerate(consortium.NAMES):
        consortium.table(tmp_path / "sites" / f"{name}.csv", seed=seed)
    text = consortium.JOB.replace('label = "sick"', 'csv = "sites/*.csv"\nlabel = "sick"')
    (tmp_path / "choral.toml").write_text(text)
    return tmp_path / "choral.toml"


WARD = """
import jax, jax.numpy as jnp, choral
def build(features, classes):
    loss = lambda weights, row, label: -jax.nn.log_softmax(row @ weights)[label]
    start = lambda seed: jnp.zeros((features, classes))
    return choral.model(start, loss, lambda weights, rows: rows @ weights, features=features, classes=classes)
"""


@pytest.mark.long
def test_a_model_of_somebodys_own_is_tried_with_the_file_that_is_named(job, tmp_path):
    """Up to the approvals of all sites; the coordinator's folder has a copy of the code."""
    job.write_text(job.read_text() + '[model]\nkind = "ward_of_ours:build"\n')
    code = tmp_path / "code.py"
    code.write_text(WARD)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ConfigError, match="CH102"):
        local.of_job(tmp_path / "nothing", job, 3, 2)
    (tmp_path / "kept").mkdir()
    made = local.of_job(tmp_path / "kept", job, 3, 2, [f"ward_of_ours:build={code}"])
    assert all(home.approval.code.path == str(code) for home in made.homes)
    assert (made.study_folder / "ward_of_ours.py").read_text() == WARD
    assert made.agreement.terms.parameters == 8


def test_three_sites_run_a_study_over_flower_and_nothing_is_left(job, tmp_path):
    kept = tmp_path / "kept"
    deployed = start("--local", "3", str(job), "--rounds", "2", "--keep", str(kept), "--json")
    out, err = deployed.communicate(timeout=300)
    assert deployed.returncode == 0, err
    reported = json.loads(out.splitlines()[-1])
    assert (reported["engine"], reported["tls"], reported["node_authentication"]) == ("flower", True, True)
    assert reported["observed"]["control_closed"]
    assert reported["rounds"] == 2 and reported["included"] == [list(consortium.NAMES)] * 2
    for spent in reported["spent"].values():  # every ε says by which rule, adjacency and adversary
        assert spent["charges"] == 2 and 0 < spent["epsilon"] <= 4.0
        assert spent["rules"] and spent["adjacency"] and spent["adversaries"]
    assert gone(kept)
    # A name of the sites' tables, in a column that nobody declared, is nowhere on the server or in any log.
    files = [path for path in kept.rglob("*") if path.is_file() and path.suffix != ".csv"]
    assert len(files) > 20 and not [path.name for path in files if b"CANARY" in path.read_bytes()]


@pytest.mark.long
def test_ctrl_c_ends_every_process(job, tmp_path):
    kept = tmp_path / "kept"
    deployed = start("--local", "3", str(job), "--keep", str(kept), "--json")
    end = time.monotonic() + 120
    while not any("flower-superlink" in words for words in processes_under(kept)):
        assert deployed.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    deployed.send_signal(signal.SIGINT)
    deployed.communicate(timeout=60)
    assert deployed.returncode == 130
    assert gone(kept)


@pytest.mark.long
def test_a_superlink_that_dies_ends_the_run_with_a_reason_and_the_next_start_goes_on(job, tmp_path, monkeypatch):
    for name, value in HERE.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "d"
    folder.mkdir()
    deployment = local.of_job(folder, job, 3, 4)
    with pytest.raises(DeploymentError, match=r"CH900"):
        for reported in deployment.run():
            if reported["rounds_done"] == 1:
                for pid in pids_of(f"--ssl-certfile {folder}"):
                    os.kill(pid, signal.SIGKILL)
    assert gone(folder)
    before = deployment.result()
    assert 1 <= before.rounds < 4 and before.stopped is None
    assert [reported["state"] for reported in deployment.run()][-1] == "finished"
    after = deployment.result()
    assert after.rounds == 4 and after.included[: before.rounds] == before.included
    for name, spent in after.spent.items():  # the turn that the power cut ended may have been charged
        used = sum(name in included for included in after.included)
        assert used <= spent.charges <= used + 1


@pytest.mark.long
@pytest.mark.parametrize("engine", ["superlink", "simulation"])
def test_the_demo_runs_over_both_engines_of_flower(engine):
    deployed = start("--local", "4", "--demo", "--rounds", "3", "--engine", engine, "--as-root", "--json")
    out, err = deployed.communicate(timeout=600)
    assert deployed.returncode == 0, err
    reported = json.loads(out.splitlines()[-1])
    held = engine == "superlink"  # the simulation engine has neither, and says so
    assert (reported["engine"], reported["tls"], reported["node_authentication"]) == ("flower", held, held)
    assert reported["rounds"] == 3 and [len(included) for included in reported["included"]] == [4, 4, 4]


@pytest.mark.long
def test_a_site_whose_clock_is_wrong_is_informed_by_choral_device_run_and_let_in_once_it_is_set(
    job, tmp_path, monkeypatch
):
    for name, value in HERE.items():
        monkeypatch.setenv(name, value)
    folder, clock = tmp_path / "d", tmp_path / "clock"
    folder.mkdir()
    clock.mkdir()
    deployment = local.of_job(folder, job, 3, 1)
    home = deployment.homes[0]
    words = [sys.executable, "-m", "choral", "device", "run", "--home", str(home.path)]
    states = services.serve_study(deployment.study_folder, as_root=True)
    try:
        next(states)  # the server is up
        for seconds, reported in ((20.0, "CH905 this machine's clock is 2[012] s ahead of the server's"), (0.0, None)):
            with wrong_clock(clock, seconds):
                site = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            try:
                if reported is not None:
                    assert re.match(reported, site.stderr.readline())
                    assert status(home).cut_off["code"] == "CH905"
                else:
                    end = time.monotonic() + 60
                    while LET_IN not in (home.path / "flower" / "node.log").read_text():
                        assert time.monotonic() < end
                        time.sleep(0.2)
                    assert status(home).cut_off is None
            finally:
                site.terminate()
                assert "Traceback" not in site.communicate(timeout=60)[1]
            assert site.returncode == 0
    finally:
        states.close()
    assert gone(folder)


def end_all_under(folder):
    """End what names a folder in its words; `flwr run` leaves its SuperLink running on purpose."""
    for pid, command in commands():
        if str(folder) in command and pid != os.getpid():
            os.kill(pid, signal.SIGTERM)


@pytest.mark.long
def test_flowers_own_command_runs_a_study_on_its_simulation_engine(job, tmp_path, monkeypatch):
    from choral.backends.flower import control
    from choral.backends.flower.children import QUIET, Children

    for name, value in {**HERE, **QUIET, "FLWR_HOME": str(tmp_path / "flwr")}.items():
        monkeypatch.setenv(name, value)
    folder, app = tmp_path / "d", tmp_path / "app"
    folder.mkdir()
    app.mkdir()
    deployment = local.of_job(folder, job, 3, 2)
    doors = str(folder / "sites/{}/agent.sock")
    (app / "pyproject.toml").write_text(control.app(deployment.study_folder, conductor=services.CONDUCTOR, doors=doors))
    beside = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(beside), os.environ["PATH"]]))
    with Children() as sites:
        for home in deployment.homes:
            words = [sys.executable, "-m", "choral", "device", "run", "--agent-only", "--home", str(home.path)]
            sites.start(home.joined.name, words, home.path)
        deployment.await_agents(sites)
        command = [str(beside / "flwr"), "run", str(app), "--federation-config", "num-supernodes=3", "--stream"]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        finally:
            end_all_under(tmp_path / "flwr")
    assert done.returncode == 0, done.stdout + done.stderr
    reported = deployment.result()
    assert reported.stopped == "all rounds are done" and reported.included == (tuple(consortium.NAMES),) * 2
    assert all(spent.charges == 2 for spent in reported.spent.values())


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_the_simulation_engine_which_others_can_reach_is_not_run_as_root_unless_that_is_said(job, tmp_path):
    deployment = local.of_job(tmp_path, job, 3, 1)
    with pytest.raises(DeploymentError, match=r"CH907 the server would run as root\."):
        next(services.simulate_study(deployment.study_folder, doors=""))


def test_a_folder_that_is_there_already_is_not_written_into(job, tmp_path, capsys):
    assert main(["deploy", "--local", "3", str(job), "--keep", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("CH800")


def test_a_folder_that_cannot_be_made_is_reported_with_its_code(job, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["deploy", "--local", "3", str(job), "--keep", str(tmp_path / "file" / "kept")]) == 1
    assert capsys.readouterr().err.startswith("CH801")


def test_a_choral_toml_or_the_demo_but_not_both_or_neither(job, capsys):
    for words in ([], ["--demo", str(job)]):
        assert main(["deploy", "--local", "3", *words]) == 2
        assert capsys.readouterr().err.startswith("CH104")


def test_fewer_than_three_sites_are_refused(tmp_path, job):
    with pytest.raises(ConfigError, match=r"CH102 2 devices\. Use at least 3"):
        local.LocalDeployment(tmp_path, "", {"a": job, "b": job})


def test_a_number_of_files_that_is_not_the_number_of_sites_is_refused(tmp_path, job):
    with pytest.raises(ConfigError, match=r"CH104 .*3 files match sites/\*\.csv, and --local 4"):
        local.of_job(tmp_path, job, 4, None)


def test_one_file_is_dealt_over_the_sites(tmp_path):
    rows = iter([["a", "b"], *([str(number), "x,y"] for number in range(7))])
    paths = local.deal(rows, 3, tmp_path)
    assert list(paths) == ["site-1", "site-2", "site-3"]
    assert paths["site-1"].read_text().splitlines() == ["a,b", '0,"x,y"', '3,"x,y"', '6,"x,y"']
    assert sum(len(path.read_text().splitlines()) - 1 for path in paths.values()) == 7
    written = local.deal(iter([["Größe"], *[["ö"]] * 3]), 3, tmp_path, ";", "cp1252")
    assert written["site-2"].read_bytes().split() == [b"Gr\xf6\xdfe", b"\xf6"], "as choral.toml says of the whole file"


@pytest.mark.parametrize(
    "text",
    [
        "[federation]\nrounds = 9\ncohort = 3\n",
        "[federation]\ncohort = 3\n",
        "[federation] # rounds = 4\n  'rounds' = 9\ncohort = 3\n",
        "federation.rounds = 9\nfederation.cohort = 3\n",
        "federation = { cohort = 3 }\n",
    ],
)
def test_the_number_of_rounds_is_changed_wherever_it_stands_and_nothing_else_is(text):
    rest = 'run.note = """\n[federation]\nrounds = 9\n"""\ndata.columns."heart rate".bounds = [30, 220]\n'
    changed = tomllib.loads(local.with_rounds(rest + text, 2))
    assert changed == tomllib.loads(rest) | {"federation": {"rounds": 2, "cohort": 3}}


def test_a_job_that_says_nothing_of_its_federation_gets_the_rounds_too():
    assert local.with_rounds("[run]\n", 2) == "[run]\n\n[federation]\nrounds = 2\n"


def test_a_number_of_rounds_that_is_none_is_refused_as_in_a_file(job, tmp_path):
    with pytest.raises(ConfigError, match=r"CH102 .*federation\.rounds = 0"):
        local.of_job(tmp_path, job, 3, 0)


def test_a_file_to_deal_is_read_as_any_table_packed_or_not_in_whatever_folder(tmp_path, job):
    folder = tmp_path / "trial [2]"
    folder.mkdir()
    with gzip.open(folder / "all.csv.gz", "wb") as file:
        file.write(b"age,sick\n40,yes\n50,no\n\x81,no\n")
    (folder / "choral.toml").write_text(job.read_text().replace("sites/*.csv", "all.csv.gz"))
    with pytest.raises(TableError, match=r"CH307 .*all\.csv\.gz is not UTF-8"):
        local.of_job(tmp_path, folder / "choral.toml", 3, None)
