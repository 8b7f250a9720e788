"""Encoders see one row at a time, only the file that was agreed on runs, and what does not fit is refused."""

import copy
import hashlib

import numpy as np
import onnx
import onnxruntime
import pandas
import pytest

import choral
from choral.core.errors import ConfigError, TableError
from choral.tables.columns import Numeric
from choral.tables.encoder import Encoder, embedding_columns
from choral.tables.reading import Table
from tests.tables import encoders

MATRIX = [[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]
ROWS = np.float32([[0.5, 0.25], [-1.0, 1.0], [0.0, 0.5]])
BOUNDS = (-1, 1)


@pytest.fixture
def file(tmp_path):
    return encoders.linear(tmp_path / "e.onnx", MATRIX)


def test_an_embedding_is_what_the_graph_says_by_hand(file):
    found = Encoder.read(file, bounds=BOUNDS).embed(ROWS)
    assert found == pytest.approx(np.tanh(ROWS @ np.float32(MATRIX)), abs=1e-6)


def test_a_row_of_another_shape_is_given_the_shape_of_the_graph(tmp_path):
    path = encoders.saved(
        tmp_path / "flat.onnx", [encoders.helper.make_node("Flatten", ["x"], ["y"])], ["n", 1, 2, 2], ["n", 4]
    )
    encoder = Encoder.read(path, bounds=BOUNDS)
    assert encoder.embed(np.arange(8, dtype=np.float32).reshape(2, 4)).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert encoder.embed(np.arange(4, dtype=np.float32).reshape(1, 2, 2)).tolist() == [[0, 1, 2, 3]]
    with pytest.raises(TableError, match=r"CH326 flat.onnx rows have 3 numbers, the encoder takes 1 × 2 × 2"):
        encoder.embed(np.zeros((1, 3), np.float32))


def test_one_record_moves_no_other_embedding_even_if_the_graph_mixes_rows(tmp_path):
    # The graph takes the mean over its batch away. A neighbouring table, one record replaced, changes one embedding.
    path = encoders.mixing(tmp_path / "mixing.onnx", 2)
    other = ROWS.copy()
    other[1] = [9.0, -9.0]
    one, two = (Encoder.read(path, bounds=BOUNDS).embed(rows) for rows in (ROWS, other))
    assert (one[[0, 2]] == two[[0, 2]]).all()
    whole = onnxruntime.InferenceSession(path.read_bytes()).run(None, {"x": ROWS})[0]
    assert not np.allclose(one, whole)  # given all at once, the graph does mix them


@pytest.mark.parametrize("in_a_branch", [False, True])
def test_a_graph_that_draws_random_numbers_is_refused_before_it_runs(in_a_branch, tmp_path):
    # One session has one source of random numbers: what later rows get depends on how many were drawn before.
    path = encoders.drawing(tmp_path / "drawing.onnx", in_a_branch=in_a_branch)
    session = onnxruntime.InferenceSession(path.read_bytes())
    last = [session.run(None, {"x": row})[0] for row in np.ones((2, 1, 2), np.float32)][-1]
    again = onnxruntime.InferenceSession(path.read_bytes())
    rows = np.float32([[[-1, 1]], [[1, 1]]])  # a neighbour's first row, which draws nothing in the branch
    assert not np.array_equal(last, [again.run(None, {"x": row})[0] for row in rows][-1]) or not in_a_branch
    with pytest.raises(TableError, match="CH338 .*a branch" if in_a_branch else "CH339 .*RandomNormalLike"):
        Encoder.read(path, bounds=BOUNDS)


class Remembering:
    """A session that adds one more to a row's numbers once it has seen the needle: what no operator may do."""

    def __init__(self, session):
        self.session, self.seen = session, False

    def __getattr__(self, name):
        return getattr(self.session, name)

    def run(self, outputs, given):
        (row,) = given.values()
        self.seen |= bool((row == ROWS[1]).all())
        return [one + self.seen for one in self.session.run(outputs, given)]


def test_a_graph_that_remembers_rows_is_refused_since_all_rows_are_compared_in_two_orders(file, monkeypatch):
    encoder, session = Encoder.read(file, bounds=BOUNDS), onnxruntime.InferenceSession
    rows = np.concatenate([np.full((400, 2), 0.5, np.float32), ROWS])
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *of, **more: Remembering(session(*of, **more)))
    with pytest.raises(TableError, match=r"CH325 e.onnx the encoder gives other numbers for a row that it has seen"):
        encoder.embed(rows)


def test_rows_are_embedded_in_orders_that_nobody_can_predict(file, monkeypatch):
    given, of_row = [], Encoder.of_row
    monkeypatch.setattr(Encoder, "of_row", lambda *of: (given.append(of[2]), of_row(*of))[1])
    monkeypatch.setattr("choral.tables.encoder.ThreadPoolExecutor", InTurn)
    Encoder.read(file, bounds=BOUNDS).embed(np.zeros((50, 2), np.float32))
    first, second = given[1:51], given[51:]
    assert sorted(first) == sorted(second) == list(range(50))
    assert list(range(50)) not in (first, second) and first != second


class InTurn:
    """Threads, one after the other."""

    def __init__(self, _):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    map = staticmethod(map)


def test_a_row_is_embedded_from_the_same_place_of_a_line_in_memory_wherever_it_lies_in_a_table(file, monkeypatch):
    places, session = set(), onnxruntime.InferenceSession

    class Watching(Remembering):
        def run(self, outputs, given):
            places.add(given["x"].ctypes.data % 64)
            return self.session.run(outputs, given)

    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *of, **more: Watching(session(*of, **more)))
    for start in range(9):
        Encoder.read(file, bounds=BOUNDS).embed(np.zeros(41, np.float32)[start : start + 32].reshape(-1, 2))
    assert places == {0}


@pytest.mark.parametrize("version", ["1.20.1", "1.23.2", "1.9.0"])
def test_a_version_of_onnxruntime_that_reads_other_files_is_refused(version, file, monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", version)
    with pytest.raises(ConfigError, match=f"CH112 onnxruntime is {version}, and an encoder needs 1.24 or newer"):
        Encoder.read(file, bounds=BOUNDS).embed(ROWS)
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.0rc1")
    assert len(Encoder.read(file, bounds=BOUNDS).embed(ROWS)) == 3


def test_a_changed_file_is_refused_before_it_runs(file):
    agreed = hashlib.sha256(file.read_bytes()).hexdigest()
    assert Encoder.read(file, bounds=BOUNDS, sha256=agreed).sha256 == agreed
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(TableError, match=r"CH324 .*e.onnx is not the encoder that was agreed on"):
        Encoder.read(file, bounds=BOUNDS, sha256=agreed)


@pytest.mark.parametrize("location", ["w.bin", "../w.bin"])
def test_weights_in_another_file_are_refused_since_no_digest_covers_them(location, tmp_path, monkeypatch):
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    many = np.ones((2, 300), np.float32)
    path = encoders.linear(folder / "e.onnx", many, save_as_external_data=True, location="w.bin", size_threshold=0)
    graph = onnx.load(path, load_external_data=False)
    for entry in graph.graph.initializer[0].external_data:
        entry.value = location if entry.key == "location" else entry.value
    path.write_bytes(graph.SerializeToString())
    (folder / "w.bin").rename(folder / location)
    if location == "w.bin":  # by itself onnxruntime reads it, from wherever it is started
        assert onnxruntime.InferenceSession(path.read_bytes())
    with pytest.raises(TableError, match=r"CH340 e.onnx the encoder keeps numbers outside of its file"):
        Encoder.read(path, bounds=BOUNDS)
    monkeypatch.setattr("choral.tables.encoder.check_operators", lambda *_, **__: None)
    with pytest.raises(
        TableError, match=r"CH325 e.onnx the encoder is not an ONNX file that onnxruntime can run by its"
    ):
        Encoder.read(path, bounds=BOUNDS).embed(ROWS)  # a second wall: onnxruntime looks into an empty folder


def test_what_is_no_encoder_is_refused_in_words(tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"no graph")
    with pytest.raises(TableError, match=r"CH338 no.onnx the encoder's file has a field"):
        Encoder.read(tmp_path / "no.onnx", bounds=BOUNDS).embed(ROWS)
    text = encoders.of_text(tmp_path / "text.onnx", ["good", "bad"])
    with pytest.raises(
        TableError, match=r"CH325 text.onnx the encoder takes tensor\(string\), and not one tensor\(float"
    ):
        Encoder.read(text, bounds=BOUNDS).embed(ROWS)
    fixed = encoders.saved(tmp_path / "three.onnx", [encoders.helper.make_node("Tanh", ["x"], ["y"])], [3, 2], [3, 2])
    with pytest.raises(TableError, match=r"CH325 three.onnx the encoder takes 3 rows at a time"):
        Encoder.read(fixed, bounds=BOUNDS).embed(ROWS)


def test_numbers_that_are_not_finite_and_counts_that_differ_are_refused(tmp_path, file):
    path = encoders.saved(tmp_path / "log.onnx", [encoders.helper.make_node("Log", ["x"], ["y"])], ["n", 2], ["n", 2])
    with pytest.raises(TableError, match=r"CH327 log.onnx gives a number that is not finite for row 2 of rows"):
        Encoder.read(path, bounds=BOUNDS).embed(np.abs(ROWS) * [[1, 1], [0, 1], [1, 1]])
    with pytest.raises(TableError, match=r"CH326 e.onnx gives 3 embeddings for row 1 of rows, 8 are declared"):
        Encoder.read(file, bounds=BOUNDS, embeddings=8).embed(ROWS)


def test_embeddings_are_scaled_by_their_declared_range_and_moved_to_the_nearer_bound(file):
    encoder = Encoder.read(file, bounds=(0, 4))
    assert encoder.scaled(np.float32([[0, 2, 4], [-9, 3, 9]])).tolist() == [[-1, 0, 1], [-1, 0.5, 1]]
    assert embedding_columns(1, (0, 4)) == (Numeric(name="embedding 1", low=0.0, high=4.0),)


def test_text_is_read_from_one_column_and_a_missing_one_is_refused(tmp_path):
    path = encoders.of_text(tmp_path / "text.onnx", ["good", "bad"])
    encoder = Encoder.read(path, bounds=(0, 3), text="said")
    table = Table(source="t", columns={"said": ["good", "bad", ""]})
    assert encoder.of_table(table).tolist() == [[1, 0], [0, 1], [0, 0]]
    assert encoder.reads == ("said",)
    with pytest.raises(TableError, match=r'CH301 t column "said": row 2 has no text'):
        encoder.of_table(Table(source="t", columns={"said": ["good", None]}))


def test_a_copy_of_an_encoder_that_has_run_runs(file):
    encoder = Encoder.read(file, bounds=BOUNDS)
    made = encoder.embed(ROWS)
    assert (copy.deepcopy(encoder).embed(ROWS) == made).all()


def test_a_simulation_through_an_encoder_is_opened_again_and_predicts_the_same(tmp_path, file):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.uniform(0, 10, 200), "b": rng.uniform(-5, 5, 200), "other": range(200)})
    frame["label"] = (frame.a > 5).astype(int)
    columns = {"a": {"bounds": [0, 10]}, "b": {"bounds": [-5, 5]}}
    settings = {"devices": 2, "epsilon": 8.0, "delta": 1e-4, "rounds": 2, "seed": 1}
    given = {"encoder": f"onnx:{file}", "embedding_bounds": [-1, 1]}
    result = choral.simulate(frame, columns=columns, **given, **settings, out=tmp_path / "run")
    # The encoder is given the declared columns, scaled to −1…1, and nothing else of the table.
    scaled = np.stack([frame.a / 5 - 1, frame.b / 5], axis=1).astype(np.float32)
    assert result.features_of(frame) == pytest.approx(np.tanh(scaled @ np.float32(MATRIX)), abs=1e-5)
    page = result.report(tmp_path / "report.html").read_text()  # which cuts long names
    for words in (
        hashlib.sha256(file.read_bytes()).hexdigest(),
        "e.onnx by itself: 3 embeddings",
        "no ε covers the rows",
    ):
        assert words in page
    again = choral.open(tmp_path / "run")
    assert (again.predict_proba(frame) == result.predict_proba(frame)).all()
    moved = file.rename(tmp_path / "moved.onnx")
    with pytest.raises(choral.ChoralError, match=r"CH105 .*the encoder e.onnx of the run is not there"):
        choral.open(tmp_path / "run")
    again = choral.open(tmp_path / "run", encoder=moved)
    assert again.predict(frame).dtype.kind == "i" and (again.predict(frame) == result.predict(frame)).all()
    with pytest.raises(TableError, match=r"CH304 an encoder reads declared columns"):
        choral.simulate(frame, **given | {"encoder": f"onnx:{moved}"}, **settings)
