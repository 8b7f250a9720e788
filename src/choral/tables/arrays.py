"""Rows of any shape from files: arrays in .npz files, and images in folders. Nothing in them is ever executed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, TableError
from choral.tables.cells import Cell
from choral.tables.reading import Table
from choral.tables.records import by

FEATURES, LABELS = "features", "labels"  # the names of the arrays in a file
NPZ = ".npz"
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
# No others, whatever a file is called: Pillow would start another program for PostScript.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")


def label_cells(labels: NDArray[Any], classes: Sequence[str] | None) -> list[Cell]:
    """Labels as the cells of a table: whole numbers stand for the classes in their order, from 0.

    Where a class is a number itself, a whole number is the name of one: one label that is a float or a text makes all
    labels of a file floats or texts, which are names.

    >>> label_cells(np.array([1, 0]), ["no", "yes"]), label_cells(np.array([7, 3]), ["3", "7"])
    (['yes', 'no'], [7, 3])
    """
    given: list[Cell] = labels.tolist()
    if not classes or labels.dtype.kind not in "iub" or any(name.lstrip("-").isdigit() for name in classes):
        return given
    return [classes[label] if 0 <= label < len(classes) else label for label in given]


def no_arrays(path: str | Path) -> TableError:
    """Return CH317 for a file that is no .npz file with the two arrays."""
    return TableError(
        "CH317",
        f'is no {NPZ} file with the arrays "{FEATURES}" and "{LABELS}".',
        where=str(path),
        fix=f"Write it with numpy.savez(path, {FEATURES}=…, {LABELS}=…), numbers only.",
    )


def _arrays(path: Path, shape: Sequence[int] | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The features and the labels of a file; no labels where it has none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            features = np.asarray(file[FEATURES])
            labels = np.asarray(file[LABELS]) if LABELS in file else None
    except Exception:  # of NumPy, zip and zlib, and their words may hold what is in the file
        raise no_arrays(path) from None
    numbers = issubclass(features.dtype.type, np.floating | np.integer | np.bool_)
    of_labels = "none" if labels is None else labels.shape
    if features.ndim < 2 or (labels is not None and labels.shape != features.shape[:1]) or not numbers:
        raise TableError(
            "CH317",
            f"features have shape {features.shape} of {features.dtype}, labels {of_labels}.",
            where=str(path),
            fix="Give numbers, with one label for each row.",
        )
    if shape is not None and features.shape[1:] != tuple(shape):
        raise TableError(
            "CH318",
            f"rows have the shape {by(features.shape[1:])}, row_shape declares {by(tuple(shape))}.",
            where=str(path),
            fix="Give rows of the declared shape.",
        )
    return features, labels


def as_floats(features: NDArray[Any], source: str) -> NDArray[np.float32]:
    """The same numbers in float32; CH303 for one that is not finite there.

    >>> as_floats(np.array([[1, 2]]), "rows").dtype
    dtype('float32')
    """
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        found = np.asarray(by_way_of_float64(features), dtype=np.float32)
    if not np.isfinite(found).all():
        row = int(np.argwhere(~np.isfinite(found))[0, 0])
        raise TableError(
            "CH303",
            f"features: row {row + 1:,} is not finite.",
            where=source,
            fix="Replace NaN by a constant you choose.",
        )
    return found


def by_way_of_float64(features: Any) -> NDArray[Any]:  # noqa: ANN401 - whatever NumPy makes an array of
    """The features as an array, whole numbers as float64, as where one number with a point has made all of them floats.

    >>> by_way_of_float64([[1]]).dtype, by_way_of_float64(np.float32([[1]])).dtype
    (dtype('float64'), dtype('float32'))
    """
    found = np.asarray(features)
    return found.astype(np.float64) if np.issubdtype(found.dtype, np.integer) else found


def array_features(shape: Sequence[int]) -> tuple[str, ...]:
    """The names of the numbers in an array of this shape.

    >>> array_features((1, 2))
    ('x0_0', 'x0_1')
    """
    return tuple("x" + "_".join(map(str, place)) for place in np.ndindex(*shape))


def is_arrays(path: str | Path) -> bool:
    """Whether a path names arrays: an .npz file, or a folder of images.

    >>> is_arrays("site.npz"), is_arrays("site.csv")
    (True, False)
    """
    return Path(path).suffix.lower() == NPZ or Path(path).is_dir()


def read_site(path: str | Path, shape: Sequence[int] | None, label: str, classes: Sequence[str] | None) -> Table:
    """One site's arrays as a table whose only column is the label; it has none where the rows have no labels.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "site.npz")
    >>> np.savez(path, features=np.zeros((2, 8, 8)), labels=[0, 1])
    >>> table = read_site(path, (8, 8), "sick", ["no", "yes"])
    >>> table.rows, table.cells("sick")
    (2, ['no', 'yes'])
    """
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise TableError("CH300", "is not there.", where=str(path), fix="Check the path.")
        features, labels = _arrays(path, shape)
        columns = {} if labels is None else {label: label_cells(labels, classes)}
        return Table(source=str(path), columns=columns, arrays=as_floats(features, str(path)))
    names, files = _images_of(path, classes)
    if not files:
        raise TableError("CH300", "holds no images.", where=str(path), fix="Give a folder with a folder per class.")
    pixels = np.stack([_image(file, _image_shape(shape, path)) for file in files])
    return Table(source=str(path), columns={label: names} if names else {}, arrays=pixels)


def _images_of(folder: Path, classes: Sequence[str] | None) -> tuple[list[str], list[Path]]:
    """The class and the file of each image in the folders of a folder, by name; no classes where it has no folders.

    CH311 for a folder that is none of the declared classes, CH319 for a file that lies elsewhere.
    """
    kinds = [(kind.name, _images_in(kind, folder)) for kind in sorted(folder.iterdir()) if kind.is_dir()]
    kinds = [(name, files) for name, files in kinds if files]
    loose = _images_in(folder, folder)
    if loose and kinds:
        raise TableError(
            "CH317", f"{len(loose):,} images lie in no folder of a class.", where=str(folder), fix="Put them into one."
        )
    strange = [name for name, _ in kinds if classes is not None and name not in classes]
    if strange:  # what they are called is in the rows, and in no message
        raise TableError(
            "CH311",
            f"{len(strange):,} of its folders are none of the {len(classes or ()):,} declared classes.",
            where=str(folder),
            fix="Give each folder the name of a class, as choral.toml writes it.",
        )
    return [name for name, files in kinds for _ in files], loose or [path for _, files in kinds for path in files]


def _images_in(folder: Path, site: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    inside = site.resolve()
    if outside := sum(not path.resolve().is_relative_to(inside) for path in files):
        raise TableError(
            "CH319",
            f"{outside:,} of its images are links to files outside of it.",
            where=str(site),
            why="An approval is for the images in this folder; what lies elsewhere may be somebody else's.",
            fix="Put the files themselves there.",
        )
    return files


def _image_shape(shape: Sequence[int] | None, source: str | Path) -> tuple[int, ...]:
    """The shape that images are brought to, or CH318."""
    if shape is None or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3):
        declared = "nothing" if shape is None else by(tuple(shape))
        raise TableError(
            "CH318",
            f"is a folder of images, and row_shape declares {declared}.",
            where=str(source),
            fix="Images are [28, 28] in grey, or [28, 28, 3] in colour; for any other shape give an .npz file.",
        )
    return tuple(shape)


def _image(path: Path, shape: tuple[int, ...]) -> NDArray[np.float32]:
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError("CH106", "images need Pillow.", fix="pip install 'choral[images]'") from None
    try:
        with Image.open(path, formats=_FORMATS) as image:
            turned = image.convert("L" if len(shape) == 2 else "RGB").resize((shape[1], shape[0]))
            pixels = np.asarray(turned, dtype=np.float32)
    except Exception:  # Pillow has an error for every format, and its words may hold what is in the file
        number = sorted(one for one in path.parent.iterdir() if one.suffix.lower() in _SUFFIXES).index(path) + 1
        raise TableError(
            "CH317",
            f"image {number:,} by name is no image that can be read.",
            where=str(path.parent),
            fix="Take it out, or save it as PNG.",
        ) from None
    scaled: NDArray[np.float32] = pixels / np.float32(127.5) - np.float32(1)
    return scaled
