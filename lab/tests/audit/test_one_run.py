import numpy as np
import pytest

from choral.config import parse
from choral.run.planning import settle
from choral_lab.audit.canary import SIGHTS
from choral_lab.audit.one_run import Decoder, data_driven


def study(noise, bounds=""):
    """Four devices of 200 rows with 60 features, full batches, and this noise; with bounds, the label is a number."""
    rng = np.random.default_rng(0)
    features = rng.normal(0, 1, (1000, 60)).astype(np.float32)
    labels = features[:, 0] if bounds else (features[:, 0] > 0).astype(np.int32)
    text = f"""
        [privacy]
        noise = {noise}
        delta = 1e-4
        [federation]
        devices = 4
        cohort = 4
        rounds = 4
        colluders = 0
        [local]
        steps = 1
        batch = 200
        step_size = 0.5
        clip = 1.0
        sampling = "partition"
        [data]
        {bounds}
        [run]
        seed = 1
    """
    return settle(parse(text), (features, labels))


def test_a_decoder_finds_coins_from_what_they_change():
    # A linear system without noise and fewer coins than numbers seen: least squares is exact.
    rng = np.random.default_rng(1)
    coins, changes = rng.choice([-0.5, 0.5], 30), rng.normal(0, 1, (30, 100))
    decoder = Decoder(30, ridge=1e-9)
    decoder.add(changes, coins @ changes)
    assert decoder.scores == pytest.approx(coins, abs=1e-6)


@pytest.mark.parametrize("bounds", ["", "label_bounds = [-2, 2]"])
def test_one_run_with_hardly_any_noise_proves_a_leak_and_with_the_plans_noise_none(bounds):
    loud = {view.sight: view for view in data_driven(study(1e-5, bounds), delta=1e-4, canaries=40)}
    quiet = {view.sight: view for view in data_driven(study(0.3, bounds), delta=1e-4, canaries=40)}
    assert list(loud) == list(quiet) == list(SIGHTS)
    assert loud["colluding server"].evidence == {"canaries": 40, "guesses": 20, "correct": 20}
    # 20 of 20 correct at δ = 1e-4: p^20 + small = 0.01 gives p = 0.794, ε = ln(0.794/0.206) = 1.35, less δ's price.
    assert 1.0 < loud["colluding server"].lower_bound < 1.36
    assert all(view.holds for view in (*loud.values(), *quiet.values()))
    assert quiet["colluding server"].lower_bound == 0
