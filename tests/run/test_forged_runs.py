"""Run folders that were rewritten as a whole: what verify refuses, and what only keys from elsewhere can show."""

import json
import os
import re
import shutil

import pytest

from choral.cli import main
from choral.core.errors import StorageError
from choral.record import inside, read_run
from choral.report import write_report
from choral.report.verify import verify
from choral.run.folder import RunFolder, read_parameters, sign_off
from choral.run.runs import Run, resume
from tests.run.forger import boast, cover_up, cut, edit, relabel, write_rounds
from tests.run.small import rows, study

OLD = "tests/vectors/first_version"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A seeded simulation and a rehearsal of eight rounds, both as choral leaves them."""
    folder = tmp_path_factory.mktemp("made")
    Run("simulation", study(), folder=RunFolder.create(folder / "simulation")).finish()
    long = study(seed=None, epsilon=2.0, rounds=8)
    Run("rehearsal", long, folder=RunFolder.create(folder / "rehearsal")).finish()
    for path in folder.iterdir():
        write_report(path)
    return folder


@pytest.fixture
def simulation(made, tmp_path):
    return shutil.copytree(made / "simulation", tmp_path / "simulation")


@pytest.fixture
def rehearsal(made, tmp_path):
    return shutil.copytree(made / "rehearsal", tmp_path / "rehearsal")


def wrong(folder, **outside):
    return " ".join(line for finding in verify(folder, **outside) for line in finding.wrong)


def sign_again(folder):
    """Signatures by fresh keys under whatever the folder says now, as whoever can write all of it can make them."""
    record = read_run(folder)
    names = [device.name for device in record.about.devices]
    parameters, _ = read_parameters(folder / "model.safetensors")
    sign_off(folder, names, run=record.about.plan_digest, result=record.result, parameters=parameters)
    shutil.rmtree(folder / "devices")
    cover_up(folder)


def test_a_seeded_simulation_relabelled_as_a_deployment_is_not_verified(simulation, capsys):
    relabel(simulation, kind="deployment", seeded=False)
    assert main(["verify", str(simulation)]) == 1
    reported = capsys.readouterr().out
    assert "the job has a seed, and the run says that it has none" in reported
    assert "nobody signed this run" in reported


def test_nor_is_one_whose_seed_was_taken_out_of_the_record(simulation):
    def hide(about):
        del about["seed"]
        about["job"] = about["job"].replace("seed = 5\n", "")

    edit(simulation / "run.json", hide)
    edit(simulation / "result.json", lambda result: result.update(sight=None))
    relabel(simulation, kind="deployment", seeded=False)
    assert "study.toml is not there" in wrong(simulation)
    assert "nobody signed this run" in wrong(simulation)


def test_a_seeded_simulation_relabelled_as_a_rehearsal_is_not_verified(simulation):
    relabel(simulation, kind="rehearsal", seeded=False)
    assert "nobody signed this run" in wrong(simulation)


def test_an_accuracy_written_into_a_signed_rehearsal_is_found(rehearsal):
    boast(rehearsal, 0.999)
    assert "device 1, device 2, device 3 and 3 more: the signature is not under this record" in wrong(rehearsal)


def test_ledgers_cut_and_signed_again_by_fresh_keys_are_distinguished_from_the_run_by_keys_from_another_source(
    made, rehearsal, capsys
):
    before = read_run(rehearsal).result.privacy.against_everyone.epsilon
    cut(rehearsal, 3)
    assert "the signature is not under this record" in wrong(rehearsal)
    sign_again(rehearsal)
    after = read_run(rehearsal).result.privacy.against_everyone.epsilon
    assert (round(before, 1), round(after, 1)) == (2.0, 1.1)  # as the review had it: 1.10 shown for 2
    # The folder agrees with itself now, and the last line says what that leaves open.
    assert main(["verify", str(rehearsal)]) == 0
    reported = capsys.readouterr().out
    assert "can sign it again with other keys" in reported.splitlines()[-1]
    numbers = re.findall(r"KEYS +([\d ]+)\n +([\d ]+)\n", reported)
    assert main(["verify", str(made / "rehearsal")]) == 0
    assert re.findall(r"KEYS +([\d ]+)\n +([\d ]+)\n", capsys.readouterr().out) != numbers
    kept = made / "rehearsal" / "signatures.json"
    assert main(["verify", str(rehearsal), "--roster", str(kept)]) == 1
    assert "device 1 has another key in the roster that was given" in capsys.readouterr().out
    assert main(["verify", str(made / "rehearsal"), "--roster", str(kept)]) == 0
    assert "other keys" not in capsys.readouterr().out


def test_the_keys_that_could_sign_a_rehearsal_again_are_gone_when_it_ends(rehearsal):
    assert not (rehearsal / "devices").exists()
    (rehearsal / "devices").mkdir()
    assert "private keys still lie in devices/" in verify(rehearsal).trusted


@pytest.mark.parametrize("kind", ["audit", "Rehearsal", "", None, ["rehearsal"]])
@pytest.mark.parametrize("verb", ["verify", "report"])
def test_an_unknown_kind_is_refused_by_every_verb(rehearsal, capsys, kind, verb):
    edit(rehearsal / "run.json", lambda about: about.update(kind=kind))
    assert main([verb, str(rehearsal)]) == 1
    assert re.match(r"CH802 .*run.json is of the kind .*, this choral knows simulation", capsys.readouterr().err)


COVERED = {
    "the data's description": ("run.json", lambda about: about["data"].update(source="a national register")),
    "the number of rows": ("run.json", lambda about: about["data"].update(rows=10**6)),
    "the name": ("run.json", lambda about: about.update(name="another")),
    "the start": ("run.json", lambda about: about.update(started="2020-01-01T00:00:00+00:00")),
    "the seed": ("run.json", lambda about: about.update(seed=1)),
    "the versions": ("run.json", lambda about: about["versions"].update(numpy="9")),
    "what it was made with": ("run.json", lambda about: about.update(made_with="CPython 2.7 on a mainframe")),
    "the model's classes": ("model.json", lambda card: card.update(classes=["b", "a"])),
    "the end": ("result.json", lambda result: result.update(finished="2020-01-01T00:00:00+00:00")),
    "why it ended": ("result.json", lambda result: result.update(stopped="all is well")),
    "a baseline": ("result.json", lambda result: result["baselines"].update(without_privacy=0.1)),
    "what was released": ("result.json", lambda result: result["releases"].clear()),
}


@pytest.mark.parametrize("what", COVERED)
def test_the_signatures_cover(what, rehearsal):
    name, change = COVERED[what]
    edit(rehearsal / name, change)
    cover_up(rehearsal)
    assert "device 3 and 3 more: the signature is not under this record" in wrong(rehearsal)


def test_the_signatures_cover_every_line_of_a_round(rehearsal):
    lines = [line.to_dict() for line in read_run(rehearsal).rounds]
    lines[0]["note"] = "a quiet round"
    write_rounds(rehearsal, lines)
    cover_up(rehearsal)
    assert "device 3 and 3 more: the signature is not under this record" in wrong(rehearsal)


def test_signatures_of_the_older_form_are_no_signatures_of_a_newer_run(rehearsal):
    edit(rehearsal / "signatures.json", lambda reported: reported.pop("version"))
    cover_up(rehearsal)
    assert "signatures.json has version 1, which is not that of this run" in wrong(rehearsal)


def test_a_newer_kind_of_signature_is_not_guessed_at(rehearsal):
    edit(rehearsal / "signatures.json", lambda reported: reported.update(version=3))
    cover_up(rehearsal)
    assert "signatures.json has version 3" in wrong(rehearsal)


def test_a_rehearsal_from_before_still_verifies_and_it_is_said_what_its_signatures_cover(tmp_path, capsys):
    folder = shutil.copytree(f"{OLD}/rehearsed", tmp_path / "run")
    assert main(["verify", str(folder)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        "verified. Proved: every ε follows from the ledgers; every device signed the plan, the model"
    )
    assert "signed by an older version: covers these only" in last
    assert "Taken on trust: the rounds, the test figures, the data's description and the kind of the run" in last
    model = folder / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-4] + b"\0\0\0\0")
    cover_up(folder)
    assert "the signature is not under this plan, this model and this ledger" in wrong(folder)


def test_a_deployment_from_before_still_verifies_and_can_be_compared_with_its_study(tmp_path, capsys):
    folder = shutil.copytree(f"{OLD}/hearts", tmp_path / "run")
    assert main(["verify", str(folder), "--roster", f"{OLD}/hearts.study.toml"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "Taken on trust: all that the server wrote, also that this was a deployment: an older version" in last
    edit(folder / "run.json", lambda about: about.update(study="0" * 64))
    cover_up(folder)
    assert "not one of the study that was given" in wrong(folder, roster=[f"{OLD}/hearts.study.toml"])


def test_the_last_line_says_what_was_proved_and_what_was_taken_on_trust(made, rehearsal, simulation, capsys):
    for folder, proved, trusted in (
        (rehearsal, "all 6 devices signed the whole record", "that KEYS are the run's own"),
        (simulation, "every ε follows from the ledgers", "nobody signs a run that protects nobody"),
    ):
        assert main(["verify", str(folder)]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert re.fullmatch(rf"verified\. Proved: .*{proved}.*\. Taken on trust: .*{trusted}.*\.", last)
    boast(rehearsal, 0.999)
    assert main(["verify", str(rehearsal)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "NOT verified: 1 of 8 checks found something wrong, so nothing was proved."
    )
    assert main(["verify", str(made / "rehearsal"), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["signed"] == [f"device {number}" for number in range(1, 7)]
    assert (reported["not_signed"], reported["verified"]) == ({}, True)
    assert "signed the whole record" in reported["proved"] and len(reported["keys"].split()) == 12


@pytest.mark.parametrize("version", ["9.9", "0.1.0", "0.2.0"])
def test_a_page_under_the_name_of_a_version_that_cannot_have_written_it_is_refused(rehearsal, version):
    page = rehearsal / "report.html"
    text = re.sub(r"(?<=generator\" content=\"choral )[^\"]+", version, page.read_text())
    page.write_text(text.replace("Statement", "Declaration"))
    assert "report.html" in wrong(rehearsal)


def test_names_of_a_strangers_folder_reach_no_terminal_as_commands(rehearsal, capsys):
    edit(rehearsal / "run.json", lambda about: about["devices"][0].update(name="\x1b[2Jdevice\u202e"))
    assert main(["verify", str(rehearsal)]) == 1
    printed = capsys.readouterr()
    assert not [
        character for character in printed.out + printed.err if not character.isprintable() and character != "\n"
    ]


# Files that are none


READ = ["run.json", "rounds.jsonl", "result.json", "signatures.json", "model.safetensors", "report.html", "attack.json"]
READ += ["model.json", "privacy.yaml", "ledgers/device-0001.ledger"]


@pytest.mark.parametrize("name", READ)
def test_verify_reads_no_pipe_and_waits_for_nobody(rehearsal, capsys, name):
    (rehearsal / name).unlink(missing_ok=True)
    os.mkfifo(rehearsal / name)
    assert main(["verify", str(rehearsal)]) == 1
    printed = capsys.readouterr()
    assert f"{name} is no plain file" in " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize("name", READ)
def test_verify_follows_no_link_out_of_the_folder(made, rehearsal, capsys, name):
    (rehearsal / name).unlink(missing_ok=True)
    (rehearsal / name).symlink_to(made / "rehearsal" / name if name != "attack.json" else made / "rehearsal/run.json")
    assert main(["verify", str(rehearsal)]) == 1
    printed = capsys.readouterr()
    assert f"{name} is no plain file" in " ".join((printed.out + printed.err).split())


def test_a_folder_of_ledgers_that_lies_elsewhere_is_not_read(made, rehearsal):
    shutil.rmtree(rehearsal / "ledgers")
    (rehearsal / "ledgers").symlink_to(made / "rehearsal" / "ledgers")
    assert "ledgers is not a real folder" in wrong(rehearsal)


def test_a_file_that_is_too_large_is_not_read(rehearsal, capsys):
    with (rehearsal / "report.html").open("ab") as file:
        file.truncate(2**31 + 1)  # sparse: nothing is written
    assert main(["verify", str(rehearsal)]) == 1
    assert "at most 2,147,483,648 are read" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["run.json", "rounds.jsonl"])
def test_json_deeper_than_any_run_writes_is_a_clear_error(rehearsal, capsys, name):
    (rehearsal / name).write_text("[" * 200_000 + "\n")
    assert main(["verify", str(rehearsal)]) == 1
    assert re.search(r"CH802 .* (can't be read as|is not) JSON", capsys.readouterr().err)


@pytest.mark.parametrize("name", ["run.json", "rounds.jsonl", "checkpoint.safetensors", "ledgers/device-0001.ledger"])
def test_resume_waits_for_no_pipe_either(tmp_path, monkeypatch, name):
    real = RunFolder.add_round

    def stop(folder, *given):
        real(folder, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped, pytest.raises(KeyboardInterrupt):
        stopped.setattr(RunFolder, "add_round", stop)
        Run("rehearsal", study(rows(), seed=None), folder=RunFolder.create(tmp_path / "run")).finish()
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    with pytest.raises(StorageError, match="is no plain file"):
        resume(tmp_path / "run", rows()).finish()


@pytest.mark.parametrize("name", ["../run.json", "/etc/hostname", "ledgers/../../x", "", "."])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    with pytest.raises(StorageError, match="CH802"):
        inside(tmp_path, name)


def test_a_pipe_is_no_file_of_a_run(tmp_path):
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(StorageError, match=r"CH802 .*run\.json is no plain file"):
        inside(tmp_path, "run.json")
