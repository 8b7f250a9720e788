"""The front of the command line: help, version, unknown words, and errors without tracebacks."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import choral
from choral.cli import VERBS, main, training
from choral.core.errors import CODES, ChoralError, LedgerError, PlanError

SOURCE = Path(choral.__file__).parents[1]  # which subprocesses are to run, wherever another choral is installed


def test_help_lists_every_verb_and_the_exit_codes(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {verb} " in text for verb in VERBS)
    assert "exit status: 0 done" in text


def test_no_words_at_all_show_the_help(capsys):
    assert main([]) == 0
    assert "verbs:" in capsys.readouterr().out


def test_the_version_is_the_package_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"choral {choral.__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_in_80_columns(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: choral {verb}")
    assert "--json" in text
    assert max(map(len, text.splitlines())) <= 80


def test_commands_in_a_verbs_help_stand_on_lines_of_their_own(capsys):
    for verb in VERBS:
        main([verb, "--help"])
        for line in capsys.readouterr().out.splitlines():
            assert line.count(f"choral {verb} ") <= 1, line


def test_a_misspelt_verb_gets_a_suggestion_and_exit_2(capsys):
    assert main(["dmo"]) == 2
    assert capsys.readouterr().err == 'CH101 unknown verb "dmo". Did you mean "choral demo"?\n'


def test_an_unknown_flag_is_one_line_and_exit_2(capsys):
    assert main(["demo", "--frobnicate"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("CH101 choral demo unrecognized arguments: --frobnicate.")
    assert printed.err.count("\n") == 1


def test_with_json_an_error_is_an_object_too(capsys):
    assert main(["demo", "--frobnicate", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "CH101"


def test_debug_shows_the_traceback():
    with pytest.raises(ChoralError):
        main(["demo", "--frobnicate", "--debug"])


def refuses(monkeypatch, error):
    """The verb demo, as if the system refused something that no room below has words for."""

    def run(args):  # noqa: ARG001
        raise error

    monkeypatch.setattr("choral.cli.training.DEMO", replace(training.DEMO, run=run))


def test_what_the_system_refuses_is_one_line_with_the_file_and_a_way_out(capsys, monkeypatch):
    refuses(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "runs/one"))
    assert main(["demo", "--json"]) == 1
    reported = capsys.readouterr()
    assert reported.err.startswith("CH801 runs/one Permission denied. Fix the path")
    assert reported.err.count("\n") == 1
    assert json.loads(reported.out)["error"]["code"] == "CH801"


def test_an_error_of_the_system_without_number_or_file_is_reported_by_its_kind_not_by_its_text(capsys, monkeypatch):
    refuses(monkeypatch, TimeoutError("a text that nobody checked for values"))
    assert main(["demo"]) == 1
    assert capsys.readouterr().err.startswith("CH801 TimeoutError. ")


def test_debug_shows_the_traceback_of_what_the_system_refuses(monkeypatch):
    refuses(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "runs/one"))
    with pytest.raises(PermissionError):
        main(["demo", "--debug"])


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize(("words", "status"), [(["--help"], {0}), (["dmo", "--json"], {0, 2})])
def test_a_reader_that_leaves_early_is_met_without_a_word(words, status, buffered):
    """`choral … | head`: nobody reads the pipe. Unbuffered, the writing fails at once; else only at the end."""
    reader, writer = os.pipe()
    os.close(reader)
    whole = {**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1", "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-m", "choral", *words],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=whole,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode in status
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_refused_run_exits_1_and_bad_input_exits_2():
    assert LedgerError.exit_status == 1
    assert PlanError.exit_status == 2


def test_an_error_with_an_unlisted_code_cannot_be_made():
    with pytest.raises(KeyError):
        PlanError("CH999", "no such code")
    assert "CH999" not in CODES


def test_python_dash_m_choral_is_choral():
    done = subprocess.run([sys.executable, "-m", "choral", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"choral {choral.__version__}\n"


def test_the_front_door_imports_nothing_heavy():
    script = "import sys, choral, choral.cli; print(sorted({'jax', 'numpy', 'scipy', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_documented():
    for name in choral.__all__:
        assert name == "__version__" or getattr(choral, name).__doc__
    assert dir(choral) == choral.__all__


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = choral.nothing


def test_a_verb_of_the_lab_says_what_to_install_where_the_lab_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    monkeypatch.setattr("choral.cli.find_spec", lambda _: None)
    assert main(["audit", "--case", "s1"]) == 2
    assert capsys.readouterr().err == (
        "CH106 choral audit is part of choral-lab. To get it, in a checkout of choral, run pip install ./lab.\n"
    )
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "attack, audit, reproduce are part of choral-lab: in a checkout of choral, run pip install ./lab." in shown
    assert main(["completion", "bash"]) == 0
    assert "'audit')" not in capsys.readouterr().out


@pytest.mark.parametrize(("name", "place"), choral._MOVED.items())
def test_a_name_that_moved_to_the_lab_says_where_it_is(name, place):
    with pytest.raises(ImportError, match=f"choral.{name} is {place} now: run pip install ./lab"):
        getattr(choral, name)
