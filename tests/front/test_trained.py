"""A result in a notebook: a page with every claim's terms, a picture, data frames, and figures for sites and groups."""

import copy
import pickle  # what users do with results; choral itself reads no pickles
import xml.etree.ElementTree as ET

import numpy as np
import pandas
import pytest

import choral
from choral.core.errors import ConfigError
from choral.learning.evaluate import decide, predict
from tests.front.finished import patients, run


def test_a_result_shows_itself_as_a_page_with_the_terms_of_every_claim():
    result, _ = run()
    page = result._repr_html_()
    claim = result.privacy.against_everyone
    for words in ("SIMULATION", "δ = ", claim.rule, claim.adversary, result.privacy.adjacency, "<svg"):
        assert words in page
    assert "<script" not in page and "http:" not in page.replace("http://www.w3.org/2000/svg", "")


def test_a_picture_is_svg_and_can_be_saved(tmp_path):
    result, _ = run()
    picture = result.plot(tmp_path / "curve.svg")
    assert ET.fromstring(picture._repr_svg_()).tag.endswith("svg")
    assert (tmp_path / "curve.svg").read_text() == picture.svg
    assert picture.save(tmp_path / "again.svg").read_text() == picture.svg


def test_rounds_and_devices_are_data_frames():
    result, _ = run()
    rounds = result.to_frame()
    assert rounds["round"].tolist() == [1, 2]
    assert rounds["accuracy"].tolist() == [line.test["accuracy"] for line in result.history]
    devices = result.to_frame("devices").set_index("device")
    assert devices.index.tolist() == ["north", "south"]
    for column in ("epsilon", "delta", "rule", "adjacency", "against"):  # no ε without its terms
        assert devices[column].notna().all()


def test_sites_and_groups_have_their_own_figures_and_together_they_are_the_whole():
    result, _ = run()
    test = result.judged
    right = decide(predict(result.model, result.parameters, test.features)) == test.labels
    sites = result.by_site()
    assert [one.name for one in sites] == ["north", "south"]
    for number, one in enumerate(sites):
        mine = right[test.offsets[number] : test.offsets[number + 1]]
        assert (one.rows, one.figures["accuracy"]) == (len(mine), pytest.approx(mine.mean(), abs=1e-6))
        assert 0 <= one.figures["auc"] <= 1
    groups = result.by_group("sex")
    assert [one.name for one in groups] == ["F", "M"]
    male = test.features[:, 2] == 1  # age, sex=F, sex=M
    assert groups[1].figures["accuracy"] == pytest.approx(right[male].mean(), abs=1e-6)
    total = sum(one.rows * one.figures["accuracy"] for one in groups) / sum(one.rows for one in groups)
    assert total == pytest.approx(result.test["accuracy"], abs=1e-5)
    assert groups.to_frame().columns.tolist() == ["sex", "rows", "accuracy", "auc"]
    assert "<table" in groups._repr_html_()


def test_groups_by_any_column_of_given_rows(tmp_path):
    result, folder = run()
    frame = patients()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    expected = (result.predict(frame) == frame.sick).groupby(frame.region).mean()
    for rows in (frame, tmp_path / "rows.csv"):
        found = choral.open(folder).by_group("region", rows=rows).to_frame().set_index("region")
        assert found.accuracy.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
        assert found.rows.tolist() == frame.groupby("region").size().tolist()


def test_what_there_are_no_rows_or_levels_for_is_refused():
    result, folder = run()
    with pytest.raises(
        ConfigError, match=r'CH104 "age" is no column with levels that the model reads. These have levels: sex'
    ):
        result.by_group("age")
    with pytest.raises(ConfigError, match=r"CH111 the test rows of this run are not here"):
        choral.open(folder).by_site()


def test_labels_come_back_in_their_own_type():
    result, _ = run()
    assert result.predict(patients()).dtype.kind == "i" and result.classes_.tolist() == [0, 1]
    assert result.classes == ("0", "1")
    frame = patients()
    assert result.score(frame, frame.sick) == pytest.approx(np.mean(result.predict(frame) == frame.sick))
    assert result.score(frame, frame.sick.astype(str)) == result.score(frame, frame.sick)


def test_a_result_can_be_pickled_and_copied():
    result, _ = run()
    rows = patients()[["age", "sex"]]
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert (other.predict_proba(rows) == result.predict_proba(rows)).all()
        assert other.privacy == result.privacy


def test_a_number_has_its_own_figures():
    frame = pandas.DataFrame({"x": np.linspace(0, 1, 200), "kind": ["a", "b"] * 100})
    frame["label"] = 10 * frame.x
    result = choral.simulate(
        frame, devices=2, epsilon=8.0, delta=1e-4, rounds=2, seed=1, label_bounds=[0, 10], test=0.2,
        columns={"x": {"bounds": [0, 1]}, "kind": {"levels": ["a", "b"]}},
    )  # fmt: skip
    (one, _) = result.by_group("kind", rows=frame)
    mine = frame[frame.kind == "a"]
    error = np.sqrt(np.mean((result.predict(mine) - mine.label) ** 2))
    assert one.figures["rmse"] == pytest.approx(error, rel=1e-4)
