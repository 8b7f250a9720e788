"""A site whose disk is full: nothing is charged for turns in which it can't take part, and its screen says why."""

import os
import subprocess

import pytest

from choral.core.ledger import Ledger
from choral.core.messages import Turn
from choral.deploy.agent import Agent
from choral.deploy.home import Home
from choral.learning.trainer import LocalTraining
from tests.attacks.test_deployed_sites import attempt, charged
from tests.run.consortium import Consortium

VICTIM = "hill"


@pytest.fixture(scope="module")
def approved(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("approved"))
    made.approve()
    return made


@pytest.fixture
def consortium(approved, tmp_path):
    """The homes of three sites, one of them on a small file system that can really be full."""
    made, disk = approved.copy(tmp_path), tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mounted, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    try:
        subprocess.run(["cp", "-a", str(made.homes[VICTIM].path), str(disk)], check=True)
        made.homes[VICTIM] = Home(disk / VICTIM)
        (disk / made.study.name).symlink_to(made.study)  # whose server speaks to the homes next to it
        yield made
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(home, left=0):
    """Fill the disk of a home up to so many bytes, and say which file does it."""
    path = home.path.parent / "filler"
    room = os.statvfs(home.path)
    path.write_bytes(bytes(room.f_bavail * room.f_frsize - left))
    return path


@pytest.mark.parametrize("left", [0, 4096, 2 * 4096])
def test_a_full_disk_costs_no_budget_and_is_named_to_both_sides(consortium, left):
    said, victim = [], consortium.homes[VICTIM]
    with Agent(victim, tell=said.append) as agent:
        others = {name: Agent(home) for name, home in consortium.homes.items() if name != VICTIM}
        try:
            running = {**others, VICTIM: agent}
            filler = fill(victim, left)
            for turn in (Turn(1, 0), Turn(1, 1), Turn(2, 0)):
                wire, error = attempt(consortium, running, turn)
                assert wire.findings.as_dict()["refused"] == {VICTIM: "CH801"}
                assert wire.findings.as_dict()["refused_because_of"] == {VICTIM: VICTIM}
            assert "hill CH801 because of itself" in str(error)
            assert all(charged(home) == [] for home in consortium.homes.values())  # all hear it before they pay
            assert said and all("CH801" in line and "No space left" in line for line in said)
            filler.unlink()
            _, opened = attempt(consortium, running, Turn(2, 1))
            assert len(opened.included) == 3 and charged(victim) == [(2, 1)]
            before = len(said)
            fill(victim, left)
            attempt(consortium, running, Turn(3, 0))
            assert len(said) == before + 1  # again, after a turn that went well
        finally:
            for one in others.values():
                one.__exit__(None, None, None)


def test_a_disk_that_fills_up_after_ready_is_noticed_before_the_charge(consortium, monkeypatch):
    """Others write to the same disk, so there may be room at READY and none a moment later."""
    victim, check = consortium.homes[VICTIM], LocalTraining.check

    def filled(trainer, model):
        """The model is looked at between READY and the charge."""
        if trainer is agent.trainer:
            fill(victim)
        return check(trainer, model)

    monkeypatch.setattr(LocalTraining, "check", filled)
    with Agent(victim) as agent, Agent(consortium.homes["lake"]) as lake, Agent(consortium.homes["harbour"]) as harbour:
        wire, _ = attempt(consortium, {VICTIM: agent, "lake": lake, "harbour": harbour}, Turn(1, 0))
    assert wire.findings.as_dict()["refused"] == {VICTIM: "CH801"}
    assert charged(victim) == [] and Ledger.read(victim.ledger_path).torn == 0
    assert not [path for path in victim.path.iterdir() if path.name.startswith(".vault.")]
