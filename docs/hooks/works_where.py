"""The table of what rows a run can have and where: `python -m docs.hooks.works_with` writes it into the page.

Every cell is tried: a simulation is settled over files that are made here, and a study is made for three sites, one of
which then reads its file.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from choral.config import parse
from choral.core.errors import ChoralError
from choral.core.keys import Identity
from choral.deploy.certificates import node_key
from choral.deploy.enrolment import study_of
from choral.run.agreement import Enrolled
from choral.run.planning import settle

ROWS, SHAPE = 40, (4, 4)
HEAD = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
cohort = 3
rounds = 1
rows = 30
[local]
steps = 1
batch = 10
step_size = 0.1
clip = 1.0
[data]
classes = ["a", "b"]
"""
COLUMNS = "[data.columns.x]\nbounds = [0, 1]\n[data.columns.y]\nbounds = [0, 1]\n"
ARRAYS = "row_shape = [4, 4]\n"
SOURCES: dict[str, tuple[str, str, str]] = {  # -> setting, pattern, what [data] declares
    "a table with declared columns": ("csv", "*.csv", COLUMNS),
    "the same through an encoder": ("csv", "*.csv", "ENCODER two\n" + COLUMNS),
    "a table whose columns nobody declared": ("csv", "*.csv", ""),
    "arrays in an `.npz` file": ("npz", "*.npz", ARRAYS),
    "arrays through an encoder": ("npz", "*.npz", ARRAYS + "ENCODER many\n"),
    "images in a folder": ("images", "images/*", ARRAYS),
    "images through an encoder": ("images", "images/*", ARRAYS + "ENCODER many\n"),
    "arrays whose shape nobody declared": ("npz", "*.npz", ""),
}
ENCODER = 'encoder = "onnx:{file}"\nencoder_sha256 = "{sha256}"\nembeddings = 2\nembedding_bounds = [-1, 1]'
CNN = '[model]\nkind = "cnn"\nhidden = [2, 2]\n'


def write_encoder(path: Path, given: tuple[int, ...]) -> None:
    """A graph that takes rows of this shape and gives two numbers."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = numpy_helper.from_array(np.ones((int(np.prod(given)), 2), np.float32) / 20, "W")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["row"]), helper.make_node("MatMul", ["row", "W"], ["y"])],
        "encoder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", *given])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])],
        [weights],
    )
    save(helper.make_model(graph, ir_version=7, opset_imports=[helper.make_opsetid("", 13)]), path)


def write_sites(folder: Path) -> None:
    """Three sites' rows in every form."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for site in ("one", "two", "three"):
        labels = np.arange(ROWS) % 2
        lines = [f"{x:.3f},{y:.3f},{'ab'[label]}" for (x, y), label in zip(rng.random((ROWS, 2)), labels, strict=True)]
        (folder / f"{site}.csv").write_text("\n".join(["x,y,label", *lines]) + "\n")
        np.savez(folder / f"{site}.npz", features=rng.uniform(-1, 1, (ROWS, *SHAPE)), labels=labels)
        for number, label in enumerate(labels):
            (folder / "images" / site / "ab"[label]).mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, SHAPE).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "images" / site / "ab"[label] / f"{number}.png")
    for name, given in (("two", (2,)), ("many", SHAPE)):
        write_encoder(folder / f"{name}.onnx", given)


def job_text(folder: Path, declared: str, setting: str = "", pattern: str = "") -> str:
    """The choral.toml of a case; where rows are arrays and stay so, the model is one of images."""
    lines = []
    for line in declared.splitlines():
        if line.startswith("ENCODER"):
            file = folder / f"{line.split()[1]}.onnx"
            line = ENCODER.format(file=file.name, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
        lines.append(line)
    source = f'{setting} = "{pattern}"\n' if setting else ""
    of_images = setting in ("npz", "images") and "ENCODER" not in declared
    return HEAD + source + "\n".join(lines) + "\n" + (CNN if of_images else "")


def simulates(folder: Path, setting: str, pattern: str, declared: str) -> bool:
    """Whether a simulation can be settled over these files."""
    try:
        settle(parse(job_text(folder, declared, setting, pattern), source=str(folder / "choral.toml")))
    except ChoralError:
        return False
    return True


def deploys(folder: Path, setting: str, pattern: str, declared: str) -> bool:
    """Whether three sites can agree on such a study, and one of them can read its own rows by it."""
    try:
        job = parse(job_text(folder, declared, setting, pattern), source=str(folder / "choral.toml"))
        cards = [Enrolled.of(Identity.fresh(name), node_key()[1]) for name in ("one", "two", "three")]
        study = study_of(job, cards, run="tried", address="localhost:9092", certificate="", server_key=bytes(32).hex())
        study.units_of(study.table_in(sorted(folder.glob(pattern))[0]))
    except ChoralError:
        return False
    return True


def lines() -> Iterator[str]:
    """The table, line by line."""
    yield "| a site's rows | simulation, rehearsal | deployment |"
    yield "|---|---|---|"
    with TemporaryDirectory() as made:
        folder = Path(made)
        write_sites(folder)
        for name, case in SOURCES.items():
            tried = ("yes" if works(folder, *case) else "no" for works in (simulates, deploys))
            yield f"| {name} | {' | '.join(tried)} |"


def table() -> str:
    """The table of the page."""
    return "\n".join(lines()) + "\n"
