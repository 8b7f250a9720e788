from dataclasses import replace

import numpy as np
import pytest

from choral.core.errors import PlanError
from choral.core.events import Gaussian, Poisson, Skellam, Zcdp
from choral_lab.audit.steps import _drawn, _trained, noisy_steps
from choral_lab.audit.verdict import mean_loss
from choral_lab.audit.white_box import WHITE_BOX, always_there, perhaps_there, white_box

FEW = 100_000  # trainings of each world: some seconds


def with_less_noise(case, share):
    """The case as it is claimed, with so much of its noise in what really trains and encodes."""
    recipe = case.watched.recipe
    recipe = replace(recipe, noise=share * recipe.noise, update_noise=share * recipe.update_noise)
    codec = case.codec and replace(case.codec, noise_in_grid=int(share * case.codec.noise_in_grid))
    return replace(case, watched=replace(case.watched, recipe=recipe), codec=codec)


def reached(found):
    """The share of what the rule is about: ε for sampled steps, ρ for whole noise, as that of its μ, else μ and ε."""
    rule = found.trial.loss.rule
    return {"S5": found.as_dict()["share_of_epsilon"], "S6": found.share_of_mu}.get(
        rule, min(found.share_of_mu, found.as_dict()["share_of_epsilon"])
    )


@pytest.mark.parametrize("name", WHITE_BOX)
def test_an_adversary_that_sees_all_that_a_rule_grants_measures_four_fifths_of_what_is_proved_and_no_more(name):
    found = white_box(name, epsilon=2.0, trainings=FEW).measure()
    assert found.trial.loss.rule == name.upper()
    assert 1.99 < found.trial.epsilon <= 2.0
    assert reached(found) >= 0.8
    assert found.survived and found.lower_bound <= found.trial.epsilon and found.share_of_mu <= 1


@pytest.mark.parametrize("name", WHITE_BOX)
def test_a_tenth_less_noise_than_is_charged_for_is_refuted(name):
    assert not with_less_noise(white_box(name, epsilon=2.0, trainings=FEW), 0.9).measure().survived


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
@pytest.mark.parametrize("name", WHITE_BOX)
def test_four_fifths_are_measured_at_a_small_and_at_a_large_epsilon_too(name, epsilon):
    found = white_box(name, epsilon=epsilon).measure()
    assert found.trial.epsilon == pytest.approx(epsilon, rel=1e-3)
    assert reached(found) >= 0.8 and found.survived


@pytest.mark.long
@pytest.mark.parametrize("name", WHITE_BOX)
def test_a_twentieth_less_noise_than_is_charged_for_is_refuted_by_the_usual_number_of_trainings(name):
    assert not with_less_noise(white_box(name, epsilon=2.0), 0.95).measure().survived


def test_steps_that_are_seen_one_by_one_are_those_of_a_whole_round():
    # One call of the engine for all steps of a round, against one call for each; the models differ by rounding only.
    for name in ("s1", "s5"):
        watched, lanes = white_box(name, epsilon=2.0).watched, np.arange(50)
        seen = [added for added, _ in noisy_steps(replace(watched, rounds=1), 1, lanes, seed=3)]
        batches, keys = _drawn(watched, lanes, 0, seed=3)
        whole = _trained(watched, watched.recipe, np.zeros((50, 2), np.float32), 1, batches.rows, batches.counts, keys)
        assert len(seen) == watched.plan.local_steps > 1
        assert np.sum(seen, axis=0) == pytest.approx(whole, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("world", "side"), [(0, -1), (1, 1)])
def test_the_canary_moves_what_is_seen_by_its_reach_one_way_or_the_other(world, side):
    lanes = np.arange(40)
    for name in ("s1", "s5"):
        watched = with_less_noise(white_box(name, epsilon=2.0), 0.0).watched
        steps = list(noisy_steps(watched, world, lanes, seed=0))
        assert 0 < np.sum([used for _, used in steps]) < 40 * len(steps)
        for added, used in steps:
            assert added[:, 0] == pytest.approx(np.where(used, side * watched.reach, 0), rel=1e-4, abs=1e-6)
    for name in ("s2", "s4", "s6"):
        watched = white_box(name, epsilon=2.0).watched
        recipe = replace(watched.recipe, noise=0.0, update_noise=0.0)
        batches, keys = _drawn(watched, lanes, 0, seed=0)
        moved = _trained(watched, recipe, np.zeros((40, 2), np.float32), world, batches.rows, batches.counts, keys)
        assert moved[:, 0] == pytest.approx(side * watched.reach, rel=1e-5)


def test_sums_are_those_of_the_least_company_that_a_lying_server_can_open():
    # s + u_min − r − c + 1 with the defaults of ten devices; what the rules divide by.
    assert {name: white_box(name).honest for name in WHITE_BOX} == {"s1": 1, "s2": 4, "s4": 4, "s5": 1, "s6": 1}


def test_the_weight_of_what_is_seen_is_the_log_likelihood_ratio():
    # By hand: densities of N(±1, 2²), and of their mixtures with N(0, 2²).
    def density(x, mean):
        return np.exp(-((x - mean) ** 2) / 8)

    pull = np.array([-3.0, 0.0, 0.7, 5.0])
    used = np.ones(4, dtype=bool)
    assert always_there(2.0)(pull, used) == pytest.approx(np.log(density(pull, 1) / density(pull, -1)))
    up, down = (0.75 * density(pull, 0) + 0.25 * density(pull, side) for side in (1, -1))
    assert perhaps_there(2.0, 0.25)(pull, used) == pytest.approx(np.log(up / down))


def test_no_two_trainings_share_their_noise():
    case = white_box("s1", epsilon=2.0, trainings=70_000)  # three blocks
    both = np.concatenate([case.scores(0), case.scores(1)])
    assert len(np.unique(both)) > 0.99 * len(both)  # equal steps of a 32-bit sum may meet, blocks may not


def test_the_mean_loss_of_an_event_is_that_of_its_worst_pair():
    # KL of N(μ, 1) from N(0, 1) is μ²/2; of 3 sampled steps by a plain sum over a fine grid.
    assert mean_loss(Gaussian(mu=0.6)) == pytest.approx(0.18)
    assert mean_loss(Zcdp(rho=0.3)) == 0.3
    x = np.linspace(-30, 30, 600_001)

    def density(mean):
        return np.exp(-((x - mean) ** 2) / (2 * 1.5**2)) / (1.5 * np.sqrt(2 * np.pi))

    up, down = (0.8 * density(0) + 0.2 * density(side) for side in (1, -1))
    exact = 3 * np.sum(up * np.log(up / down)) * (x[1] - x[0])
    found = mean_loss(Poisson(noise_multiplier=1.5, probability=0.2, steps=3))
    assert exact <= found <= 1.002 * exact
    with pytest.raises(PlanError, match="skellam"):
        mean_loss(Skellam(l1=4.0, l2=2.0, variance=100.0))
