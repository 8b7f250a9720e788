"""What was measured is what docs/paper.md tells, and what a full reproduction finds again, within a tolerance."""

import json
import re

import pytest

from choral_lab.paper.figures import FIGURES, reproduce
from lab.tests.paper.expected import RESULTS, ROOT, committed, expected, with_claims

EXPECTED = json.loads((RESULTS / "expected.json").read_text())


def value_at(result, path):
    for name in path.split("/"):
        result = result[name]
    return result


def misses(name, result):
    """Where a result leaves its band, or a difference loses its verdict: (path, found, expected)."""
    bands = [(path, value_at(result, path), band) for path, band in EXPECTED[name]["bands"].items()]
    found = [(path, value, band) for path, value, band in bands if abs(value - band[0]) > band[1]]
    verdicts = [
        (path, value_at(result, path)["verdict"], reported) for path, reported in EXPECTED[name]["verdicts"].items()
    ]
    return found + [one for one in verdicts if one[1] != one[2]]


@pytest.mark.parametrize("name", FIGURES)
def test_the_committed_results_are_the_expected_ones(name):
    result = committed(name)
    assert result["repeats"] == 5
    assert result["quick"] is False
    assert misses(name, result) == []
    assert EXPECTED[name]["bands"]
    assert EXPECTED[name] == expected(result)  # else: python -m lab.tests.paper.expected


def test_a_result_outside_its_band_and_a_lost_difference_are_found():
    result = committed("utility-logistic")
    result["ours"]["test_accuracy"]["mean"] -= 0.02
    result["ours_minus_dp_sgd"]["verdict"] = "tie"
    assert [path for path, _, _ in misses("utility-logistic", result)] == [
        "ours/test_accuracy/mean",
        "ours_minus_dp_sgd",
    ]


def test_the_page_has_the_claims_as_they_were_measured():
    page = (ROOT / "docs" / "paper.md").read_text()
    claims = (RESULTS / "claims.md").read_text()
    assert claims in page
    assert with_claims(page, claims) == page
    assert with_claims(page, "| another |\n").count("| claim |") == 0
    assert [f"| {' | '.join(claim)} |" for name in FIGURES for claim in committed(name)["claims"]] == (
        claims.splitlines()[2:]
    )


def test_every_figure_of_the_page_is_in_a_results_file():
    page = (ROOT / "docs" / "paper.md").read_text().split("## The claims")[1]
    known = "".join(json.dumps(committed(name)) for name in FIGURES)
    numbers = {round(float(number), 4) for number in re.findall(r"(?<![\w.])-?\d+\.\d{4,}", known)}
    reported = [float(number.replace("−", "-")) for number in re.findall(r"[−-]?\d\.\d{4}\b", page)]
    assert reported
    assert [number for number in reported if number not in numbers] == []


@pytest.mark.parametrize(("name", "least"), [("utility-logistic", 0.845), ("utility-network", 0.845)])
def test_what_was_aimed_at_is_reached(name, least):
    assert committed(name)["ours"]["test_accuracy"]["mean"] >= least


def test_a_band_is_three_standard_errors_and_only_a_clear_difference_is_expected_again():
    each = {"each": [0.84, 0.85, 0.86, 0.85]}
    result = {
        "one": {"test_accuracy": {"mean": 0.85, "std": 0.008, **each}},
        "raw": {"train_loss": {"mean": 6.0, "std": 0.1, **each}},
        "clear": {"mean": 0.004, "std": 0.0, "each": [0.003, 0.005], "verdict": "above in every repeat"},
        "close": {"mean": 0.004, "std": 0.0, "each": [0.002, 0.006], "verdict": "above in every repeat"},
        "mixed": {"mean": 0.004, "std": 0.0, "each": [-0.01, 0.018], "verdict": "above on average"},
    }
    reported = expected(result)
    # By hand: 3 · 0.008/√4 = 0.012; 3 · 0.1/√4 = 0.15 is below 5 % of 6.
    assert reported["bands"] == {"one/test_accuracy/mean": [0.85, 0.012], "raw/train_loss/mean": [6.0, 0.3]}
    assert reported["verdicts"] == {"clear": "above in every repeat"}


@pytest.mark.long
@pytest.mark.parametrize("name", FIGURES)
def test_a_full_reproduction_finds_the_same(name, tmp_path):
    assert misses(name, reproduce(name, tmp_path)) == []
