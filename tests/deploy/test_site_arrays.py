"""Sites whose rows are arrays: .npz files and folders of images, by the shape and the classes of the study."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from choral.cli import main
from choral.config import parse, read
from choral.core.errors import ConfigError, TableError
from choral.deploy.approving import approve
from choral.deploy.doctor import CHECKS
from choral.deploy.enrolment import keep_test, with_public_test
from choral.deploy.home import EMBEDDINGS
from choral.deploy.personal import make_personal
from choral.record import read_run
from choral.report.verify import verify
from choral.run.planning import settle
from choral.run.runs import Run
from choral.tables.cells import Format
from choral.tables.encoder import Encoder
from tests.run import consortium
from tests.tables import encoders

SHAPE, CLASSES = (4, 4), ("dark", "light")
MATRIX = np.random.default_rng(5).normal(0, 0.3, (16, 4))
# The plan of the other deployments in the tests, so that the step of a device is compiled once.
JOB = (
    consortium.JOB.split("[data]")[0].replace("rounds = 3", "rounds = 1")
    + """
[data]
row_shape = [4, 4]
label = "light"
classes = ["dark", "light"]
encoder = "onnx:public.onnx"
encoder_sha256 = "{digest}"
embeddings = 4
embedding_bounds = [-1, 1]
"""
)


def pixels_of(seed, rows=80):
    """Grey images, the light ones brighter; sorted by class, as folders are."""
    rng, labels = np.random.default_rng(seed), np.arange(rows) * 2 // rows
    return (rng.uniform(0, 128, (rows, *SHAPE)) + 127 * labels[:, None, None]).astype(np.uint8), labels


def folder_of(path, seed):
    image = pytest.importorskip("PIL.Image", reason="the extra choral[images] is not installed")
    for number, (pixels, label) in enumerate(zip(*pixels_of(seed), strict=True)):
        (path / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        image.fromarray(pixels).save(path / CLASSES[label] / f"{number:03}.png")
    return path


def npz_of(path, seed, **changes):
    pixels, labels = pixels_of(seed)
    arrays = {"features": pixels.astype(np.float32) / np.float32(127.5) - 1, "labels": labels}
    np.savez(path, **{**arrays, **changes})
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three sites, one with a folder and two with files, the last of them with the names of its classes."""
    folder = tmp_path_factory.mktemp("arrays")
    file = encoders.saved(
        folder / "public.onnx",
        [
            encoders.helper.make_node("Flatten", ["x"], ["row"]),
            encoders.helper.make_node("MatMul", ["row", "W"], ["s"]),
            encoders.helper.make_node("Tanh", ["s"], ["y"]),
        ],
        ["rows", *SHAPE], ["rows", 4], [encoders.numpy_helper.from_array(MATRIX.astype(np.float32), "W")],
    )  # fmt: skip
    text = JOB.replace("{digest}", hashlib.sha256(file.read_bytes()).hexdigest())
    sites = consortium.Consortium(folder, job=text)
    names = np.array(CLASSES)[pixels_of(2)[1]]
    sites.tables = {
        "harbour": npz_of(folder / "harbour.npz", 0),
        "hill": folder_of(folder / "pictures" / "hill", 1),
        "lake": npz_of(folder / "lake.npz", 2, labels=names),
    }
    return sites, file


def test_a_deployment_of_arrays_and_images_embeds_once_and_keeps_them_at_home(made, tmp_path, monkeypatch, capsys):
    sites, file = made
    sites = sites.copy(tmp_path)
    sites.approve(encoder=str(file))
    monkeypatch.setattr(Encoder, "embed", None)  # from here on, embeddings are those that are kept
    home = sites.homes["hill"]
    state, what, _ = next(check for check in CHECKS if check.__name__ == "_table")(home, None)
    assert (state, what) == ("ok", "hill is the approved table, with 80 rows.")
    transport = consortium.Sockets(sites.homes)
    with consortium.agents(sites.homes):
        sites.conductor(transport).run()
    folder = next((sites.study / "runs").iterdir())
    record = read_run(folder)
    assert record.result.stopped == "all rounds are done" and record.about.model.parameters == 2 * (4 + 1)
    assert all(not finding.wrong for finding in verify(folder))
    sent = b"".join(transport.seen)
    for one in sites.homes.values():
        (kept,) = (one.path / EMBEDDINGS).iterdir()
        assert kept.stat().st_mode & 0o077 == 0 and len(kept.read_bytes()) > 80 * 4 * 4
    for seed in range(3):
        assert pixels_of(seed)[0][7].tobytes() not in sent
    assert make_personal(home).rows == 80
    monkeypatch.undo()
    rows = sites.tables["hill"] / "dark"
    assert main(["device", "predict", str(rows), "--home", str(home.path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["columns"] == ["light", *CLASSES] and len(shown["rows"]) == 40


def test_a_site_trains_on_the_rows_that_a_simulation_has(made, tmp_path):
    """Of the same folders, a site's features and labels are those of the simulation to the last bit."""
    sites, file = made
    (tmp_path / "public.onnx").write_bytes(file.read_bytes())
    for seed, name in enumerate(("one", "three", "two"), start=1):
        folder_of(tmp_path / "sites" / name, seed)
    (tmp_path / "choral.toml").write_text(sites.agreement.file.job.replace("[data]", '[data]\nimages = "sites/*"'))
    records = settle(read(tmp_path / "choral.toml")).data.records
    site = sites.agreement.with_code_in(tmp_path)
    features, labels = site.encoded(site.table_in(tmp_path / "sites" / "one"))
    assert np.array_equal(features, records.features_of(0)) and np.array_equal(labels, records.labels_of(0))
    npz = site.encoded(site.table_in(npz_of(tmp_path / "one.npz", 1)))
    assert np.array_equal(features, npz[0]) and np.array_equal(labels, npz[1])


@pytest.mark.parametrize("source", ["images", pytest.param("npz", marks=pytest.mark.long)])
def test_simulate_equals_rehearse_to_the_integer_through_an_encoder(source, made, tmp_path):
    _, file = made
    (tmp_path / "public.onnx").write_bytes(file.read_bytes())
    (tmp_path / "sites").mkdir()
    for seed in range(3):
        of = {"npz": lambda name, seed: npz_of(f"{name}.npz", seed), "images": folder_of}[source]
        of(tmp_path / "sites" / str(seed), seed)
    text = JOB.replace("{digest}", hashlib.sha256(file.read_bytes()).hexdigest())
    (tmp_path / "choral.toml").write_text(
        text.replace("[data]", f'[data]\ntest = 0\nvalidation = 0\n{source} = "sites/*"') + "[run]\nseed = 4\n"
    )
    studies = [settle(read(tmp_path / "choral.toml")) for _ in range(2)]
    fast, real = (Run(kind, one).finish() for kind, one in zip(("simulation", "rehearsal"), studies, strict=True))
    assert fast.parameters.tobytes() == real.parameters.tobytes() and fast.parameters.any()


@pytest.mark.parametrize(
    ("arrays", "refused"),
    [
        ({"features": np.zeros((80, 5, 5))}, r"CH318 .*hill.npz rows have the shape 5 × 5, row_shape declares 4 × 4"),
        ({"labels": np.full(80, 7)}, r'CH311 .*hill.npz column "light": 80 cells hold a level that is not declared'),
        ({"features": np.full((80, 4, 4), np.inf)}, r"CH303 .*hill.npz features: row 1 is not finite"),
        ({"labels": np.array([{}] * 80, object)}, r"CH317 .*hill.npz is no .npz file"),
    ],
    ids=["shape", "labels", "infinite", "pickled"],
)
def test_arrays_that_the_study_did_not_declare_are_refused(arrays, refused, made, tmp_path):
    sites, file = made
    sites = sites.copy(tmp_path)
    sites.tables = {**sites.tables, "hill": npz_of(tmp_path / "hill.npz", 1, **arrays)}
    with pytest.raises(TableError, match=refused):
        sites.approve("hill", encoder=str(file))
    assert not (sites.homes["hill"].path / "ledger").exists()


def test_images_that_the_study_did_not_declare_are_refused(made, tmp_path):
    sites, file = made
    sites = sites.copy(tmp_path)
    hill = folder_of(tmp_path / "pictures", 1)
    sites.tables = {**sites.tables, "hill": hill}

    def refused(what):
        with pytest.raises(TableError, match=what):
            sites.approve("hill", encoder=str(file))

    (hill / "dark" / "000.png").write_bytes(b"no image")
    refused(r"CH317 .*dark image 1 by name is no image that can be read")
    (hill / "dark" / "000.png").unlink()
    (hill / "dark" / "000.png").symlink_to(sites.tables["harbour"])
    refused(r"CH319 .*pictures 1 of its images are links to files outside of it")
    (hill / "dark" / "000.png").unlink()
    (hill / "light").rename(hill / "somebody")
    refused(r"CH311 .*pictures 1 of its folders are none of the 2 declared classes")
    sites.tables["hill"] = consortium.table(tmp_path / "hill.csv", seed=1)
    refused(r"CH318 .*hill.csv is a table, and the study's rows are arrays of 4 × 4")


def test_public_rows_to_test_on_are_one_file_of_arrays(made, tmp_path):
    sites, file = made
    sites = sites.copy(tmp_path)
    (sites.study / "public.onnx").write_bytes(file.read_bytes())
    keep_test(sites.study, npz_of(tmp_path / "public.npz", 9))
    settled = with_public_test(sites.study, sites.agreement.with_code_in(sites.study))
    assert settled.split.test.features.shape == (80, 4)
    with pytest.raises(ConfigError, match=r"CH105 .*is a folder. Give the public rows as one .npz file"):
        keep_test(sites.study, sites.tables["hill"])
    with pytest.raises(ConfigError, match=r"CH104 .*delimiter is given, which only a table's file can have"):
        sites.agreement.table_in(sites.tables["hill"], Format(delimiter=";"))


def test_another_image_is_another_table(made, tmp_path):
    sites, file = made
    sites = sites.copy(tmp_path)
    hill = folder_of(tmp_path / "pictures", 1)
    sites.tables = {**sites.tables, "hill": hill}
    sites.approve("hill", encoder=str(file))
    (hill / "dark" / "000.png").rename(hill / "dark" / "zzz.png")
    home = sites.homes["hill"]
    vault = home.vault()
    with pytest.raises(TableError, match="CH313"):
        home.approved_holdings(*home.approved(vault), vault)


def test_the_screen_shows_the_shape_and_a_shape_goes_with_no_columns(made, tmp_path):
    from choral.cli.approval import screen
    from choral.deploy.home import Policy

    sites, file = made
    sites = sites.copy(tmp_path)
    policy = Policy(epsilon=4.0, delta=1e-4, encoder=str(file))
    shown = approve(sites.homes["hill"], sites.study / "study.toml", policy, sites.tables["hill"])
    assert "READS     80 rows of 4 × 4 numbers" in screen(shown)
    with pytest.raises(ConfigError, match=r"CH104 .*row_shape, which makes rows arrays, and columns"):
        parse(sites.agreement.file.job + "[data.columns.age]\nbounds = [0, 9]\n")


@pytest.mark.long
@pytest.mark.parametrize("source", ["npz", "images"])
def test_three_sites_run_a_study_over_flower_with_arrays_or_images(source, made, tmp_path, monkeypatch):
    """The files by a convolutional network, the folders through the encoder; real processes, TLS and node keys."""
    pytest.importorskip("flwr", reason="an extra of choral's")
    from choral.deploy import local

    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "src"), str(root)]))
    sites, file = made
    (tmp_path / "public.onnx").write_bytes(file.read_bytes())
    (tmp_path / "sites").mkdir()
    for seed, name in enumerate(consortium.NAMES):
        npz_of(tmp_path / "sites" / f"{name}.npz", seed) if source == "npz" else folder_of(
            tmp_path / "sites" / name, seed
        )
    text = sites.agreement.file.job.replace("[data]", f'[data]\n{source} = "sites/*"')
    if source == "npz":
        text = text.split("encoder =")[0] + '[model]\nkind = "cnn"\nhidden = [2, 2]\n'
    (tmp_path / "choral.toml").write_text(text)
    folder = tmp_path / "deployed"
    folder.mkdir()
    deployment = local.of_job(folder, tmp_path / "choral.toml", 3, 2)
    assert [told["state"] for told in deployment.run()][-1] == "finished"
    result = deployment.result()
    assert (result.engine, result.tls, result.rounds) == ("flower", True, 2)
    assert result.included == (tuple(consortium.NAMES),) * 2
    for spent in result.spent.values():
        assert spent.charges == 2 and 0 < spent.epsilon <= 4.0 and spent.rules == ("S5",)
    made_at = [path for path in folder.rglob("*.safetensors") if path.parent.name == EMBEDDINGS]
    assert len(made_at) == (0 if source == "npz" else 3)
