"""The bundled data is UCI Adult, whole and unchanged."""

import hashlib
import lzma
from importlib import resources

import numpy as np

from choral.tables.records import hold_out
from choral.tables.sources import load_adult


def adult_lines():
    path = resources.files("choral.tables") / "adult" / "adult.csv.xz"
    return lzma.decompress(path.read_bytes())


def test_the_bundled_file_has_the_known_checksums():
    raw = adult_lines()
    assert hashlib.sha256(raw).hexdigest() == "cb49122a4a65f3b2b8a3a86b9c81fe5e883dc439597201fab7ea6e474ce66d11"
    header, *rows = raw.splitlines(keepends=True)
    in_order = hashlib.sha256(header + b"".join(sorted(rows))).hexdigest()
    assert in_order == "8761b01d53cccf554ff7707c67be4f97fa8c61ae19668cf12b8519ae32c167da"


def test_it_holds_the_known_counts():
    _, *rows = adult_lines().decode().splitlines()
    assert len(rows) == 48_842
    assert sum(row.endswith(">50K") for row in rows) == 11_687
    assert sum("?" in row for row in rows) == 3_620


def test_it_is_dealt_over_16_devices_by_public_metadata_and_split_80_10_10():
    data = load_adult()
    assert data.columns_from == "public metadata"
    assert sorted(set(data.records.sizes.tolist())) == [3052, 3053]
    assert data.records.labels.sum() == 11_687
    assert np.abs(data.records.features).max() == 1.0
    split = hold_out(data.records, seed=7)
    assert set((split.train.sizes + split.validation.sizes + split.test.sizes).tolist()) == {3052, 3053}
    assert set(split.train.sizes.tolist()) == {2441, 2442}


def test_the_same_seed_deals_and_splits_the_same_and_another_does_not():
    first, again, other = load_adult(seed=1), load_adult(seed=1), load_adult(seed=2)
    assert (first.records.features == again.records.features).all()
    assert (first.records.features != other.records.features).any()


def test_the_attribution_names_the_source_and_the_licence():
    text = (resources.files("choral.tables") / "adult" / "ATTRIBUTION.md").read_text()
    assert "Becker" in text
    assert "CC BY 4.0" in text
