import argparse
import json

import pytest

from choral.cli import audit
from choral.errors import ConfigError, PlanError

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-5
[federation]
devices = 8
cohort = 4
rounds = 4
[local]
steps = 2
batch = 20
step_size = 0.5
clip = 1.0
[data]
csv = "people.csv"
label = "label"
classes = ["0", "1"]
columns.age.bounds = [0, 100]
[run]
seed = 1
"""


def called(*words, machine):
    parser = argparse.ArgumentParser()
    audit.configure(parser)
    parser.add_argument("--json", action="store_true")
    return audit.run(parser.parse_args([*words, *(["--json"] if machine else [])]))


def test_a_case_says_what_is_fixed_before_it_says_what_was_found(capsys):
    assert called("--case", "theorem-1-network", "--trainings", "60000", machine=False) == 0
    shown = capsys.readouterr().out
    fixed, found = shown.index("fixed beforehand: 60,000 trainings"), shown.index("MEASURED")
    assert fixed < found
    assert "Theorem 1, against that server: REFUTED" in shown
    assert "rule S1, against the server and all other devices together" in shown
    assert "δ = 0.0001, one record replaced" in shown


def test_a_case_for_machines_is_one_object_with_the_promised_names(capsys):
    assert called("--case", "theorem-1-network", "--trainings", "60000", machine=True) == 0
    told = json.loads(capsys.readouterr().out)
    promised = {"lower_bound", "confidence", "published_epsilon", "proved_epsilon", "delta", "trainings"}
    assert promised <= set(told)
    assert told["published_epsilon"] < told["lower_bound"] <= told["proved_epsilon"]
    assert told["trainings"] == 120_000


def test_a_plan_is_audited_in_three_sights_with_both_canaries(tmp_path, capsys):
    path = tmp_path / "choral.toml"
    path.write_text(PLAN)
    (tmp_path / "people.csv").write_text(
        "age,label\n" + "".join(f"{20 + row % 50},{row // 7 % 2}\n" for row in range(1000))
    )
    assert called(str(path), "--trainings", "2048", machine=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] is True and told["adjacency"] == "one record replaced"
    seen = [(view["sight"], view["canary"]) for view in told["views"]]
    sights = ("server", "colluding server", "final model")
    assert seen == [(sight, canary) for canary in ("worst case", "data-driven") for sight in sights]
    assert all(view["rule"] == "S5" for view in told["views"])


def test_the_view_of_a_plan_fits_eighty_columns_and_names_a_refuted_claim():
    view = {
        "sight": "colluding server",
        "canary": "worst case",
        "lower_bound": 3.0,
        "claimed_epsilon": 2.0,
        "rule": "S5",
    }
    told = {"delta": 1e-5, "adjacency": "one record replaced", "confidence": 0.99, "holds": False}
    shown = audit._shown_plan({**told, "views": [{**view, "holds": False}]})
    assert "ε ≥ 3.00   ε ≤ 2.00  S5   REFUTED" in shown and "A PROVED ε IS REFUTED" in shown
    assert max(map(len, shown.splitlines())) <= 90


@pytest.mark.parametrize("words", [(), ("choral.toml", "--case", "theorem-1-convex")])
def test_either_a_plan_or_a_case_is_needed(words):
    with pytest.raises(ConfigError, match="CH103"):
        called(*words, machine=False)


def test_an_unknown_case_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="Known: theorem-1-convex, theorem-1-network"):
        called("--case", "lemma-5", machine=False)


@pytest.mark.parametrize("words", [["--seed", "-1"], ["--trainings", "0"]])
def test_numbers_that_no_audit_can_use_are_refused_and_not_taken_for_the_default(words, tmp_path):
    with pytest.raises(PlanError, match=r"CH200 (seed = -1|trainings = 0)\."):
        called("--case", "theorem-1-network", *words, machine=True)
    (tmp_path / "people.csv").write_text("age,label\n" + "".join(f"{n % 100},{n % 2}\n" for n in range(400)))
    (tmp_path / "choral.toml").write_text(PLAN)
    with pytest.raises(PlanError, match=r"CH200 (seed = -1|trainings = 0)\."):
        called(str(tmp_path / "choral.toml"), *words, machine=True)
