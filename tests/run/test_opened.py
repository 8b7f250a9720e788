"""A finished run is opened again: the same predictions and claims, and nothing of the folder is executed."""

import json
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import choral
from choral.core.errors import ConfigError, StorageError
from choral.run.result import row_shape
from tests.front.finished import patients, run
from tests.run.small import SETTINGS, rows


def test_an_opened_run_predicts_and_claims_what_it_did():
    result, folder = run()
    again = choral.open(folder)
    frame = patients()
    assert (again.predict_proba(frame) == result.predict_proba(frame)).all()
    assert (again.privacy, again.test, again.folder) == (result.privacy, result.test, folder)
    assert (again.columns, again.target, again.label_type) == (result.columns, result.target, result.label_type)
    assert [line.round for line in again.history] == [1, 2]


def test_a_changed_or_unfinished_folder_is_refused(tmp_path):
    _, folder = run()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    card = json.loads((copy / "model.json").read_text())
    (copy / "model.json").write_text(json.dumps(card | {"classes": ["well", "ill"]}))
    with pytest.raises(StorageError, match=r"CH802 .*model.json is not the one that the run wrote"):
        choral.open(copy)
    (copy / "result.json").unlink()
    with pytest.raises(StorageError, match=r"CH802 .*is not finished"):
        choral.open(copy)
    with pytest.raises(StorageError, match=r"CH802 .*is not there"):
        choral.open(tmp_path / "nowhere")


def own(features, classes):
    def predicted(weights, many):
        return many.reshape(len(many), -1) @ weights

    def loss(weights, row, label):
        return -jnp.log(
            jnp.exp(predicted(weights, row[None])[0])[label] / jnp.exp(predicted(weights, row[None])[0]).sum()
        )

    size = int(np.prod(features))
    return choral.model(lambda _: jnp.zeros((size, classes)), loss, predicted, features=features, classes=classes)


def test_code_is_given_by_the_caller_and_never_taken_from_the_folder(tmp_path):
    features, labels = rows()
    images = features.reshape(-1, 2, 2)
    settings = {**SETTINGS, "model": own, "rounds": 1}
    result = choral.simulate((images, labels), **settings, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r'CH110 .*the model "own" is code that the folder does not hold'):
        choral.open(tmp_path / "run")
    for model in (own, own(features=(2, 2), classes=2)):
        again = choral.open(tmp_path / "run", model=model)
        assert (again.predict_proba(images) == result.predict_proba(images)).all()
    with pytest.raises(ConfigError, match=r"CH102 model= gives a dict"):
        choral.open(tmp_path / "run", model=lambda **_: {})
    with pytest.raises(StorageError, match=r"CH802 .*does not hold the 6 finite numbers of the model"):
        choral.open(tmp_path / "run", model=own(features=(3,), classes=2))


def test_the_shape_of_a_row_follows_from_the_names_of_its_numbers():
    assert row_shape(tuple(f"x{a}_{b}_{c}" for a in range(2) for b in range(3) for c in range(4))) == (2, 3, 4)
    assert row_shape(("x0", "x1", "x2")) == (3,)
    assert row_shape(("x0", "x5")) == (2,)  # columns that people named so
