"""Against whom a limit holds: everyone, or a server with its colluders that sees only sums."""

import json
import math

import numpy as np
import pandas
import pytest
from scipy.stats import norm

import choral
from choral import config
from choral.accounting.costs import NO_LIMIT
from choral.accounting.proofs import with_secure_sum
from choral.cli import main
from choral.core.errors import ChoralError
from choral.core.exposure import SUMS
from choral.core.ledger import Ledger
from choral.record import read_run
from choral.report import write_report
from choral.report.verify import verify
from choral.run.planning import server_step_of, settle
from choral.run.runs import Run
from choral.run.statement import planned_statement
from choral.server_step import Averaged, Mean
from tests.run.consortium import JOB, NAMES, Consortium
from tests.run.small import rows

TABLE = rows(count=600, features=3)
SETTINGS = {"devices": 6, "cohort": 5, "epsilon": 1.0, "delta": 1e-4, "rounds": 3, "seed": 4}
SUM = {"against": "server and colluders"}


def study(**changes):
    return settle(config.job_of(**(SETTINGS | changes)), TABLE)


@pytest.fixture(scope="module")
def trusting(tmp_path_factory):
    """The folder of a rehearsal whose limit is about the secure sum."""
    folder = tmp_path_factory.mktemp("against") / "run"
    unseeded = {name: value for name, value in SETTINGS.items() if name != "seed"}
    choral.rehearse(TABLE, **unseeded, **SUM, out=folder)
    write_report(folder)
    return folder


def test_the_limit_holds_for_the_figure_that_was_chosen_and_the_other_is_counted_too(trusting):
    privacy = read_run(trusting).finished.privacy
    assert 0.9 < privacy.with_secure_sum.epsilon <= 1.0 < privacy.against_everyone.epsilon
    assert all(device.limit == 1.0 and device.epsilon <= 1.0 for device in privacy.devices)
    for file in sorted((trusting / "ledgers").iterdir()):
        ledger = Ledger.read(file)
        assert (ledger.limit.epsilon, ledger.sum_epsilon) == (NO_LIMIT, 1.0)
        assert ledger.balance.against(SUMS).spent() <= 1.0 < ledger.balance.epsilon


def test_one_round_more_would_pass_the_limit_of_sums():
    costs = study(**SUM).costs
    allowed = int(costs.allowed_rounds[0])
    assert costs.spent(0, allowed, 1e-4) <= 1.0 < costs.spent(0, allowed + 1, 1e-4)
    assert costs.spent_against_everyone(0, allowed, 1e-4) > 1.0


def test_trust_in_the_sum_needs_half_the_noise_where_four_honest_noises_are_certain():
    numbers = {"cohort": 6, "colluders": 0, "local_steps": 20, "step_size": 0.2, "clip": 0.5}
    strict, trusting = (study(noise_is_added="once", **numbers, **who) for who in ({}, SUM))
    honest = trusting.secure.honest_noises("lying")
    assert honest == 4  # s + u_min − r − c + 1 = 4 + 5 − 6 − 0 + 1
    assert trusting.plan.noise == pytest.approx(strict.plan.noise / 2, rel=1e-6)


def test_the_page_leads_with_the_chosen_figure_and_names_the_other(trusting):
    text = (trusting / "report.html").read_text()
    privacy = read_run(trusting).finished.privacy
    assert "This trusts the secure sum: against the server and all other devices together" in text
    assert "a server that sees only sums" in text
    assert privacy.with_secure_sum.epsilon < privacy.against_everyone.epsilon


def test_the_run_verifies_and_a_changed_adversary_is_noticed(trusting, tmp_path):
    assert verify(trusting).good
    forged = tmp_path / "forged"
    forged.mkdir()
    for file in trusting.rglob("*"):
        if file.is_file():
            target = forged / file.relative_to(trusting)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    about = json.loads((forged / "run.json").read_text())
    del about["against"]
    (forged / "run.json").write_text(json.dumps(about))
    assert not verify(forged).good


def test_a_simulation_and_a_rehearsal_have_the_same_integers():
    runs = [Run(kind, study(**SUM)) for kind in ("simulation", "rehearsal")]
    for run in runs:
        run.finish()
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()


@pytest.mark.parametrize("model", [{"model": "mlp", "hidden": [4], "local_steps": 5}, {"local_steps": 5, "batch": 20}])
def test_where_nothing_is_proved_of_the_sum_the_choice_is_refused(model, tmp_path):
    with pytest.raises(ChoralError, match="CH204"):
        choral.simulate(TABLE, **SETTINGS, **SUM, **model, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_noisy_step_per_round_comes_with_momentum_and_averaged_models():
    settled = study(noise_is_added="every step", rounds=12, **SUM)
    assert (settled.plan.local_steps, settled.plan.batch, settled.plan.once) == (1, settled.plan.rows, False)
    assert isinstance(server_step_of(settled), Averaged) and server_step_of(settled).rounds == 12
    assert settled.costs.rule(0).rule == "S1" and settled.costs.of(0).sum_event(0) is not None
    runs = [Run(kind, settled) for kind in ("simulation", "rehearsal")]
    for run in runs:
        run.finish()
    assert runs[0].parameters.tolist() == runs[1].parameters.tolist()
    assert isinstance(server_step_of(study(noise_is_added="every step", server="mean", **SUM)), Mean)


def test_the_smallest_site_does_not_decide_how_long_training_lasts():
    """Shares of 50, 28, 14, 6 and 2 %: T/γ, on which Δ depends, is that of five equal sites with as many rows."""
    features, labels = rows(count=5000, features=3)
    shares = np.repeat([str(site) for site in range(5)], [2500, 1400, 700, 300, 100])
    even = np.repeat([str(site) for site in range(5)], 1000)
    times = []
    for sites in (shares, even):
        table = {f"x{number}": features[:, number] for number in range(3)} | {"label": labels, "site": sites}
        plan = settle(config.job_of(**SETTINGS | {"devices": None}, device_column="site"), pandas.DataFrame(table)).plan
        times.append(plan.local_time / plan.batch)
    assert times[0] == pytest.approx(times[1], rel=0.02)  # the split into train and test rounds rows


def test_enrolment_names_the_adversary_that_the_limit_holds_against(tmp_path, capsys):
    local = JOB[JOB.index("[local]") : JOB.index("[data]")]
    trusting = JOB.replace(local, "").replace("delta = 1e-4", 'delta = 1e-4\nagainst = "server and colluders"')
    for number, (job, adversary) in enumerate(
        [(JOB, "the server and all other devices together"), (trusting, "a server that sees only")]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        consortium = Consortium(folder, job=job)
        cards = [str(folder / f"{name}.card") for name in NAMES]
        assert main(["server", "enrol", str(consortium.study), *cards]) == 0
        assert f"against {adversary}" in " ".join(capsys.readouterr().out.split())
        assert main(["server", "enrol", str(consortium.study), *cards, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["adversary"].startswith(adversary)


def test_beyond_the_colluders_that_a_sparse_graph_withstands_no_figure_is_claimed():
    table = rows(count=1200, features=1)
    sparse = settle(
        config.job_of(devices=60, cohort=60, epsilon=1.0, rounds=2, seed=1, secure_sum="sparse", **SUM), table
    )
    claims = dict(planned_statement(sparse.costs).by_colluders)
    planned = sparse.secure.colluders
    assert 0 < planned < 59
    assert all((claims[count] is None) == (count > planned) for count in range(60))


def test_a_sparse_graph_takes_its_own_share_of_delta():
    table = rows(count=1200, features=1)
    same = {"devices": 60, "cohort": 60, "epsilon": 1.0, "rounds": 2, "seed": 1, **SUM}
    complete, sparse = (settle(config.job_of(**same, secure_sum=kind), table).costs for kind in ("complete", "sparse"))
    shares = [costs.of(0).sum_event(0).delta - costs.of(0).event(0).delta for costs in (complete, sparse)]
    assert shares == [0.0, pytest.approx(2.0**-40, rel=1e-3, abs=0)]
    assert int(sparse.allowed_rounds[0]) == 2 and sparse.spent(0, 2, sparse.limits[0].delta) <= 1.0


def test_every_turn_of_a_sparse_graph_takes_its_share_of_a_small_delta_in_noise_and_in_statements():
    """At δ = 1e-9 what 300 turns on a sparse graph may expose is more than a quarter of it: 300·2^-40 = 2.7e-10."""
    asked = {"devices": 60, "cohort": 60, "epsilon": 1.0, "delta": 1e-9, "rounds": 300, "steps": 1, "seed": 1}
    sparse = settle(config.job_of(**asked, secure_sum="sparse", **SUM), rows(count=1200, features=1)).costs
    assert (sparse.allowed_rounds == 300).all()
    part, kept = sparse.of(0).exposure(300), sparse.plan.overflow + sparse.plan.out_of_range
    mu = with_secure_sum(part).event.mu
    left = norm.cdf(-1 / mu + mu / 2) - math.e * norm.cdf(-1 / mu - mu / 2)  # Balle and Wang 2018
    assert left == pytest.approx(1e-9 - kept - 300 * 2.0**-40, rel=1e-3) and left < 0.73e-9
    assert sparse.epsilon_of_sums(part, 1e-9) == pytest.approx(1.0, rel=1e-6)
    assert planned_statement(sparse).with_secure_sum.epsilon == pytest.approx(1.0, rel=1e-6)
