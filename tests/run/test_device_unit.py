"""Whole devices as units (rule S4) end to end: clipped updates, for networks too, with Gaussian or whole noise."""

import numpy as np
import pytest

from choral.errors import ChoralError, PlanError
from choral.learning.local import Recipe
from choral.plan import Plan
from choral.privacy.mechanisms import mechanism_of
from choral.run.runs import Run
from tests.run.small import study

DEVICE = {"unit": "device", "clip": 0.4, "epsilon": None, "noise": 0.2}


@pytest.mark.parametrize(
    "how",
    [
        {"law": "discrete_gaussian"},
        {"model": "mlp", "hidden": [4]},
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"law": "skellam", "local_steps": 3}, marks=pytest.mark.long),
    ],
    ids=["discrete Gaussian", "network", "Gaussian", "Skellam"],
)
def test_a_simulation_and_a_rehearsal_of_device_level_privacy_have_the_same_integers(how):
    settled = study(**DEVICE | how)
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    privacy = runs[0].finish().privacy
    runs[1].finish()
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert privacy.adjacency == "all records of one device replaced" and privacy.several is None
    assert privacy.against_everyone.rule == privacy.with_secure_sum.rule == "S4"
    assert privacy.with_secure_sum.epsilon < privacy.against_everyone.epsilon
    assert not privacy.published.valid and "Rule S4" in privacy.published.because


def test_the_charge_of_a_round_is_two_clips_over_the_noise_by_hand():
    costs = study(**DEVICE).costs
    assert costs.event(0, 5).mu == 2 * 0.4 / 0.2
    honest = costs.exposure(0, 1).honest_noises
    assert costs.sum_event(0, 0).mu == pytest.approx(2 * 0.4 / (0.2 * honest**0.5))


def test_a_budget_is_met_however_the_batches_are_drawn():
    drawn = [study(**DEVICE | {"noise": None, "epsilon": 8.0, "sampling": how}) for how in ("poisson", "partition")]
    assert drawn[0].plan.noise == drawn[1].plan.noise


def test_a_device_clips_its_whole_update_and_no_record():
    recipe = Recipe.of(study(**DEVICE).plan)
    assert (recipe.clip, recipe.update_clip, recipe.noise, recipe.update_noise) == (np.inf, 0.4, 0.0, 0.2)


@pytest.mark.parametrize(
    ("changes", "code"), [({"noise_is_added": "once"}, "CH204"), ({"clip": None}, "CH103"), ({"rounds": None}, "CH103")]
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
    for law, words in (("gaussian", "Gaussian noise"), ("skellam", "Skellam noise")):
        plan = Plan(**numbers, unit="device", law=law, local_steps=7)
        assert f"Each device's whole update clipped to 0.4; {words}" in mechanism_of(plan).described(plan)
    with pytest.raises(PlanError, match="noise_is_added"):
        Plan(**numbers, unit="device", noise_is_added="once", row_length=2.0)
