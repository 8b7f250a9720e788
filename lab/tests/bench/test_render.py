"""Every figure about speed in README and docs is one of the results, and the tables say what was not measured."""

import json

import pytest

from bench import render, scale, tables
from bench.__main__ import names
from bench.setup import HERE

FOUND = {"engine": {"noise_overhead": 1.234}, "limits": {"flops": 2.5e10, "sizes": [7, 8]}}


def test_every_page_shows_what_the_results_hold():
    found = render.results()
    stale = [page.name for page in render.pages() if render.filled(page.read_text(), found) != page.read_text()]
    assert stale == [], "python -m bench.render writes them anew"


def test_no_page_has_a_speed_that_no_result_holds():
    reported = {str(page): list(render.unmarked(page.read_text())) for page in render.pages()}
    assert {name: lines for name, lines in reported.items() if lines} == {}


def test_no_table_of_the_page_of_benchmarks_has_a_figure_that_no_result_holds():
    assert list(render.typed((render.ROOT / "docs/benchmarks.md").read_text())) == []
    planted = "| data | accuracy |\n|---|---|\n| adult | **0.845** |\n| school | 61.4 % ± 0.2 |\n| 16 devices | – |"
    assert list(render.typed(planted)) == ["line 3: **0.845**", "line 4: 61.4 % ± 0.2"]


def test_no_figure_is_older_than_the_version_of_what_it_depends_on():
    assert render.outdated(render.results(), render.engines()) == [], "python -m bench --only measures them again"


def test_a_figure_of_an_earlier_version_fails_the_check_and_is_named(capsys, monkeypatch):
    versions = render.engines()
    versions["training"]["version"] += 1
    monkeypatch.setattr(render, "engines", lambda: versions)
    assert render.main(["--check"]) == 1
    assert "engine was measured on" in capsys.readouterr().err


def test_every_benchmark_of_the_versions_is_one_and_every_result_has_its_day_and_commit():
    named = {name for about in render.engines().values() for name in about["figures"]}
    assert named <= {*names()}
    measured = render.results()["about"]["measured"]
    assert set(measured) == set(json.loads((HERE / "results.json").read_text())["benchmarks"])
    assert all(one["at"] and one["commit"] for one in measured.values())


@pytest.mark.parametrize(
    "speed", ["takes 20 ms", "in 3.5 s.", "4 times faster", "at 10.5 GB/s", "2 minutes long", "13 ns a step"]
)
def test_a_speed_without_a_mark_is_noticed(speed):
    assert list(render.unmarked(f"A round {speed}")) != []


@pytest.mark.parametrize(
    "text", ["400,000 times in each world", "5 sites", "`--timeout 20 s`", "rows of 10 people", "T = 20"]
)
def test_what_is_no_speed_is_left_alone(text):
    assert list(render.unmarked(text)) == []


def test_a_marked_figure_is_filled_and_a_stale_one_is_seen():
    page = "It costs <!-- figure engine.noise_overhead .1f -->9.9<!-- end --> times."
    assert render.filled(page, FOUND) == "It costs <!-- figure engine.noise_overhead .1f -->1.2<!-- end --> times."
    assert list(render.unmarked("<!-- figure limits.flops/1e9 .0f -->25<!-- end --> GFLOP/s")) == []


def test_a_figure_that_nobody_measured_is_an_error_and_not_a_blank():
    with pytest.raises(KeyError):
        render.filled("<!-- figure engine.nothing .1f -->1<!-- end -->", FOUND)
    assert render.figure(FOUND, "limits.sizes.1", ".0f") == "8"


def test_a_benchmark_that_failed_leaves_its_reason_in_the_place_of_its_table():
    text = render.filled("<!-- table engine -->\nold\n<!-- end -->", {"engine": {"reason": "exit status 1"}})
    assert "Not measured here (engine: exit status 1)." in text and "old" not in text


def test_a_peer_without_a_figure_is_shown_with_its_reason():
    one = {"times": None, "reason": "fedjax is not installed here"}
    found = {"engine": {"details": {"adult_mlp": {"fedjax": one}}}, "limits": {"flops": 1e10, "bytes_a_second": 1e10}}
    assert "fedjax is not installed here" in tables.engine(found)


def test_the_limit_of_a_round_is_the_slower_of_products_and_memory():
    # Hand count for the Adult network: 10 devices × 10 steps × 64 rows × (6·(6656 + 2048 + 64) − 2·6656) operations,
    # and 8 bytes for each of 8,866 parameters, steps and devices.
    work = tables.WORKS["adult_mlp"][1]
    assert tables.floor_ms(work, {"flops": 1e9, "bytes_a_second": 1e30}) == pytest.approx(251.4944)
    assert tables.floor_ms(work, {"flops": 1e30, "bytes_a_second": 1e9}) == pytest.approx(7.0928)


def test_an_extrapolation_of_power_laws_follows_them():
    # Both sides cost 1 ms + 2 ns a parameter with 100 devices; fixed parts grow with r, the others with its root.
    side = {"fixed_ms": [1.0], "ns_a_parameter": [2.0], "fixed_exponent": 1.0, "parameter_exponent": 0.5}
    pieces = {"neighbours": 56, "agreement_us": 50.0, "roster_us_a_device": 100.0, "roster_bytes_a_device": 188}
    measured = {"cohorts": [100], "device": side, "server": side, "pieces": pieces, "bytes_a_parameter": 4.0}
    reported = scale.extrapolate(measured, length=10**6, step_ns=5.0)
    assert reported["device_sum_s"] == pytest.approx(0.1 + 0.02)
    assert reported["device_training_s"] == pytest.approx(0.05)
    assert reported["server_network_s"] == pytest.approx(64.0)


def test_one_command_runs_every_benchmark_but_the_one_for_accelerators():
    assert names()[0] == "limits"
    assert {
        "accounting",
        "accuracy",
        "engine",
        "engine_scale",
        "footprint",
        "front_door",
        "planning",
        "scale",
        "secure_sum",
    } <= {*names()}
    assert not {"gpu", "__main__", "render", "harness"} & {*names()}


def test_the_committed_results_name_their_machine_and_every_benchmark():
    reported = json.loads((HERE / "results.json").read_text())
    assert {"processor", "cores", "versions"} <= reported["machine"].keys()
    assert set(reported["benchmarks"]) <= {*names()}
