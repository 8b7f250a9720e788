import argparse
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from choral.core.errors import ConfigError, PlanError
from choral_lab.audit.canary import View
from choral_lab.verbs import audit

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
    reported = json.loads(capsys.readouterr().out)
    promised = {"lower_bound", "confidence", "published_epsilon", "proved_epsilon", "delta", "trainings"}
    assert promised <= set(reported)
    assert reported["published_epsilon"] < reported["lower_bound"] <= reported["proved_epsilon"]
    assert reported["trainings"] == 120_000


def test_a_plan_is_audited_in_every_sight_with_both_canaries(tmp_path, capsys):
    path = tmp_path / "choral.toml"
    path.write_text(PLAN)
    (tmp_path / "people.csv").write_text(
        "age,label\n" + "".join(f"{20 + row % 50},{row // 7 % 2}\n" for row in range(1000))
    )
    assert called(str(path), "--trainings", "2048", machine=True) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["holds"] is True and reported["adjacency"] == "one record replaced"
    seen = [(view["sight"], view["canary"]) for view in reported["views"]]
    sights = ("server", "colluding server", "final model")
    both = [(sight, canary) for canary in ("worst case", "data-driven") for sight in sights]
    assert seen == [("every noisy step", "worst case"), *both]
    assert all(view["rule"] == "S5" for view in reported["views"])


def test_the_view_of_a_plan_fits_eighty_columns_and_names_a_refuted_claim():
    view = View(
        sight="colluding server",
        canary="worst case",
        lower_bound=3.0,
        claimed_epsilon=2.0,
        rule="S5",
        confidence=0.99,
        evidence={},
    )
    shown = audit._shown_plan([view], 1e-5, 0.99)
    assert "ε ≥ 3.00   ε ≤ 2.00  S5   REFUTED" in shown and "A PROVED ε IS REFUTED" in shown
    assert max(map(len, shown.splitlines())) <= 90


def test_a_white_box_case_says_what_is_seen_and_how_much_of_the_proved_loss_it_measured(capsys):
    assert called("--case", "s6", "--trainings", "20000", machine=False) == 0
    shown = capsys.readouterr().out
    assert shown.index("fixed beforehand: 20,000 trainings") < shown.index("MEASURED")
    assert "the adversary sees the device's own integers with their whole noise" in shown
    assert "ε at δ = 0.01, one record replaced" in shown
    assert "rule S6, against the server and all other devices together" in shown
    assert "the proved ε survives" in shown
    assert max(map(len, shown.splitlines())) <= 100


PROMISED = {
    "lower_bound", "proved_epsilon", "published_epsilon", "survived", "delta", "adjacency", "adversary", "confidence",
    "rule",
}  # fmt: skip


def test_white_box_and_float_sum_for_machines_have_the_promised_names(capsys):
    status = called("--case", "s6", "--trainings", "20000", "--epsilon", "2", machine=True)
    reported = json.loads(capsys.readouterr().out)
    assert reported.keys() >= PROMISED and reported["published_epsilon"] is None
    assert (status, reported["survived"], reported["rule"], round(reported["proved_epsilon"], 6)) == (
        0,
        True,
        "S6",
        2.0,
    )
    # So few rows that no way of adding them up can be refuted.
    status = called("--case", "float-sum", "--rows", "256", "--trainings", "20000", machine=True)
    reported = json.loads(capsys.readouterr().out)
    assert reported.keys() >= PROMISED | {"change", "layout"} and reported["published_epsilon"] is None
    assert (status, reported["survived"], reported["rule"], reported["delta"]) == (0, True, "S1", 1e-5)


def test_a_refuted_claim_ends_with_status_1_and_says_so(capsys, monkeypatch):
    from choral.core.codec import Codec
    from choral_lab.audit import white_box

    def half_of_the_noise(*given):
        codec = Codec.for_plan(*given)
        return replace(codec, noise_in_grid=codec.noise_in_grid // 2)

    monkeypatch.setattr(white_box, "Codec", SimpleNamespace(for_plan=half_of_the_noise))
    assert called("--case", "s6", "--trainings", "20000", machine=False) == 1
    assert "A PROVED ε IS REFUTED" in capsys.readouterr().out


def test_rows_are_for_float_sum_only():
    with pytest.raises(ConfigError, match="CH103"):
        called("--case", "s1", "--rows", "500", machine=True)


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
