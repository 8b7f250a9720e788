"""choral init: a choral.toml from headers and looks, without a value of the rows, that people must finish."""

import json
import re
from pathlib import Path

import pytest

from choral import config
from choral.cli import main
from choral.core.errors import ChoralError
from choral.run.planning import settle


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Two sites whose files differ in their form: comma and point, semicolon and decimal comma."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    for name, between, point in (("north", ",", "."), ("south", ";", ",")):
        rows = [
            between.join((f"Zaphod-{name}{row}", f"{20 + row % 7}{point}5", "FM"[row % 2], ("no", "yes")[row % 3 == 0]))
            for row in range(60)
        ]
        text = "\n".join([between.join(("patient", "bmi", "sex", "ill")), *rows])
        (tmp_path / "sites" / f"{name}.csv").write_text(text + "\n")
    return tmp_path


def fill_in(path):
    text = path.read_text().replace("bounds = []", "bounds = [10, 60]").replace("levels = []", 'levels = ["F", "M"]')
    path.write_text(text.replace("classes = []", 'classes = ["no", "yes"]').replace("1e-5", "1e-3"))


def test_a_file_is_written_that_says_what_to_fill_in_and_then_loads_as_declared(sites, capsys):
    files = sorted(map(str, (sites / "sites").iterdir()))
    assert main(["init", *files, "--label", "ill"]) == 0
    reported = capsys.readouterr().out
    assert "patient: one value per row: probably an identifier" in reported and "sex: 2 levels" in reported
    text = (sites / "choral.toml").read_text()
    assert text.count("FILL IN: ") == 3
    assert '# north.csv: delimiter = ",", decimal = ".", encoding = "utf-8-sig"' in text
    assert '# south.csv: delimiter = ";", decimal = ",", encoding = "utf-8-sig"' in text
    assert "Zaphod" not in text and not re.search(r"\b2\d[.,]5|\"F\"|\"yes\"", text), "no value of a row is in it"
    with pytest.raises(ChoralError, match=r"CH102|CH304"):
        settle(config.read("choral.toml"))
    fill_in(sites / "choral.toml")
    data = settle(config.read("choral.toml")).data
    assert data.features == ("bmi", "sex=F", "sex=M")
    assert data.columns_from == "declared" and data.notes == ("not declared, so not read: patient",)
    assert sorted({round(float(value), 6) for value in data.records.features[:, 0]}) == pytest.approx(
        [2 * (20.5 + step - 10) / 50 - 1 for step in range(7)], abs=1e-6
    )


def test_machines_get_the_looks_and_nothing_is_overwritten(sites, capsys):
    words = ["init", str(sites / "sites" / "north.csv"), "--label", "ill", "--json"]
    assert main(words) == 0
    reported = json.loads(capsys.readouterr().out)
    assert {name: one["kind"] for name, one in reported["columns"].items()} == {
        "patient": "identifier", "bmi": "number", "sex": "levels", "ill": "levels",
    }  # fmt: skip
    written = (sites / "choral.toml").read_text()
    assert main(words) == 1
    assert (sites / "choral.toml").read_text() == written
    assert main([*words[:3], "sick", "--out", "other.toml"]) == 2
    assert not (sites / "other.toml").exists()


def write(folder, name, header, rows):
    (folder / name).write_text("\n".join([header, *rows]) + "\n")
    return str(folder / name)


def test_a_0_1_label_has_classes_and_a_patient_number_is_an_identifier(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{7 * 10**6 + 13_337 * row},{row % 50},{row % 2}" for row in range(60)]
    assert main(["init", write(tmp_path, "north.csv", "patient,age,ill", rows), "--label", "ill"]) == 0
    text = (tmp_path / "choral.toml").read_text()
    assert "classes = []" in text and "label_bounds" not in text
    assert "patient: one value per row: probably an identifier" in capsys.readouterr().out
    assert '# [data.columns."patient"]' in text


def test_words_for_no_value_hide_no_number_and_ask_for_a_constant(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{('NA', '.', '')[row % 3] if row % 5 == 0 else row % 50 + 0.5},{'FM'[row % 2]},{row % 2}" for row in range(60)
    ]
    assert main(["init", write(tmp_path, "north.csv", "bmi,sex,ill", rows), "--label", "ill"]) == 0
    text = (tmp_path / "choral.toml").read_text()
    assert "bmi: a number" in capsys.readouterr().out
    assert re.search(r'\[data\.columns\."bmi"\].*\nbounds = .*\nmissing = ""  # FILL IN', text)
    assert text.count("missing") == 1
    fill_in(tmp_path / "choral.toml")
    done = (tmp_path / "choral.toml").read_text().replace('"no", "yes"', "0, 1")
    (tmp_path / "choral.toml").write_text(done)
    with pytest.raises(ChoralError, match=r"CH304 .*missing must be a number"):
        settle(config.read("choral.toml"))
    (tmp_path / "choral.toml").write_text(done.replace('missing = ""', "missing = 30"))
    data = settle(config.read("choral.toml")).data
    assert (data.classes, data.label_type) == (("0", "1"), "whole number")


def test_the_pattern_matches_the_given_files_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{row % 50},{row % 2}" for row in range(60)]
    names = ("site-1.csv", "site-2.csv", "old.csv", "site-extra.csv")
    paths = [write(tmp_path, name, "age,ill", rows) for name in names]
    assert main(["init", *paths, "--label", "ill", "--out", "all.toml"]) == 0
    assert "/*.csv" in (tmp_path / "all.toml").read_text()
    assert main(["init", *paths[:2], paths[3], "--label", "ill", "--out", "narrow.toml"]) == 0
    assert "/site-*.csv" in (tmp_path / "narrow.toml").read_text()
    assert main(["init", *paths[:2], "--label", "ill", "--out", "none.toml"]) == 2
    assert re.search(r"CH104 .*matches 1 more", capsys.readouterr().err)
    assert not (tmp_path / "none.toml").exists()


def test_a_column_that_one_file_has_more_stops_nothing_and_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = write(tmp_path, "a.csv", "age,ward,ill", [f"{row % 50},x,{row % 2}" for row in range(60)])
    second = write(tmp_path, "b.csv", "age,ill", [f"{row % 50},{row % 2}" for row in range(60)])
    assert main(["init", first, second, "--label", "ill"]) == 0
    text = (tmp_path / "choral.toml").read_text()
    assert '# [data.columns."ward"] is only in a.csv' in text and '[data.columns."age"]' in text
    assert main(["init", first, second, "--label", "ward", "--out", "other.toml"]) == 2


def test_a_table_in_place_of_a_choral_toml_is_refused_with_the_way_to_one(tmp_path, capsys):
    path = write(tmp_path, "site.csv", "age,ill", ["1,0"])
    assert main(["simulate", path]) == 2
    assert re.search(r"CH105 .*site\.csv is a table, .*choral init .*site\.csv --label", capsys.readouterr().err)


def test_files_with_a_prefix_that_ends_a_word_are_named_by_it_so_that_a_later_file_is_no_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{row % 50},{row % 2}" for row in range(60)]
    for files, pattern in (
        (["site-1.csv", "site-2.csv", "site-10.csv"], "./site-*.csv"),
        (["east.csv", "eden.csv"], "./e*.csv"),
    ):
        names = [Path(write(tmp_path, name, "age,ill", rows)).name for name in files]
        assert main(["init", *names, "--label", "ill", "--out", f"{files[0]}.toml"]) == 0
        assert f'csv = "{pattern}"' in Path(f"{files[0]}.toml").read_text()
