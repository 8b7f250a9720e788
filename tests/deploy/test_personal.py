"""A site's personal model: made at the site, used there, and nothing of it anywhere else."""

import csv
import io
import json
import re
import stat

import numpy as np
import onnxruntime
import pytest

from choral.cli import main
from choral.core.errors import StorageError, TableError
from choral.deploy.approving import approve
from choral.deploy.home import Home, Policy
from choral.deploy.personal import FILE, PAGE, make_personal, predictor, shared_model
from choral.learning.personal import fitted
from choral.run.folder import read_parameters, tensors
from choral.tables.cells import OPEN, Format
from choral.tables.columns import encode
from choral.tables.sources import read_one
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, table


def traces(own, shared):
    """What would give a personal model away: its numbers as bytes and as text, where the shared model's differ."""
    found = []
    for place in np.flatnonzero(own != shared):
        value = own[place]
        found += [np.float64(value).tobytes(), str(value).encode(), repr(float(value)).encode()]
        if place + 1 < len(own):
            found.append(own[place : place + 2].tobytes())  # four bytes alone could be chance
    return found


def leaks(content, needles):
    return [needle for needle in needles if needle in content]


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run to its end, with personal models made before it, from a first model, and again after it."""
    made = Consortium(tmp_path_factory.mktemp("personal"))
    made.approve()
    made.fresh = {name: table(made.folder / f"{name}-fresh.csv", seed=50 + n, rows=40) for n, name in enumerate(NAMES)}
    first = made.folder / "first.safetensors"
    first.write_bytes(tensors(made.agreement.settled.model.start(0), {}))
    made.own = {
        name: [make_personal(home, validation=made.fresh[name], model=first)] for name, home in made.homes.items()
    }
    made.transport = Sockets(made.homes)
    with agents(made.homes):
        made.conductor(made.transport).run()
    made.ledgers = {name: home.ledger_path.read_bytes() for name, home in made.homes.items()}
    for name, home in made.homes.items():
        made.own[name].append(make_personal(home, validation=made.fresh[name]))
    made.run = next((made.study / "runs").iterdir())
    made.shared = read_parameters(made.run / "model.safetensors")[0]
    return made


def test_no_file_and_no_frame_of_a_run_holds_anything_of_a_personal_model_outside_its_sites_home(ended):
    start = ended.agreement.settled.model.start(0)
    read = 0
    for name, home in ended.homes.items():
        needles = [n for own, shared in zip(ended.own[name], (start, ended.shared), strict=True)
                   for n in traces(own.own.parameters, shared)]  # fmt: skip
        assert len(needles) > 20
        assert leaks((home.path / FILE).read_bytes(), needles), "what is looked for is what the file holds"
        for path in ended.folder.rglob("*"):
            if path.is_file() and home.path not in path.parents:
                read += 1
                assert leaks(path.read_bytes(), needles) == [], path
                assert path.name not in (FILE, PAGE) or path.parent in {other.path for other in ended.homes.values()}
        assert len(ended.transport.seen) > 20
        assert [frame for frame in ended.transport.seen if leaks(frame, needles) or b"personal" in frame] == []
    assert read > 60


def test_it_costs_nothing_and_moves_no_ledger(ended):
    assert {name: home.ledger_path.read_bytes() for name, home in ended.homes.items()} == ended.ledgers


def test_a_site_keeps_the_model_that_it_signed_and_takes_no_other_for_it(ended, tmp_path):
    home = ended.homes["hill"]
    assert (shared_model(home, ended.agreement) == ended.shared).all()
    assert (shared_model(home, ended.agreement, ended.run / "model.safetensors") == ended.shared).all()
    (tmp_path / "other.safetensors").write_bytes(tensors(ended.shared + np.float32(1e-3), {}))
    with pytest.raises(StorageError, match=r"CH802.*not the model that this site signed"):
        make_personal(home, model=tmp_path / "other.safetensors")
    for wrong in (ended.shared[1:], ended.shared * np.float32(np.nan), ended.shared.astype(np.float64)):
        (tmp_path / "wrong.safetensors").write_bytes(tensors(wrong, {}))
        with pytest.raises(StorageError, match=r"CH802.*finite numbers"):
            shared_model(home, ended.agreement, tmp_path / "wrong.safetensors")


def test_the_file_is_the_owners_and_says_that_it_is_not_private(ended):
    home, (_, own) = ended.homes["lake"], ended.own["lake"]
    for path in (home.path / FILE, home.path / PAGE, home.model_path(ended.agreement)):
        assert not path.exists() or stat.S_IMODE(path.stat().st_mode) == 0o600
    parameters, about = read_parameters(home.path / FILE)
    assert (parameters == own.own.parameters).all()
    assert about["privacy"].startswith("This model is not private.") and about["words"] == own.words
    # The minimiser over the approved table and the fresh rows, for the κ that the file names.
    rows = [ended.agreement.encoded(ended.agreement.table_in(p)) for p in (ended.tables["lake"], ended.fresh["lake"])]
    whole = tuple(np.concatenate(parts) for parts in zip(*rows, strict=True))
    model = ended.agreement.settled.model
    assert (parameters == fitted(model, ended.shared, whole, own.own.kappa)).all()
    assert own.judges == 40 and set(own.standings) == {"shared", "alone", "personal"}


def test_rows_that_the_run_was_trained_on_judge_nothing(ended, tmp_path):
    home, seen = ended.homes["harbour"], ended.tables["harbour"]
    with pytest.raises(TableError, match=r"CH308.*all 80 validation rows"):
        make_personal(home, validation=seen)
    mixed = tmp_path / "mixed.csv"
    mixed.write_text(seen.read_text() + "".join(ended.fresh["harbour"].read_text().splitlines(keepends=True)[1:]))
    own = make_personal(home, validation=mixed)
    assert (own.judges, own.repeated) == (40, 80)
    assert (own.own.parameters == ended.own["harbour"][1].own.parameters).all()


def test_the_verbs_make_it_show_it_and_predict_with_it(ended, tmp_path, capsys):
    home, fresh = ended.homes["hill"].path, ended.fresh["hill"]
    words = ["device", "personal", "--home", str(home), "--validation", str(fresh)]
    assert main([*words, "--onnx", str(tmp_path / "own.onnx"), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["validation_rows"] == 40 and reported["file"] == str(home / FILE) and "parameters" not in reported
    page = (home / PAGE).read_text()
    assert reported["words"] in page and "NOT PRIVATE" in page and "<script" not in page
    assert f"{reported['standings']['personal']['accuracy']:.4f}" in page
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "not private" in shown and re.search(r"^  personal +loss ", shown, re.M)

    rows = tmp_path / "new.csv"  # no label, and an order of its own
    rows.write_text("age,smokes,pulse\n70,yes,140\n25,no,60\n")
    answers = {}
    for flags in ((), ("--personal",)):
        assert main(["device", "predict", str(rows), "--home", str(home), *flags]) == 0
        header, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
        assert header == ["sick", "no", "yes"]
        answers[flags] = np.array([line[1:] for line in lines], dtype=float)
    assert np.abs(answers[()] - answers["--personal",]).max() > 1e-3
    _, study = predictor(ended.homes["hill"], personal=True)
    features = encode(study.table_in(rows), study.columns)
    session = onnxruntime.InferenceSession(tmp_path / "own.onnx", providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(["probabilities"], {"features": features})[0], answers["--personal",], atol=1e-5)
    assert session.get_modelmeta().custom_metadata_map["privacy"].startswith("This model is not private")
    out = tmp_path / "out.csv"
    assert main(["device", "predict", str(rows), "--home", str(home), "--personal", "--out", str(out)]) == 0
    assert out.read_text().startswith("sick,no,yes\n") and stat.S_IMODE(out.stat().st_mode) == 0o600


def test_what_is_not_there_is_refused_with_the_way_to_it(ended, tmp_path, capsys):
    copy = ended.copy(tmp_path)
    home = copy.homes["hill"]
    (home.path / FILE).unlink()
    with pytest.raises(StorageError, match=r"CH802.*no personal model.*choral device personal"):
        predictor(home, personal=True)
    (home.path / FILE).write_bytes(tensors(ended.shared, {"study": "00"}))
    with pytest.raises(StorageError, match=r"CH802.*another study"):
        predictor(home, personal=True)
    home.model_path(ended.agreement).unlink()
    assert main(["device", "personal", "--home", str(home.path)]) == 1
    assert "the coordinator's model.safetensors as --model" in capsys.readouterr().err
    assert main(["device", "personal", "--home", str(home.path), "--kappa", "-1"]) != 0


HEAD_AT_HOME = """
import jax
import jax.numpy as jnp

import choral


def shared_body(features, classes):
    def init(seed):
        body, head = jax.random.split(jax.random.key(seed))
        return {"body": jax.random.normal(body, (features, 3)), "head": jax.random.normal(head, (3, classes))}

    def predict(parameters, rows):
        return jnp.tanh(rows @ parameters["body"]) @ parameters["head"]

    def loss(parameters, row, label):
        return -jax.nn.log_softmax(predict(parameters, row[None])[0])[label]

    return choral.model(init, loss, predict, features=features, classes=classes, private=["head"])
"""


def test_private_parameters_are_in_no_frame_and_no_file_outside_their_sites_home(tmp_path, monkeypatch):
    """One site of three also predicts something else than the others: its own column, on the shared ones."""
    (tmp_path / "bodies.py").write_text(HEAD_AT_HOME)
    monkeypatch.syspath_prepend(tmp_path)  # where the coordinator has installed it
    job = JOB.replace("[run]", '[model]\nkind = "bodies:shared_body"\n[run]').replace("rounds = 3", "rounds = 2")
    made = Consortium(tmp_path, job=job)
    data = made.tables["lake"]
    data.write_text(data.read_text().replace("sick,name", "well,name").replace("\nyes,", "\nperhaps,"))
    data.write_text(data.read_text().replace("\nno,", "\nyes,").replace("\nperhaps,", "\nno,"))
    for name, home in made.homes.items():
        policy = Policy(epsilon=4.0, delta=1e-4, models=(f"bodies:shared_body={tmp_path / 'bodies.py'}",))
        written = Format(outcome="well") if name == "lake" else OPEN
        approve(home, made.study / "study.toml", policy, made.tables[name], record=True, written=written)
    transport = Sockets(made.homes)
    with agents(made.homes):
        made.conductor(transport).run()
    shared = read_parameters(next((made.study / "runs").iterdir()) / "model.safetensors")[0]
    for home in made.homes.values():
        own = make_personal(home, kappa=1.0).own.parameters
        model = home.approved(home.vault(None))[0].settled.model
        assert len(shared) == model.size == len(own) - 6  # the head of three by two is at home
        head = np.ravel(model.whole.unravel(own)["head"])
        needles = traces(np.asarray(head), np.full(6, np.nan, np.float32))
        assert leaks((home.path / FILE).read_bytes(), needles)
        outside = [path for path in tmp_path.rglob("*") if path.is_file() and home.path not in path.parents]
        assert [path for path in outside if leaks(path.read_bytes(), needles)] == [] and len(outside) > 20
        assert [frame for frame in transport.seen if leaks(frame, needles)] == [] and len(transport.seen) > 10
        found = predictor(home, personal=True)[0]
        assert len(found.parameters) == len(own)
    lake, hill = (Home(tmp_path / name) for name in ("lake", "hill"))
    said = {home.path.name: predictor(home, personal=True)[0].predict(read_one(tmp_path / "hill.csv")).tolist()
            for home in (lake, hill)}  # fmt: skip
    opposite = np.mean([a != b for a, b in zip(said["lake"], said["hill"], strict=True)])
    assert opposite > 0.6, "one body, and heads that say the opposite"
