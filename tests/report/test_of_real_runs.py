"""Pages of runs that were really run: what `choral.run` writes is what the pages read."""

import json
import re

import numpy as np
import pytest

import choral
from choral.record import read_run
from choral.report import page, write_report
from choral.report.scene import scene


@pytest.fixture(scope="module", params=["simulate", "rehearse"])
def folder(request, tmp_path_factory):
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(600, 3))
    out = tmp_path_factory.mktemp("real") / request.param
    run = getattr(choral, request.param)
    run((rows, (rows[:, 0] > 0).astype(int)), devices=5, cohort=4, rounds=2, epsilon=5.0, delta=1e-4, out=out)
    return out


def test_a_real_run_has_its_pages(folder):
    text = write_report(folder).read_text()
    result = json.loads((folder / "result.json").read_text())
    epsilon = result["privacy"]["against_everyone"]["epsilon"]
    shown = float(re.search(r"ε\xa0≤\xa0([\d.]+)", text)[1])
    assert 0 <= shown - epsilon < 0.01
    assert ("SIMULATION" in text) == (folder.name == "simulate")
    assert ("received by the server" in text) == (folder.name == "rehearse")
    assert f"epsilon: {epsilon!r}\n" in (folder / "privacy.yaml").read_text()


def test_a_real_run_has_a_live_page_at_every_moment(folder, tmp_path):
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "run.json").write_bytes((folder / "run.json").read_bytes())
    for done in range(len(lines) + 1):
        (tmp_path / "rounds.jsonl").write_text("".join(lines[:done]))
        shown = scene(read_run(tmp_path))
        assert f"round {done} of 2" in shown["progress"]
        assert "has not ended" in page(read_run(tmp_path))
    assert "Against everyone" in scene(read_run(folder))["claims"]
