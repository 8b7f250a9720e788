"""A run of Algorithm 1 that leaks more than Theorem 1 says: the counterexample of docs/accounting.md, measured.

One parameter, two batches a pass, one pass a round, one round, ten devices behind a perfect secure sum.
Every record's gradient is clipped to G, every step carries its noise, the server sees nothing but the sum.
"""

import math

import numpy as np
import pytest

from choral.accounting import published
from choral.accounting.proofs import against_everyone, exposed, with_secure_sum
from choral.core.zcdp import gdp_epsilon
from choral_lab.audit.bounds import Tally, least_epsilon

TRIALS = 400_000
THRESHOLD = 3.7  # standard deviations of the sum in the world without the record's push; fixed before any trial
MISS = 1e-6  # chance of either bound to be wrong; fixed seeds make the outcome the same on every machine
DELTA = 1e-5
DEVICES, BATCH, CLIP, STEP = 10, 100, 1.0, 1.0
NOISE = 0.8 * CLIP / BATCH


def clipped_step(model, gradient, noise):
    """Line 8 of Algorithm 1 for a batch whose records all have the same gradient: clip, average, add noise."""
    return model - STEP * (np.clip(gradient, -CLIP, CLIP) + NOISE * noise)


def server_sees(push, stretch, source):
    """The sum of ten updates after two local steps each; the record under attack pushes with +G or −G."""
    total = np.zeros(TRIALS)
    for device in range(DEVICES):
        noise = source.standard_normal((2, TRIALS))
        if device == 0:
            # First batch: the record itself; the others of the batch have no gradient. Second batch: records whose
            # loss is −stretch·θ²/2 near the start, so that the step moves away from where it stands.
            model = -STEP * (push * CLIP / BATCH + NOISE * noise[0])
            model = clipped_step(model, -stretch * model, noise[1])
        else:
            # Second batch: records whose loss is θ²/2, so that the step goes home and forgets the first noise.
            model = -STEP * NOISE * noise[0]
            model = clipped_step(model, model, noise[1])
        total += model
    return total


def lower_bound(stretch):
    """ε that the run certainly exceeds at δ, by Clopper and Pearson's bounds on one fixed test."""
    source = np.random.default_rng(20031)
    spread = NOISE * math.sqrt((1 + stretch) ** 2 + DEVICES)
    centre = (1 + stretch) * CLIP / BATCH
    cut = centre - THRESHOLD * spread  # the pushed sum lies at −centre
    hits = int(np.sum(server_sees(+1.0, stretch, source) < cut))
    false_alarms = int(np.sum(server_sees(-1.0, stretch, source) < cut))
    tally = Tally(trainings=TRIALS, false_alarms=false_alarms, hits=hits)
    return least_epsilon(tally, delta=DELTA, confidence=1 - 2 * MISS)


EXPOSURE = exposed(
    rounds=1,
    local_steps=2,
    cohort=DEVICES,
    devices=DEVICES,
    rows=2 * BATCH,
    batch=BATCH,
    noise=NOISE,
    clip=CLIP,
    sampling="partition",
    step_size=STEP,
    smoothness=14.0,
)


def test_a_run_of_the_papers_algorithm_exceeds_the_papers_epsilon():
    claimed = published.theorem_1(EXPOSURE)
    seen = lower_bound(stretch=14.0)
    assert claimed.epsilon(DELTA) == pytest.approx(4.106, abs=1e-3)  # ρ = 2/(10 · 0.8²) = 0.3125, Lemma 3
    assert seen > 5.5 > claimed.epsilon(DELTA)
    assert not claimed.valid
    # what is proved holds: Rule S1, and Rule S3 for steps that stretch fifteenfold
    assert seen < against_everyone(EXPOSURE).epsilon(DELTA)
    assert seen < with_secure_sum(EXPOSURE).epsilon(DELTA)


def test_the_measured_leak_is_what_the_arithmetic_of_the_page_says():
    # μ = 2·(1+a)/(z·√((1+a)² + r)) = 2.446 for a = 14: 96 % of what the device alone would leak, not 1/√10 of it
    mu = 2 * 15 / (0.8 * math.sqrt(15**2 + DEVICES))
    assert mu == pytest.approx(2.4462, abs=1e-4)
    assert lower_bound(stretch=14.0) < gdp_epsilon(mu, DELTA)


def test_steps_that_stay_where_they_are_keep_the_theorem():
    # With stretch 0 the second batch does nothing: non-expansive, one pass, and the claimed ε is not exceeded.
    assert lower_bound(stretch=0.0) < published.theorem_1(EXPOSURE).epsilon(DELTA)
