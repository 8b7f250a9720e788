import json

import numpy as np
import pytest

from choral.attack.demonstration import demonstrate, masked_words, read_words
from choral.cli.attack import _shown
from choral.config import parse
from choral.errors import PlanError
from choral.run.study import settle


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
    text = _shown(shown.as_dict())
    assert max(map(len, text.splitlines())) <= 80
    assert "public data" in text
    assert "rule S5, one record replaced" in text and "against the server and all other devices" in text


def test_the_demonstration_is_plain_json(shown):
    assert json.loads(json.dumps(shown.as_dict(), allow_nan=False))["data"].startswith("UCI Adult, public")


@pytest.mark.parametrize("row", [-1, 2427, 10**9])
def test_a_row_that_the_device_does_not_have_is_refused(row):
    with pytest.raises(PlanError, match="CH200 row"):
        demonstrate(row=row)


def test_masked_words_are_uniform_and_share_nothing_between_two_maskings_of_one_update():
    study = settle(parse('privacy.noise = 0.02\ndata.builtin = "adult"\ndata.label = "income"\nrun.seed = 1'))
    update = np.zeros(study.model.size, dtype=np.float32)
    first, second = masked_words(study, update), masked_words(study, update)
    assert not np.array_equal(read_words(study, first), read_words(study, second))
    # Bytes of 20 maskings: chi-squared with 255 degrees of freedom stays below 372 but for a chance of 2e-6.
    seen = np.concatenate([masked_words(study, update).view(np.uint8) for _ in range(20)])
    counts = np.bincount(seen, minlength=256)
    assert ((counts - len(seen) / 256) ** 2 / (len(seen) / 256)).sum() < 372
