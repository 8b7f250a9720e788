import json

import numpy as np
import pytest

from choral.cli import main
from choral.config import parse
from choral.core.errors import PlanError
from choral.report import write_report
from choral.run.folder import RunFolder
from choral.run.planning import settle
from choral.run.runs import Run
from choral_lab.attack.demonstration import demonstrate, masked_words, read_words
from choral_lab.verbs.attack import _shown
from tests.run.small import study


@pytest.fixture(scope="module")
def shown():
    return demonstrate()


def test_the_ordinary_server_reads_the_row_and_choral_s_reads_less_than_a_guess(shown):
    assert shown.ordinary["network"].matched == shown.ordinary["logistic regression"].matched == 14
    assert shown.label_read == shown.label
    assert shown.batches[1] == 1 and shown.batches[4] >= 2
    assert shown.masked.matched < shown.guess.matched
    assert shown.opened.matched <= shown.guess.matched


def test_membership_is_certain_in_an_ordinary_update_and_within_its_limit_in_choral_s(shown):
    ordinary, ours, _, final = shown.membership
    assert ordinary.measured == 1.0 and ordinary.bound is None
    assert ours.measured - ours.error <= ours.bound < 0.05
    assert final.measured - final.error <= final.bound < 0.1


def test_the_view_fits_eighty_columns_and_says_whose_row_it_is(shown):
    text = _shown(shown)
    assert max(map(len, text.splitlines())) <= 80
    assert "public data" in text
    assert "rule S5, one record replaced" in text and "against the server and all other devices" in text


def test_the_demonstration_is_plain_json(shown):
    assert json.loads(json.dumps(shown.as_dict(), allow_nan=False))["data"].startswith("UCI Adult, public")


@pytest.fixture
def kept(shown, tmp_path, monkeypatch):
    """A finished run, and `choral attack` that shows at once what was worked out above."""
    monkeypatch.setattr("choral_lab.attack.demonstration.demonstrate", lambda **_: shown)
    Run("rehearsal", study(), folder=RunFolder.create(tmp_path / "run")).finish()
    write_report(tmp_path / "run")
    return tmp_path / "run"


def test_an_attack_kept_in_a_run_is_in_its_report_and_the_run_is_still_verified(kept, shown, capsys):
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file() and path.name != "report.html"}
    assert main(["attack", "--run", str(kept), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert json.loads((kept / "attack.json").read_text()) == reported == json.loads(json.dumps(shown.as_dict()))
    assert "What an attacker reads" in (kept / "report.html").read_text()
    assert main(["verify", str(kept)]) == 0
    assert main(["report", str(kept)]) == 0 and main(["verify", str(kept)]) == 0
    assert all(path.read_bytes() == content for path, content in before.items())  # the run itself is not touched
    (kept / "attack.json").unlink()
    assert main(["verify", str(kept)]) == 1  # the page shows a section that nothing stands behind
    assert "report.html does not say" in capsys.readouterr().out


def test_a_folder_without_a_run_is_refused_before_the_attack(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("choral_lab.attack.demonstration.demonstrate", lambda **_: pytest.fail("too late"))
    assert main(["attack", "--run", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("CH802")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("row", [-1, 2427, 10**9])
def test_a_row_that_the_device_does_not_have_is_refused(row):
    with pytest.raises(PlanError, match="CH200 row"):
        demonstrate(row=row)


def test_masked_words_are_uniform_and_share_nothing_between_two_maskings_of_one_update():
    adult = settle(parse('privacy.noise = 0.02\ndata.builtin = "adult"\ndata.label = "income"\nrun.seed = 1'))
    update = np.zeros(adult.model.size, dtype=np.float32)
    first, second = masked_words(adult, update), masked_words(adult, update)
    assert not np.array_equal(read_words(adult, first), read_words(adult, second))
    # Bytes of 20 maskings: chi-squared with 255 degrees of freedom stays below 372 but for a chance of 2e-6.
    seen = np.concatenate([masked_words(adult, update).view(np.uint8) for _ in range(20)])
    counts = np.bincount(seen, minlength=256)
    assert ((counts - len(seen) / 256) ** 2 / (len(seen) / 256)).sum() < 372
