"""Runs from a table to a result: manners, budgets of one's own, folders, and what goes wrong."""

import json
import os
import platform
import re
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import choral
from choral.accounting.calibrate import smallest_noise
from choral.cli import main, training
from choral.core.errors import ChoralError
from choral.core.plan import Budget
from choral.record import charged_rounds
from choral.report.verify import verify
from choral.run import runs
from choral.run.folder import RunFolder
from choral.run.places import OneProcess
from choral.run.runs import Run
from choral.run.study import codec_of
from tests.run.small import SETTINGS, rows, study

ADULTS = """\
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
cohort = 3
rounds = 2
[local]
steps = 2
batch = 8
step_size = 0.5
clip = 1.0
[data]
csv = "sites/*.csv"
label = "ill"
classes = ["no", "yes"]
[data.columns.age]
bounds = [0, 100]
[data.columns.sex]
levels = ["F", "M"]
[run]
name = "clinics"
seed = 3
"""


@pytest.fixture
def clinics(tmp_path, monkeypatch):
    (tmp_path / "sites").mkdir()
    rng = np.random.default_rng(0)
    for name in ("north", "south", "west", "east"):
        age = rng.integers(18, 99, 60)
        ill = np.where(age + rng.normal(0, 10, 60) > 60, "yes", "no")
        frame = pd.DataFrame({"age": age, "sex": rng.choice(["F", "M"], 60), "ill": ill})
        frame.to_csv(tmp_path / "sites" / f"{name}.csv", index=False)
    (tmp_path / "choral.toml").write_text(ADULTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_toml_is_simulated_into_a_folder_that_verifies(clinics, capsys):
    assert main(["simulate", "choral.toml", "--out", "out", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["kind"] == "simulation"
    assert reported["seeded"]
    assert reported["privacy"]["against_everyone"]["epsilon"] <= 4.0
    assert {path.name for path in (clinics / "out").iterdir()} >= {
        "run.json", "rounds.jsonl", "result.json", "model.safetensors", "model.json", "report.html", "privacy.yaml",
        "ledgers",
    }  # fmt: skip
    assert main(["verify", "out"]) == 0


def test_a_run_says_with_which_python_it_was_made_and_its_page_shows_it(clinics):
    assert main(["simulate", "choral.toml", "--out", "out", "--quiet"]) == 0
    made_with = json.loads((clinics / "out/run.json").read_text())["made_with"]
    assert platform.python_version() in made_with and platform.machine() in made_with
    assert made_with in (clinics / "out/report.html").read_text()


@pytest.mark.usefixtures("clinics")
def test_the_terminal_output_fits_80_columns_and_names_rule_adjacency_and_adversary(capsys):
    assert main(["rehearse", "choral.toml", "--out", "out"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "seeded: the noise can be predicted" in " ".join(text.split())
    assert "rule S5" in text
    assert "one record replaced" in text
    assert "against the server and all other devices together" in text


def test_a_result_predicts_with_the_manners_of_scikit_learn(clinics):
    result = choral.simulate("choral.toml")
    frame = pd.read_csv(clinics / "sites" / "north.csv")
    probabilities = result.predict_proba(frame)
    assert probabilities.shape == (60, 2)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert set(result.predict(frame)) <= {"no", "yes"}
    with pytest.raises(ChoralError, match="CH312 60 rows and 5 labels"):
        result.score(frame, frame["ill"][:5])
    assert result.score(frame, frame["ill"]) == np.mean(result.predict(frame) == frame["ill"].to_numpy())


def test_arrays_are_fitted_and_reported_without_a_run_folder(tmp_path):
    result = choral.fit(*rows(), **SETTINGS)
    text = result.report(tmp_path / "page.html").read_text()
    assert "ε ≤" in text
    assert "one record replaced" in text
    assert "SIMULATION" in text.upper()
    assert np.array_equal(result.parameters, choral.simulate(rows(), **SETTINGS).parameters)


def test_the_same_seed_gives_the_same_bits_and_no_seed_does_not():
    first, again = choral.simulate(rows(), **SETTINGS), choral.simulate(rows(), **SETTINGS)
    assert np.array_equal(first.parameters, again.parameters)
    unseeded = {key: value for key, value in SETTINGS.items() if key != "seed"}
    assert not np.array_equal(choral.simulate(rows(), **unseeded).parameters, first.parameters)


def test_an_unseeded_rehearsal_draws_its_noise_from_the_system():
    one, two = (Run("rehearsal", study(seed=None)) for _ in range(2))
    assert not np.array_equal(one.finish().parameters, two.finish().parameters)


def test_devices_with_smaller_limits_stop_earlier_and_the_others_go_on():
    limits = {"device 1": 0.8, "device 2": 2.0}
    run = Run("rehearsal", study(limits=limits, cohort=4, rounds=6, participation="uniform"))
    result = run.finish()
    devices = {device.name: device for device in result.privacy.devices}
    assert devices["device 1"].epsilon <= 0.8
    assert devices["device 2"].epsilon <= 2.0
    assert devices["device 1"].full
    assert devices["device 1"].rounds < max(device.rounds for device in devices.values())


def test_a_column_may_name_each_devices_limit_and_is_then_no_feature(clinics):
    for name, limit in (("north", 4.0), ("south", 1.0), ("west", 4.0), ("east", 4.0)):
        path = clinics / "sites" / f"{name}.csv"
        pd.read_csv(path).assign(limit=limit).to_csv(path, index=False)
    text = (clinics / "choral.toml").read_text()
    (clinics / "choral.toml").write_text(text.replace('label = "ill"', 'label = "ill"\nlimit_column = "limit"'))
    result = choral.simulate("choral.toml")
    limits = {device.name: device.limit for device in result.privacy.devices}
    assert limits == {"east": 4.0, "north": 4.0, "south": 1.0, "west": 4.0}
    assert max(d.epsilon for d in result.privacy.devices if d.name == "south") <= 1.0
    assert result.model.features == 3


def test_a_device_that_can_not_pay_for_one_round_is_said_to_be_so(clinics, capsys):
    text = (clinics / "choral.toml").read_text()
    (clinics / "choral.toml").write_text(text + "\n[privacy.limits]\nsouth = 0.001\n")
    assert main(["simulate", "choral.toml", "--out", "run"]) == 0
    south = next(line for line in capsys.readouterr().out.splitlines() if "south" in line)
    assert "below one round" in south and "full" not in south
    assert "limit below one round" in (clinics / "run" / "report.html").read_text()


def test_a_limit_that_differs_within_a_device_is_refused(clinics, capsys):
    for path in (clinics / "sites").iterdir():
        frame = pd.read_csv(path)
        frame.assign(limit=np.arange(len(frame)) + 1).to_csv(path, index=False)
    text = (clinics / "choral.toml").read_text()
    (clinics / "choral.toml").write_text(text.replace('label = "ill"', 'label = "ill"\nlimit_column = "limit"'))
    assert main(["simulate", "choral.toml"]) == 2
    assert capsys.readouterr().err.startswith('CH303 column "limit" is not one positive number on all rows of "east"')


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_run_ends_early_when_too_few_devices_have_budget_left(kind):
    limits = {f"device {i}": 2.5 for i in range(1, 5)}
    run = Run(kind, study(limits=limits, rounds=6))
    devices = run.finish().privacy.devices
    done, needed, allowed = len(run.lines), run.study.secure.smallest_sum, run.study.costs.allowed_rounds
    assert 0 < done < 6
    assert run.stopped == f"after round {done} of 6: too few devices had budget left for another round"
    willing = [int(np.sum(charged_rounds(run.lines[:end], 6) < allowed)) for end in (done - 1, done)]
    assert willing[0] >= needed > willing[1], "not a round too early, and not one too late"
    assert [device.rounds for device in devices] == charged_rounds(run.lines, 6).tolist(), "nobody paid for more"
    assert [device.name for device in devices if device.full] == list(limits)
    assert all(device.epsilon <= device.limit for device in devices)


def test_no_device_ever_passes_its_limit_whatever_the_server_wants():
    run = Run("simulation", study(rounds=12, noise=None, epsilon=1.5, participation="uniform"))
    privacy = run.finish().privacy
    assert max(device.epsilon for device in privacy.devices) <= 1.5


def test_noise_chosen_by_hand_is_accounted_and_no_noise_says_so():
    settings = {**SETTINGS, "epsilon": None}
    assert choral.simulate(rows(), **settings, noise=0.5).privacy.against_everyone.epsilon > 0
    assert choral.simulate(rows(), **settings, noise=0.0).privacy.none == "no noise was added: nothing is protected"


BAD = {
    "a missing file": (["simulate", "nowhere.toml"], "CH105", 2),
    "a drop share of 1": (["simulate", "choral.toml", "--drop", "1", "--out", "x"], "CH102", 2),
    "a folder that holds something": (["simulate", "choral.toml", "--out", "sites"], "CH800", 1),
    "a file in place of the folder": (["simulate", "choral.toml", "--out", "choral.toml/run"], "CH801", 1),
    "a run that is not there": (["resume", "nowhere"], "CH802", 1),
}


@pytest.mark.usefixtures("clinics")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_with_a_code(case, capsys):
    words, code, status = BAD[case]
    assert main(words) == status
    reported = capsys.readouterr().err
    assert reported.startswith(code)
    assert reported.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("delta = 1e-4", "delta = 0.1", "CH102"),
        ("cohort = 3", "cohort = 9", "CH204"),
        ("batch = 8", "batch = 999", "CH204"),
        ('name = "clinics"\n', 'name = "clinics"\n[privacy.limits]\nnobody = 1.0\n', "CH104"),
        ("[run]\n", '[model]\nkind = "json:loads"\n[run]\n', "CH102"),
        ("[run]\n", '[model]\nkind = "nowhere:f"\n[run]\n', "CH102"),
        ('csv = "sites/*.csv"\n', "", "CH103"),
    ],
)
def test_settings_that_do_not_go_with_the_data_are_refused(old, new, code, clinics, capsys):
    text = (clinics / "choral.toml").read_text()
    assert old in text
    (clinics / "choral.toml").write_text(text.replace(old, new))
    assert main(["simulate", "choral.toml", "--out", "x"]) == 2
    assert capsys.readouterr().err.startswith(code)
    assert not (clinics / "x").exists()


@pytest.mark.usefixtures("clinics")
def test_a_full_disk_is_a_clear_error():
    """The limit on file sizes stands for the full disk: writes fail with an error in the same way."""
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (900, resource.RLIM_INFINITY)); "
    script = limit + "from choral.cli import main; raise SystemExit(main(['simulate', 'choral.toml', '--out', 'out']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "CH801" in done.stderr
    assert "Traceback" not in done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.fixture
def stopped_in_round_two(monkeypatch):
    """Ctrl-C right after the uploads of round 2, once."""
    real, calls = OneProcess.noted, []

    def interrupted(self, *args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(OneProcess, "noted", interrupted)


@pytest.mark.usefixtures("stopped_in_round_two")
def test_ctrl_c_leaves_a_run_that_can_be_resumed(clinics, capsys):
    assert main(["simulate", "choral.toml", "--out", "out"]) == 130
    assert "choral resume" in capsys.readouterr().err
    assert main(["resume", "out", "--quiet"]) == 0
    assert main(["verify", "out"]) == 0
    assert [json.loads(line)["round"] for line in (clinics / "out" / "rounds.jsonl").read_text().splitlines()] == [1, 2]


def test_attempts_that_fail_after_the_upload_are_charged_with_and_without_ledgers(tmp_path):
    """With a third of the devices gone some attempts fail: memory and ledgers must agree on the cost."""
    settings = {"devices": 8, "cohort": 6, "rounds": 4, "participation": "uniform", "seed": 3}
    generous = {f"device {number}": 100.0 for number in range(1, 9)}
    costs = []
    for folder in (None, RunFolder.create(tmp_path / "run")):
        run = Run("simulation", study(rows(400), limits=generous, **settings), folder=folder, drop=0.3)
        costs.append(run.finish().privacy.devices)
    assert any(line.wasted for line in run.lines)
    assert costs[0] == costs[1]


@pytest.mark.usefixtures("stopped_in_round_two")
def test_a_rehearsal_stopped_in_mid_round_has_spent_that_round(clinics):
    assert main(["rehearse", "choral.toml", "--out", "out"]) == 130
    assert main(["resume", "out", "--quiet"]) == 0
    assert main(["verify", "out"]) == 0
    result = json.loads((clinics / "out" / "result.json").read_text())
    assert result["rounds_done"] == 1, "the limits pay for two rounds each, and the lost round was one of them"
    assert "too few devices had budget left" in result["stopped"]


def test_resuming_with_other_data_is_refused(clinics, capsys, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "conclude", interrupt)
    assert main(["simulate", "choral.toml", "--out", "out"]) == 130
    os.remove(clinics / "sites" / "west.csv")
    capsys.readouterr()
    assert main(["resume", "out"]) == 1
    assert "other data or settings" in capsys.readouterr().err


def test_a_run_goes_on_with_the_secure_sum_that_it_began_with(tmp_path):
    # As a run that was begun when four devices counted no colluder: its choral.toml names no number of them.
    Run("simulation", study(), folder=RunFolder.create(tmp_path / "out")).begin()
    about = json.loads((tmp_path / "out/run.json").read_text())
    assert about["secure_sum"]["colluders"] == 0 and "colluders = 0\n" in about["job"]
    about["job"] = about["job"].replace("colluders = 0\n", "")
    (tmp_path / "out/run.json").write_text(json.dumps(about))
    assert choral.resume(tmp_path / "out", rows()).study.secure.described == about["secure_sum"]


@pytest.mark.usefixtures("clinics")
def test_a_finished_run_is_not_resumed():
    assert main(["simulate", "choral.toml", "--out", "out", "--quiet"]) == 0
    with pytest.raises(ChoralError, match="is finished"):
        choral.resume("out")


@pytest.mark.long
def test_no_network_is_used_by_the_demo(tmp_path):
    hook = (
        "import sys\n"
        "def guard(event, args):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.bind', 'socket.sendto'):\n"
        "        raise RuntimeError('network: ' + event)\n"
        "sys.addaudithook(guard)\n"
        "from choral.cli import main\n"
        f"raise SystemExit(main(['demo', '--paper', '--rounds', '2', '--quiet', '--out', {str(tmp_path / 'run')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", hook], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "ε ≤" in done.stdout


MINE = """\
import choral, jax, jax.numpy as jnp

def flat(features, classes):
    def predict(weights, rows):
        return rows @ weights
    def loss(weights, row, label):
        return -jax.nn.log_softmax(row @ weights)[label]
    return choral.model(lambda seed: jnp.zeros((features, classes)), loss, predict, features=features, classes=classes)

def regression(features, classes):
    def loss(weights, row, label):
        return jnp.square(row @ weights - label)
    init, predict = lambda seed: jnp.zeros(features), lambda weights, rows: (rows @ weights)[:, None]
    return choral.model(init, loss, predict, features=features, classes=0)
"""


@pytest.fixture
def mine(clinics, monkeypatch):
    """A user's own models beside choral.toml, and a Python that looks in neither this nor the current folder."""
    sys.modules.pop("mine", None)  # another test's
    (clinics / "mine.py").write_text(MINE)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", str(clinics))])
    yield clinics
    sys.modules.pop("mine", None)


@pytest.mark.parametrize("verb", ["simulate", "rehearse"])
def test_a_model_of_ones_own_is_found_beside_the_toml_and_can_be_resumed(verb, mine, monkeypatch, capsys):
    (mine / "choral.toml").write_text(ADULTS + '[model]\nkind = "mine:flat"\n')
    out = str(mine / "own-run")
    monkeypatch.chdir(mine.parent)
    with monkeypatch.context() as stopped:
        stopped.setattr(Run, "conclude", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main([verb, f"{mine.name}/choral.toml", "--out", out, "--quiet"]) == 130
    assert main(["resume", out, "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["test"]["accuracy"] > 0.5
    assert main(["verify", out]) == 0


def test_a_model_for_other_shapes_than_the_data_is_refused(mine, capsys):
    (mine / "choral.toml").write_text(ADULTS + '[model]\nkind = "mine:regression"\n')
    assert main(["simulate", "choral.toml", "--out", "x"]) == 2
    assert capsys.readouterr().err.startswith(
        'CH102 choral.toml:24 "mine:regression" is a model of 3 features and 0 classes, the data has 3 and 2. Hand'
    )


def test_a_function_given_in_python_is_named_in_the_run_for_a_later_resume(tmp_path):
    choral.simulate(rows(), **SETTINGS, model=choral.learning.models.logistic, out=tmp_path / "run")
    assert 'kind = "choral.learning.models:logistic"' in json.loads((tmp_path / "run/run.json").read_text())["job"]


def stop_after(run, rounds):
    going = run.rounds()
    for _ in range(rounds):
        next(going)
    going.close()


def test_the_gradient_norm_on_the_test_rows_is_measured_where_it_is_asked_for():
    plain, asked = (Run("simulation", study(gradient_norm=wanted)) for wanted in (False, True))
    assert "gradient_norm" not in plain.finish().test
    result = asked.finish()
    # By hand: for two classes of softmax the gradient of a row is (p - y) xᵀ and (p - y), averaged by device.
    split = asked.study.split.test
    columns = result.parameters[:-2].reshape(4, 2).astype(float)
    scores = split.features @ columns + result.parameters[-2:]
    slopes = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - np.eye(2)[split.labels]
    weights = np.repeat(1 / (split.devices * split.sizes), split.sizes)
    gradient = np.vstack([(split.features * weights[:, None]).T @ slopes, weights @ slopes])
    assert result.test["gradient_norm"] == pytest.approx(np.square(gradient).sum(), abs=2e-6)  # six digits are kept


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_evaluating_every_third_round_changes_no_bit_of_the_model_and_no_epsilon(kind):
    every, third = (Run(kind, study(rounds=7, evaluate_every=often)) for often in (1, 3))
    one, two = every.finish(), third.finish()
    assert np.array_equal(one.parameters, two.parameters)
    assert one.privacy == two.privacy
    assert one.test == two.test
    assert [line.round for line in third.lines if line.test] == [3, 6, 7]
    tested = [(a.test, b.test) for a, b in zip(every.lines, third.lines, strict=True) if b.test]
    assert all(a == b for a, b in tested)


@pytest.mark.parametrize("kind", ["simulation", "rehearsal"])
def test_a_run_stopped_between_two_evaluations_goes_on_to_the_same_end(kind, tmp_path):
    changes = {"rounds": 6, "evaluate_every": 4}
    whole = Run(kind, study(**changes)).finish()
    stop_after(Run(kind, study(**changes), folder=RunFolder.create(tmp_path / "run")), 2)
    taken_up = choral.resume(tmp_path / "run", rows())
    assert taken_up.first == (1 if kind == "simulation" else 3), "a rehearsal never pays twice for a round"
    result = taken_up.finish()
    assert np.array_equal(result.parameters, whole.parameters)
    assert result.privacy == whole.privacy
    assert main(["verify", str(tmp_path / "run")]) == 0


def test_a_run_that_ends_early_between_two_evaluations_still_tells_how_good_its_model_is(tmp_path):
    limits = {f"device {i}": 2.5 for i in range(1, 5)}
    run = Run("simulation", study(limits=limits, rounds=6, evaluate_every=6), folder=RunFolder.create(tmp_path / "run"))
    result = run.finish()
    assert 0 < len(run.lines) < 6
    assert result.test["accuracy"] > 0
    assert main(["report", str(tmp_path / "run")]) == 0
    assert main(["verify", str(tmp_path / "run")]) == 0


def test_the_verb_shows_the_rounds_that_were_evaluated(clinics, capsys):
    (clinics / "choral.toml").write_text(ADULTS.replace("rounds = 2", "rounds = 3") + "evaluate_every = 2\n")
    assert main(["simulate", "choral.toml", "--out", "out"]) == 0
    curve = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("accuracy "))
    assert len(curve.split()[1]) == 2


def test_a_resumed_simulation_of_more_devices_than_have_ledgers_remembers_who_took_part(tmp_path):
    """Passes that continue go on where each device stood, so forgetting it would change the model."""
    data = rows(3000)
    changes = {"devices": 300, "cohort": 200, "batch": 2, "sampling": "partition", "passes": "continue", "noise": 0.5}
    changes |= {"epsilon": None, "participation": "uniform"}
    whole = Run("simulation", study(data, **changes)).finish()
    stop_after(Run("simulation", study(data, **changes), folder=RunFolder.create(tmp_path / "run")), 2)
    result = choral.resume(tmp_path / "run", data).finish()
    assert np.array_equal(result.parameters, whole.parameters)
    assert result.privacy == whole.privacy


def test_a_long_run_tries_how_long_it_takes_and_nobody_pays_for_that(tmp_path, monkeypatch):
    assert Run("simulation", study()).seconds_ahead() == 0.0  # three rounds are soon over
    monkeypatch.setattr(runs, "LONG", 3)
    run = Run("simulation", study(), folder=RunFolder.create(tmp_path / "run"))
    assert run.seconds_ahead() > 0 and not (tmp_path / "run" / "ledgers").exists()
    plain, result = Run("simulation", study()).finish(), run.finish()
    assert np.array_equal(result.parameters, plain.parameters) and result.privacy == plain.privacy


def test_a_run_that_takes_long_says_so_before_its_first_round(clinics, capsys, monkeypatch):
    (clinics / "choral.toml").write_text(ADULTS)
    monkeypatch.setattr(runs, "LONG", 2)
    assert main(["simulate", "choral.toml", "--out", "short"]) == 0
    assert "TIME" not in capsys.readouterr().out
    monkeypatch.setattr(training, "WORTH_SAYING", 0.0)
    assert main(["simulate", "choral.toml", "--out", "long"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"TIME at least 0 minutes here: 2 rounds of [\d.e-]+ seconds, as measured just now", shown)
    assert shown.index("TIME") < shown.index("accuracy")
    assert "at least 10.0 hours here: 100,000 rounds of 0.36 seconds" in next(training.ahead(100_000, 3.6e4))


def of_before(**changes):
    """A study as 0.2.0 planned it: constants kept of δ, and the first version of the codec."""
    now = study(seed=5, **changes)
    plan = replace(now.plan, codec=1, overflow=1e-8, out_of_range=1e-8)
    limit, part = Budget(epsilon=4.0, delta=now.limits[0].delta - 2e-8), now.costs.of(0).exposure(now.plan.rounds)
    plan = replace(plan, noise=smallest_noise(part, limit))
    return replace(now, plan=plan, codec=codec_of(plan, now.secure, now.model))


@pytest.mark.parametrize("delta", [1e-4, 1e-6])
def test_a_run_that_an_earlier_version_began_goes_on_with_its_own_noise_and_its_own_codec(delta, tmp_path):
    before = of_before(delta=delta)
    assert before.plan.noise > study(seed=5, delta=delta).plan.noise or delta == 1e-4
    assert "codec" not in before.plan.to_dict()
    whole = Run("simulation", before).finish()
    stop_after(Run("simulation", before, folder=RunFolder.create(tmp_path / "run")), 2)
    result = choral.resume(tmp_path / "run", rows()).finish()
    assert np.array_equal(result.parameters, whole.parameters)
    assert result.privacy == whole.privacy and verify(tmp_path / "run").good


def test_every_number_of_an_update_that_a_report_shows_is_listed_among_the_releases(tmp_path):
    result = Run("rehearsal", study(seed=None), folder=RunFolder.create(tmp_path / "run")).finish().record.result
    shown = [release for release in result.releases if release.to == "who reads this report"]
    assert [release.what for release in shown] == [
        f"the first {len(result.sight.computed)} numbers of one device's update in the last round"
    ]
    assert shown[0].protected_by.endswith(
        "no mask: the ε against everyone covers it, the ε with the secure sum does not"
    )


@pytest.mark.parametrize(
    ("kind", "whom"), [("simulation", "the server"), ("rehearsal", "the server and devices of the cohort")]
)
def test_who_took_part_is_seen_by_the_server_and_where_there_are_masks_by_the_cohort(tmp_path, kind, whom):
    """A device agrees on masks with the others of its cohort, so it is shown who they are."""
    result = Run(kind, study(seed=None), folder=RunFolder.create(tmp_path / "run")).finish().record.result
    (release,) = [release for release in result.releases if release.what.startswith("who took part")]
    assert (release.to, release.protected_by) == (whom, "nothing: declared public")


def test_a_run_that_shows_no_update_lists_none():
    result = Run("simulation", study()).finish().record.result
    assert result.sight is None
    assert [release.to for release in result.releases][-1] == "the server"


def test_a_runs_name_leads_no_folder_out_of_runs(clinics):
    text = (clinics / "choral.toml").read_text().replace('name = "clinics"', 'name = "../../elsewhere/x"')
    (clinics / "choral.toml").write_text(text)
    assert main(["simulate", "choral.toml", "--quiet"]) == 0
    assert [path.name[15:] for path in (clinics / "runs").iterdir()] == ["-elsewhere-x"]
    assert not list(clinics.parent.glob("elsewhere"))
