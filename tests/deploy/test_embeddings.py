"""A site makes its embeddings once, keeps them at home, and refuses any encoder but the one that it approved."""

import hashlib
import stat

import numpy as np
import pytest

from choral.core.errors import ConfigError, TableError, TrustError
from choral.deploy.approving import approve
from choral.deploy.home import EMBEDDINGS, Home, KeepingEncoder
from choral.record import read_run
from choral.run.folder import read_parameters
from choral.tables.cells import Format
from choral.tables.columns import declare
from choral.tables.encoder import Encoder
from tests.run import consortium
from tests.tables import encoders

MATRIX = np.float32([[1.0, 0.5, -1.0, 0.2], [-1.0, 1.0, 0.3, 0.1], [0.2, 0.0, 1.0, 0.5], [-0.2, 0.0, 1.0, 0.5]])


def job(file, embeddings=4):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    declared = f'encoder = "onnx:{file.name}"\nencoder_sha256 = "{digest}"\nembeddings = {embeddings}\n'
    declared += "embedding_bounds = [-1, 1]\n"
    return consortium.JOB.replace("rounds = 3", "rounds = 1").replace("[data]\n", f"[data]\n{declared}")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoded")
    file = encoders.linear(folder / "public.onnx", MATRIX)
    return consortium.Consortium(folder, job=job(file)), file


def kept_in(home):
    return sorted((home.path / EMBEDDINGS).glob("*")) if (home.path / EMBEDDINGS).exists() else []


def test_a_site_without_the_encoder_is_shown_which_file_it_needs(made):
    sites, file = made
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(
        TrustError, match=f"CH603 .*the encoder public.onnx.*--encoder FILE, whose SHA-256 must be {digest}"
    ):
        sites.approve("hill")


def test_another_encoder_than_the_studys_is_refused(made, tmp_path):
    sites, _ = made
    other = encoders.linear(tmp_path / "public.onnx", 2 * MATRIX)
    with pytest.raises(TableError, match=r"CH324 .*is not the encoder that was agreed on"):
        sites.approve("hill", encoder=str(other))
    assert kept_in(sites.homes["hill"]) == []


@pytest.mark.parametrize("form", ["an operator", "a node", "a second graph"])
def test_no_site_approves_an_encoder_with_hidden_operators(form, tmp_path, monkeypatch):
    file = tmp_path / "public.onnx"
    file.write_bytes(encoders.hidden(tmp_path / "plain.onnx", form, above=1))
    with monkeypatch.context() as lax:  # a coordinator whose program looks at nothing
        lax.setattr("choral.tables.encoder.check_operators", lambda *_, **__: None)
        sites = consortium.Consortium(tmp_path, job=job(file))
    for name in sites.homes:
        with pytest.raises(TableError, match=r"CH338 public.onnx the encoder's file has a number that does not end"):
            sites.approve(name, encoder=str(file))


def test_embeddings_are_made_once_and_stay_at_home(made, tmp_path, monkeypatch):
    sites, file = made
    sites = sites.copy(tmp_path)
    sites.approve(encoder=str(file))
    for home in sites.homes.values():
        (kept,) = kept_in(home)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    monkeypatch.setattr(Encoder, "embed", None)  # whoever embeds again fails
    transport = consortium.Sockets(sites.homes)
    with consortium.agents(sites.homes):
        sites.conductor(transport).run()
    record = read_run(next((sites.study / "runs").iterdir()))
    assert record.result.stopped == "all rounds are done" and record.about.model.parameters == 2 * (4 + 1)
    assert any("public.onnx" in note for note in record.about.data.notes)
    sent = b"".join(transport.seen)
    for home in sites.homes.values():
        embeddings, _ = read_parameters(kept_in(home)[0])
        assert embeddings.shape == (80, 4)
        assert not any(row.tobytes() in sent for row in embeddings)


def test_other_cells_another_encoder_or_other_ranges_have_their_own_embeddings(made, tmp_path):
    sites, file = made
    study, home = sites.agreement, Home(tmp_path)
    table = study.table_in(sites.tables["hill"])
    encoder = Encoder.read(file, bounds=(-1, 1), inputs=study.inputs)
    kept = KeepingEncoder(**encoder.__getstate__(), home=home.path)
    first = kept.of_table(table)
    assert (kept.of_table(table) == first).all() and len(kept_in(home)) == 1
    narrower = KeepingEncoder(**{**encoder.__getstate__(), "inputs": study.inputs[::-1]}, home=home.path)
    narrower.of_table(table)
    kept.of_table(study.table_in(sites.tables["lake"]))
    assert len(kept_in(home)) == 3
    kept.path_for(table).write_bytes(b"damaged")
    assert (kept.of_table(table) == first).all()


def test_cells_that_are_read_in_another_way_have_their_own_embeddings(made, tmp_path):
    """Approved again with another order of dates, a site went on with the embeddings of the first one."""
    sites, _ = made
    inputs = (declare("visit", {"dates": ["2020-01-01", "2020-12-31"]}), declare("age", {"bounds": [0, 100]}))
    encoder = Encoder.read(encoders.linear(tmp_path / "two.onnx", MATRIX[:2]), bounds=(-1, 1), inputs=inputs)
    path = tmp_path / "site.csv"
    path.write_text("visit,age,sick\n03/04/2020,25,no\n11/12/2020,61,yes\n")
    found = []
    for order in ("day first", "month first"):
        table = sites.agreement.table_in(path, Format(dates=order))
        kept = KeepingEncoder(**encoder.__getstate__(), home=tmp_path)
        found.append(kept.of_table(table))
        assert found[-1].tobytes() == encoder.of_table(table).tobytes()
    assert found[0].tobytes() != found[1].tobytes()


def test_the_approval_shows_the_encoder_and_a_file_that_changes_later_is_refused(made, tmp_path):
    from choral.cli.approval import screen
    from choral.deploy.home import Policy

    sites, file = made
    sites, own = sites.copy(tmp_path), tmp_path / "mine.onnx"
    own.write_bytes(file.read_bytes())
    home = sites.homes["hill"]
    policy = Policy(epsilon=4.0, delta=1e-4, encoder=str(own))
    reported = approve(home, sites.study / "study.toml", policy, sites.tables["hill"], record=True)
    text = "\n".join(screen(reported))
    assert f"{own} (SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()})" in text
    assert reported.columns == ("age", "pulse", "smokes")  # what is read of the table, and not what is made of it
    own.write_bytes(encoders.linear(tmp_path / "other.onnx", 2 * MATRIX).read_bytes())
    with pytest.raises(TableError, match=r"CH324"):
        home.approved(home.vault())


def test_a_study_pins_the_encoder_or_is_refused(tmp_path):
    file = encoders.linear(tmp_path / "public.onnx", MATRIX)
    text = job(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match=f'CH103 .*no encoder_sha256.*Set encoder_sha256 = "{digest}"'):
        consortium.Consortium(tmp_path, job=text.replace(f'encoder_sha256 = "{digest}"\n', ""))
    with pytest.raises(ConfigError, match=r"CH103 .*an encoder and no embeddings"):
        consortium.Consortium(tmp_path, job=text.replace("embeddings = 4\n", ""))
