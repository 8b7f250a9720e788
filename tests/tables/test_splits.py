"""Rows are dealt and held out once each, by a seed, and shares come to what was asked for."""

import numpy as np
import pytest

from choral.core.errors import ConfigError
from choral.tables.records import Records, deal, hold_out

LABELS = np.arange(1000, dtype=np.int32) % 4


@pytest.mark.parametrize("partition", ["even", "label-skew"])
def test_every_row_is_dealt_to_one_device_and_the_seed_decides(partition):
    shares = deal(LABELS, devices=7, partition=partition, seed=3)
    assert np.sort(np.concatenate(shares)).tolist() == list(range(1000))
    same, other = (deal(LABELS, devices=7, partition=partition, seed=seed) for seed in (3, 4))
    assert all((a == b).all() for a, b in zip(shares, same, strict=True))
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(shares, other, strict=True))


def test_even_shares_differ_by_one_row_at_most_and_skewed_ones_by_label():
    assert {len(rows) for rows in deal(LABELS, devices=7)} == {142, 143}
    skewed = deal(LABELS, devices=4, partition="label-skew", skew=0.05)
    most = [np.bincount(LABELS[rows], minlength=4).max() / len(rows) for rows in skewed if len(rows) > 20]
    assert max(most) > 0.5  # with even shares it would be about a quarter


def test_more_devices_than_rows_and_none_are_refused():
    for devices in (0, 1001):
        with pytest.raises(ConfigError, match=f"CH102 {devices:,} devices for 1,000 rows"):
            deal(LABELS, devices=devices)


def test_each_devices_rows_are_split_80_10_10_and_no_row_is_in_two_parts():
    numbers = np.arange(300, dtype=np.float32)[:, None]
    split = hold_out(Records.of([("a", numbers[:200], LABELS[:200] % 2), ("b", numbers[200:], LABELS[200:300] % 2)]))
    parts = (split.train, split.validation, split.test)
    assert [part.sizes.tolist() for part in parts] == [[160, 80], [20, 10], [20, 10]]
    assert np.sort(np.concatenate([part.features for part in parts]).ravel()).tolist() == list(range(300))
    assert all(part.features_of(0).max() < 200 <= part.features_of(1).min() for part in parts)


def test_a_hold_out_that_leaves_nothing_to_train_on_is_refused():
    with pytest.raises(ConfigError, match=r"CH102 validation 0\.5 and test 0\.5 leave nothing to train on"):
        hold_out(Records.of([("a", np.zeros((10, 1)), np.arange(10) % 2)]), validation=0.5, test=0.5)
