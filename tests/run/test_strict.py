"""The strict mode as a setting of a run: simulated, rehearsed, deployed, killed and resumed, and checked again."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from choral.cli import main
from choral.core.errors import PlanError
from choral.core.events import Gaussian
from choral.deploy.approving import approve
from choral.deploy.home import Policy
from choral.engine.compiled import CompiledEngine
from choral.learning.trainer import LocalTraining
from choral.record import read_run
from choral.report.verify import verify
from choral.run.folder import RunFolder
from choral.run.places import engine_of
from choral.run.runs import Run, resume
from choral_lab.audit.canary import worst_case
from choral_lab.audit.one_run import data_driven
from choral_lab.research.sweep_training import balanced_cohorts
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents
from tests.run.small import rows, study

LAWS = ("discrete_gaussian",)
STRICT = {"local_steps": 1, "sampling": "partition"}


def outcome(kind, **settings):
    drop = settings.pop("drop", 0.0)
    run = Run(kind, study(**{**STRICT, **settings}), drop=drop)
    lines = [(line.round, line.cohort, line.included) for line in run.rounds()]
    return run.parameters, lines, run.conclude().privacy


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("seed", [1, 2])
def test_simulate_equals_rehearse_to_the_integer_with_whole_noise_and_drop_outs(law, seed):
    given = {"law": law, "seed": seed, "cohort": 6, "rounds": 4, "drop": 0.15}
    fast, fast_lines, fast_privacy = outcome("simulation", **given)
    real, real_lines, real_privacy = outcome("rehearsal", **given)
    assert np.array_equal(fast, real)
    assert fast_lines == real_lines
    assert fast_privacy == real_privacy
    assert any(len(included) < len(cohort) for _, cohort, included in fast_lines)  # somebody did drop out


def test_another_seed_has_other_noise_and_another_law_too():
    models = [outcome("simulation", law=law, seed=seed)[0] for law in ("gaussian", *LAWS) for seed in (1, 2)]
    assert len({model.tobytes() for model in models}) == 4


@pytest.mark.parametrize("law", LAWS)
def test_the_compiled_rounds_add_the_noise_that_a_simulated_round_adds(law):
    own = study(law=law, **STRICT)
    cohorts = list(balanced_cohorts(own.plan, seed=1))
    keep = [np.array([True, False, True, True])] * len(cohorts)
    one, many = engine_of(own), engine_of(own)
    parameters = start = own.model.start(0)
    for number, (cohort, included) in enumerate(zip(cohorts, keep, strict=True)):
        opened = one.train(parameters, number, cohort, included)
        parameters = one.apply(parameters, opened.total, opened.count)
    *_, last = many.rounds(start, cohorts, keep)
    assert np.array_equal(last.parameters, parameters)


@pytest.mark.parametrize("law", LAWS)
def test_the_noise_of_an_opened_sum_is_that_of_its_devices(law):
    """The sum less the devices' rounded updates: mean square k·s² for k included, within five standard errors."""
    own = study(rows(1200, 400), law=law, **STRICT)
    engine, start, cohort = engine_of(own), own.model.start(0), np.arange(4)
    opened = engine.train(start, 3, cohort, np.array([True, True, False, True]))
    engine.rounds_of[:] = 0
    kept = [0, 1, 3]
    updates = zip(engine.updates(start, 3, cohort)[kept], kept, strict=True)
    plain = sum(own.codec.integers(update, engine.dither(3, device)) for update, device in updates)
    noise = (opened.total - plain).astype(np.float64)
    assert noise.size == 802
    assert abs(np.mean(noise**2) / (3 * own.codec.noise_in_grid**2) - 1) < 5 * math.sqrt(2 / noise.size)


@pytest.mark.parametrize("law", LAWS)
def test_a_rehearsal_shows_no_update_without_its_noise(law, tmp_path, monkeypatch):
    """What result.json keeps of a device is what its words say before the masks, not what it computed."""
    real, clear = LocalTraining.update, []
    monkeypatch.setattr(LocalTraining, "update", lambda *given: clear.append(real(*given)) or clear[-1])
    own = study(law=law, seed=None, **STRICT)
    Run("rehearsal", own, folder=RunFolder.create(tmp_path / "run")).finish()
    shown = np.array(read_run(tmp_path / "run").result.sight.computed)
    assert len(clear) == 3 * 4
    nearest = min(np.sqrt(np.mean((shown - update[: len(shown)]) ** 2)) for update in clear)
    assert 0.2 < nearest / (own.codec.noise_in_grid * own.codec.grid) < 3  # ten numbers: near the noise, far from zero
    assert [finding for finding in verify(tmp_path / "run") if finding.wrong] == []


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_strict_run_that_was_stopped_goes_on_and_is_verified(kind, tmp_path):
    given = {
        "law": "discrete_gaussian",
        "rounds": 4,
        "limits": {f"device {number}": 100.0 for number in range(1, 7)},
        **STRICT,
    }
    whole = Run(kind, study(**given), folder=RunFolder.create(tmp_path / "whole"))
    whole.finish()
    part = Run(kind, study(**given), folder=RunFolder.create(tmp_path / "part"))
    lines = part.rounds()
    assert [next(lines).round, next(lines).round] == [1, 2]
    lines.close()
    resume(tmp_path / "part", rows()).finish()
    assert [finding for finding in verify(tmp_path / "part") if finding.wrong] == []
    assert np.array_equal(RunFolder(tmp_path / "part").checkpoint()[1], RunFolder(tmp_path / "whole").checkpoint()[1])


@pytest.mark.parametrize(("law", "kind"), [("discrete_gaussian", Gaussian)])
def test_a_study_between_sites_is_charged_by_rule_s6_and_its_sums_are_noisy(law, kind, tmp_path):
    """The agents as they are deployed: a sum is off from what the sites computed by about √3·s grid steps."""
    job = JOB.replace("delta = 1e-4", f'delta = 1e-4\nlaw = "{law}"').replace("steps = 2", "steps = 1")
    made = Consortium(tmp_path, job=job.replace("rounds = 3", "rounds = 1"))
    own = Policy(epsilon=4.0, delta=1e-4)
    preview = approve(made.homes[NAMES[0]], made.study / "study.toml", own, made.tables[NAMES[0]], record=False)
    assert (preview.law, preview.rule) == (law, "S6")
    made.approve()
    sent = {}
    with agents(made.homes) as running:
        for name, agent in running.items():

            def noted(model, name=name, real=agent.trainer.update):
                sent[name] = real(model)
                return sent[name]

            agent.trainer.update = noted
        conductor = made.conductor(Sockets(made.homes))
        conductor.run()
        charges = [agent.ledger.balance.charges for agent in running.values()]
    for (charge,) in charges:
        assert charge.rule == "S6"
        assert isinstance(charge.event, kind)
    codec = conductor.study.codec
    _, after = conductor.run_folder.checkpoint()
    moved = 3 * (after - conductor.study.model.start(0) - np.mean([sent[name] for name in NAMES], axis=0)) / codec.grid
    assert 0.3 < np.sqrt(np.mean(moved**2)) / (math.sqrt(3) * codec.noise_in_grid) < 2.5
    record = read_run(conductor.run_folder.path)
    assert [finding.wrong for finding in verify(record.folder) if finding.wrong] == []


TOML = """
[privacy]
epsilon = 3.0
delta = 1e-4
law = "{law}"
noise_is_added = "every step"
[federation]
devices = 5
cohort = 4
rounds = 2
[data]
csv = "people.csv"
label = "sick"
[run]
seed = 3
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features, labels = rows(400)
    lines = [
        "a,b,c,d,sick",
        *(",".join([*map(str, row), "ny"[label]]) for row, label in zip(features, labels, strict=True)),
    ]
    (tmp_path / "people.csv").write_text("\n".join(lines))

    def written(law, more=""):
        (tmp_path / "choral.toml").write_text(TOML.format(law=law) + more)
        return "choral.toml"

    return written


@pytest.mark.parametrize("law", LAWS)
def test_a_file_with_a_law_is_planned_simulated_rehearsed_reported_and_verified(job, law, capsys, tmp_path):
    written = job(law)
    for verb in ("simulate", "rehearse"):
        assert main([verb, written, "--out", verb]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "1 local step per round · batches of 64 step size" in said
        assert "discrete Gaussian noise " in said
        assert "rule S6" in said
        assert "whole numbers on a grid of" in said
        assert "rule S1" not in said
        assert "rule S5" not in said
        assert main(["verify", verb]) == 0
        assert main(["report", verb]) == 0
        page, entry = (tmp_path / verb / "report.html").read_text(), (tmp_path / verb / "privacy.yaml").read_text()
        for text in (page, entry):
            assert "discrete Gaussian noise of standard deviation" in text
            assert "in whole numbers" in text
            assert "Gaussian noise of standard deviation" not in text.replace("discrete Gaussian", "")
            assert "Low bits" not in text
    assert (tmp_path / "simulate/model.safetensors").read_bytes() == (
        tmp_path / "rehearse/model.safetensors"
    ).read_bytes()
    plan = json.loads((tmp_path / "simulate/run.json").read_text())["plan"]
    assert (plan["law"], plan["local_steps"], plan["sampling"]) == (law, 1, "partition")


@pytest.mark.parametrize("more", ["[local]\nsteps = 2\n", '[local]\nsampling = "poisson"\n'])
def test_a_file_that_asks_for_more_than_is_proved_is_refused(job, more, capsys):
    assert main(["simulate", job("discrete_gaussian", more)]) != 0
    assert "CH204" in capsys.readouterr().err


def test_a_changed_charge_of_a_strict_ledger_is_noticed(job, tmp_path):
    main(["simulate", job("discrete_gaussian"), "--out", "run"])
    ledger = next((tmp_path / "run/ledgers").glob("*.ledger"))
    ledger.write_text(ledger.read_text().replace('"mu":', '"mu":0', 1))
    assert main(["verify", "run"]) != 0


def test_a_hand_chosen_noise_may_be_whole_too():
    own = study(law="discrete_gaussian", epsilon=None, noise=0.2, **STRICT)
    assert own.plan.strict
    assert own.codec.law == "discrete_gaussian"
    assert not study(law="discrete_gaussian", epsilon=None, noise=0.0, **STRICT).plan.strict


def test_an_audit_of_whole_noise_is_refused_and_not_made_without_it():
    own = study(law="discrete_gaussian", **STRICT)
    for audit in (lambda: worst_case(own.plan, own.secure, delta=1e-5), lambda: data_driven(own, delta=1e-5)):
        with pytest.raises(PlanError, match=r"CH204 an audit of law"):
            audit()


def test_an_engine_whose_codec_would_leave_the_noise_out_is_refused():
    own = study(law="discrete_gaussian", **STRICT)
    with pytest.raises(PlanError, match="CH204 the codec does not add"):
        CompiledEngine(
            model=own.model, records=own.split.train, plan=own.plan, codec=replace(own.codec, law="gaussian"), seed=1
        )
