"""A real SuperLink and real SuperNodes on loopback whose devices live in the test's process."""

import asyncio
import contextlib
import os
import shutil
import signal
import ssl
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import uvicorn

from choral.backends import relay
from choral.backends.flower import control, processes
from choral.backends.flower.control import Control
from choral.backends.flower.gate import Gate
from choral.run.certificates import new_authority, node_key, server_certificate
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

    def __init__(self, client):
        super().__init__(client)
        self.heard, self.told = bytearray(), bytearray()

    async def __call__(self, scope, receive, send):
        async def hear():
            event = await receive()
            self.heard += event.get("body", b"")
            return event

        async def tell(event):
            self.told += event.get("body", b"")
            await send(event)

        self.heard += repr(scope["headers"]).encode()
        await super().__call__(scope, hear, tell)


class Stage:
    """Devices given as `answers[number](frame)`, each behind its door, SuperNode and relay; one transport to all."""

    def __init__(self, ids, answers, *, deadline=60.0, overhear=True):
        self.folder = Path(tempfile.mkdtemp(prefix="stage", dir="/tmp"))
        self.ids, self.answers, self.deadline = list(ids), list(answers), deadline
        self.address, self.end = processes.free_address(), threading.Event()
        self.server, self.nodes = processes.Children(), [processes.Children() for _ in self.ids]
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
            self._listener.should_exit = True
            self._listening.join()
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
            return self.ids[number].encode() if request == relay.HELLO else self.answers[number](request[1:])

        door = threading.Thread(target=relay.serve, args=(home / "door", answer), kwargs={"stop": self.end})
        door.start()
        self._doors.append(door)
        return public

    def open_server(self):
        self.inner = processes.serve(
            self.server,
            self.folder / "server",
            nodes=self.keys,
            address=self.address,
            certificate=self.folder / "server.pem",
            key=self.folder / "server.key",
            authority=self.folder / "authority.pem",
        )
        self.control = Control(self.inner, authority=self.folder / "authority.pem")
        if self.ear is None and self.way_in != self.address:  # the sites' way in, beside the ordinary gate
            trusted = ssl.create_default_context(cafile=self.folder / "authority.pem")
            self.ear = Ear(httpx.AsyncClient(base_url=f"https://{self.inner}", verify=trusted, timeout=60.0))
            config = uvicorn.Config(
                self.ear, port=int(self.way_in.rpartition(":")[2]), lifespan="off", ws="none", log_level="error",
                ssl_certfile=self.folder / "server.pem", ssl_keyfile=self.folder / "server.key",
            )  # fmt: skip
            self._listener = uvicorn.Server(config)
            self._listening = threading.Thread(target=lambda: asyncio.run(self._listen()))
            self._listening.start()

    async def _listen(self):
        async with self.ear._client:
            await self._listener.serve()

    def close_server(self):
        if self.control is not None:
            self.control.close()
        self.server.close()

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
        for name in ("supernode", "relay"):
            os.killpg(self.nodes[number].pid(name), signal.SIGKILL)
        self.nodes[number].close()

    def kill_server(self):
        """The same at the server; sockets and the run go with it."""
        for name in ("superlink", "gate"):
            os.killpg(self.server.pid(name), signal.SIGKILL)
        self.close_server()
        self.until(lambda: not self._lends(), 30)  # the app's process ends with its SuperLink

    def begin(self, conductor="lend"):
        """A run whose transport is ready for use; the client that its bundle names is nowhere to be found."""
        elsewhere = control._APP.replace("choral.backends.flower:device", "code_of_the_server:device")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control, "_APP", elsewhere)
            run = self.control.start(self.folder, conductor=f"tests.backends.flower_conductor:{conductor}")
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
