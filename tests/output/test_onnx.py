"""A run's model as ONNX, run by onnxruntime, which shares no code with choral or JAX."""

import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

import choral
from choral.cli import main
from choral.core.errors import ConfigError, StorageError
from choral.learning import models
from choral.output.onnx import export_onnx, onnx_of
from choral.run.folder import RunFolder
from choral.run.result import TrainedModel, model_card
from choral.run.runs import Run
from choral.tables.arrays import array_features
from choral.tables.columns import Numeric
from choral.tables.records import Records
from choral.tables.sources import Dataset
from tests.run.small import SETTINGS, rows, study

THREE = np.random.default_rng(4).uniform(-1, 1, (300, 5)).astype(np.float32)
MODELS = {
    "logistic": (rows(), {}),
    "mlp": (rows(), {"model": "mlp", "hidden": [7, 3]}),
    "three classes": ((THREE, np.digitize(THREE[:, 0], [-0.3, 0.4])), {"model": "mlp", "hidden": [6]}),
}


def session_of(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("case", MODELS)
def test_onnxruntime_gives_the_probabilities_and_classes_of_the_result(case, tmp_path):
    data, settings = MODELS[case]
    result = choral.simulate(data, **{**SETTINGS, **settings, "epsilon": 50.0}, out=tmp_path / "run")
    path = export_onnx(tmp_path / "run")
    assert path == tmp_path / "run" / "model.onnx"
    onnx.checker.check_model(onnx.load(path), full_check=True)
    features = np.random.default_rng(1).normal(0, 3, (50, data[0].shape[1])).astype(np.float32)
    label, probabilities = session_of(path).run(["label", "probabilities"], {"features": features})
    assert np.allclose(probabilities, result.predict_proba(features), atol=1e-5, rtol=0)
    assert result.classes_[label].tolist() == result.predict(features).tolist()
    assert len(set(label.tolist())) == len(result.classes), "rows of every class, or the test could not fail"


@pytest.mark.parametrize(
    ("shape", "hidden", "classes"),
    [((8, 8), (2, 3), 2), ((9, 7), (2, 3, 5), 3), ((20, 17, 3), (3, 2, 4), 0)],
    ids=["grey", "odd sizes", "colours, a number"],
)
def test_onnxruntime_gives_the_outputs_of_a_convolutional_network(shape, hidden, classes):
    rng = np.random.default_rng(2)
    model = models.cnn(shape, hidden, classes)
    parameters = (model.start(1) + rng.normal(0, 0.1, model.size)).astype(np.float32)
    images = rng.uniform(-1, 1, (6, *shape)).astype(np.float32)
    names = tuple(str(one) for one in range(classes))
    target = None if classes else Numeric(name="label", low=2.0, high=10.0)
    records = Records.of([("site", images, np.zeros(6))], classes=classes)
    data = Dataset(
        records=records, features=array_features(shape), classes=names, columns_from="declared", target=target
    )
    trained = TrainedModel(model=model, parameters=parameters, classes=names, columns=(), target=target)
    graph = onnx_of(model, model_card(model, data), parameters, run="run")
    onnx.checker.check_model(graph, full_check=True)
    found = session_of(graph.SerializeToString()).run(None, {"features": images})
    assert np.allclose(found[-1], trained.predict_proba(images) if classes else trained.predict(images), atol=1e-5)
    if classes:
        assert found[0].tolist() == [int(name) for name in trained.predict(images)]
    assert np.ptp(found[-1], axis=0).max() > 0.01  # rows differ, or the test could not fail


@pytest.mark.long
def test_a_run_with_a_convolutional_network_is_exported_and_predicts_for_arrays_and_opened(tmp_path, capsys):
    images = np.random.default_rng(3).uniform(-1, 1, (120, 6, 6)).astype(np.float32)
    labels = (images[:, :3].mean(axis=(1, 2)) > 0).astype(int)
    settings = {**SETTINGS, "rounds": 1, "devices": 4, "model": "cnn", "hidden": [2, 2]}
    choral.simulate((images, labels), **settings, out=tmp_path / "run")
    probabilities = session_of(export_onnx(tmp_path / "run")).run(["probabilities"], {"features": images[:9]})[0]
    assert np.allclose(probabilities, choral.open(tmp_path / "run").predict_proba(images[:9]), atol=1e-5)
    np.savez(tmp_path / "new.npz", features=images[:9])
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "new.npz"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["rows"]
    assert np.allclose([row[1:] for row in shown], probabilities, atol=1e-5)


def test_the_file_says_what_its_numbers_mean(tmp_path):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run")
    about = session_of(export_onnx(tmp_path / "run", tmp_path / "elsewhere.onnx")).get_modelmeta()
    card = json.loads((tmp_path / "run" / "model.json").read_text())
    for name in ("classes", "features", "columns"):
        assert json.loads(about.custom_metadata_map[name]) == card[name]
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about.custom_metadata_map["plan_digest"] == run["plan_digest"]
    assert about.producer_name == "choral"


def test_the_verb_prints_where_the_file_is_and_the_run_still_verifies(tmp_path, capsys):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"onnx": str(tmp_path / "run" / "model.onnx")}
    assert main(["export", str(tmp_path / "run"), "--onnx", str(tmp_path / "m.onnx")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'm.onnx'}\n"
    assert (tmp_path / "m.onnx").read_bytes() == (tmp_path / "run" / "model.onnx").read_bytes()
    assert main(["verify", str(tmp_path / "run")]) == 0


def test_a_model_of_ones_own_is_refused_with_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import choral, jax, jax.numpy as jnp\n"
        "def tilted(features, classes):\n"
        "    loss = lambda w, x, y: jnp.square(x @ w - y)\n"
        "    return choral.model(lambda seed: jnp.zeros(features), loss, lambda w, rows: (rows @ w)[:, None],\n"
        "                        features=features, classes=classes, name='mlp')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    choral.simulate(rows(), **SETTINGS, model="mine:tilted", out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"CH102 .*your own function.*model\.safetensors"):
        export_onnx(tmp_path / "run")


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    Run("simulation", study(), folder=RunFolder.create(tmp_path / "run")).begin()
    with pytest.raises(StorageError, match=r"CH802 .*is not finished.*choral resume"):
        export_onnx(tmp_path / "run")


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_model_that_was_swapped_after_the_run_is_refused(name, tmp_path):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run")
    content = (tmp_path / "run" / name).read_bytes()
    (tmp_path / "run" / name).write_bytes(content + b" ")
    with pytest.raises(StorageError, match=r"CH802 .*is not the one that the run wrote"):
        export_onnx(tmp_path / "run")


def test_without_the_package_the_pip_line_is_reported(tmp_path, monkeypatch):
    choral.simulate(rows(), **SETTINGS, out=tmp_path / "run")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"CH106 .*pip install 'choral\[onnx\]'"):
        export_onnx(tmp_path / "run")
