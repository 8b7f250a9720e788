"""Theorem 2 and the convex lemma, against hand calculations and exact recursions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.errors import PlanError
from choral.planner.numbers import largest_step_size, step_condition
from choral_lab.convergence_bounds import convergence, logistic_constants

# The design's counterexample: n = r = τ = 1, f = Lθ²/2, θ⁰ = 0, so every gradient is exact and β = 0.
COUNTEREXAMPLE = {
    "initial_gap": 0.0, "step_size": 0.018, "smoothness": 10.0, "steps": 1000, "noise": 0.3,
    "dimension": 1, "cohort": 1, "batch": 1,
}  # fmt: skip


def moments(*, step_size, smoothness, steps, noise, cohort=1, start=0.0):
    """E θ̄² of every averaged iterate for f = Lθ²/2: a linear recursion, so second moments are exact.

    Each device's iterate moves by θ_i ← (1−ηL)θ_i − ηz_i, so the average over r devices follows the same recursion with
    noise σ²/r, whatever τ is; hence E θ̄² needs no simulation.
    """
    second, out = start**2, []
    for _ in range(steps):
        out.append(second)
        second = (1 - step_size * smoothness) ** 2 * second + step_size**2 * noise**2 / cohort
    out.append(second)
    return np.array(out)


def test_the_published_theorem_2_is_below_what_a_run_really_does():
    # By hand: L²·η²σ²/(1 − 0.82²) = 0.0089011 in the limit, 0.008874 averaged over 1,000 steps; the paper says 0.0081.
    second = moments(step_size=0.018, smoothness=10.0, steps=1000, noise=0.3)[:-1]
    true = float(np.mean(10.0**2 * second))
    assert true == pytest.approx(0.008874, abs=5e-7)
    published = convergence(kind="non_convex", version="published", **COUNTEREXAMPLE)
    assert published.bound == pytest.approx(0.0081, rel=1e-12)
    assert published.condition == pytest.approx(0.9972, rel=1e-12)  # 5·0.18 + 3·0.18²: the paper's condition holds
    assert true > published.bound
    assert not published.valid
    assert "counterexample" in published.because


def test_the_published_convex_lemma_is_below_what_a_run_really_does():
    # λ = L here, so f − f* = Lθ²/2 = ‖∇f‖²/(2L): the same counterexample, 0.008874/20 against 0.0081/20.
    second = moments(step_size=0.018, smoothness=10.0, steps=1000, noise=0.3)[1:]
    true = float(np.mean(10.0 * second / 2))
    published = convergence(kind="convex", version="published", strong_convexity=10.0, **COUNTEREXAMPLE)
    assert published.bound == pytest.approx(0.0081 / 20, rel=1e-12)
    assert true > published.bound


def test_a_simulation_agrees_with_the_exact_recursion():
    # 2,000 independent runs; the standard error of the mean is below 1 %, and 3.5 % tells 0.008874 from 0.0081.
    rng = np.random.default_rng(7)
    theta, total = np.zeros(2000), 0.0
    for _ in range(1000):
        total += float(np.mean((10.0 * theta) ** 2))
        theta = (1 - 0.18) * theta - 0.018 * 0.3 * rng.standard_normal(2000)
    assert total / 1000 == pytest.approx(0.008874, rel=0.035)


@given(
    x=st.floats(0.001, 0.19), smoothness=st.floats(0.01, 100), noise=st.floats(0.01, 10),
    start=st.floats(-3, 3), cohort=st.integers(1, 50), steps=st.integers(1, 300), local_steps=st.integers(1, 10),
)  # fmt: skip
def test_the_corrected_bounds_hold_on_every_quadratic(x, smoothness, noise, start, cohort, steps, local_steps):
    eta = min(x / smoothness, largest_step_size(smoothness=smoothness, local_steps=local_steps) * (1 - 1e-12))
    reported = {
        "initial_gap": smoothness * start**2 / 2, "step_size": eta, "smoothness": smoothness, "steps": steps,
        "noise": noise, "dimension": 1, "cohort": cohort, "batch": 1, "local_steps": local_steps,
    }  # fmt: skip
    second = moments(step_size=eta, smoothness=smoothness, steps=steps, noise=noise, cohort=cohort, start=start)
    gradient = convergence(kind="non_convex", **reported)
    assert gradient.valid
    assert float(np.mean(smoothness**2 * second[:-1])) <= gradient.bound * (1 + 1e-9)
    excess = convergence(kind="convex", strong_convexity=smoothness, **reported)
    assert float(np.mean(smoothness * second[1:] / 2)) <= excess.bound * (1 + 1e-9)


def test_local_steps_on_a_curved_loss_stay_under_the_corrected_bound():
    # f(θ) = log cosh θ (L = 1, not quadratic): here the drift of τ = 5 local steps really enters the average's path.
    rng = np.random.default_rng(11)
    eta, sigma, cohort, tau, rounds, runs = 0.05, 0.5, 4, 5, 60, 400
    assert step_condition(step_size=eta, smoothness=1.0, local_steps=tau) <= 1
    theta, total = np.full((runs, cohort), 2.0), 0.0
    for step in range(rounds * tau):
        total += float(np.mean(np.tanh(theta.mean(axis=1)) ** 2))
        theta = theta - eta * (np.tanh(theta) + sigma * rng.standard_normal(theta.shape))
        if (step + 1) % tau == 0:
            theta = np.broadcast_to(theta.mean(axis=1, keepdims=True), theta.shape)
    reported = convergence(
        kind="non_convex", initial_gap=math.log(math.cosh(2.0)), step_size=eta, smoothness=1.0, steps=rounds * tau,
        noise=sigma, dimension=1, cohort=cohort, batch=1, local_steps=tau,
    )  # fmt: skip
    assert reported.drift > 0
    assert total / (rounds * tau) <= reported.bound


def test_every_part_of_the_bounds_equals_a_calculation_by_hand():
    # η=0.1, L=2, K=50, β=3, γ=9, d=4, σ=0.5, r=5, τ=3, f0−f*=1.5, λ=0.5; ηL=0.2, β²/γ=1, dσ²=1.
    reported = {
        "initial_gap": 1.5, "step_size": 0.1, "smoothness": 2.0, "steps": 50, "noise": 0.5, "dimension": 4,
        "cohort": 5, "batch": 9, "local_steps": 3, "gradient_deviation": 3.0,
    }  # fmt: skip
    plain = convergence(kind="non_convex", version="published", **reported)
    # 2·1.5/(0.1·50) = 0.6; 0.2·1/2 = 0.1; 0.2·1/10 = 0.02; 2·5·(2·0.04/3 + 0.04·6/15) = 10·(0.02667 + 0.016) = 0.42667
    assert (plain.start, plain.sampling, plain.noise) == pytest.approx((0.6, 0.1, 0.02), rel=1e-12)
    assert plain.drift == pytest.approx(10 * (0.08 / 3 + 0.016), rel=1e-12)
    better = convergence(kind="non_convex", **reported)
    assert (better.sampling, better.noise, better.drift) == pytest.approx((0.2, 0.04, plain.drift), rel=1e-12)
    convex = convergence(kind="convex", version="published", strong_convexity=0.5, **reported)
    # 0.95·1.5/(50·0.1·0.5) = 0.57; 0.2/(4·0.5) = 0.1; 0.2/(4·5·0.5) = 0.02; 0.04·10·(1/1.5 + 6/15) = 0.426667
    assert (convex.start, convex.sampling, convex.noise) == pytest.approx((0.57, 0.1, 0.02), rel=1e-12)
    assert convex.drift == pytest.approx(0.4 * (1 / 1.5 + 0.4), rel=1e-12)
    assert convergence(kind="convex", strong_convexity=0.5, **reported).sampling == pytest.approx(0.2, rel=1e-12)
    assert plain.condition == pytest.approx(1.0 + 3 * 9 * 0.04, rel=1e-12)
    assert better.condition == pytest.approx(1.0 + 6 * 9 * 0.04, rel=1e-12)
    assert not better.valid


# Squares of smaller numbers are subnormal: they have few digits, so that twice one is not always twice the other.
from_nothing = st.just(0.0) | st.floats(1e-100, 10)


@given(
    eta=st.floats(1e-4, 1), smoothness=st.floats(1e-3, 100), steps=st.integers(1, 10**6), noise=from_nothing,
    beta=from_nothing, dimension=st.integers(1, 10**6), cohort=st.integers(1, 1000), batch=st.integers(1, 1000),
    local_steps=st.integers(1, 50), gap=from_nothing, share=st.floats(0.01, 1),
)  # fmt: skip
def test_the_corrected_bound_is_never_below_the_published_one_and_at_most_twice_it(
    eta, smoothness, steps, noise, beta, dimension, cohort, batch, local_steps, gap, share
):
    reported = {
        "initial_gap": gap, "step_size": eta, "smoothness": smoothness, "steps": steps, "noise": noise,
        "dimension": dimension, "cohort": cohort, "batch": batch, "local_steps": local_steps,
        "gradient_deviation": beta,
    }  # fmt: skip
    for kind, curve in (("non_convex", None), ("convex", share * smoothness)):
        published = convergence(kind=kind, version="published", strong_convexity=curve, **reported)
        corrected = convergence(kind=kind, version="corrected", strong_convexity=curve, **reported)
        assert published.bound <= corrected.bound <= 2 * published.bound
        assert published.condition <= corrected.condition


@given(smoothness=st.floats(1e-3, 1e3), local_steps=st.integers(1, 100))
def test_the_largest_step_size_fills_the_corrected_condition_exactly(smoothness, local_steps):
    eta = largest_step_size(smoothness=smoothness, local_steps=local_steps)
    assert step_condition(step_size=eta, smoothness=smoothness, local_steps=local_steps) == pytest.approx(1, rel=1e-12)


def test_logistic_constants_equal_a_numeric_hessian_and_the_gradients_of_all_rows():
    rng = np.random.default_rng(3)
    rows, labels = rng.normal(size=(40, 3)), rng.integers(0, 2, size=40)

    def gradients(theta):  # one logit, one row of the result a record
        return (1 / (1 + np.exp(-rows @ theta)) - labels)[:, None] * rows

    steps = np.eye(3) * 1e-6
    hessian = np.array([(gradients(e).mean(0) - gradients(-e).mean(0)) / 2e-6 for e in steps])  # p(1−p) is largest at 0
    reported = logistic_constants(rows, labels, classes=1, l2=0.1)
    assert reported.smoothness == pytest.approx(np.linalg.eigvalsh(hessian)[-1] + 0.1, rel=1e-6)
    at_zero = gradients(np.zeros(3))
    assert reported.gradient_deviation == pytest.approx(math.sqrt((at_zero**2).sum(1).mean()), rel=1e-12)
    split = logistic_constants(rows, labels, classes=1, sampling="partition")
    deviation = at_zero - at_zero.mean(0)
    assert split.gradient_deviation == pytest.approx(math.sqrt((deviation**2).sum(1).mean()), rel=1e-12)
    assert reported.strong_convexity == 0.1
    assert logistic_constants(rows, classes=1).gradient_deviation >= reported.gradient_deviation


def test_beta_bounds_the_variance_of_a_poisson_batch_with_a_fixed_divisor():
    # 20,000 simulated batches; the fixed divisor makes the batch's own size a part of the variance.
    rng = np.random.default_rng(9)
    rows, labels = rng.normal(loc=0.5, size=(50, 2)), rng.integers(0, 2, size=50)
    gradients = (0.5 - labels)[:, None] * rows
    drawn = rng.random((20_000, 50)) < 0.2
    means = drawn @ gradients / 10
    variance = ((means - gradients.mean(0)) ** 2).sum(1).mean()
    beta = logistic_constants(rows, labels, classes=1).gradient_deviation
    assert variance == pytest.approx(0.8 * beta**2 / 10, rel=0.05)  # (1 − q)·β²/γ: at most β²/γ, as the bound needs


def test_two_softmax_logits_double_smoothness_and_labels_lower_the_deviation():
    rng = np.random.default_rng(4)
    rows, labels = rng.normal(size=(30, 4)), rng.integers(0, 2, size=30)
    one, two = logistic_constants(rows, classes=1), logistic_constants(rows, classes=2)
    assert two.smoothness == pytest.approx(2 * one.smoothness, rel=1e-12)
    # At θ = 0 two softmax errors are ±(1/2, −1/2): the one-logit error twice, so β² doubles.
    reported = logistic_constants(rows, labels, classes=2)
    single = logistic_constants(rows, labels, classes=1)
    assert reported.gradient_deviation == pytest.approx(math.sqrt(2) * single.gradient_deviation, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kind": "concave"}, "kind"), ({"version": "printed"}, "version"), ({"step_size": 0.0}, "step_size"),
        ({"smoothness": math.nan}, "smoothness"), ({"initial_gap": -1.0}, "initial_gap"), ({"steps": 0}, "steps"),
        ({"noise": math.inf}, "noise"), ({"cohort": 0}, "cohort"), ({"batch": 0}, "batch"),
        ({"local_steps": 0}, "local_steps"), ({"dimension": 0}, "dimension"),
        ({"gradient_deviation": -1.0}, "gradient_deviation"), ({"kind": "convex"}, "strong_convexity"),
        ({"kind": "convex", "strong_convexity": 11.0}, "strong_convexity"),
    ],
)  # fmt: skip
def test_a_number_out_of_range_is_refused_by_name(change, word):
    with pytest.raises(PlanError, match=word):
        convergence(**({"kind": "non_convex"} | COUNTEREXAMPLE | change))


@pytest.mark.parametrize(
    ("rows", "labels"), [([1.0], None), ([[]], None), ([[math.nan]], None), ([[1.0]], [2]), ([[1.0]], [0, 1])]
)
def test_public_rows_of_the_wrong_form_are_refused(rows, labels):
    with pytest.raises(PlanError, match="CH204"):
        logistic_constants(rows, labels)
