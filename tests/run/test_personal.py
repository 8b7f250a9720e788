"""Personal models of a simulation: every site side by side, printed and written nowhere."""

import json

import numpy as np
import pytest

from choral.cli import main
from choral.learning.personal import ALONE, SHARED, Standing, fitted, personal
from choral.run.folder import read_parameters
from choral.run.personal import AllSites, Site, all_sites
from tests.deploy.test_personal import leaks, traces
from tests.run.small import study

JOB = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
cohort = 4
rounds = 3
colluders = 0
[data]
csv = "sites/*.csv"
test = 0.2
[data.columns.a]
bounds = [-1, 1]
[data.columns.b]
bounds = [-1, 1]
[run]
seed = 3
"""


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Six sites, in half of which the label follows the other feature."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites").mkdir()
    (tmp_path / "choral.toml").write_text(JOB)
    draw = np.random.default_rng(2)
    for number in range(6):
        rows = draw.uniform(-1, 1, (320, 2)).round(4)
        label = rows[:, number % 2] > 0
        lines = [f"{a},{b},{'yes' if one else 'no'}" for (a, b), one in zip(rows, label, strict=True)]
        (tmp_path / "sites" / f"site{number}.csv").write_text("\n".join(["a,b,label", *lines]))
    return tmp_path


def test_every_site_is_shown_side_by_side_and_no_file_of_the_run_holds_a_personal_model(sites, capsys):
    assert main(["simulate", "choral.toml", "--personal", "--json", "--out", "run"]) == 0
    out = capsys.readouterr().out
    reported = json.loads(out)["personal"]
    assert [site["name"] for site in reported["sites"]] == [f"site{number}" for number in range(6)]
    assert reported["mean"]["personal"]["loss"] < reported["mean"]["shared"]["loss"]  # the sites contradict each other
    assert reported["mean"]["alone"]["accuracy"] == pytest.approx(
        np.mean([site["alone"]["accuracy"] for site in reported["sites"]])
    )
    assert reported["gain_over_shared"] == 1.0 and 0 <= reported["gain_over_alone"] <= 1

    from choral import config
    from choral.run.planning import settle

    settled = settle(config.read("choral.toml"))
    shared = read_parameters(sites / "run" / "model.safetensors")[0]
    files = [path.read_bytes() for path in (sites / "run").rglob("*") if path.is_file()]
    assert len(files) > 6
    for number in range(6):
        parts = [(p.features_of(number), p.labels_of(number)) for p in (settled.split.train, settled.split.validation)]
        needles = traces(personal(settled.model, shared, *parts).parameters, shared)
        assert len(needles) > 10
        assert [leaks(content, needles) for content in (*files, out.encode())] == [[]] * (len(files) + 1)
    assert not any(b"personal" in content for content in files)


def test_the_table_for_people_has_a_line_for_each_site_and_the_mean(sites, capsys):
    assert main(["simulate", "choral.toml", "--personal", "--out", "run", "--kappa", "1"]) == 0
    text = capsys.readouterr().out
    assert (sites / "run" / "report.html").exists()
    lines = text[text.index("PERSONAL") :].splitlines()
    assert sum(line.startswith("  site") for line in lines) == 6
    assert [line.split()[1] for line in lines if line.startswith("  mean")] == [
        "loss",
        "accuracy",
    ] and "By mean loss" in text


@pytest.mark.parametrize(
    ("words", "change", "reported"),
    [
        (["--kappa", "1"], "", "CH104 --kappa without --personal"),
        (["--personal", "--kappa", "0"], "", "CH200 kappa = 0"),
        (["--personal"], "test = 0.0", "no rows are kept to judge by"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_trained(sites, capsys, words, change, reported):
    if change:
        (sites / "choral.toml").write_text(JOB.replace("test = 0.2", change))
    assert main(["simulate", "choral.toml", *words, "--out", "run"]) == 2
    assert reported in capsys.readouterr().err
    assert not (sites / "run").exists()


def test_the_site_alone_is_fitted_on_the_same_rows_as_its_personal_model():
    settled = study()
    shared = np.float32(np.random.default_rng(0).normal(size=settled.model.size))
    found = all_sites(settled, shared)
    split = settled.split
    parts = [(p.features_of(2), p.labels_of(2)) for p in (split.train, split.validation)]
    whole = tuple(np.concatenate(both) for both in zip(*parts, strict=True))
    test = split.test.features_of(2), split.test.labels_of(2)
    expected = {name: Standing.of(settled.model, fitted(settled.model, shared, whole, kappa), test)
                for name, kappa in (("shared", SHARED), ("alone", ALONE), ("personal", 0.1))}  # fmt: skip
    assert found.sites[2].standings == expected and found.sites[2].rows == len(whole[1])


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ((0.5, 0.4, 0.3), "better than both; in 100% of sites"),
        ((0.2, 0.4, 0.3), "the shared model is as good"),
        ((0.5, 0.3, 0.3), "a site alone is as good"),
    ],
)
def test_the_verdict_says_when_alone_or_shared_is_as_good(losses, said):
    standings = {name: Standing(loss=loss) for name, loss in zip(("shared", "alone", "personal"), losses, strict=True)}
    one = Site(name="a", rows=10, kappa=0.1, because="", standings=standings)
    assert said in AllSites(proposed=0.1, sites=(one,)).verdict


def test_sites_that_predict_different_columns_share_a_model_and_have_personal_ones(sites, capsys):
    """Half of the sites have their label in a column of another name, which no other site reads."""
    for number in (1, 3, 5):
        path = sites / "sites" / f"site{number}.csv"
        path.write_text(path.read_text().replace("a,b,label", "a,b,returned"))
    job = JOB.replace("[run]", "[data.labels]\nsite1 = 'returned'\nsite3 = 'returned'\nsite5 = 'returned'\n[run]")
    (sites / "choral.toml").write_text(job)
    assert main(["simulate", "choral.toml", "--personal", "--json", "--out", "run"]) == 0
    reported = json.loads(capsys.readouterr().out)["personal"]
    assert reported["mean"]["personal"]["accuracy"] > reported["mean"]["shared"]["accuracy"] + 0.1
    (sites / "choral.toml").write_text(JOB)
    assert main(["simulate", "choral.toml", "--json"]) != 0
    assert "CH302" in capsys.readouterr().err


@pytest.mark.parametrize(("labels", "what"), [({"nobody": "returned"}, "has no file"), ({"site1": "a"}, "declared")])
def test_labels_of_a_site_that_is_not_there_or_that_the_model_reads_are_refused(sites, labels, what, capsys):
    lines = "\n".join(f"{name} = '{column}'" for name, column in labels.items())
    (sites / "choral.toml").write_text(JOB.replace("[run]", f"[data.labels]\n{lines}\n[run]"))
    assert main(["simulate", "choral.toml"]) != 0
    said = capsys.readouterr().err
    assert "CH102" in said and what in said
