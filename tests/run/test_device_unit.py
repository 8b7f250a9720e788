"""Whole devices as units (rule S4) end to end: clipped updates, for networks too, with Gaussian or whole noise."""

import json
import math

import numpy as np
import pytest

from choral.accounting.words import words_of
from choral.core.codec import sensitivity
from choral.core.errors import ChoralError, PlanError
from choral.core.plan import Plan
from choral.learning.recipe import Recipe
from choral.report.verify import verify
from choral.run.folder import RunFolder
from choral.run.runs import Run, resume
from tests.run.consortium import JOB, Consortium, Sockets, agents
from tests.run.small import rows, study

DEVICE = {"unit": "device", "clip": 0.4, "epsilon": None, "noise": 0.2}
ADAPTIVE = {**DEVICE, "clip_quantile": 0.5}


@pytest.mark.parametrize(
    "how",
    [
        {"law": "discrete_gaussian"},
        {"law": "discrete_gaussian", "clip_quantile": 0.5},
        pytest.param({"model": "mlp", "hidden": [4]}, marks=pytest.mark.long),
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"clip_quantile": 0.3, "model": "mlp", "hidden": [4]}, marks=pytest.mark.long),
    ],
    ids=["discrete Gaussian", "adaptive", "network", "Gaussian", "adaptive network"],
)
def test_a_simulation_and_a_rehearsal_of_device_level_privacy_have_the_same_integers(how):
    settled = study(**DEVICE | how)
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    privacy = runs[0].finish().privacy
    runs[1].finish()
    assert runs[0].sent.tolist() == runs[1].sent.tolist()
    assert len(runs[0].parameters) == settled.model.size
    assert privacy.adjacency == "all records of one device replaced" and privacy.several is None
    assert privacy.against_everyone.rule == privacy.with_secure_sum.rule == "S4"
    assert privacy.with_secure_sum.epsilon < privacy.against_everyone.epsilon
    assert not privacy.published.valid and "Rule S4" in privacy.published.because


def test_the_charge_of_a_round_is_two_clips_over_the_noise_by_hand():
    costs = study(**DEVICE).costs
    assert costs.of(0).event(5).mu == 2 * 0.4 / 0.2
    honest = costs.of(0).exposure(1).honest_noises
    assert costs.of(0).sum_event(0).mu == pytest.approx(2 * 0.4 / (0.2 * honest**0.5))


def test_a_count_in_the_same_vector_costs_half_a_percent():
    assert study(**ADAPTIVE).costs.of(0).event(5).mu == pytest.approx(math.sqrt(2**2 + 0.2**2) * 0.4 / 0.2)
    whole = [study(**how, law="discrete_gaussian") for how in (DEVICE, ADAPTIVE)]
    fixed, adaptive = (one.costs.of(0).event(0).mu ** 2 for one in whole)
    assert adaptive == pytest.approx(1.01 * fixed)  # its root is the noise: (4 + λ²)/4 = 1.01
    codec, plan = whole[1].codec, whole[1].plan
    moves = sensitivity(plan, whole[1].model.size + 1, codec.grid)
    assert codec.noise_in_grid >= moves / math.hypot(2, 0.2) * 0.2 / 0.4


def test_the_clip_follows_the_lengths_of_the_updates_and_is_taken_up_again_after_a_stop(tmp_path):
    given = {**ADAPTIVE, "clip": 40.0, "noise": 0.04}  # no update is half as long
    whole = Run("simulation", study(**given))
    whole.finish()
    # Each of three rounds moves ln S by rate·(1 − q), but for the noise of the count: λ/2 = 0.1 against 0.001.
    assert whole.sent[-1] == pytest.approx(math.log(40) - 3 * 0.5 * 0.5, abs=0.05)
    part = Run("simulation", study(**given), folder=RunFolder.create(tmp_path / "part"))
    lines = part.rounds()
    assert [next(lines).round, next(lines).round] == [1, 2]
    lines.close()
    again = resume(tmp_path / "part", rows())
    result = again.finish()
    assert again.sent.tolist() == whole.sent.tolist()
    assert [finding for finding in verify(tmp_path / "part") if finding.wrong] == []
    card = json.loads((tmp_path / "part" / "model.json").read_text())
    assert card["parameters"] == len(result.parameters) == len(whole.sent) - 1


def test_the_sites_of_a_deployment_count_and_clip_alike(tmp_path):
    """Three sites whose updates are all within a clip of 9: the mean is in units of it, and it falls."""
    job = JOB.replace("epsilon = 4.0", 'noise = 0.09\nunit = "device"').replace("rounds = 3", "rounds = 1")
    made = Consortium(tmp_path, job=job.replace("clip = 1.0", "clip = 9.0\nclip_quantile = 0.5"))
    made.approve(epsilon=1e5)
    with agents(made.homes) as running:
        conductor = made.conductor(Sockets(made.homes))
        conductor.run()
        (charge,) = next(iter(running.values())).ledger.balance.charges
    assert charge.rule == "S4" and charge.event.mu == pytest.approx(math.sqrt(2**2 + 0.2**2) * 100)
    _, sent = conductor.run_folder.checkpoint()
    assert len(sent) == conductor.study.model.size + 1
    assert sent[-1] == pytest.approx(math.log(9) - 0.5 * 0.5, abs=0.06)  # four deviations of the count
    assert 0.01 < np.linalg.norm(sent[:-1] - conductor.study.model.start(0)) < 9


def test_a_budget_is_met_however_the_batches_are_drawn():
    drawn = [study(**DEVICE | {"noise": None, "epsilon": 8.0, "sampling": how}) for how in ("poisson", "partition")]
    assert drawn[0].plan.noise == drawn[1].plan.noise


def test_a_device_clips_its_whole_update_and_no_record():
    recipe = Recipe.of(study(**DEVICE).plan)
    assert (recipe.clip, recipe.update_clip, recipe.noise, recipe.update_noise) == (np.inf, 0.4, 0.0, 0.2)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"noise_is_added": "once"}, "CH204"),
        ({"clip_quantile": 0.5, "server": "adam"}, "CH104"),
        ({"clip_quantile": 0.5, "unit": "record"}, "CH104"),
        ({"clip_quantile": 1.0}, "CH102"),
        ({"clip": None}, "CH103"),
        ({"rounds": None}, "CH103"),
    ],
)
def test_what_is_not_proved_or_not_said_is_refused(changes, code):
    with pytest.raises(ChoralError, match=code):
        study(**DEVICE | changes)


def test_every_law_of_noise_has_its_words():
    numbers = {
        "devices": 4,
        "cohort": 4,
        "rounds": 1,
        "rows": 9,
        "batch": 3,
        "step_size": 0.5,
        "clip": 0.4,
        "noise": 1.0,
    }
    for law, words in (("gaussian", "Gaussian noise"), ("discrete_gaussian", "discrete Gaussian noise")):
        plan = Plan(**numbers, unit="device", law=law, local_steps=7)
        assert f"Each device's whole update clipped to 0.4; {words}" in words_of(plan).described(plan)
    adaptive = Plan(**numbers, unit="device", clip_quantile=0.3)
    assert "clipped to 0.4 at first;" in words_of(adaptive).described(adaptive)
    assert "follow the 0.3 quantile of the updates' lengths" in words_of(adaptive).protection(adaptive)
    with pytest.raises(PlanError, match="CH204 clip_quantile"):
        Plan(**numbers, clip_quantile=0.3)
    with pytest.raises(PlanError, match="noise_is_added"):
        Plan(**numbers, unit="device", noise_is_added="once", row_length=2.0)
