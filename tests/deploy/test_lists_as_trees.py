"""A deployment whose lists are trees: more devices are enrolled than may see a whole list, and a few are there."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from choral.core.keys import Identity
from choral.core.ledger import Ledger
from choral.core.messages import LISTING
from choral.core.terms import WHOLE_LISTS
from choral.deploy.approving import approve
from choral.deploy.enrolment import enrol, prepare
from choral.deploy.home import Home, Policy
from choral.deploy.root_log import root_log_of
from choral.record import read_run
from choral.report.verify import verify
from choral.run.agreement import Enrolled
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, table

HERE, COHORT = 6, 3  # each of those who are there takes part once in two rounds
DELTA = 1e-6  # at most one in all the rows of 4,097 devices
TREES = JOB.replace("rounds = 3", "rounds = 2").replace("1e-4", f"{DELTA}")
ROOT = Path(__file__).parents[2]


def absent(name):
    """The card of a site that joined and is never there: true keys, which nobody keeps."""
    key = ec.generate_private_key(ec.SECP384R1()).public_key()
    return Enrolled.of(Identity.fresh(name), key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())


class Large:
    """A study of 4,097 enrolled devices, of which six have a home, a table and the owner's approval."""

    def __init__(self, folder):
        self.folder, self.study = folder, folder / "study"
        (folder / "choral.toml").write_text(TREES)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        invitation = prepare(self.study, folder / "choral.toml", address)
        self.homes = [Home.join(folder / f"site-{number}", invitation, f"site-{number}") for number in range(HERE)]
        everybody = [home.card() for home in self.homes]
        everybody += [absent(f"away-{number:04}") for number in range(WHOLE_LISTS + 1 - HERE)]
        cards = []
        for card in everybody:
            cards.append(folder / f"{card.id}.card")
            cards[-1].write_text(card.text)
        self.agreement = enrol(self.study, cards)
        policy = Policy(epsilon=4.0, delta=DELTA, card_keys=True)
        for seed, home in enumerate(self.homes):
            approve(home, self.study / "study.toml", policy, table(folder / f"{seed}.csv", seed=seed), record=True)

    def start(self, *words):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "choral", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=environment, **pipes)

    def run(self):
        """All rounds, every site and the server in its own processes; what the server says."""
        sites = [self.start("device", "run", "--home", home.path) for home in self.homes]
        try:
            server = self.start("server", "run", self.study, *["--as-root"] * (os.geteuid() == 0))
            said = server.communicate(timeout=1800)[0]
            assert server.returncode == 0, said
            return said
        finally:
            for site in sites:
                site.terminate()
            for site in sites:
                site.communicate(timeout=60)


def test_a_run_with_lists_as_trees_is_signed_under_the_root_and_verifies(tmp_path, monkeypatch):
    monkeypatch.setattr("choral.run.agreement.WHOLE_LISTS", len(NAMES) - 1)
    study = Consortium(tmp_path)
    assert study.agreement.trees
    study.approve(card_keys=True)
    with agents(study.homes):
        study.conductor(Sockets(study.homes)).run()
    folder = next((study.study / "runs").iterdir())
    assert [finding.wrong for finding in verify(folder)] == [()] * 7
    signed = read_run(folder).signatures
    assert signed is not None and all(entry.signature for entry in signed.devices)
    # The plain digest of the list is another number, and no device has signed that.
    monkeypatch.setattr("choral.run.agreement.Agreement.trees", property(lambda _: False))
    assert any("signature is not under this record" in line for finding in verify(folder) for line in finding.wrong)


@pytest.mark.long
def test_over_flower_a_study_with_lists_as_trees_runs_and_verifies_and_its_sites_saw_the_same_roots(tmp_path):
    pytest.importorskip("flwr", reason="an extra of choral's")
    study = Large(tmp_path)
    assert study.agreement.file.protocol == LISTING and len(study.agreement.file.devices) == WHOLE_LISTS + 1
    study.run()
    folder = next((study.study / "runs").iterdir())
    record = read_run(folder)
    assert [len(line.included) for line in record.rounds] == [COHORT, COHORT]
    assert not any(line.broke_the_protocol for line in record.rounds)
    assert [finding.wrong for finding in verify(folder)] == [()] * 7
    assert [len(Ledger.read(home.ledger_path).balance.charges) for home in study.homes] == [1] * HERE
    logs = [root_log_of(home) for home in study.homes]
    for log in logs:
        log.check(logs[0])  # the same roster, and signed by a device that is enrolled in it
    shown = {turn: {log.by_turn[turn] for log in logs if turn in log.by_turn} for log in logs for turn in log.by_turn}
    assert sorted(turn.round for turn in shown) == [1, 2] and all(len(roots) == 1 for roots in shown.values())
