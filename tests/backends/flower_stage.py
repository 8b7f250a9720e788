"""A real SuperLink and real nodes on loopback whose devices live in the test's process."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import ssl
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from flwr.supercore.primitives.asymmetric import bytes_to_public_key

from choral.backends import local_socket
from choral.backends.flower import control, processes
from choral.backends.flower.control import Control, public_key
from choral.backends.flower.gate import Gate
from choral.deploy.certificates import new_authority, node_key, server_certificate
from tests.backends.flower_conductor import Lent

ROOT = Path(__file__).parents[2]


def certificates(folder):
    """An authority, and a certificate of its for this machine."""
    authority = new_authority("stage")
    server = server_certificate(authority, "127.0.0.1")
    (folder / "authority.pem").write_text(authority.certificate)
    (folder / "server.pem").write_text(server.certificate)
    (folder / "server.key").write_text(server.key)


class Ear(Gate):
    """A gate that keeps whatever comes from the sites and whatever goes back to them."""

    def __init__(self, link, nodes):
        client = httpx.AsyncClient(base_url="http://superlink", transport=httpx.AsyncHTTPTransport(uds=str(link)))
        super().__init__(client, nodes, most_bytes=2**25, most_reply=2**25, patience=60.0)
        self.heard, self.reported = bytearray(), bytearray()

    async def hand_on(self, path, headers, body):
        self.heard += repr(headers).encode() + body
        status, head, reply = await super().hand_on(path, headers, body)
        self.reported += reply
        return status, head, reply


class Listening:
    """A gate in a thread of this process."""

    def __init__(self, gate, address, folder, rings=None):
        self.gate, (host, _, port) = gate, address.rpartition(":")
        self._rings = rings
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(folder / "server.pem", folder / "server.key")
        self._listener = socket.create_server((host, int(port)))
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._begun.wait()

    async def _serve(self):
        self.loop, self._serving = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        ringing = asyncio.create_task(self._ring())
        with contextlib.suppress(asyncio.CancelledError):
            await self.gate.serve(self._listener, self._tls)
        ringing.cancel()
        if self.gate.client is not None:
            await self.gate.client.aclose()

    async def _ring(self):
        """Look again and again, since the conductor's bell hangs at the ordinary gate."""
        while self._rings:
            await asyncio.sleep(self._rings)
            self.gate.ring()

    def close(self):
        self.loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()
        self._listener.close()


class Stage:
    """Devices given as `answers[number](frame)`, each behind its door and its node; one transport to all."""

    def __init__(self, ids, answers, *, deadline=60.0, overhear=True, frame_bytes=2**24):
        self.folder = Path(tempfile.mkdtemp(prefix="stage", dir="/tmp"))
        self.ids, self.answers, self.deadline = list(ids), list(answers), deadline
        self.frame_bytes = frame_bytes
        self.address, self.end = processes.free_address(), threading.Event()
        self.server, self.second = processes.Children(), processes.Children()
        self.nodes = [processes.Children() for _ in self.ids]
        self.transport = Lent(self.folder)
        self._doors, self.control, self.ear = [], None, None
        self.way_in = processes.free_address() if overhear else self.address
        certificates(self.folder)
        self.keys = [self._home(number) for number in range(len(self.ids))]

    def __enter__(self):
        self._path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [self._path])])
        try:
            self.open_server()
            for number in range(len(self.ids)):
                self.open_node(number)
            self.run = self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        with ThreadPoolExecutor() as pool:  # each takes its time to end
            list(pool.map(processes.Children.close, self.nodes))
        self.close_server()
        if self.ear is not None:
            self._listening.close()
        self.end.set()
        for door in self._doors:
            door.join()
        if self._path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = self._path
        shutil.rmtree(self.folder)

    def home(self, number):
        return self.folder / self.ids[number]

    def _home(self, number):
        home = self.home(number)
        home.mkdir()
        secret, public = node_key()
        (home / "node.key").write_bytes(secret)
        (home / "node.key").chmod(0o600)

        def answer(request):
            return self.ids[number].encode() if request[:1] == local_socket.HELLO else self.answers[number](request[1:])

        door = threading.Thread(target=local_socket.serve, args=(home / "door", answer), kwargs={"stop": self.end})
        door.start()
        self._doors.append(door)
        return public

    def open_server(self):
        self.link = processes.serve(
            self.server,
            self.folder / "server",
            nodes=self.keys,
            address=self.address,
            certificate=self.folder / "server.pem",
            key=self.folder / "server.key",
            authority=self.folder / "authority.pem",
            frame_bytes=self.frame_bytes,
            patience=self.deadline,
        )
        self.conduct("lend", self.server)
        self.control = Control(self.link)
        if self.ear is None and self.way_in != self.address:  # the sites' way in, beside the ordinary gate
            self.ear = Ear(self.link, map(public_key, self.keys))
            self._listening = Listening(self.ear, self.way_in, self.folder, rings=0.2)

    def conduct(self, conductor, children):
        where = f"tests.backends.flower_conductor:{conductor}"
        processes.conduct(children, self.folder / conductor, link=self.link, study=self.folder, conductor=where)

    def admit(self, key):
        """Enrol one more node, while the server runs."""
        self.control.admit([key])
        self.ear._nodes[public_key(key)] = bytes_to_public_key(public_key(key))

    def close_server(self):
        if self.control is not None:
            self.control.close()
        self.server.close()
        self.second.close()

    def open_node(self, number):
        processes.connect(
            self.nodes[number],
            self.home(number) / "flower",
            superlink=self.way_in,
            authority=self.folder / "authority.pem",
            key=self.home(number) / "node.key",
            door=self.home(number) / "door",
        )

    def kill(self, number):
        """A power cut at a site: no process gets to say goodbye."""
        os.killpg(self.nodes[number].pid("node"), signal.SIGKILL)
        self.nodes[number].close()

    def kill_server(self):
        """The same at the server; sockets and the run go with it."""
        for name in ("superlink", "gate", "conductor"):
            os.killpg(self.server.pid(name), signal.SIGKILL)
        self.close_server()
        self.until(lambda: not self._lends(), 30)

    def begin(self, conductor="lend"):
        """A run whose transport is ready for use; the server and the client that its bundle names do not exist."""
        elsewhere = control.APP.replace("choral.backends.flower:", "code_of_somebody_else:")
        if conductor != "lend":
            self.conduct(conductor, self.second)  # while the other is at work, this one takes the next run
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control, "APP", elsewhere)
            run = self.control.start(self.folder)
        if conductor == "lend":
            self.until(lambda: self._lends(), 60)
        return run

    def _lends(self):
        with contextlib.suppress(Exception):
            self.transport.expect(self.ids, deadline=self.deadline)
            return True
        return False

    @staticmethod
    def until(holds, seconds):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "it takes too long"
            time.sleep(0.2)
