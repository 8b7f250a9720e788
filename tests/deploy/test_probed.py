"""A deployment with probes: sites allow them in words, every round is answered, recorded and verified."""

import pytest

from choral.core.errors import TrustError
from choral.record import read_probes, read_run
from choral.report.verify import verify
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents, table

ROBUST = JOB.replace("cohort = 3", "cohort = 4\ncolluders = 0\nrobust = true").replace("rounds = 3", "rounds = 2")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("probed"), names=(*NAMES, "moor"), job=ROBUST)


def test_a_site_refuses_probes_until_its_owner_allows_them_and_then_the_study_runs_and_verifies(study):
    with pytest.raises(TrustError, match=r"CH603.*8 projections of this device's own noisy update"):
        study.approve("hill")
    study.approve(probes=True)
    transport = Sockets(study.homes)
    with agents(study.homes):
        conductor = study.conductor(transport)
        conductor.run()
    folder = next((study.study / "runs").iterdir())
    lines, record = list(read_probes(folder)), read_run(folder)
    assert [line.round for line in lines] == [1, 2]
    assert all(line.context and line.digests.keys() == line.answers.keys() for line in lines)
    assert sum(frame[4:6] == b"\x05\x00" and frame[11] == 13 for frame in transport.seen) >= 3  # an audit asked OPEN
    opened = [home.vault(None).memory.opened for home in study.homes.values()]
    assert max(opened) == 1  # one round of the run, and no device more than once
    assert not any(line.broke_the_protocol for line in record.rounds)
    assert [finding.wrong for finding in verify(folder)] == [()] * 8


@pytest.mark.long
def test_over_flower_every_process_answers_its_probes_and_the_run_verifies(tmp_path):
    """Real SuperLink and SuperNodes: a round takes three exchanges, and one of them is opened as an audit."""
    pytest.importorskip("flwr", reason="an extra of choral's")
    from choral.deploy.local import LocalDeployment

    names = (*NAMES, "moor")
    tables = {name: table(tmp_path / f"{name}.csv", seed=seed) for seed, name in enumerate(names)}
    (tmp_path / "all").mkdir()
    made = LocalDeployment(tmp_path / "all", ROBUST, tables)
    assert [reported["rounds_done"] for reported in made.run()][-1] == 2
    folder = next((made.study_folder / "runs").iterdir())
    lines = list(read_probes(folder))
    assert [line.round for line in lines] == [1, 2] and all(len(line.answers) == 4 for line in lines)
    assert [finding.wrong for finding in verify(folder)] == [()] * 8
    assert max(home.vault(None).memory.opened for home in made.homes) == 1
