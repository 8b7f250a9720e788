"""A run whose model is made from sums ends with a result that verify works out again; both places have its integers."""

import json

import pytest

from choral.record import read_run
from choral.report import write_report
from choral.report.verify import verify
from choral.run.inquiry import begun, made
from tests.run.test_modelling import frame
from tests.run.test_sum_study import SICK


def run(kind, out, **more):
    given = {"epsilon": 3.0, "model": "additive", "rounds": 2, "bins": 3, **SICK, **more}
    inquiry = begun(kind, frame(), given, out=out)
    reported = made(inquiry)
    write_report(out)
    return reported


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_the_folder_has_a_result_that_is_verified_and_a_page_with_the_shape_of_the_model(kind, tmp_path):
    reported = run(kind, tmp_path / "run", seed=None)
    record, verdict = read_run(tmp_path / "run"), verify(tmp_path / "run")
    assert all(not finding.wrong for finding in verdict.findings)
    assert record.about.model.kind == "additive" and record.about.sums == 3 and record.finished.rounds_done == 0
    assert record.finished.test == pytest.approx(reported.figures, abs=1e-6)
    privacy = record.finished.privacy
    assert reported.privacy.epsilon_in_all <= privacy.against_everyone.epsilon <= 3.0
    assert privacy.with_secure_sum.epsilon >= reported.privacy.epsilon_sum_in_all
    assert not privacy.published.valid and "questions" in privacy.published.because
    page = (tmp_path / "run" / "report.html").read_text()
    for part in ("made from 3 sums", "Effect of age on the log-odds", 'class="spread', "Nobody approved them", "auc "):
        assert part in page


def test_simulated_and_rehearsed_sums_and_models_are_the_same_integers(tmp_path):
    first, second = (run(kind, tmp_path / kind, seed=4) for kind in ("simulation", "rehearsal"))
    assert first.model.state.tolist() == second.model.state.tolist()
    lines = [(tmp_path / kind / "questions.jsonl").read_text().splitlines() for kind in ("simulation", "rehearsal")]
    assert [json.loads(one)["total"] for one in lines[0]] == [json.loads(one)["total"] for one in lines[1]]
