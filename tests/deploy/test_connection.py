"""A site's connection: what keeps its node from the server is reported once in words, and stands in log and status."""

import json
import threading

import pytest

from choral.cli import main
from choral.core.errors import DeploymentError
from choral.deploy import agent as agent_module
from choral.deploy.agent import Agent, ConnectionWatch, Journal, answers, attend
from choral.deploy.status import status
from tests.run.consortium import Consortium

CLOCK = DeploymentError("CH905", "this machine's clock is 20 s ahead of the server's.", fix="Set it.")
SHUT = DeploymentError("CH904", "nobody answers.", fix="Wait.")
REFUSED = DeploymentError("CH904", "not let in.", fix="Send the card again.")


class Looking:
    """A connection over a world that a test can change."""

    def __init__(self, folder):
        self.trouble, self.lines, self.log = None, [], folder / "log.jsonl"
        self.connection = ConnectionWatch(
            self.check, lambda: REFUSED, journal=Journal(self.log), tell=self.lines.append
        )

    def check(self):
        if self.trouble is not None:
            raise self.trouble

    def look(self, trouble=None):
        self.trouble, before = trouble, len(self.lines)
        self.connection.look()
        return self.lines[before:]

    def events(self):
        return [(line["event"], line.get("code")) for line in map(json.loads, self.log.read_text().splitlines())]


@pytest.fixture
def looking(tmp_path):
    return Looking(tmp_path)


def test_it_looks_again_soon_while_something_is_in_the_way(looking):
    troubles, waited = iter([SHUT, None]), []

    class Stop:
        def is_set(self):
            looking.trouble = next(troubles, SHUT)
            return len(waited) == 2

        def wait(self, seconds):
            waited.append(seconds)

    looking.connection.watch(Stop())
    assert waited[0] <= 3 < waited[1] == agent_module.EVERY
    assert looking.lines == [str(SHUT), "the server can be reached again."]


def test_trouble_is_reported_when_it_begins_and_when_it_is_over_and_not_in_between(looking):
    assert looking.look() == []
    assert looking.look(CLOCK) == [str(CLOCK)]
    assert looking.look(CLOCK) == []
    assert looking.look(SHUT) == [str(SHUT)]
    assert looking.look() == ["the server can be reached again."]
    assert looking.look() == []
    assert looking.events() == [("reached", None), ("cut_off", "CH905"), ("cut_off", "CH904"), ("reached", None)]


def test_another_reason_is_reported_even_under_the_same_code_and_the_same_one_only_once(looking):
    assert looking.look(SHUT) == [str(SHUT)]
    looking.connection.gave_up()
    assert looking.look() == [str(REFUSED)]
    assert looking.look(CLOCK) == [str(CLOCK)]
    later = DeploymentError("CH905", "this machine's clock is 21 s ahead of the server's.", fix="Set it.")
    assert looking.look(later) == []


def test_the_log_holds_the_code_and_not_the_words(looking):
    looking.look(CLOCK)
    assert "20 s" not in looking.log.read_text()


def test_a_node_that_gave_up_a_moment_ago_is_not_let_in_until_it_has_stayed_for_a_while(looking, monkeypatch):
    looking.connection.gave_up()
    assert looking.look(CLOCK) == [str(CLOCK)]  # the reason, where there is one
    assert looking.look() == [str(REFUSED)]
    monkeypatch.setattr(agent_module, "RECENT", 0.0)
    assert looking.look() == ["the server can be reached again."]


@pytest.fixture(scope="module")
def hill(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("connection"))
    made.approve("hill")
    return made.homes["hill"]


def test_choral_device_run_tells_what_is_in_the_way_and_the_status_shows_it(hill, monkeypatch, capsys):
    pytest.importorskip("flwr", reason="an extra of choral's")
    from choral.backends.flower import children

    reported, stop = [], threading.Event()
    given = {}
    monkeypatch.setattr(children, "connect", lambda *_, **settings: given.update(settings))
    seen = []

    def tell(line):
        reported.append(line)
        while not answers(hill):  # the look-out may be there before the door has opened
            stop.wait(0.01)
        seen.append(status(hill))
        assert main(["device", "status", "--home", str(hill.path)]) == 0
        stop.set()

    attend(hill, stop=stop, tell=tell)  # nobody listens at the consortium's address
    assert reported[0].startswith("CH904 nobody answers at 127.0.0.1:9092: Connection refused.")
    assert seen[-1].cut_off["code"] == "CH904"
    assert "CUT OFF CH904 a site can't connect to its server, since " in " ".join(capsys.readouterr().out.split())
    assert given["gave_up"].__self__.__class__ is ConnectionWatch
    assert status(hill).cut_off is None  # it runs no more: nobody knows


def test_an_agent_that_starts_anew_does_not_show_what_an_earlier_one_saw(hill):
    Journal(hill.path / "log.jsonl").note("cut_off", code="CH905")
    with Agent(hill) as agent:
        stop = threading.Event()
        thread = threading.Thread(target=agent.serve, args=(stop,))
        thread.start()
        while thread.is_alive() and not hill.socket.exists():
            thread.join(0.01)
        assert status(hill).running and status(hill).cut_off is None
        stop.set()
        thread.join()


def test_whoever_has_signed_the_end_hears_of_no_trouble_when_the_server_ends(tmp_path):
    signed, looking = [], Looking(tmp_path)
    looking.connection = ConnectionWatch(
        looking.check,
        lambda: REFUSED,
        journal=Journal(looking.log),
        tell=looking.lines.append,
        over=lambda: bool(signed),
    )
    assert looking.look(SHUT) == [str(SHUT)]
    assert not looking.connection.finished.is_set()
    assert looking.look() == ["the server can be reached again."]
    signed.append(True)
    assert looking.look() == []
    assert not looking.connection.finished.is_set()  # the server may still ask for the signature again
    assert looking.look(SHUT) == []
    assert looking.connection.finished.is_set()
    assert looking.events()[-1] == ("finished", None)
