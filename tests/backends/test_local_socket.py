import os
import socket
import stat
import subprocess
import sys
import threading
import time

import pytest

from choral.backends import local_socket
from choral.core.errors import ChoralError, DeploymentError, LedgerError


@pytest.fixture
def door(tmp_path):
    """A served socket; `door.answer` can be replaced."""
    yield from a_door(tmp_path / "home" / "door")


def await_door(path, serving):
    """Return once somebody listens: the socket's file is there a moment earlier."""
    while serving.is_alive():
        with socket.socket(socket.AF_UNIX) as caller:
            if caller.connect_ex(str(path)) == 0:
                return
        time.sleep(0.01)


class Door:
    def __init__(self, path):
        self.path, self.stop = path, threading.Event()
        self.answer = lambda request: request[::-1]
        self.thread = threading.Thread(
            target=local_socket.serve, args=(path, lambda request: self.answer(request)), kwargs={"stop": self.stop}
        )

    def ask(self, request, timeout=10.0):
        return local_socket.ask(self.path, request, timeout=timeout)


def a_door(path):
    door = Door(path)
    door.thread.start()
    await_door(path, door.thread)
    yield door
    door.stop.set()
    door.thread.join()


def test_a_request_is_answered_whole_whatever_its_size(door):
    for size in (0, 1, 9, 3_000_001):
        request = local_socket.FRAME + bytes(range(256)) * (size // 256 + 1)
        assert door.ask(request) == request[::-1]


def test_only_this_user_can_open_the_door(door):
    assert stat.S_IMODE(door.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(door.path.parent.stat().st_mode) == 0o700


def test_a_refusal_travels_as_its_code_and_nothing_else(door):
    def refuse(_):
        raise LedgerError("CH401", "patient Jane Doe has spent it all.")

    def fail(_):
        raise ValueError("patient Jane Doe")

    for answer, code in ((refuse, "CH401"), (fail, "CH902")):
        door.answer = answer
        with pytest.raises(ChoralError) as caught:
            door.ask(b"F")
        assert caught.value.code == code and "Jane" not in str(caught.value)


def test_nobody_there_is_an_error_with_a_way_out(tmp_path):
    with pytest.raises(DeploymentError, match=r"CH901.*choral device run"):
        local_socket.ask(tmp_path / "nobody", b"H", timeout=1)


def test_a_caller_does_not_wait_longer_than_it_says(door):
    go_on = threading.Event()
    door.answer = lambda _: b"" if go_on.wait(30) else b"late"
    before = time.monotonic()
    with pytest.raises(DeploymentError, match=r"CH901"):
        door.ask(b"F", timeout=0.2)
    assert time.monotonic() - before < 20
    go_on.set()
    assert door.ask(b"F") == b""  # and the next caller finds the door open


def test_requests_are_answered_one_at_a_time(door):
    inside, most = 0, 0

    def answer(request):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.01)
        inside -= 1
        return request

    door.answer = answer
    callers = [threading.Thread(target=door.ask, args=(b"F",)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert most == 1


def test_a_frame_over_the_cap_and_a_caller_that_hangs_up_harm_nobody(door):
    for head in ((local_socket.MOST_BYTES + 1).to_bytes(8, "little"), b"\x05\x00", (9).to_bytes(8, "little") + b"half"):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(door.path))
            caller.sendall(head)
    assert door.ask(b"ab") == b"ba"


def says(path, data):
    """What comes back to a caller that sends these bytes and then waits; nothing, once the door has hung up."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(20)
        caller.connect(str(path))
        caller.sendall(data)
        return caller.recv(100)


def test_a_frame_longer_than_the_door_takes_is_not_waited_for(tmp_path):
    asked, path, stop = [], tmp_path / "door", threading.Event()
    serving = threading.Thread(
        target=local_socket.serve, args=(path, lambda request: asked.append(len(request)) or b""),
        kwargs={"stop": stop, "most_bytes": 1000},
    )  # fmt: skip
    serving.start()
    await_door(path, serving)
    try:
        assert says(path, (1001).to_bytes(8, "little")) == b""
        assert local_socket.ask(path, bytes(1000), timeout=20) == b""
    finally:
        stop.set()
        serving.join()
    assert asked == [1000]


@pytest.mark.parametrize("said", [b"", b"\x05\x00", (9).to_bytes(8, "little") + b"half"])
def test_a_caller_that_falls_silent_is_left_and_the_next_is_answered(door, monkeypatch, said):
    monkeypatch.setattr(local_socket, "ARRIVES", 0.2)
    assert says(door.path, said) == b""
    assert door.ask(b"ab") == b"ba"


def test_more_callers_than_a_device_can_have_are_turned_away(door):
    idle = [socket.socket(socket.AF_UNIX) for _ in range(local_socket.CALLERS)]
    try:
        for caller in idle:
            caller.connect(str(door.path))
        assert says(door.path, b"") == b""
        idle.pop().close()
        while True:  # as soon as the door has noticed
            try:
                assert door.ask(b"ab") == b"ba"
                break
            except DeploymentError:
                time.sleep(0.05)
    finally:
        for caller in idle:
            caller.close()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e12, -1.0, 0.0])
def test_a_time_that_nobody_can_wait_is_refused(door, seconds):
    with pytest.raises(DeploymentError, match=r"CH600 a relayed message is to be answered within"):
        door.ask(b"F", timeout=seconds)


def test_a_second_process_at_the_same_door_is_refused_but_a_dead_ones_door_is_replaced(door):
    with pytest.raises(DeploymentError, match=r"CH901.*another process"):
        local_socket.serve(door.path, bytes, stop=door.stop)
    assert door.ask(b"ab") == b"ba"
    door.stop.set()
    door.thread.join()
    assert not door.path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(door.path))
    for again in a_door(door.path):
        time.sleep(0.1)
        assert again.ask(b"ab") == b"ba"


def test_a_path_too_long_for_a_socket_is_reported(tmp_path):
    for use in (lambda path: local_socket.serve(path, bytes), lambda path: local_socket.ask(path, b"", timeout=1)):
        with pytest.raises(DeploymentError, match="107 bytes"):
            use(tmp_path / ("x" * 120))


def test_the_relay_loads_nothing_heavy():
    script = (
        "import sys, choral.backends.local_socket; print(sorted({'jax', 'numpy', 'cryptography'} & set(sys.modules)))"
    )
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=here)
    assert done.stdout == "[]\n"
