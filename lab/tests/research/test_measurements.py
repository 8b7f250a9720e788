"""What was measured is kept and not measured again; counting measures nothing."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from choral.core.errors import PlanError, StorageError
from choral_lab.research.measurements import Counting, Measurements


@pytest.fixture(autouse=True)
def trained(monkeypatch):
    """What is trained ahead: nothing really, since experiments are made up; each is there when it is asked for."""
    runs = []

    def train(some, moved):
        for one, repeat in some:
            moved(f"round 1 of {one.noise}")
            runs.append((one, repeat))
            yield one, repeat

    monkeypatch.setattr("choral_lab.research.measurements.train_together", train)
    return runs


def test_what_a_figure_will_ask_for_is_trained_together_unless_it_was_measured_before(tmp_path, trained):
    one, two = Made(noise=0.1), Made(noise=0.2)
    Measurements(tmp_path, 2).curve(one, 0, "validation")
    Measurements(tmp_path, 2).together([one, two], "validation")
    assert [(run.noise, repeat) for run, repeat in trained] == [(0.2, 0), (0.1, 1), (0.2, 1)]
    del trained[:]
    Counting(tmp_path, 2).together([one, two], "validation")
    assert trained == []


def test_an_interrupted_sweep_has_kept_what_was_trained_before_and_the_next_process_trains_the_rest(tmp_path, trained):
    ran = [Made(noise=0.1), Made(noise=0.2), Made(noise=0.3)]

    def interrupt(what):
        if what == "round 1 of 0.3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Measurements(tmp_path, 1, moved=interrupt).together(ran, "test")
    assert [run.noise for run, _ in trained] == [0.1, 0.2]
    assert [one.measured for one in ran] == [[(0.1, 0, "test")], [(0.2, 0, "test")], []]
    del trained[:]
    Measurements(tmp_path, 1).together(ran, "test")
    assert [run.noise for run, _ in trained] == [0.3]


def test_a_sweep_says_how_far_its_runs_are_between_the_measurements(tmp_path):
    reported = []
    Measurements(tmp_path, 1, tell=reported.append, moved=reported.append).together([Made()], "test")
    assert reported == ["round 1 of 0.1", "made up τ=2 σ=0.1 repeat 1"]


@dataclass(eq=False)
class Made:
    """Stands for an experiment: it notes each measurement, and its loss is the number of the repeat."""

    noise: float = 0.1
    local_steps: int = 2
    looks: int = 3
    also: tuple[str, ...] = ("gradient",)
    task: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(name="made up"))
    measured: list = field(default_factory=list)

    def described(self):
        return {"noise": self.noise}

    def named(self, repeat):
        return f"{self.task.name} τ={self.local_steps} σ={self.noise} repeat {repeat + 1}"

    def curve(self, repeat, part):
        self.measured.append((self.noise, repeat, part))
        return {"round": [1], f"{part}_loss": [float(repeat)]}

    def alone(self, repeat):
        self.measured.append((self.noise, repeat, "alone"))
        return 0.25


def test_each_repeat_is_measured_once_and_read_back_by_the_next_process(tmp_path):
    made, reported = Made(), []
    assert [curve["test_loss"] for curve in Measurements(tmp_path, 2, tell=reported.append).curves(made)] == [
        [0.0],
        [1.0],
    ]
    again = Measurements(tmp_path, 3, tell=reported.append)
    assert [curve["test_loss"] for curve in again.curves(made)] == [[0.0], [1.0], [2.0]]
    assert [repeat for _, repeat, _ in made.measured] == [0, 1, 2] and len(reported) == 3
    assert reported[0] == "made up τ=2 σ=0.1 repeat 1"
    assert again.alone(made, 0) == 0.25


def test_what_is_wanted_by_two_parts_of_the_rows_is_trained_once_and_measured_by_both(tmp_path, trained):
    one, two = Made(noise=0.1), Made(noise=0.2)
    Measurements(tmp_path, 1).ahead([([one, two], "test"), ([one, one], "validation")])
    assert [(run.noise, repeat) for run, repeat in trained] == [(0.1, 0), (0.2, 0)]
    assert one.measured == [(0.1, 0, "test"), (0.1, 0, "validation")] and two.measured == [(0.2, 0, "test")]


def test_each_repeat_alone_is_measured_side_by_side_unless_it_was_before(tmp_path):
    made, reported = Made(), []
    Measurements(tmp_path, 3).alone(made, 1)
    counting = Counting(tmp_path, 3)
    assert counting.each_alone([made] * 3) == [0.5] * 3 and len(counting.missing) == 2
    assert Measurements(tmp_path, 3, tell=reported.append).each_alone([made] * 3) == [0.25] * 3
    assert sorted(repeat for _, repeat, _ in made.measured) == [0, 1, 2] and len(reported) == 2
    assert len(list(tmp_path.iterdir())) == 1


def test_parts_and_experiments_have_files_of_their_own(tmp_path):
    kept = Measurements(tmp_path, 1)
    both = kept.varied(Made(), "noise", "σ", [0.1, 0.25])
    assert list(both) == ["σ = 0.1", "σ = 0.25"]
    kept.curve(Made(), 0, "validation")
    files = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    described = sorted((one["experiment"]["noise"], one["experiment"]["measured"]) for one in files)
    assert described == [(0.1, "test"), (0.1, "validation"), (0.25, "test")]


def test_counting_measures_nothing_and_knows_what_is_left(tmp_path):
    made = Made()
    Measurements(tmp_path, 1).curves(made)
    counting = Counting(tmp_path, 3)
    curves = counting.curves(made)
    assert len(made.measured) == 1 and len(counting.missing) == 2
    assert curves[0] == {"round": [1, 2, 3], **dict.fromkeys(("test_accuracy", "test_loss", "gradient"), [0.5] * 3)}


def test_a_file_that_was_damaged_and_a_folder_that_cannot_be_made_are_refused(tmp_path):
    kept = Measurements(tmp_path / "curves", 1)
    kept.curves(Made())
    next((tmp_path / "curves").iterdir()).write_text("{")
    with pytest.raises(StorageError, match=r"CH802 .* is not what was written\. Delete it"):
        kept.curves(Made())
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"CH801 .* can't be made"):
        Measurements(tmp_path / "file", 1)


def test_a_folder_may_be_a_text_and_the_number_of_repeats_is_whole(tmp_path):
    assert Measurements(str(tmp_path / "curves"), 2).folder == tmp_path / "curves"
    with pytest.raises(PlanError, match="CH200 repeats = '2'"):
        Measurements(tmp_path / "other", "2")
