"""One command for all: a benchmark that fails leaves its reason, and the others go on."""

import importlib
import json

import pytest

from bench.accuracy import clusters, summary
from bench.footprint import names_in
from bench.installed import closure, size

main = importlib.import_module("bench.__main__")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of benchmarks of our own."""
    here = tmp_path / "bench"
    here.mkdir()
    (here / "__init__.py").touch()
    head = 'import argparse, json, sys\np = argparse.ArgumentParser()\np.add_argument("--json", action="store_true")\n'
    (here / "good.py").write_text(head + 'p.add_argument("--quick")\nprint("noise")\nprint(json.dumps({"ms": 1.5}))\n')
    (here / "failing.py").write_text(head + "sys.exit(3)\n")
    monkeypatch.setattr(main, "HERE", here)
    return here


@pytest.mark.usefixtures("place")
def test_a_benchmark_is_the_last_line_that_it_prints():
    assert main.run("good", quick=False)["ms"] == 1.5


def test_a_benchmark_that_fails_has_its_reason_and_the_rest_is_kept(place, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench", "--quick"])
    assert main.names() == ["failing", "good"]
    assert main.main() == 1
    reported = json.loads((place / "quick.json").read_text())
    assert reported["benchmarks"]["failing"]["reason"] == "no figures: the benchmark ended with exit status 3"
    assert reported["benchmarks"]["good"]["ms"] == 1.5 and reported["quick"]
    assert "failing: no figures" in capsys.readouterr().err


def test_measuring_one_anew_keeps_the_others(place, monkeypatch):
    monkeypatch.setattr("sys.argv", ["bench", "--quick", "--only", "good"])
    (place / "quick.json").write_text(json.dumps({"benchmarks": {"other": {"ms": 7}, "good": {"ms": 9}}}))
    assert main.main() == 0
    reported = json.loads((place / "quick.json").read_text())["benchmarks"]
    assert (reported["other"]["ms"], reported["good"]["ms"]) == (7, 1.5)


def test_an_installation_is_a_package_with_what_it_requires_and_no_extra():
    found = closure(["safetensors", "dp-accounting"])
    assert {"safetensors", "dp-accounting", "numpy", "scipy"} <= found.keys()
    assert not {"torch", "pytest", "hypothesis"} & found.keys()
    assert size(found["numpy"]) > 10 * 2**20 > size(found["safetensors"]) > 0


def test_a_peer_is_named_by_its_requirements(tmp_path):
    (tmp_path / "peer.txt").write_text("# alone: a note\nflwr[simulation]==1.41.0\ntorch>=2\n")
    assert names_in(tmp_path / "peer.txt") == ["flwr", "torch"]


def test_the_made_data_set_is_the_same_every_time_and_its_classes_are_even():
    features, labels = clusters(4000)
    again, _ = clusters(4000)
    assert (features == again).all() and abs(features).max() <= 1
    counts = [int((labels == one).sum()) for one in range(4)]
    # Three clusters of twelve each: 1,000 rows in the mean; five standard deviations are 137.
    assert max(abs(count - 1000) for count in counts) < 150


def test_the_seeds_are_summarised_by_mean_and_ends():
    assert summary([0.8, 0.9, 0.7]) == {"mean": 0.8, "least": 0.7, "most": 0.9}
