"""choral predict, runs and completion, by the words that people type."""

import csv
import json
import shutil
import stat
import subprocess

import pytest

from choral.cli import VERBS, main
from tests.front.finished import patients, run


@pytest.fixture
def table(tmp_path):
    patients().drop(columns="sick").head(5).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "new.csv"


def test_predictions_are_a_csv_table_with_probabilities(table, capsys):
    result, folder = run()
    assert main(["predict", str(folder), str(table)]) == 0
    header, *rows = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["sick", "0", "1"]
    frame = patients().head(5)
    assert [row[0] for row in rows] == [str(one) for one in result.predict(frame)]
    shares = result.predict_proba(frame)
    assert [[float(one) for one in row[1:]] for row in rows] == [pytest.approx(share, abs=1e-6) for share in shares]


def test_json_has_labels_in_their_own_type(table, capsys):
    result, folder = run()
    assert main(["predict", str(folder), str(table), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"] == ["sick", "0", "1"]
    assert [row[0] for row in found["rows"]] == result.predict(patients().head(5)).tolist()
    assert all(isinstance(row[0], int) for row in found["rows"])


def test_a_file_of_predictions_is_for_its_owner(table, tmp_path, capsys):
    _, folder = run()
    assert main(["predict", str(folder), str(table), "--out", str(tmp_path / "p.csv")]) == 0
    assert stat.S_IMODE((tmp_path / "p.csv").stat().st_mode) == 0o600
    assert capsys.readouterr().out.strip() == str(tmp_path / "p.csv")


def test_a_table_of_another_format_or_without_a_column_is_read_or_refused(tmp_path, capsys):
    _, folder = run()
    (tmp_path / "new.csv").write_text("sex|age\nF|30,5\n")
    assert main(["predict", str(folder), str(tmp_path / "new.csv"), "--delimiter", "|", "--decimal", ","]) == 0
    (tmp_path / "new.csv").write_text("age,gender\n30,F\n")
    assert main(["predict", str(folder), str(tmp_path / "new.csv")]) == 2
    assert "CH302" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), str(tmp_path / "new.csv")]) == 1
    assert "CH802" in capsys.readouterr().err


def test_runs_are_listed_with_what_they_cost_and_one_that_is_damaged_stops_nothing(tmp_path, capsys):
    result, folder = run()
    for name in ("first", "deeper/second"):
        shutil.copytree(folder, tmp_path / name)
    (tmp_path / "deeper/second/result.json").unlink()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.json").write_text("{")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    found = {one["folder"]: one for one in json.loads(capsys.readouterr().out)["runs"]}
    assert found[str(tmp_path / "first")]["state"] == "finished"
    assert result.privacy.against_everyone.rule in found[str(tmp_path / "first")]["privacy"]
    assert found[str(tmp_path / "deeper/second")]["state"] == "round 2 of 2"
    assert found[str(tmp_path / "broken")]["state"] == "can't be read: CH802"
    assert main(["runs", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "finished · simulation · logistic · accuracy" in shown and "rule S7" in shown
    assert main(["runs", str(tmp_path / "nowhere")]) == 1
    assert "CH802" in capsys.readouterr().err


def completed(script, *words):
    """What bash completes for these words, the last of which is being typed."""
    quoted = " ".join(f"'{word}'" for word in ("choral", *words))
    ask = (
        f'source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _choral; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-uc", ask], capture_output=True, text=True, cwd=script.parent)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_phases_flags_and_files(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "choral.bash"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "study.toml").touch()
    assert completed(script, "") == set(VERBS)
    assert completed(script, "re") == {"rehearse", "resume", "report", "reproduce"}
    assert completed(script, "device", "app") == {"approve"}
    assert completed(script, "device", "approve", "--max") == {"--max-epsilon", "--max-epsilon-sum"}
    assert completed(script, "device", "approve", "st") == {"study.toml"}
    assert completed(script, "simulate", "--se") == {"--seed"}
    assert completed(script, "completion", "z") == {"zsh"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_given_every_verb_and_flag(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(verb in script for verb in VERBS)
    assert ("--max-epsilon-sum" if shell == "zsh" else "-l max-epsilon-sum") in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, capture_output=True).returncode == 0
