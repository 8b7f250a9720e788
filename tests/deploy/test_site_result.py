"""What a site has at the end: the signed model, the receipt and the ledger, each checked against the others."""

import json

import pytest

from choral.core.errors import StorageError
from choral.deploy.status import site_end
from choral.run.folder import tensors


def test_before_the_end_a_site_hears_that_the_study_is_not_finished(ended_study, tmp_path):
    home = ended_study.copy(tmp_path).homes["hill"]
    home.receipt_path(ended_study.agreement).unlink()
    with pytest.raises(StorageError, match=r"CH802 .*not finished here.*until it says"):
        site_end(home)


def test_a_site_has_what_the_run_signed(ended_study):
    end = site_end(ended_study.homes["hill"])
    result = json.loads(next((ended_study.study / "runs").glob("*/signatures.json")).read_text())
    entry = next(one for one in result["devices"] if one["device"] == "hill")
    assert ended_study.homes["hill"].finished(ended_study.agreement)
    assert (end.device, end.paid, end.study) == ("hill", entry["paid"], "hearts")
    assert end.limit.epsilon == 4.0
    assert 0 < end.spent.epsilon <= end.reserved <= 4.0


def test_another_model_than_the_signed_one_is_refused(ended_study, tmp_path):
    home = ended_study.copy(tmp_path).homes["lake"]
    start = ended_study.agreement.settled.model.start(0)
    home.model_path(ended_study.agreement).write_bytes(tensors(start, {"format": "choral flat vector"}))
    with pytest.raises(StorageError, match=r"CH802 .*not the model that this site signed"):
        site_end(home)
