"""Who is connected and who is missing, in a study's status."""

from datetime import UTC, datetime, timedelta

import pytest

from choral.cli import main
from choral.deploy.presence import Presence, Sightings, countdown, standing
from choral.deploy.serving import WAITING, status
from choral.errors import DeploymentError
from choral.record import read_json
from tests.run.consortium import Consortium, Sockets, agents

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
    assert standing(name, SEEN, {}, ()) == said


def test_a_refusal_and_an_exclusion_say_more_than_a_missing_connection():
    assert standing("lake", SEEN, {"lake": "CH401"}, {"lake"}) == "refused permanently: CH401"
    assert standing("lake", SEEN, {}, {"lake"}) == "excluded by the coordinator"


def test_a_look_says_whether_anybody_came_or_went():
    seen = Sightings(("hill", "lake", "moor"))
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
