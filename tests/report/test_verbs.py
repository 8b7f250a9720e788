"""`choral report` and `choral watch`: what they print and how they end."""

import json
import os
import signal
import subprocess
import sys
import time
import webbrowser

import pytest

from choral import cli
from tests.report.runs import make_run


@pytest.fixture(autouse=True)
def verbs(monkeypatch):
    for verb in ("report", "watch"):
        monkeypatch.setitem(cli.VERBS, verb, "a verb under test")


def test_report_writes_both_files_and_says_where(tmp_path, capsys):
    folder = make_run(tmp_path / "run")
    assert cli.main(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "privacy.yaml").read_text().startswith("# REHEARSAL.")
    assert cli.main(["report", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(folder / "report.html")}


def test_report_opens_in_the_browser_when_asked(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.chdir(make_run(tmp_path / "run").parent)
    assert cli.main(["report", "run", "--open"]) == 0
    assert opened == [(tmp_path / "run/report.html").as_uri()]


def test_a_page_that_was_left_with_ctrl_c_has_really_ended_when_it_is_closed(tmp_path):
    folder = make_run(tmp_path / "run", finished=False, done=1)
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from choral.report.live import serve\n"
        "page = serve(sys.argv[1])\n"
        "try:\n"
        "    print(flush=True)\n"
        "    page.wait()\n"
        "except KeyboardInterrupt:\n"
        "    page.close()\n"
        "print(len(sys._current_frames()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        try:
            child.stdout.readline()
            time.sleep(0.5)  # so that Ctrl-C meets it waiting; earlier would do no harm
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=30)[0] == "1\n"  # the main thread alone
        finally:
            child.kill()


@pytest.mark.parametrize("verb", ["report", "watch"])
def test_a_folder_that_holds_no_run_is_one_line_and_exit_1(verb, tmp_path, capsys):
    assert cli.main([verb, str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"CH802 {tmp_path / 'run.json'} is not there.")
    assert printed.err.count("\n") == 1


def test_an_unwritable_folder_is_reported(tmp_path, capsys, monkeypatch):
    folder = make_run(tmp_path / "run")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(["report", str(folder)]) == 1
    assert capsys.readouterr().err.startswith(f"CH801 {folder / 'report.html'} can't be written: No space left")
    assert not (folder / "report.html").exists()


def test_watch_prints_its_address_and_ends_well_with_ctrl_c(tmp_path):
    folder = make_run(tmp_path / "run", finished=False, done=1)
    # What was started in the background inherits an ignored Ctrl-C, and so would the child.
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    script += "from choral import cli; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "watch", str(folder), "--json"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            assert json.loads(child.stdout.readline())["url"].startswith("http://127.0.0.1:")
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=30) == 0
            assert child.stderr.read() == ""
        finally:
            child.kill()


@pytest.mark.parametrize("verb", ["report", "watch"])
def test_the_help_fits_80_columns(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([verb, "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("verb", ["report", "verify", "watch"])
def test_a_file_a_study_or_a_home_in_place_of_a_run_is_refused_with_what_to_give(verb, ended_study, capsys):
    run = next((ended_study.study / "runs").glob("*/"))
    for given, said in (
        (run / "result.json", f"is a file. Give the run's folder: {run}"),
        (ended_study.study, f"is the folder of a study, and no run. Give a run of it: {run}"),
        (ended_study.homes["hill"].path, "is the home of a site, and no run. Its pages: choral device result"),
    ):
        assert cli.main([verb, str(given)]) == 1
        printed = " ".join(capsys.readouterr().err.split())
        assert "CH804" in printed and said in printed
