"""Noise once (rule S7) end to end: simulations, rehearsals, pages, and what is refused before anything is charged."""

import json
from dataclasses import replace

import numpy as np
import pytest

import choral
from choral import config
from choral.core.errors import ChoralError
from choral.core.ledger import Ledger
from choral.learning import once
from choral.record import read_run
from choral.report.verify import verify
from choral.run.planning import settle
from choral.run.runs import Run

RNG = np.random.default_rng(0)
ROWS = RNG.uniform(-1, 1, (600, 3)).astype(np.float32)
TABLE = (ROWS, (ROWS[:, 0] + 0.2 * RNG.normal(size=600) > 0).astype(int))
SETTINGS = {"devices": 6, "epsilon": 4.0, "delta": 1e-4, "noise_is_added": "once", "rounds": 3, "cohort": 5}


def study(**changes):
    return settle(config.job_of(**(SETTINGS | changes)), TABLE)


@pytest.mark.parametrize("table", ["classes", "three classes", "numbers"])
def test_a_simulation_and_a_rehearsal_have_the_same_integers(table):
    labels = {
        "classes": TABLE[1],
        "three classes": np.digitize(ROWS[:, 0], [-0.3, 0.3]),
        "numbers": (ROWS @ np.float32([0.5, -0.2, 0.1])),
    }[table]
    bounds = {"label_bounds": [-1.0, 1.0]} if table == "numbers" else {}
    settled = settle(config.job_of(**SETTINGS, **bounds, seed=3), (ROWS, labels))
    runs = [Run(kind, settled, drop=0.0) for kind in ("simulation", "rehearsal")]
    for run in runs:
        run.finish()
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert np.abs(runs[0].parameters).max() > 0


def test_sampled_rounds_have_the_same_integers_too_and_cost_what_rule_s5_says():
    settled = study(seed=6, sampling="poisson", batch=20)
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    results = [run.finish() for run in runs]
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert settled.costs.of(0).event(0).kind == "poisson" and settled.costs.of(0).sum_event(0).kind == "poisson"
    privacy = results[0].privacy
    assert privacy.with_secure_sum.epsilon < privacy.against_everyone.epsilon <= 4.0
    choral.rehearse(TABLE, **SETTINGS, sampling="poisson", batch=20)  # with secret draws, as devices have them


@pytest.mark.parametrize("law", ["discrete_gaussian"])
def test_whole_noise_once_has_the_same_integers_too_and_needs_little_more_of_it(law):
    settled = study(seed=7, law=law, epsilon=1.0)
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    results = [run.finish() for run in runs]
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert settled.plan.local_steps > 1 and results[0].privacy.against_everyone.rule == "S7"
    assert settled.codec.noise_in_grid * settled.codec.grid <= 1.05 * settled.plan.noise
    choral.rehearse(TABLE, **SETTINGS, law=law)


def test_the_number_of_steps_tells_nothing_of_who_was_drawn(monkeypatch):
    """Every device of every sampled round takes as many steps as the room of a draw asks for."""
    taken, honest = set(), once.work_through

    def watched(*given):
        taken.add(int(given[-2]))
        return honest(*given)

    monkeypatch.setattr(once, "work_through", watched)
    settled = study(seed=8, sampling="poisson", batch=20, rounds=4)
    Run("simulation", settled).finish()
    work = once.LocalWork.of(settled.plan)
    sizes = {int(size) for size in settled.split.train.sizes}
    assert taken == {work.steps(settled.model, once.places_of(settled.plan, size)) for size in sizes}


def test_drop_outs_leave_the_same_integers_too():
    runs = [Run(kind, study(seed=5, cohort=6, rounds=6), drop=0.1) for kind in ("simulation", "rehearsal")]
    for run in runs:
        run.finish()
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert any(len(line.included) < 6 for line in runs[0].lines)


def test_a_run_states_both_figures_is_verified_and_its_page_names_the_rule(tmp_path):
    result = choral.rehearse(TABLE, **SETTINGS, out=tmp_path / "run")
    everyone, summed = result.privacy.against_everyone, result.privacy.with_secure_sum
    assert everyone.rule == summed.rule == "S7"
    assert summed.epsilon < 0.8 * everyone.epsilon <= 0.8 * 4.0
    result.report(tmp_path / "run" / "report.html")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "noise once" in page.lower() or "Training on all rows without noise" in page
    choral.verify(tmp_path / "run")
    assert read_run(tmp_path / "run").about.plan.once
    ledger = next((tmp_path / "run" / "devices").glob("*/ledger*"), None) or next((tmp_path / "run").rglob("*.ledger"))
    charges = [
        body for line in ledger.read_bytes().splitlines() if (body := json.loads(line[65:])).get("kind") == "charge"
    ]
    assert charges and all(body["summed"]["mu"] < body["event"]["mu"] for body in charges)


def test_learning_is_as_good_as_with_noise_in_every_step_where_noise_is_small():
    once = choral.simulate(TABLE, **SETTINGS | {"epsilon": 50.0}, seed=1)
    assert once.score(*TABLE) > 0.85


def model_of_ones_own(features, classes):
    """Linear, and yet of a loss that the rule knows nothing of."""

    def loss(weights, row, label):
        return (row @ weights - label) ** 2

    return choral.model(lambda _: np.zeros(features, np.float32), loss, lambda weights, rows: rows @ weights[:, None],
                        features=features, classes=classes)  # fmt: skip


@pytest.mark.parametrize(("changes", "code"), [
    ({"kind": "mlp", "hidden": [4]}, "CH204"),
    ({"kind": f"{__name__}:model_of_ones_own", "label_bounds": [0, 1]}, "CH204"),
    ({"law": "discrete_gaussian", "sampling": "poisson"}, "CH204"),
    ({"steps": 2, "step_size": 5.0}, "CH204"),  # longer than 2/L
    ({"steps": 1, "step_size": 1e-9}, "CH204"),  # so short that rounding counts: e > 0.01
    ({"steps": 2**21, "step_size": 0.1}, "CH204"),
    ({"pull": 5.0, "parts": 2}, "CH204"),
    ({"parts": 2, "sampling": "poisson", "batch": 20}, "CH204"),
    ({"unit": "device", "steps": 2, "batch": 10, "step_size": 0.1, "clip": 1.0}, "CH204"),  # noise is once there anyway
    ({"momentum": 0.9}, "CH101"),  # on the device; at the server it is post-processing
    ({"precision": "float32"}, "CH101"),
    ({"noise_is_added": "twice"}, "CH102"),
    ({"row_length": -1.0}, "CH102"),
    ({"slope": 0.0}, "CH102"),
    ({"pull": -1.0}, "CH102"),
])  # fmt: skip
def test_what_the_rule_does_not_reach_is_refused_before_anything_is_charged(changes, code, tmp_path):
    with pytest.raises(ChoralError) as refused:
        choral.rehearse(TABLE, **SETTINGS | changes, out=tmp_path / "run")
    assert refused.value.code == code
    assert not list(tmp_path.rglob("*.ledger"))


def test_three_classes_have_a_slope_as_two_have():
    """√2·0.2·R: the longest gradient of a row whose true class may lack no more than 0.2."""
    labels = np.digitize(ROWS[:, 0], [-0.3, 0.3])
    plan = settle(config.job_of(**SETTINGS, slope=0.2), (ROWS, labels)).plan
    assert plan.clip == pytest.approx(2**0.5 * 0.2 * plan.mechanism.row_length)


def test_more_rows_take_more_and_shorter_steps_and_cost_the_same():
    """One device has three times the rows of the others; nobody's number of rows enters a sensitivity."""
    sizes = np.array([90, 90, 90, 90, 240])
    names = np.repeat([f"site-{number}" for number in range(5)], sizes)
    import pandas as pd

    frame = pd.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1], "label": TABLE[1], "site": names})
    settled = settle(
        config.job_of(epsilon=4.0, delta=1e-4, noise_is_added="once", rounds=2, seed=1, device_column="site"), frame
    )
    events = {settled.costs.of(device).event(0) for device in range(5)}
    assert len(events) == 1
    Run("simulation", settled).finish()


def test_a_ledger_with_a_smaller_figure_for_sums_is_found(tmp_path):
    """Made again by whoever holds the folder, with the costs against everyone as they are."""
    choral.rehearse(TABLE, **SETTINGS, out=tmp_path / "run")
    # Of a device with two charges: three that nobody has reserved together would pass the limit.
    found = [(path, Ledger.read(path)) for path in sorted((tmp_path / "run" / "ledgers").glob("*.ledger"))]
    path, old = next((path, ledger) for path, ledger in found if len(ledger.balance.charges) == 2)
    path.unlink()
    with Ledger.open(path, limit=old.limit, device=old.device) as forged:
        for charge in old.balance.charges:
            forged.charge(replace(charge, summed=replace(charge.summed, mu=charge.summed.mu / 2)))
    wrong = " ".join(line for finding in verify(tmp_path / "run") for line in finding.wrong)
    assert "not what the plan costs with the secure sum" in wrong


@pytest.mark.parametrize("way", [{"pull": 5.0}, {"parts": 4}])
def test_a_pull_home_and_parts_have_the_same_integers_too_and_verify(way, tmp_path):
    settled = study(seed=9, **way)
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    for run in runs:
        run.finish()
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    plain = study(seed=9)
    assert (settled.plan.noise < plain.plan.noise) == ("pull" in way)  # parts save work, not noise
    choral.rehearse(TABLE, **SETTINGS, **way, out=tmp_path / "run")
    assert verify(tmp_path / "run").good


def test_a_pull_home_is_refused_with_noise_in_every_step():
    with pytest.raises(ChoralError, match="CH104"):
        study(noise_is_added="every step", pull=5.0)
