"""Rows of any shape from files: arrays of each site, and images in folders by class."""

from dataclasses import replace

import numpy as np
import pytest

import choral
from choral.config import parse, read
from choral.core.errors import ConfigError, TableError
from choral.run.planning import settle
from choral.tables.arrays import read_site
from choral.tables.sources import Files, ImageFolders, Reading, encode_labels

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
    found = choral.load(sites / "*.npz", devices=2).records
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
        choral.load(sites / "*.npz")


def test_a_file_that_is_no_archive_and_a_pattern_without_files(sites):
    (sites / "text.npz").write_text("no archive")
    with pytest.raises(TableError, match="CH317"):
        choral.load(sites / "text.npz")
    with pytest.raises(TableError, match="CH300"):
        choral.load(sites / "*.none")


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
    found = choral.load(ImageFolders(pictures / "*"), row_shape=(4, 6))
    records = found.records
    assert records.features.shape == (24, 4, 6) and found.classes == ("bright", "dark") and found.label_type == "text"
    assert dict(zip(records.names, records.sizes.tolist(), strict=True)) == {"north": 12, "south": 12}
    bright = records.features[records.labels == 0]
    assert bright.min() == pytest.approx(200 / 127.5 - 1) and records.features.max() <= 1
    assert choral.load(ImageFolders(pictures / "*"), row_shape=(4, 6, 3)).records.shape == (4, 6, 3)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\nshowpage\n"


@pytest.mark.parametrize("content", [b"no image", POSTSCRIPT], ids=["text", "PostScript"])
def test_what_is_no_image_is_refused_by_its_place_and_not_by_its_name(pictures, content):
    # Pillow would hand PostScript to another program; a file's name may be a person's.
    (pictures / "north" / "dark" / "anna-smith.png").write_bytes(content)
    with pytest.raises(TableError, match=r"CH317 .*dark image 7 by name is no image that can be read") as refused:
        choral.load(ImageFolders(pictures / "*"), row_shape=(4, 6))
    assert "anna" not in str(refused.value) and "anna" not in str(refused.value.__cause__)


def test_folders_must_be_declared_classes_and_hold_their_images(pictures, tmp_path):
    names = choral.load(ImageFolders(pictures / "*"), row_shape=(4, 6), classes=["dark", "grey", "bright"])
    assert names.classes == ("dark", "grey", "bright") and set(names.records.labels.tolist()) == {0, 2}
    with pytest.raises(TableError, match=r"CH311 .*north 1 of its folders are none of the 2 declared") as refused:
        choral.load(ImageFolders(pictures / "*"), row_shape=(4, 6), classes=["bright", "grey"])
    assert "dark" not in str(refused.value)
    north = pictures / "north"
    (north / "dark" / "0.png").rename(north / "loose.png")
    with pytest.raises(TableError, match=r"CH317 .*1 images lie in no folder of a class"):
        read_site(north, (4, 6), "label", None)
    (north / "loose.png").rename(tmp_path.parent / "elsewhere.png")
    (north / "dark" / "0.png").symlink_to(tmp_path.parent / "elsewhere.png")
    with pytest.raises(TableError, match=r"CH319 .*north 1 of its images are links to files outside of it"):
        read_site(north, (4, 6), "label", ["bright", "dark"])


def test_a_site_reads_one_folder_or_one_file_as_a_table_with_its_label(pictures, sites):
    images = read_site(pictures / "north", (4, 6), "light", ["bright", "dark"])
    assert images.arrays.shape == (12, 4, 6) and images.cells("light") == ["bright"] * 6 + ["dark"] * 6
    alone = read_site(pictures / "north" / "dark", (4, 6), "light", None)  # rows to predict for have no label
    assert (alone.rows, dict(alone.columns)) == (6, {})
    with pytest.raises(TableError, match=r"CH318 .*north is a folder of images, and row_shape declares 24"):
        read_site(pictures / "north", (24,), "light", None)
    arrays = read_site(sites / "site-1.npz", (4, 4), "light", ["no", "yes"])
    assert arrays.rows == 20 and list(arrays.cells("light"))[:3] == ["no", "yes", "no"]
    with pytest.raises(TableError, match=r"CH318 .*rows have the shape 4 × 4, row_shape declares 8 × 8"):
        read_site(sites / "site-1.npz", (8, 8), "light", None)
    np.savez(sites / "nan.npz", features=np.array([[0.0], [np.nan]]), labels=[0, 1])
    with pytest.raises(TableError, match=r"CH303 .*nan.npz features: row 2 is not finite"):
        read_site(sites / "nan.npz", None, "light", None)


def test_digests_see_every_number_label_and_place(sites):
    table = read_site(sites / "site-1.npz", None, "light", None)
    last = table.arrays.copy()
    last[-1, -1, -1] += 1e-3
    turned = replace(table, arrays=table.arrays[::-1], columns={"light": list(table.cells("light"))[::-1]})
    others = [replace(table, arrays=last), turned, replace(table, arrays=table.arrays.reshape(20, 16))]
    assert table.digest(["light"]) not in {one.digest(["light"]) for one in others}
    assert table.digest([]) == replace(table, columns={}).digest([]) != table.digest(["light"])
    assert turned.digest(["light"], ordered=False) == table.digest(["light"], ordered=False)


def codes(pattern, classes):
    how = Reading(classes=classes)
    return [code for _, table in Files(pattern).tables(how) for code in encode_labels(table, how.target).tolist()]


def test_labels_of_arrays_are_declared_classes_by_number_or_by_name(tmp_path):
    rows = np.zeros((4, 3))
    np.savez(tmp_path / "a.npz", features=rows, labels=[1, 0, 1, 0])
    np.savez(tmp_path / "b.npz", features=rows, labels=["yes", "no", "no", "no"])
    assert codes(tmp_path / "*.npz", ["no", "yes"]) == [1, 0, 1, 0, 1, 0, 0, 0]
    np.savez(tmp_path / "c.npz", features=rows, labels=[3, 7, 7, 3])
    assert codes(tmp_path / "c.npz", ["3", "7"]) == [0, 1, 1, 0]
    with pytest.raises(TableError, match=r"CH311 .*4 cells hold a level that is not declared"):
        codes(tmp_path / "c.npz", ["no", "yes"])


def test_images_need_their_shape_and_arrays_have_no_columns():
    with pytest.raises(ConfigError, match=r"CH103 .*row_shape"):
        parse(HEAD + '[data]\nimages = "sites/*"\n')
    with pytest.raises(ConfigError, match=r"CH104 .*person, which only your own table"):
        parse(HEAD + 'privacy.unit = "person"\n[data]\nnpz = "*.npz"\nperson = "id"\nrows_per_person = 2\n')
    with pytest.raises(ConfigError, match=r"CH104 .*names both csv and npz"):
        parse(HEAD + '[data]\nnpz = "*.npz"\ncsv = "*.csv"\n')
    with pytest.raises(ConfigError, match=r"CH104 .*has row_shape, which makes rows arrays, and csv"):
        parse(HEAD + '[data]\nrow_shape = [8]\ncsv = "*.csv"\n')
