"""Who is connected and who is missing, in a study's status."""

from datetime import UTC, datetime, timedelta

import pytest

from choral.backends import local_socket
from choral.cli import main
from choral.core.errors import DeploymentError
from choral.deploy.agent import Agent
from choral.deploy.serving import WAITING, ConnectedSites, Presence, countdown, standing, status
from choral.record import read_json
from tests.run.consortium import JOB, Consortium, Sockets, agents

SEEN = Presence(connected=["hill"], last_seen={"hill": "10:05", "lake": "10:00"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hill", "connected"),
        ("lake", "missing since 10:00"),
        ("moor", "missing: has not connected since the server was started"),
    ],
)
def test_a_missing_site_is_named_with_what_the_server_knows(name, said):
    assert standing(name, SEEN, {}, (), {}) == said


def test_a_refusal_and_an_exclusion_say_more_than_a_missing_connection():
    assert standing("lake", SEEN, {"lake": "CH401"}, {"lake"}, {}) == (
        "refused permanently: CH401 a device has spent its budget"
    )
    assert standing("lake", SEEN, {}, {"lake"}, {}) == "excluded by the coordinator"


def test_a_look_says_whether_anybody_came_or_went():
    seen = ConnectedSites(("hill", "lake", "moor"))
    assert [seen.look(here, at=at) for here, at in (((), "1"), ((2, 0), "2"), ((0, 2), "3"), ((0,), "4"))] == [
        False,
        True,
        False,
        True,
    ]
    assert seen.now == {"connected": ["hill"], "last_seen": {"hill": "4", "moor": "3"}}


def test_a_countdown_never_goes_below_nothing():
    then = datetime(2026, 11, 18, 12, tzinfo=UTC)
    assert countdown(then.isoformat(), now=then + timedelta(days=1)) == "0 s"
    assert countdown(then.isoformat(), now=then - timedelta(hours=3)) == "3.0 h"


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """A server that has given up for now: two of three sites are there, and a round needs all three."""
    made = Consortium(tmp_path_factory.mktemp("waiting"))
    made.approve("hill", "lake")
    there = {name: made.homes[name] for name in ("hill", "lake")}
    with agents(there), pytest.raises(DeploymentError, match="CH903"):
        made.conductor(Sockets(made.homes)).run()
    return made


def test_the_status_names_who_is_connected_and_who_is_missing(waiting, capsys):
    shown = status(waiting.study)
    assert shown["connected"] == ["hill", "lake"]
    assert main(["server", "status", str(waiting.study)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "harbour 0 missing: has not connected since the server was started hill 0 connected lake 0 connected" in text


class Watched(Sockets):
    """A transport that keeps what state.json says while the server waits."""

    def gather(self, needed, *, patience, looked):  # noqa: ARG002 - nobody comes
        looked()
        self.waiting = (patience, read_json(next(self.runs.glob("*/state.json"))))
        raise DeploymentError("CH903", "too few are connected.")


def test_a_server_that_waits_says_for_whom_and_until_when(tmp_path):
    made = Consortium(tmp_path)
    transport = Watched(made.homes)
    transport.runs = made.study / "runs"
    with pytest.raises(DeploymentError, match="CH903"):
        made.conductor(transport, patience=3600.0).run()
    patience, kept = transport.waiting
    assert (patience, kept["state"], kept["connected"]) == (3600.0, WAITING, [])
    assert 3500 < (datetime.fromisoformat(kept["until"]) - datetime.now(UTC)).total_seconds() <= 3600


def test_a_server_that_can_do_without_some_says_when_it_goes_on_and_when_it_gives_up(tmp_path, capsys):
    names = ("harbour", "hill", "lake", "moor")
    made = Consortium(tmp_path, names, JOB.replace("cohort = 3", "cohort = 4\ncolluders = 0"))
    transport = Watched(made.homes)
    transport.runs = made.study / "runs"
    kept = []
    watch = transport.gather

    def gather(*args, **settings):
        try:
            watch(*args, **settings)
        finally:
            kept.append((transport.waiting[1], transport.announced))
            assert main(["server", "status", str(made.study)]) == 0

    transport.gather = gather
    with pytest.raises(DeploymentError, match="CH903"):
        made.conductor(transport, patience=3600.0).run()
    (first, announced), (second, later) = kept
    assert first["needed"] == 3 and left(first["without_until"]) <= 30 and 3600 < left(first["until"]) <= 3630
    assert "without_until" not in second and 3500 < left(second["until"]) <= 3600
    assert (announced, later) == (3630.0, 3600.0)  # what the sites hear
    said = " ".join(capsys.readouterr().out.split())
    missing = "missing: harbour, hill, lake, moor"
    assert f"{missing}; goes on without them in 30 s if 3 are there, else gives up in 60 min" in said
    assert f"{missing}; gives up in 60 min" in said


def left(until):
    return (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()


def said_by(home, capsys):
    assert main(["device", "status", "--home", str(home.path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_site_that_waits_shows_until_when_the_server_waits_and_until_when_it_could_begin(waiting, tmp_path, capsys):
    home = waiting.copy(tmp_path).homes["hill"]
    assert "the server has not called this site yet" in said_by(home, capsys)
    with Agent(home) as agent:
        assert bytes(agent.answer(local_socket.HELLO + b"2520")) == b"hill"
        assert "until 20" in (said := said_by(home, capsys)) and "and gives up in 42 min" in said
        assert "the study can begin until 20" in said and "days left), when the certificate" in said
        for nonsense in (b"", b"-1", b"9" * 40, b"\x1b[2J", b"1e3", "٣".encode()):
            agent.answer(local_socket.HELLO + nonsense)
        assert "and gives up in 42 min" in said_by(home, capsys)
        agent.answer(local_socket.HELLO + b"0")
    assert "the server gave up waiting at 20" in said_by(home, capsys)
