import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.learning.models import logistic, mlp
from choral.tables.columns import Numeric
from choral.tables.reading import read_csv
from choral.tables.sources import load_adult
from choral_lab.attack.demonstration import Ordinary
from choral_lab.attack.reconstruct import (
    Reading,
    adult_columns,
    candidates,
    cells_matched,
    decode,
    label_of,
    looks_real,
    rows_read,
)

COLUMNS = adult_columns()


@pytest.fixture(scope="module")
def records():
    return load_adult().records


def test_the_declared_columns_make_the_features_of_the_bundled_data(records):
    assert sum(len(column.features) for column in COLUMNS) == records.features.shape[1]


def test_a_decoded_row_has_the_cells_of_the_file():
    # The first rows of the file itself, cell by cell, against encode and back.
    from importlib import resources

    folder = resources.files("choral.tables") / "adult"
    with resources.as_file(folder / "adult.csv.xz") as path:
        table = read_csv(path)
    first = {column.name: list(table.cells(column.name))[:200] for column in COLUMNS}
    encoded = np.concatenate([column.encode(first[column.name], source="t") for column in COLUMNS], axis=1)
    for row in range(200):
        cells = decode(COLUMNS, encoded[row].astype(np.float64))
        for column in COLUMNS:
            assert cells[column.name] == first[column.name][row].strip()


@given(st.integers(0, 100_000), st.sampled_from(["linear", "log"]))
def test_numbers_come_back_within_a_ten_thousandth_of_their_range(value, scale):
    column = Numeric(name="n", low=0, high=100_000, scale=scale)
    back = float(decode([column], column.encode([value], source="t")[0].astype(np.float64))["n"])
    assert abs(back - value) <= 10


@pytest.mark.parametrize("make", [logistic, lambda width: mlp(width, (64, 32))], ids=["logistic", "network"])
def test_every_cell_of_a_row_is_read_off_the_ordinary_update_of_a_batch_of_one(records, make):
    model = make(records.features.shape[1])
    for device in range(5):
        features, labels = records.features_of(device), records.labels_of(device)
        truth = decode(COLUMNS, features[0])
        update = Ordinary(model, model.start(device), features, labels).update(1)
        reading = Reading.of_update(model, COLUMNS, update, truth)
        assert reading.matched == reading.of == 14
        assert label_of(model, update) == labels[0]


def test_a_network_gives_away_whole_rows_of_small_batches_and_invents_none(records):
    model = mlp(records.features.shape[1], (64, 32))
    device = Ordinary(model, model.start(0), records.features_of(0), records.labels_of(0))
    truths = [decode(COLUMNS, row) for row in records.features_of(0)[:8]]
    read = rows_read(COLUMNS, candidates(model, device.update(8)))
    assert len(read) >= 2
    assert all(any(cells_matched(COLUMNS, truth, one) == 14 for truth in truths) for one in read)


def test_a_mixture_of_rows_does_not_look_real(records):
    rows = records.features_of(0).astype(np.float64)
    assert looks_real(COLUMNS, rows[0]) and looks_real(COLUMNS, rows[1])
    assert not looks_real(COLUMNS, 0.5 * (rows[0] + rows[1]))


def test_noise_of_the_plans_size_leaves_no_whole_row_in_an_update(records):
    # A batch of one with clip 1 and z = 1: the same attack, and no candidate looks real any more (seed 0).
    model = mlp(records.features.shape[1], (64, 32))
    update = Ordinary(model, model.start(0), records.features_of(0), records.labels_of(0)).update(1)
    noisy = update / np.linalg.norm(update) + np.random.default_rng(0).normal(0, 1, update.shape)
    assert rows_read(COLUMNS, candidates(model, noisy)) == []
