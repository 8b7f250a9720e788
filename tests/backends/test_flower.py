"""Flower as a place of rounds: the same integers as everywhere else, and nothing in clear on the way."""

import shutil
import socket
import ssl
import threading
import time

import numpy as np
import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from choral.backends import local_socket
from choral.backends.flower import processes
from choral.backends.flower.children import Children
from choral.backends.flower.node import LET_IN
from choral.backends.flower.observe import Observed, observe
from choral.backends.flower.reach import check_reach
from choral.backends.wire import DroppingTransport, drops_out
from choral.core.errors import DeploymentError
from choral.core.messages import Turn
from choral.deploy.certificates import node_key
from choral.run.places import Rehearsed, Simulated, engine_of, turn_number
from tests.backends.flower_stage import Stage
from tests.backends.wrong_clock import wrong_clock
from tests.run import small

FIRST = Turn(1, 0)
GONE = 1


def seed_of_a_lost_device(rate=0.2):
    """The first seed with which device 1, and nobody else of four, drops out of the first turn."""
    return next(seed for seed in range(1000) if [n for n in range(4) if drops_out(seed, rate, FIRST, n)] == [GONE])


@pytest.fixture(scope="module")
def study():
    return small.study(devices=4, cohort=4, seed=seed_of_a_lost_device())


def integers_of(study, turn):
    """What each device would encode by itself in a turn."""
    engine, number = engine_of(study), turn_number(turn.round, turn.attempt)
    updates = engine.updates(study.model.start(study.seed), number, np.arange(4))
    return [study.codec.integers(updates[device], engine.dither(number, device)) for device in range(4)]


@pytest.fixture(scope="module")
def reference(study):
    return integers_of(study, FIRST)


@pytest.fixture(scope="module")
def stage(study):
    """Four devices of the seeded study behind real SuperNodes; `stage.answers` can be replaced."""
    rehearsed = Rehearsed(study)
    with rehearsed.opened(), Stage(rehearsed.terms.ids, [None] * 4) as stage:
        stage.transport.gather(4, patience=60)
        yield stage


class OverFlower(Rehearsed):
    """The rehearsal's devices, reached over Flower."""

    def __init__(self, study, stage, *, drop):
        super().__init__(study, drop=drop)
        self.stage = stage

    def _prepare(self, first):
        attempt = super()._prepare(first)
        self.stage.answers[:] = [self.recorded.devices[number].answer for number in range(4)]
        self.transport = DroppingTransport(self.terms, self.stage.transport, rate=self.drop, seed=self.study.seed)
        return attempt


@pytest.mark.parametrize("drop", [0.0, 0.2])
@pytest.mark.parametrize("place", ["vectorised", "memory", "flower"])
def test_every_backend_gives_the_same_integers_with_and_without_a_lost_device(place, drop, study, reference, request):
    backend = {
        "vectorised": lambda: Simulated(study, drop=drop),
        "memory": lambda: Rehearsed(study, drop=drop),
        "flower": lambda: OverFlower(study, request.getfixturevalue("stage"), drop=drop),
    }[place]()
    with backend.opened():
        opened = backend.round(study.model.start(study.seed), range(4), round_number=FIRST.round, attempt=FIRST.attempt)
    included = [device for device in range(4) if not (drop and device == GONE)]
    assert list(opened.included) == included
    assert (opened.total == sum(reference[device] for device in included)).all()
    assert np.abs(opened.total).max() > 1000  # there is something to compare


def pieces_of(vector):
    """A vector's bytes in windows that no two vectors share by chance."""
    data = np.ascontiguousarray(vector).tobytes()
    return {data[start : start + 12] for start in range(0, len(data) - 12, 4)}


def test_nothing_that_reaches_the_server_or_lies_on_its_disk_is_an_update_in_clear_or_a_row(study, stage):
    place = OverFlower(study, stage, drop=0.0)
    uploads = {}

    def overheard(number, answer):
        def answering(frame):
            reply = answer(frame)
            uploads[number] = max(uploads.get(number, b""), bytes(reply), key=len)
            return reply

        return answering

    with place.opened():
        stage.answers[:] = [overheard(number, answer) for number, answer in enumerate(stage.answers)]
        place.round(study.model.start(study.seed), range(4), round_number=2, attempt=0)
    files = [path.read_bytes() for path in (stage.folder / "server").rglob("*") if path.is_file()]
    seen = bytes(stage.ear.heard) + (stage.folder / "received").read_bytes() + b"".join(files)
    for number in range(4):
        upload = uploads[number]
        assert upload[-64:] in seen  # the capture does hold what the devices sent
        turn, sent = turn_number(2, 0), place.latest[number]
        clear = place.engine.updates(study.model.start(study.seed), turn, np.array([number]))[0]
        integers = study.codec.integers(clear, place.engine.dither(turn, number))
        assert (sent / np.float32(study.codec.grid)).tolist() == integers.tolist()  # it is the update that was sent
        for vector in (clear, clear.astype("<f8"), sent, integers, integers.astype("<i4"), integers.astype("<u4")):
            assert not any(piece in seen for piece in pieces_of(vector))
            assert all(piece in seen + vector.tobytes() for piece in pieces_of(vector))  # it would have been found
        for row in study.split.train.features_of(number):
            assert row.tobytes() not in seen


def test_an_exception_on_a_device_reaches_the_server_as_a_code(stage):
    canary = "JANE-DOE-1971"

    def fails(_):
        raise ValueError(canary)

    stage.answers[:] = [fails] * 4
    assert dict(stage.transport.exchange({0: b"x", 1: b"x"})) == {}
    files = [path.read_bytes() for path in stage.folder.rglob("*") if path.is_file()]
    assert canary.encode() not in bytes(stage.ear.heard) + b"".join(files)
    assert b"CH902" in stage.ear.heard  # the code did travel
    stage.transport.gather(4, patience=60)


def test_no_code_that_a_run_brings_along_is_loaded_or_even_stored_at_a_site_or_at_the_server(stage):
    # The stage's bundles name a client and a server that do not exist, and yet every device has answered.
    assert stage.transport.gather(4, patience=60) == {0, 1, 2, 3}
    for number in range(4):
        assert not list(stage.home(number).rglob("apps")) and not list(stage.home(number).rglob("*.fab"))
        assert (stage.home(number) / "flower" / "node.log").read_text().split()[:4] == LET_IN.split()  # and then its id
    assert not list((stage.folder / "server").rglob("apps")) and not list((stage.folder / "lend").rglob("*"))[1:]


def test_an_error_of_the_conductor_is_the_reason_why_its_run_ended(stage):
    run = stage.begin("fail")
    stage.until(lambda: stage.control.state(run).over, 60)
    state = stage.control.state(run)
    assert not state.completed and "CH503 too few devices. Wait." in state.details


def test_nodes_that_were_let_in_before_are_let_in_again_without_a_word(stage):
    stage.control.admit(stage.keys)
    stage.control.admit(stage.keys)


@pytest.fixture
def fifth(stage):
    """A function that lets one more site in and starts its node, on a machine whose clock is wrong by some seconds."""
    home = stage.home(0).with_name("fifth")
    home.mkdir()
    secret, public = node_key()
    (home / "node.key").write_bytes(secret)
    stop, door = threading.Event(), home / "door"
    serving = threading.Thread(target=local_socket.serve, args=(door, lambda _: b"fifth"), kwargs={"stop": stop})
    serving.start()
    with Children() as children:

        def start(seconds=0.0, gave_up=None, *, admitted=True):
            if admitted:
                stage.admit(public)
            with wrong_clock(home, seconds):
                processes.connect(
                    children, home / "flower", superlink=stage.way_in, authority=stage.folder / "authority.pem",
                    key=home / "node.key", door=door, gave_up=gave_up,
                )  # fmt: skip
            return children

        yield start
    stop.set()
    serving.join()
    shutil.rmtree(home)


def test_a_node_whose_clock_is_twenty_seconds_ahead_is_refused_by_flower_and_the_reason_is_reported(stage, fifth):
    ended = []
    children = fifth(20.0, gave_up=lambda: ended.append(True))
    stage.until(lambda: children.check() or ended, 60)
    reported = (stage.home(0).with_name("fifth") / "flower" / "node.log").read_text()
    assert reported and LET_IN not in reported
    assert "clock" not in reported.lower()  # and Flower does not say why
    with pytest.raises(DeploymentError, match=r"CH905 this machine's clock is 2[012] s ahead of the server's"):
        check_reach(stage.address, authority=stage.folder / "authority.pem", clock=lambda: time.time() + 20)


def test_a_node_whose_key_the_study_does_not_hold_gives_up(stage, fifth):
    ended = []
    children = fifth(gave_up=lambda: ended.append(True), admitted=False)
    stage.until(lambda: children.check() or ended, 60)
    assert check_reach(stage.address, authority=stage.folder / "authority.pem")  # nothing else is in its way


def test_a_node_whose_clock_is_four_minutes_behind_takes_part(stage, fifth):
    fifth(-240.0)
    stage.transport.expect([*stage.ids, "fifth"], deadline=stage.deadline)
    try:
        assert stage.transport.gather(5, patience=60) == {0, 1, 2, 3, 4}
        assert dict(stage.transport.exchange({4: b"x"})) == {4: b"fifth"}
    finally:
        stage.transport.expect(stage.ids, deadline=stage.deadline)


def test_a_stranger_finds_every_door_shut(stage):
    assert observe(stage.address, authority=stage.folder / "authority.pem") == Observed(
        tls=True, node_authentication=True, control_closed=True
    )


@pytest.mark.parametrize(
    "path", ["/v1/control/list-runs", "/v1/fleet/../control/list-runs", "/v1/fleet/%2e%2e/control/list-runs",
             "/v1/runtime/acquire-task", "/v1/fleet/pull-messages?x=/v1/fleet/", "/docs", "/"],
)  # fmt: skip
def test_the_gate_passes_nothing_but_fleet_requests(path, stage):
    host, _, port = stage.address.rpartition(":")
    trusted = ssl.create_default_context(cafile=stage.folder / "authority.pem")
    with socket.create_connection((host, int(port))) as plain, trusted.wrap_socket(plain, server_hostname=host) as gate:
        gate.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        assert gate.recv(100).split()[1] == b"404"


@pytest.mark.long  # a lost device is in every quick run; here a whole deadline passes
def test_a_node_killed_in_mid_round_costs_a_deadline_and_its_own_place(study, stage):
    # The last test of this file: the stage has one node less afterwards.
    stage.transport.expect(stage.ids, deadline=15.0)
    stage.transport.gather(4, patience=60)
    place, model = OverFlower(study, stage, drop=0.0), study.model.start(study.seed)

    def loses_power(frame):
        if len(frame) > 4 * model.size:  # the model has arrived, and nothing is sent back
            stage.kill(GONE)
        return answer(frame)

    with place.opened():
        answer, stage.answers[GONE] = stage.answers[GONE], loses_power
        opened = place.round(model, range(4), round_number=3, attempt=0)
    left = [device for device in range(4) if device != GONE]
    encoded = integers_of(study, Turn(3, 0))
    assert list(opened.included) == left and (opened.total == sum(encoded[device] for device in left)).all()
