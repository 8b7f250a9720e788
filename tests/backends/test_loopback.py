"""The door on loopback: strangers, replayed and reflected proofs, impostors; and a study over it."""

import contextlib
import os
import socket
import stat
import threading
import time

import pytest

from choral.backends import local_socket
from choral.core.errors import DeploymentError
from choral.record import read_run
from tests.run.consortium import JOB, Consortium, Sockets, agents


class Door:
    """A door that counts what it was asked."""

    def __init__(self, path):
        self.path, self.asked, self.stop = path, [], threading.Event()
        self.thread = threading.Thread(
            target=local_socket.serve, args=(path, self.answer), kwargs={"stop": self.stop, "on_loopback": True}
        )

    def answer(self, request):
        self.asked.append(bytes(request))
        return request[::-1]

    def place(self):
        return local_socket.port_in(self.path)

    def call(self):
        return socket.create_connection((local_socket.HOST, self.place().port), timeout=10)


@pytest.fixture
def door(tmp_path):
    made = Door(tmp_path / "home" / "door")
    made.thread.start()
    while made.thread.is_alive() and not made.path.exists():
        time.sleep(0.01)
    yield made
    made.stop.set()
    made.thread.join()


def exactly(connection, count):
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        assert more, "it hung up"
        found += more
    return found


def rest(connection):
    """Everything that still comes, until the other side hangs up; a reset is one way to do that."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(4096):
            found += more
    return found


def hello(request=b"H"):
    return len(request).to_bytes(8, "little") + request


def test_requests_are_answered_and_the_file_is_for_its_owner_only(door):
    assert local_socket.ask(door.path, b"abc", timeout=10) == b"cba"
    big = os.urandom(3 * 2**20)
    assert local_socket.ask(door.path, big, timeout=10) == big[::-1]
    assert stat.S_IMODE(door.path.stat().st_mode) == 0o600 and stat.S_IMODE(door.path.parent.stat().st_mode) == 0o700
    assert len(door.place().secret) == 32


def test_the_door_is_on_loopback_only_and_its_file_goes_with_it(door):
    place = door.place()
    with socket.socket(socket.AF_INET) as elsewhere:  # another address of this machine, where nothing listens
        elsewhere.settimeout(5)
        assert elsewhere.connect_ex(("127.0.0.2", place.port)) != 0
    door.stop.set()
    door.thread.join()
    assert not door.path.exists()
    with pytest.raises(DeploymentError, match="CH901"):
        local_socket.ask(door.path, b"H", timeout=5)


@pytest.mark.parametrize("proof", [bytes(64), b"H" * 64, b"\xff" * 64], ids=["zeros", "letters", "ones"])
def test_a_stranger_without_the_secret_gets_a_challenge_and_nothing_else(door, proof):
    with door.call() as stranger:
        exactly(stranger, local_socket.PROOF_BYTES)
        stranger.sendall(proof + hello())
        assert rest(stranger) == b""
    assert door.asked == []
    assert local_socket.ask(door.path, b"ab", timeout=10) == b"ba"


def test_every_wrong_bit_of_a_proof_counts(door):
    for bit in (0, 127, 255):
        with door.call() as stranger:
            challenge, mine = exactly(stranger, local_socket.PROOF_BYTES), bytes(local_socket.PROOF_BYTES)
            proof = bytearray(door.place().proof(b"choral loopback: caller", challenge, mine))
            proof[bit // 8] ^= 1 << bit % 8
            stranger.sendall(mine + proof + hello())
            assert rest(stranger) == b""
    assert door.asked == []


class Wiretap:
    """A port that passes one connection on to a door and keeps what went over it."""

    def __init__(self, path, place):
        self.listens = socket.create_server((local_socket.HOST, 0))
        self.up, self.down, self.place = b"", b"", place
        path.write_text(f"{self.listens.getsockname()[1]}\n{place.secret.hex()}\n")
        path.chmod(0o600)
        threading.Thread(target=self._pass, daemon=True).start()

    def _pass(self):
        caller = self.listens.accept()[0]
        with caller, socket.create_connection((local_socket.HOST, self.place.port)) as door:
            self.down = exactly(door, 32)
            caller.sendall(self.down)
            self.up = exactly(caller, 64)
            door.sendall(self.up)
            if proof := door.recv(32):  # a door that believes it: then the caller's request passes, too
                self.down += proof
                caller.sendall(proof)
                self.up += caller.recv(4096)
                door.sendall(self.up[64:])


def honest_exchange(door):
    """What an honest caller and the door say to each other, up to the door's proof."""
    with door.call() as caller:
        challenge, mine = exactly(caller, 32), os.urandom(32)
        said = mine + door.place().proof(b"choral loopback: caller", challenge, mine)
        caller.sendall(said)
        return challenge, said, exactly(caller, 32)


def test_a_replayed_proof_is_worth_nothing(door):
    challenge, said, _ = honest_exchange(door)
    with door.call() as stranger:
        assert exactly(stranger, 32) != challenge  # so what was a proof there is none here
        stranger.sendall(said + hello())
        assert rest(stranger) == b""
    assert door.asked == []


def test_the_doors_own_proof_does_not_serve_a_caller(door):
    challenge, said, proof = honest_exchange(door)
    place, mine = door.place(), said[:32]
    assert proof == place.proof(b"choral loopback: door", challenge, mine) != said[32:]
    with door.call() as stranger:  # even where a door would say the same challenge again
        now = exactly(stranger, 32)
        stranger.sendall(mine + place.proof(b"choral loopback: door", now, mine) + hello())
        assert rest(stranger) == b""
    assert door.asked == []


def test_a_process_in_the_middle_at_another_port_is_not_believed_and_the_secret_never_travels(door, tmp_path):
    tap = Wiretap(tmp_path / "tapped", door.place())  # it has turned the file of a caller to its own port
    with pytest.raises(DeploymentError, match="CH901"):
        local_socket.ask(tmp_path / "tapped", b"secret rows", timeout=5)
    tap.listens.close()
    assert len(tap.up) == 64 and len(tap.down) == 32 and door.asked == []
    assert door.place().secret not in tap.up + tap.down and b"rows" not in tap.up


def test_an_impostor_at_the_port_gets_no_request(tmp_path):
    heard = []
    with socket.create_server((local_socket.HOST, 0)) as impostor:
        path = tmp_path / "stale"
        path.write_text(f"{impostor.getsockname()[1]}\n{os.urandom(32).hex()}\n")
        path.chmod(0o600)

        def pretend():
            with impostor.accept()[0] as caller:
                caller.sendall(bytes(32))
                heard.append(exactly(caller, 64))
                caller.sendall(bytes(32))
                heard.append(rest(caller))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(DeploymentError, match="CH901"):
            local_socket.ask(path, b"secret rows", timeout=5)
        thread.join()
    assert heard[1] == b"" and b"rows" not in heard[0]


@pytest.mark.parametrize("text", ["", "9\n", "nine\n" + "00" * 32, "70000\n" + "00" * 32, "9\n" + "00" * 31, "9\nzz"])
def test_a_damaged_file_is_refused(tmp_path, text):
    path = tmp_path / "door"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(DeploymentError, match=r"CH901 .*damaged"):
        local_socket.ask(path, b"H", timeout=5)


def test_a_file_that_others_can_read_is_not_used(door):
    door.path.chmod(0o640)
    with pytest.raises(DeploymentError, match=r"CH901 .*others can read its file"):
        local_socket.ask(door.path, b"H", timeout=5)


def test_silent_strangers_take_no_callers_place_and_are_cut_off(door, monkeypatch):
    monkeypatch.setattr(local_socket, "PROVES", 0.5)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(door.call()) for _ in range(2 * local_socket.CALLERS)]
        assert local_socket.ask(door.path, b"ab", timeout=10) == b"ba"
        assert all(len(rest(one)) == local_socket.PROOF_BYTES for one in silent)


def test_a_second_process_is_refused_but_a_dead_ones_file_is_replaced(door, tmp_path):
    before = door.place()
    with pytest.raises(DeploymentError, match="another process answers there already"):
        local_socket.serve(door.path, bytes, on_loopback=True)
    assert door.place() == before and local_socket.ask(door.path, b"ab", timeout=10) == b"ba"
    dead = Door(tmp_path / "home" / "other")
    with socket.create_server((local_socket.HOST, 0)) as gone:
        left = f"{gone.getsockname()[1]}\n{'00' * 32}\n"
    dead.path.write_text(left)
    dead.path.chmod(0o600)
    dead.thread.start()
    while dead.path.read_text() == left:
        time.sleep(0.01)
    assert local_socket.ask(dead.path, b"ab", timeout=10) == b"ba" and dead.place().secret != bytes(32)
    dead.stop.set()
    dead.thread.join()


def test_a_study_runs_over_doors_on_loopback(tmp_path):
    sites = Consortium(tmp_path, job=JOB.replace("rounds = 3", "rounds = 1"))
    sites.approve()
    with agents(sites.homes, on_loopback=True):
        assert all(home.socket.is_file() for home in sites.homes.values())
        sites.conductor(Sockets(sites.homes)).run()
    record = read_run(next((sites.study / "runs").iterdir()))
    assert record.result.stopped == "all rounds are done" and [line.included for line in record.rounds] == [(0, 1, 2)]
    assert not any(home.socket.exists() for home in sites.homes.values())


def test_nothing_that_is_printed_of_a_door_shows_its_secret(tmp_path):
    door, key = local_socket.open_port(tmp_path / "door")
    door.close()
    assert str(key.port) in repr(key)
    assert key.secret.hex() not in repr(key) and repr(key.secret) not in repr(key)
