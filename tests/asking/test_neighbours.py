"""Bins that lean on their neighbours: not without noise, not where hazards jump, and in sum not at all."""

import numpy as np
import pytest

from choral.asking.survival import leaning


def test_without_noise_every_bin_stands_for_itself():
    found = leaning(np.array([90.0, 50.0, 9.0]), np.array([5.0, 0.0, 3.0]), 0.0)
    assert found.weights.tolist() == np.eye(3).tolist() and not found.missed.any()


def test_a_bin_with_hardly_anybody_at_risk_takes_the_hazard_of_its_neighbours():
    at_risk, events = np.array([4000.0, 3000, 2000, 1000, 30]), np.array([82.0, 57, 41, 19, 12])
    leant = leaning(at_risk, events, 6.0).weights @ events
    assert leant[:3] == pytest.approx(events[:3], rel=0.1)
    assert 0 < leant[4] < 3  # 0.6 by the hazard of the others; the noise of 6 says nothing here


def test_hazards_that_are_alike_stay_as_they_are_and_none_is_made_up():
    at_risk = np.linspace(5000, 200, 20)
    assert leaning(at_risk, 0.02 * at_risk, 8.0).weights @ (0.02 * at_risk) == pytest.approx(0.02 * at_risk)


def test_a_jump_that_is_clear_in_the_noise_is_kept():
    at_risk, events = np.full(8, 9000.0), np.array([40.0, 41, 39, 40, 900, 905, 895, 900])
    assert leaning(at_risk, events, 6.0).weights @ events == pytest.approx(events, abs=9)


def test_what_is_missed_is_a_covariance_and_grows_where_bins_lean_more():
    at_risk, events = np.array([4000.0, 3000, 2000, 1000, 300]), np.array([82.0, 57, 41, 19, 5])
    little, much = (leaning(at_risk, events, deviation).missed for deviation in (1.0, 12.0))
    assert np.linalg.eigvalsh(much).min() > -1e-9
    assert np.trace(much) > np.trace(little) > 0
