"""examples/survival: three hospitals with real patients, from counts to a hazard model within ε = 2."""

import importlib.util

import pytest

from choral.core.events import epsilon_of
from choral.core.ledger import Ledger
from choral.report.verify import verify

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sksurv") is None, reason="the patients are in scikit-survival: choral[survival]"
)


@pytest.mark.long
def test_the_example_runs_within_epsilon_2_and_finds_what_is_known_of_these_patients(tmp_path, capsys):
    from examples.survival.survival import DELTA, main

    curve, model = main(tmp_path, seed=3)
    assert model.figures["c_index"] > 0.74  # 0.78 for Cox's regression on all patients together
    ends = {row["sex"]: row for row in curve.rows if row["time"] == 5000}
    assert all(row["low"] <= truth <= row["high"] for row, truth in ((ends["F"], 0.691), (ends["M"], 0.669)))
    for folder, limit in (("first", 0.5), ("second", 1.5)):
        assert verify(tmp_path / folder).good
        for path in (tmp_path / folder / "ledgers").iterdir():
            ledger = Ledger.read(path)
            assert ledger.balance.reserved <= limit
            assert epsilon_of([charge.event for charge in ledger.balance.charges], DELTA) <= limit
    assert (tmp_path / "survival.svg").read_text().startswith("<svg")
    assert "kappa" in capsys.readouterr().out
