"""choral init: a choral.toml from headers and looks, without a value of the rows, that people must finish."""

import json
import re

import pytest

from choral import config
from choral.cli import main
from choral.errors import ChoralError
from choral.run.study import settle


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
