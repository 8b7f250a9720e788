"""The arithmetic of the comparison, and the contract between harness and workers; no figure is measured here."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import harness
from bench.engine import PEERS, headline, table
from bench.engine_scale import anonymous_bytes
from bench.harness import Contender, Figure, NoFigureError, growth, ratio, take_turns
from bench.work import ADULT_MLP, CROSS_DEVICE, Work, batches_of, cohort_of, first_weights, rows_of

LAB = Path(harness.__file__).parents[1]

SMALL = Work(devices=5, fewest_rows=9, most_rows=20, layers=(3, 4, 2), cohort=3, steps=7, batch=4)
seconds = st.floats(1e-3, 1e3)


class Scripted:
    """A contender whose rounds take the seconds that it was given."""

    def __init__(self, took: list[float], log: list[str], name: str) -> None:
        self.took, self.log, self.name = iter(took), log, name

    def rounds(self, count: int) -> dict[str, float]:
        self.log.append(self.name)
        wall = next(self.took) * count
        return {"wall": wall, "cpu": 2 * wall}


def test_contenders_take_turns_after_one_warm_up_that_is_not_counted():
    log: list[str] = []
    ours, peer = Scripted([99, 1, 2, 3], log, "ours"), Scripted([99, 4, 4, 4], log, "peer")
    mine, theirs = take_turns([(ours, 5), (peer, 1)], repeats=3)  # type: ignore[list-item]
    assert log == ["ours", "peer"] * 4
    assert (mine.wall, mine.cpu, theirs.wall) == ((1, 2, 3), (2, 4, 6), (4, 4, 4))


def test_a_ratio_compares_turns_that_stood_side_by_side():
    # The pairs are 1, 2 and 9 times; the ratio of the medians would be 4.
    slow, fast = Figure(wall=(1.0, 4.0, 9.0), cpu=(1.0, 1.0, 1.0)), Figure(wall=(1.0, 2.0, 1.0), cpu=(0.5, 0.25, 0.5))
    assert ratio(slow, fast) == {"times": 2.0, "least": 1.0, "most": 9.0, "cpu_times": 2.0}


@given(st.lists(seconds, min_size=1, max_size=9))
def test_a_contender_is_as_fast_as_itself(took: list[float]):
    figure = Figure(wall=tuple(took), cpu=tuple(took))
    assert set(ratio(figure, figure).values()) == {1.0}


@given(exponent=st.floats(-1, 3), factor=st.floats(1e-6, 1e3))
def test_growth_finds_the_exponent_of_a_power_law(exponent: float, factor: float):
    sizes = [25, 50, 100, 400]
    assert growth(sizes, [factor * size**exponent for size in sizes]) == pytest.approx(exponent, abs=1e-3)


def test_the_works_have_the_shapes_that_are_claimed():
    # Hand count: 104·64+64 + 64·32+32 + 32·2+2 and 784·200+200 + 200·200+200 + 200·10+10.
    assert (ADULT_MLP.parameters, CROSS_DEVICE.parameters) == (8866, 199_210)
    # Forward 2, backward into every layer but the first 2, and the clipped sum 2 for each weight, row, step and device.
    assert SMALL.flops == 3 * 7 * 4 * (6 * (12 + 8) - 2 * 12)
    assert [weights.shape for weights, _ in first_weights(SMALL)] == [(3, 4), (4, 2)]


def test_batches_are_disjoint_within_a_pass_and_stay_inside_their_device():
    rows = rows_of(SMALL)
    for number in range(5):
        for device, batches in zip(cohort_of(SMALL, number), batches_of(SMALL, rows, number), strict=True):
            own = rows.of(int(device))
            a_pass = (own.stop - own.start) // SMALL.batch
            assert batches.min() >= own.start and batches.max() < own.stop
            for start in range(0, SMALL.steps, a_pass):
                seen = batches[start : start + a_pass].ravel()
                assert len(np.unique(seen)) == len(seen)


def test_a_table_larger_than_memory_is_a_mapped_file_of_zeros(monkeypatch):
    monkeypatch.setattr("bench.work.IN_MEMORY", 0)
    rows = rows_of(SMALL)
    assert rows.features.shape == (rows.offsets[-1], 3) and not rows.features.any()


def test_memory_besides_the_data_is_what_no_file_backs():
    assert anonymous_bytes("RssAnon:\t  2048 kB\nRssFile:\t 99999 kB\n") == 2 * 2**20


def test_a_peer_that_is_not_installed_gives_a_reason_and_no_figure(monkeypatch, tmp_path):
    monkeypatch.setattr("bench.harness.python_of", lambda peer: tmp_path / peer)
    with pytest.raises(NoFigureError, match="fedjax is not installed here"):
        Contender("fedjax", environment="fedjax")


def test_every_peer_has_requirements_and_a_worker():
    peers = Path(harness.__file__).parent / "peers"
    for environment, *_ in PEERS.values():
        assert (peers / f"{environment}.txt").exists() and (peers / f"{environment}.py").exists()


def test_the_headline_holds_plain_numbers_and_null_where_a_peer_gave_none():
    found = {
        "adult_mlp": {"opacus_loop": {"times": 20.0}, "fedjax": {"times": None, "reason": "not installed"}},
        "cross_device_r100": {"opacus_loop": {"times": 10.0}},
        "noise": {"a": {"times": 1.5}, "b": {"times": 1.7}},
    }
    expected = {
        "adult_mlp_vs_opacus_loop": 20.0,
        "adult_mlp_vs_fedjax": None,
        "cross_device_r100_vs_opacus_loop": 10.0,
        "noise_overhead": 1.7,
    }
    assert headline(found) == expected
    assert "no figure" in table(expected)


@pytest.mark.parametrize("broken", [False, True])
def test_a_worker_answers_one_object_a_line_whatever_its_libraries_print(broken: bool):
    task = "raise ValueError('no such work')" if broken else "print('noise on stdout')"
    code = f"from bench.worker import serve\ndef prepare(work):\n  {task}\n  return lambda count: None\nserve(prepare)"
    asked = '{"prepare": {}}\n{"rounds": 2}\n'
    done = subprocess.run(
        [sys.executable, "-c", code], input=asked, cwd=LAB, capture_output=True, text=True, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == 2
    if broken:
        assert answers[0] == {"error": "ValueError: no such work"} and "before a work" in answers[1]["error"]
    else:
        assert set(answers[1]) == {"wall", "cpu", "peak_bytes"}
