import inspect
import json
import math
import random

import mpmath
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

import choral.accounting.account as module
from choral.accounting.account import account
from choral.accounting.proofs import Exposed, exposed
from choral.core import poisson
from choral.core.errors import PlanError

from .oracles import brackets, gaussian_delta

PLAN = {
    "rounds": 13,
    "local_steps": 10,
    "cohort": 10,
    "devices": 16,
    "rows": 2440,
    "batch": 244,
    "noise": 0.004902,
    "clip": 1.0,
    "delta": 1e-4,
}


USUAL = {
    "sampling": "poisson",
    "passes": "continue",
    "secure_sum": True,
    "colluders": 0,
    "dropouts": 0,
    "step_size": None,
    "smoothness": None,
    "convex": False,
    "law": "gaussian",
    "unit": "record",
    "rows_per_person": 0,
    "clip_quantile": 0.0,
}


def test_the_arguments_are_those_that_others_rely_on():
    kinds = {name: each.kind for name, each in inspect.signature(account).parameters.items()}
    assert kinds == {"delta": inspect.Parameter.KEYWORD_ONLY, "numbers": inspect.Parameter.VAR_KEYWORD}
    assert {"delta", *Exposed.__required_keys__} == PLAN.keys()
    assert Exposed.__optional_keys__ == USUAL.keys()


@pytest.mark.parametrize("name", PLAN)
def test_a_number_that_is_needed_and_left_out_is_named(name):
    with pytest.raises(TypeError, match=f"missing .*'{name}'"):
        account(**{each: value for each, value in PLAN.items() if each != name})


def test_a_name_that_is_no_argument_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument: 'epochs'"):
        account(**PLAN, epochs=3)


def test_what_is_left_out_has_its_usual_value():
    """A step size without a smoothness changes nothing, so that None stands for any."""
    part = exposed(**{name: value for name, value in PLAN.items() if name != "delta"})
    assert {name: (vars(part) | part.flat)[name] for name in USUAL} == USUAL | {"step_size": 1.0}
    assert account(**PLAN, **USUAL) == account(**PLAN)
    apart = PLAN | {"sampling": "partition"}
    assert account(**apart, smoothness=2.0) == account(**apart, step_size=0.5) == account(**apart)


@pytest.mark.parametrize("sampling", ["poisson", "partition"])
@pytest.mark.parametrize("steps", [1, 10])
def test_the_object_has_its_names_and_is_json(sampling, steps):
    reported = account(**(PLAN | {"sampling": sampling, "local_steps": steps}))
    assert json.loads(json.dumps(reported.to_dict(), allow_nan=False)) == reported.to_dict()
    figure = {"rho", "epsilon", "valid", "because"}
    for each in (
        reported.paper,
        reported.paper_without_secure_sum,
        reported.dp_sgd.as_printed,
        reported.dp_sgd.corrected,
    ):
        assert set(each.to_dict()) == figure
    assert {"rule", "mu", "rho", "epsilon"} <= set(reported.proved.against_everyone.to_dict())
    summed = reported.proved.with_secure_sum
    assert (summed is None) == (steps > 1)
    assert summed is None or {"rule", "epsilon", "certificate"} <= set(summed.to_dict())
    assert reported.adjacency == "one record replaced"


def test_the_published_figure_is_ten_and_the_proved_one_is_not_for_the_same_noise():
    reported = account(**PLAN, sampling="partition")
    assert reported.paper.epsilon == pytest.approx(10.0, rel=1e-5)  # Lemma 3 by hand: ρ = 1.81739
    assert reported.proved.against_everyone.epsilon == pytest.approx(39.8, abs=0.05)
    assert reported.proved.against_everyone.rho == pytest.approx(2 * 13 / (0.004902 * 244) ** 2, rel=1e-12)


def random_plan(source):
    rows = source.randint(1, 5000)
    batch = source.randint(1, rows)
    batches = rows // batch
    cohort = source.randint(1, 40)
    colluders = source.randint(0, cohort - 1)
    multiplier = 10 ** source.uniform(-1, 2)
    return {
        "rounds": source.randint(1, 300),
        "local_steps": source.choice([1, batches, 2 * batches, source.randint(1, 50)]),
        "cohort": cohort,
        "devices": cohort + source.randint(0, 40),
        "rows": rows,
        "batch": batch,
        "noise": multiplier / batch,
        "clip": 1.0,
        "delta": 10 ** source.uniform(-12, -2),
        "sampling": "partition",
        "passes": source.choice(["continue", "reshuffle"]),
        "colluders": colluders,
        "dropouts": source.randint(0, cohort - 1 - colluders),
        "step_size": source.choice([None, 0.1, 1.0]),
        "smoothness": source.choice([0.1, 1.0, 3.0]),
        "convex": source.random() < 0.5,
    }


def mu_by_hand(plan):
    """μ² of Rule S1, and of S2 or S3 where a closed form of the shared notes covers the plan, from their formulas."""
    batches = plan["rows"] // plan["batch"]
    rounds, steps = plan["rounds"], plan["local_steps"]
    unit = mpmath.mpf(4) / (mpmath.mpf(plan["noise"]) * plan["batch"]) ** 2
    uses = math.ceil(rounds * steps / batches) if plan["passes"] == "continue" else rounds * math.ceil(steps / batches)
    alone = unit * uses
    noises = plan["cohort"] - plan["colluders"] - plan["dropouts"]
    if steps == 1:
        return alone, unit * uses / noises
    if plan["step_size"] is None or steps % batches:
        return alone, None
    passes, product = steps // batches, plan["step_size"] * plan["smoothness"]
    if plan["convex"] and product <= 2:
        if noises >= batches:
            return alone, unit * rounds * passes**2 / mpmath.mpf((passes - 1) * batches + noises)
        return alone, unit * rounds * (mpmath.mpf(passes - 1) / batches + mpmath.mpf(1) / noises)
    if passes > 1:
        return alone, None
    stretched = (1 + mpmath.mpf(product)) ** 2
    return alone, unit * rounds / min(mpmath.mpf(noises), stretched / (stretched - 1))


def check_plan(plan):
    reported = account(**plan)
    alone, summed = mu_by_hand(plan)
    figures = [(reported.proved.against_everyone.epsilon, alone)]
    if summed is not None:
        figures.append((reported.proved.with_secure_sum.epsilon, summed))
    for epsilon, squared in figures:
        mu = mpmath.sqrt(squared)
        if epsilon == 0:
            assert gaussian_delta(0, mu) <= plan["delta"] * (1 + 1e-9)
        else:
            # within 1e-9 of the oracle on both sides, but where ε is the rounding of a difference of larger numbers
            assert brackets(lambda e, mu=mu: gaussian_delta(e, mu), epsilon, plan["delta"], max(1e-9, 1e-14 / epsilon))
    # ρ of Theorem 1 and Lemma 3 at 50 digits
    rho = mpmath.mpf(2 * plan["rounds"] * plan["local_steps"]) / (
        plan["cohort"] * plan["rows"] * plan["batch"] * mpmath.mpf(plan["noise"]) ** 2
    )
    epsilon = rho + 2 * mpmath.sqrt(rho * -mpmath.log(mpmath.mpf(plan["delta"])))
    assert abs(reported.paper.rho / rho - 1) < 1e-9
    assert abs(reported.paper.epsilon / epsilon - 1) < 1e-9
    if reported.paper.valid:  # what is called valid is never below what is proved
        best = reported.proved.with_secure_sum or reported.proved.against_everyone
        assert best.epsilon <= reported.paper.epsilon * (1 + 1e-9)


def test_random_plans_agree_with_the_oracle():
    source = random.Random(2003)
    for _ in range(300):
        check_plan(random_plan(source))


@pytest.mark.long
def test_ten_thousand_random_plans_agree_with_the_oracle():
    source = random.Random(13761)
    for _ in range(10_000):
        check_plan(random_plan(source))


def check_sampled_plan(plan):
    """The figure lies between the library's bounds on a grid four times finer: rounded down, and 1.001 × rounded up."""
    reported = account(**plan)
    shared = {"neighboring_relation": NeighboringRelation.REPLACE_ONE, "sampling_prob": plan["batch"] / plan["rows"]}
    z, steps = plan["noise"] * plan["batch"], plan["rounds"] * plan["local_steps"]
    shared["value_discretization_interval"] = poisson.grid_width({(z, shared["sampling_prob"]): steps}, 0.0, 100.0)
    low = pld.from_gaussian_mechanism(z, pessimistic_estimate=False, use_connect_dots=False, **shared)
    high = pld.from_gaussian_mechanism(z, **shared)
    epsilon = reported.proved.against_everyone.epsilon
    assert reported.proved.against_everyone.rule == "S5"
    # In δ, since the library's own ε overflows beyond 700; 1e-12 is what its transforms may err by in a thousand steps.
    assert low.self_compose(steps).get_delta_for_epsilon(epsilon) <= plan["delta"] + 1e-12
    assert epsilon == 0 or high.self_compose(steps).get_delta_for_epsilon(epsilon / 1.001) >= plan["delta"] - 1e-12


def sampled_plan(source):
    rows = source.randint(20, 5000)
    batch = max(1, round(rows * 10 ** source.uniform(-2, -0.1)))
    return {
        "rounds": source.randint(1, 50),
        "local_steps": source.randint(1, 20),
        "cohort": 5,
        "devices": 9,
        "rows": rows,
        "batch": batch,
        "noise": 10 ** source.uniform(-0.3, 1.3) / batch,
        "clip": 1.0,
        "delta": 10 ** source.uniform(-8, -2),
    }


def test_random_sampled_plans_lie_between_the_librarys_bounds():
    source = random.Random(8)
    for _ in range(8):
        check_sampled_plan(sampled_plan(source))


@pytest.mark.long
def test_hundreds_of_random_sampled_plans_lie_between_the_librarys_bounds():
    source = random.Random(42)
    for _ in range(300):
        check_sampled_plan(sampled_plan(source))


WORSE = {
    "rounds": 40,
    "local_steps": 20,
    "cohort": 5,
    "rows": 1220,
    "batch": 122,  # at the same noise on the mean, a smaller batch carries more of each record
    "noise": 0.002,
    "clip": 2.0,
    "delta": 1e-9,
    "colluders": 3,
    "dropouts": 3,
}


def every_epsilon(reported):
    proved = reported.proved
    found = [
        reported.paper.epsilon,
        reported.paper_without_secure_sum.epsilon,
        proved.against_everyone.epsilon,
    ]
    found += [each.epsilon for each in (reported.dp_sgd.as_printed, reported.dp_sgd.corrected)]
    return [*found, proved.with_secure_sum.epsilon] if proved.with_secure_sum else found


@pytest.mark.parametrize("name", WORSE)
@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_every_argument_moves_epsilon_its_own_way_only(name, sampling):
    base = PLAN | {"sampling": sampling, "step_size": 0.5, "smoothness": 0.5, "convex": True, "passes": "reshuffle"}
    if sampling == "poisson" and name != "local_steps":
        base["local_steps"] = 1  # where the secure sum has a rule
    change = {name: WORSE[name]} | ({"batch": 122} if name == "rows" else {})  # the same number of batches a pass
    better, worse = every_epsilon(account(**base)), every_epsilon(account(**(base | change)))
    assert len(better) == len(worse)
    assert all(low <= high * (1 + 1e-12) for low, high in zip(better, worse, strict=True))
    assert better != worse


def test_more_devices_change_only_the_printed_baseline():
    reported, more = account(**PLAN), account(**(PLAN | {"devices": 160}))
    assert more.dp_sgd.as_printed.epsilon < reported.dp_sgd.as_printed.epsilon
    assert more.proved == reported.proved
    assert more.paper == reported.paper


@pytest.mark.parametrize("noise", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("sampling", ["poisson", "partition"])
def test_extreme_noise_gives_finite_figures(noise, sampling):
    reported = account(**(PLAN | {"noise": noise, "sampling": sampling, "local_steps": 1}))
    assert all(math.isfinite(epsilon) and epsilon >= 0 for epsilon in every_epsilon(reported))


def test_noise_out_of_any_range_is_refused():
    for noise in (1e-300, 1e300):
        with pytest.raises(PlanError, match="CH200 noise"):
            account(**(PLAN | {"noise": noise}))


@pytest.mark.parametrize("bad", [0.0, 1.0, -1e-5, math.nan, math.inf, None])
def test_a_delta_that_is_none_is_refused(bad):
    with pytest.raises(PlanError, match="CH200 delta"):
        account(**(PLAN | {"delta": bad}))


def test_without_sampling_no_library_is_loaded():
    import subprocess
    import sys

    script = (
        "import sys\nfrom choral.accounting.account import account\n"
        f"account(**{PLAN | {'sampling': 'partition'}!r})\n"
        "print([name for name in ('numpy', 'scipy', 'dp_accounting', 'jax') if name in sys.modules])"
    )
    src = str(module.__file__).rsplit("/choral/", 1)[0]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={"PYTHONPATH": src}, check=True
    )
    assert done.stdout.strip() == "[]"
