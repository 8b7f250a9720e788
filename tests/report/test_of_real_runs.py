"""Pages of runs that were really run: what `choral.run` writes is what the pages read."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import choral
from choral.core.ledger import Ledger
from choral.record import read_run
from choral.report import page, write_report
from choral.report.live import live_page


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
        shown = live_page(read_run(tmp_path))
        assert f"round {done} of 2" in shown["progress"]
        assert "has not ended" in page(read_run(tmp_path))
    assert "Against everyone" in live_page(read_run(folder))["claims"]


def test_the_page_names_every_rule_by_which_the_ledgers_charge(tmp_path):
    """Devices of 12, 40 and 40 rows: a batch of 12 is all rows of the first (S1) and a sample of the others' (S5)."""
    rng, sizes = np.random.default_rng(3), {"a": 12, "b": 40, "c": 40}
    table = pd.DataFrame(rng.normal(size=(92, 2)), columns=["x", "y"]).assign(
        label=rng.integers(0, 2, 92), site=np.repeat(list(sizes), list(sizes.values()))
    )
    out = tmp_path / "mixed"
    choral.simulate(
        table, device_column="site", cohort=3, rounds=2, rows=12, batch=12, local_steps=1, step_size=0.5, clip=1.0,
        epsilon=8.0, delta=1e-4, validation=0.0, test=0.0, out=out,
    )  # fmt: skip
    charged = {charge.rule for path in out.glob("ledgers/*") for charge in Ledger.read(path).balance.charges}
    assert charged == {"S1", "S5"}
    terms = (
        "rule S1: every noisy step counted on its own, and S5: secret Poisson batches inside each device; one record"
    )
    assert terms in write_report(out).read_text()
    (out / "result.json").unlink()  # as it was while it ran
    assert terms.replace("; one record", "; holds") in " ".join(live_page(read_run(out)).values())
