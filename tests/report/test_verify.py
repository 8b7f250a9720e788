"""choral verify finds what was changed after the run, and nothing in a run that was not touched."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.cli import main
from choral.core.events import Gaussian
from choral.core.ledger import Charge, Ledger, Reservation
from choral.report import write_report
from choral.report.verify import verify
from choral.run.folder import RunFolder
from choral.run.runs import Run
from tests.run.small import study

PRESENT = Path(__file__).parents[1] / "vectors" / "present_version"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    Run("rehearsal", study(seed=None), folder=RunFolder.create(folder)).finish()
    write_report(folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def wrong(folder):
    return " ".join(line for finding in verify(folder) for line in finding.wrong)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit(path, change_it):
    value = json.loads(path.read_text())
    change_it(value)
    path.write_text(json.dumps(value))


def test_an_untouched_run_is_verified(copy, capsys):
    assert main(["verify", str(copy)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("verified. Proved: every ε follows from the ledgers;")


def test_a_changed_ledger_line_is_found(copy, capsys):
    change(copy / "ledgers" / "device-0002.ledger", '"round":', '"round": ')
    assert main(["verify", str(copy)]) == 1
    assert "CH400" in capsys.readouterr().out


def test_a_changed_plan_is_found(copy):
    edit(copy / "run.json", lambda about: about["plan"].update(noise=about["plan"]["noise"] * 2))
    assert "the plan's numbers do not have the plan's digest" in wrong(copy)


def test_a_swapped_model_is_found_by_hash_and_by_signature(copy):
    model = copy / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-4] + b"\0\0\0\0")
    reported = wrong(copy)
    assert "model.safetensors was changed" in reported
    assert "the signature is not under this record" in reported


def test_a_missing_ledger_is_found(copy):
    (copy / "ledgers" / "device-0003.ledger").unlink()
    assert "device-0003.ledger is missing" in wrong(copy)


def test_an_epsilon_typed_by_hand_is_found(copy):
    edit(copy / "result.json", lambda result: result["privacy"]["against_everyone"].update(epsilon=0.1))
    reported = wrong(copy)
    assert "privacy.against_everyone.epsilon says 0.1" in reported
    assert "report.html does not say what the result says" in reported


def test_a_figure_of_merit_typed_by_hand_is_found_though_the_page_was_made_anew(copy):
    edit(copy / "result.json", lambda result: result["test"].update(accuracy=0.99))
    write_report(copy)
    found = [line for finding in verify(copy) for line in finding.wrong]
    assert found[0] == "the test figures are not those of the last round"
    assert [line.partition(": ")[2] for line in found[1:]] == ["the signature is not under this record"]


def test_a_planned_epsilon_typed_by_hand_is_found_by_its_value_and_not_only_by_the_files_hash(copy):
    edit(copy / "run.json", lambda about: about["planned"]["against_everyone"].update(epsilon=0.1))
    assert "planned.against_everyone.epsilon says 0.1" in wrong(copy)


def test_an_epsilon_typed_into_the_page_is_found(copy):
    page = copy / "report.html"
    text = page.read_text()
    assert "ε" in text
    page.write_text(text.replace("ε", "ε <!-- -->", 1))
    assert "report.html does not say" in wrong(copy)


def test_a_ledger_cut_back_to_a_whole_line_is_found(copy):
    ledger = copy / "ledgers" / "device-0001.ledger"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    reported = wrong(copy)
    assert "was changed" in reported
    assert "was released, but not charged" in reported


def test_a_ledger_made_anew_with_a_smaller_cost_is_found(copy):
    path = copy / "ledgers" / "device-0001.ledger"
    old = Ledger.read(path)
    path.unlink()
    with Ledger.open(path, limit=old.limit, device=old.device) as forged:
        for charge in old.balance.charges:
            forged.charge(Charge(rule=charge.rule, plan=charge.plan, round=charge.round, event=Gaussian(mu=1e-6)))
    assert "a charge is not what the plan costs" in wrong(copy)


def forged(path, *, more=(), sum_epsilon=None, **changes):
    """The ledger written again, whole and sealed, with other charges, other ones added, or another limit on sums."""
    old = Ledger.read(path)
    path.unlink()
    with Ledger.open(path, limit=old.limit, sum_epsilon=sum_epsilon, device=old.device) as ledger:
        charges = [replace(charge, **changes) for charge in old.balance.charges]
        uploads = tuple(charge.event for charge in charges)
        ledger.reserve(Reservation(rule=charges[0].rule, plan=charges[0].plan, uploads=uploads))
        for charge in more:
            ledger.reserve(Reservation(rule=charge.rule, plan=charge.plan, uploads=(charge.event,)))
        for charge in (*charges, *more):
            ledger.charge(charge)


@pytest.mark.parametrize(
    "changes",
    [{"adversary": "a curious neighbour"}, {"rule": "S1"}, {"adjacency": "one record added or removed"}],
    ids=["adversary", "rule", "adjacency"],
)
def test_a_ledger_whose_charges_name_another_adversary_rule_or_adjacency_is_found(copy, changes):
    forged(copy / "ledgers" / "device-0001.ledger", **changes)
    assert "a charge names another rule, adversary or adjacency than the plan's" in wrong(copy)


def test_a_ledger_with_another_limit_on_what_sums_show_is_found(copy):
    forged(copy / "ledgers" / "device-0001.ledger", sum_epsilon=9.0)
    assert "or has another limit than the run" in wrong(copy)


def test_a_charge_of_another_plan_is_found(copy):
    other = Charge(rule="S1", plan="another", round=1, event=Gaussian(mu=1e-9))
    forged(copy / "ledgers" / "device-0001.ledger", more=[other])
    assert "the ledger holds charges of another plan" in wrong(copy)


def test_another_number_of_rounds_in_the_result_is_found(copy):
    edit(copy / "result.json", lambda result: result.update(rounds_done=result["rounds_done"] + 1))
    assert "the result another number" in wrong(copy)


def test_a_device_under_another_name_than_in_the_study_is_found(tmp_path):
    run = shutil.copytree(PRESENT / "deployment", tmp_path / "run")
    assert wrong(run) == ""
    edit(run / "run.json", lambda about: about["devices"][0].update(name="harbor"))
    assert "run.json does not say what study.toml says" in wrong(run)


def test_an_unfinished_run_is_no_error_of_the_reader(copy, capsys):
    (copy / "result.json").unlink()
    assert main(["verify", str(copy)]) == 1
    assert "CH802" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_damaged_json_is_a_clear_error(copy, capsys, name):
    (copy / name).write_text("{")
    assert main(["verify", str(copy)]) == 1
    assert "can't be read as JSON" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_a_clear_error(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 1
    assert "Is this a run folder?" in capsys.readouterr().err


def test_a_plan_that_nobody_could_run_is_a_fault_of_the_folder(copy, capsys):
    edit(copy / "run.json", lambda about: about["secure_sum"].update(adversary=None))
    for verb in ("verify", "report"):
        assert main([verb, str(copy)]) == 1
    assert "CH802" in capsys.readouterr().err


WHATEVER = st.sampled_from(["leave out", None, "x", -1, [], {}, 1e400])


@given(st.sampled_from(["run.json", "result.json"]), WHATEVER, st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_anybody_writes_into_a_file_no_verb_ends_in_a_traceback(finished, tmp_path_factory, name, value, data):
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("changed") / "run")

    def change_it(inner):
        while True:
            key = data.draw(
                st.sampled_from(sorted(inner)) if isinstance(inner, dict) else st.integers(0, len(inner) - 1)
            )
            if not (isinstance(inner[key], dict | list) and inner[key] and data.draw(st.booleans())):
                break
            inner = inner[key]
        if value == "leave out":
            del inner[key]
        else:
            inner[key] = [] if inner[key] == value else value

    edit(folder / name, change_it)
    # The result names every other file by its hash; what it says of time and of why the run ended nothing proves.
    assert main(["verify", str(folder)]) in ((1,) if name == "run.json" else (0, 1))
    assert main(["report", str(folder)]) in (0, 1)
