"""Rows of any shape from files: arrays of each site, and images in folders by class."""

import numpy as np
import pytest

import choral
from choral.config import parse, read
from choral.errors import ConfigError, TableError
from choral.learning.arrays import read_images, read_npz
from choral.run.study import settle

HEAD = "privacy.epsilon = 4.0\nprivacy.delta = 1e-4\n"


@pytest.fixture
def sites(tmp_path):
    for number, count in enumerate((30, 20)):
        draw = np.random.default_rng(number)
        np.savez(
            tmp_path / f"site-{number}.npz", features=draw.uniform(-1, 1, (count, 4, 4)), labels=np.arange(count) % 2
        )
    return tmp_path


def test_each_file_of_arrays_is_a_device(sites):
    (sites / "choral.toml").write_text(
        HEAD + '[data]\nnpz = "*.npz"\n[model]\nkind = "cnn"\nhidden = [2, 2]\n[federation]\nrounds = 1\n'
    )
    study = settle(read(sites / "choral.toml"))
    records = study.data.records
    assert (records.names, records.sizes.tolist(), records.shape) == (("site-0", "site-1"), [30, 20], (4, 4))
    assert study.source == "*.npz" and study.data.classes == ("0", "1")


def test_one_file_is_dealt_to_devices(sites):
    (sites / "site-1.npz").unlink()
    found = choral.load(read_npz(sites / "*.npz"), devices=2).records
    assert found.sizes.tolist() == [15, 15]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros((9, 2))}, 'is no .npz file with the arrays "features" and "labels"'),
        ({"features": np.zeros((9, 2)), "labels": np.zeros(8)}, r"shape \(9, 2\) of float64, labels \(8,\)"),
        ({"features": np.array([["a"]] * 9), "labels": np.zeros(9)}, "of <U1"),
        ({"features": np.array([[{}]] * 9, object), "labels": np.zeros(9)}, "is no .npz file"),  # pickled
        ({"features": np.zeros((9, 5)), "labels": np.zeros(9)}, "4 × 4 features in one file and 5 in another"),
    ],
)  # fmt: skip
def test_files_that_are_something_else_are_refused(sites, arrays, message):
    np.savez(sites / "other.npz", **arrays)
    with pytest.raises(TableError, match=f"CH317 .*{message}"):
        read_npz(sites / "*.npz")


def test_a_file_that_is_no_archive_and_a_pattern_without_files(sites):
    (sites / "text.npz").write_text("no archive")
    with pytest.raises(TableError, match="CH317"):
        read_npz(sites / "text.npz")
    with pytest.raises(TableError, match="CH300"):
        read_npz(sites / "*.none")


@pytest.fixture
def pictures(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="the extra choral[images] is not installed")
    for site in ("north", "south"):
        for label, level in (("bright", 200), ("dark", 20)):
            (tmp_path / site / label).mkdir(parents=True)
            for number in range(6):
                pixels = np.full((9, 12), level + number, np.uint8)
                image.fromarray(pixels).save(tmp_path / site / label / f"{number}.png")
    return tmp_path


def test_images_in_folders_are_rows_of_one_shape_with_the_folders_as_classes(pictures):
    found = read_images(pictures / "*", (4, 6))
    assert found.features.shape == (24, 4, 6) and found.classes == ("bright", "dark")
    assert found.sizes == {"north": 12, "south": 12}
    bright = found.features[found.labels == 0]
    assert bright.min() == pytest.approx(200 / 127.5 - 1) and found.features.max() <= 1
    assert read_images(pictures / "*", (4, 6, 3)).features.shape == (24, 4, 6, 3)
    (pictures / "north" / "dark" / "broken.png").write_bytes(b"no image")
    with pytest.raises(TableError, match=r"CH317 .*broken\.png is no image"):
        read_images(pictures / "*", (4, 6))


def test_images_need_their_shape_and_arrays_have_no_columns():
    with pytest.raises(ConfigError, match=r"CH103 .*image_shape"):
        parse(HEAD + '[data]\nimages = "sites/*"\n')
    with pytest.raises(ConfigError, match=r"CH104 .*person, which only your own table"):
        parse(HEAD + 'privacy.unit = "person"\n[data]\nnpz = "*.npz"\nperson = "id"\nrows_per_person = 2\n')
    with pytest.raises(ConfigError, match=r"CH104 .*names both csv and npz"):
        parse(HEAD + '[data]\nnpz = "*.npz"\ncsv = "*.csv"\n')
