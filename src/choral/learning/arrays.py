"""Rows of any shape from files: arrays in .npz files, and images in folders. Nothing in them is ever executed."""

import glob
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from choral.errors import ConfigError, TableError
from choral.learning.records import by

FEATURES, LABELS = "features", "labels"  # the names of the arrays in a file
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteArrays:
    """Features and labels of several sites, one after the other; `classes` names the labels where they have names."""

    features: NDArray[Any]
    labels: NDArray[Any]
    sizes: dict[str, int]
    classes: tuple[str, ...] | None = None

    def shares(self) -> dict[str, NDArray[np.intp]]:
        """Which rows each site holds.

        >>> arrays = SiteArrays(features=np.zeros((3, 2)), labels=np.zeros(3), sizes={"a": 1, "b": 2})
        >>> {name: rows.tolist() for name, rows in arrays.shares().items()}
        {'a': [0], 'b': [1, 2]}
        """
        ends = np.cumsum(list(self.sizes.values()))
        return {name: np.arange(end - size, end) for (name, size), end in zip(self.sizes.items(), ends, strict=True)}


def read_npz(pattern: str | Path) -> SiteArrays:
    """The arrays "features" (rows × …) and "labels" (one per row) of every file that matches, one file per device.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.savez(folder / "site.npz", features=np.zeros((2, 8, 8)), labels=[0, 1])
    >>> read_npz(folder / "*.npz").features.shape
    (2, 8, 8)
    """
    found = {_name(path): _arrays(path) for path in _matching(pattern)}
    shapes = {features.shape[1:] for features, _ in found.values()}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise TableError(
            "CH317", f"rows have {by(first)} features in one file and {by(second)} in another.", where=str(pattern),
            fix="Give rows of one shape.",
        )  # fmt: skip
    return SiteArrays(
        features=np.concatenate([features for features, _ in found.values()]),
        labels=np.concatenate([labels for _, labels in found.values()]),
        sizes={name: len(labels) for name, (_, labels) in found.items()},
    )


def _arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            features, labels = np.asarray(file[FEATURES]), np.asarray(file[LABELS])
    except (KeyError, ValueError, OSError, AttributeError, zipfile.BadZipFile):
        raise TableError(
            "CH317",
            f'is no .npz file with the arrays "{FEATURES}" and "{LABELS}".',
            where=str(path),
            fix=f"Write it with numpy.savez(path, {FEATURES}=…, {LABELS}=…), numbers only.",
        ) from None
    numbers = issubclass(features.dtype.type, np.floating | np.integer | np.bool_)
    if features.ndim < 2 or labels.shape != features.shape[:1] or not numbers:
        raise TableError(
            "CH317",
            f"features have shape {features.shape} of {features.dtype}, labels {labels.shape}.",
            where=str(path),
            fix="Give numbers, with one label for each row.",
        )
    return features, labels


def read_images(pattern: str | Path, shape: Sequence[int]) -> SiteArrays:
    """Images in folders: one folder per device, in it one folder for each class. Needs the extra `choral[images]`.

    Each image is brought to `shape`, height × width in grey or height × width × 3 in colour, and to numbers in −1…1.
    """
    folders = [path for path in _matching(pattern) if path.is_dir()]
    named = {_name(path): _images_of(path) for path in folders}
    classes = tuple(sorted({label for images in named.values() for label, _ in images}))
    if not classes:
        raise TableError(
            "CH300", "holds no images.", where=str(pattern), fix="Give one folder per device, with a folder per class."
        )
    read = [_image(path, tuple(shape)) for images in named.values() for _, path in images]
    return SiteArrays(
        features=np.stack(read),
        labels=np.array([classes.index(label) for images in named.values() for label, _ in images], dtype=np.int32),
        sizes={name: len(images) for name, images in named.items() if images},
        classes=classes,
    )


def _images_of(folder: Path) -> list[tuple[str, Path]]:
    """(class, file) of each image in the folders of a folder, in their order by name."""
    kinds = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(kind.name, sorted(kind.iterdir())) for kind in kinds]
    return [(label, path) for label, inside in files for path in inside if path.suffix.lower() in _SUFFIXES]


def _image(path: Path, shape: tuple[int, ...]) -> NDArray[np.float32]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise ConfigError("CH106", "images need Pillow.", fix="pip install 'choral[images]'") from None
    try:
        with Image.open(path) as image:
            turned = image.convert("L" if len(shape) == 2 else "RGB").resize((shape[1], shape[0]))
            pixels = np.asarray(turned, dtype=np.float32)
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError):
        raise TableError(
            "CH317", "is no image that can be read.", where=str(path), fix="Take it out, or save it as PNG."
        ) from None
    scaled: NDArray[np.float32] = pixels / np.float32(127.5) - np.float32(1)
    return scaled


def _matching(pattern: str | Path) -> list[Path]:
    found = [Path(path) for path in sorted(glob.glob(str(pattern), recursive=True))]
    if not found:
        raise TableError("CH300", "matches no file.", where=str(pattern), fix="Check the pattern in [data].")
    names = [_name(path) for path in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TableError(
            "CH309", f'two files name the device "{twice[0]}".', where=str(pattern), fix="Rename one of the files."
        )
    return found


def _name(path: Path) -> str:
    return path.name.split(".")[0]
