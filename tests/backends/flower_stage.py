"""A real SuperLink and real SuperNodes on loopback whose devices live in the test's process."""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import shutil
import ssl
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from choral.backends import relay
from choral.backends.flower import processes
from choral.backends.flower.control import Control
from choral.backends.flower.gate import Gate
from tests.backends.flower_conductor import Lent

ROOT = Path(__file__).parents[2]
DAY = datetime.timedelta(days=1)


def certificates(folder):
    """An authority, and a certificate of its for this machine."""
    now = datetime.datetime.now(datetime.UTC)

    def signed(name, public, issuer, key, *extensions):
        names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer)]
        builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - DAY)
        builder = builder.not_valid_after(now + DAY)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    (folder / "authority.pem").write_bytes(
        signed("authority", authority.public_key(), "authority", authority,
               (x509.BasicConstraints(True, 0), True), (usage, True),
               (x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), False))
    )  # fmt: skip
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")])
    (folder / "server.pem").write_bytes(
        signed("server", key.public_key(), "authority", authority, (here, False),
               (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), False))
    )  # fmt: skip
    (folder / "server.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


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

    def __init__(self, ids, answers, *, deadline=60.0):
        self.folder = Path(tempfile.mkdtemp(prefix="stage", dir="/tmp"))
        self.ids, self.answers, self.deadline = list(ids), list(answers), deadline
        self.address, self.end = processes.free_address(), threading.Event()
        self.server, self.nodes = processes.Children(), [processes.Children() for _ in self.ids]
        self.transport = Lent(self.folder)
        self._doors, self.control, self.ear = [], None, None
        self.way_in = processes.free_address()
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
        key = ec.generate_private_key(ec.SECP384R1())
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
        (home / "node.key").write_bytes(key.private_bytes(*form))
        (home / "node.key").chmod(0o600)

        def answer(request):
            return self.ids[number].encode() if request == relay.HELLO else self.answers[number](request[1:])

        door = threading.Thread(target=relay.serve, args=(home / "door", answer), kwargs={"stop": self.end})
        door.start()
        self._doors.append(door)
        public = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return key.public_key().public_bytes(*public).decode()

    def open_server(self):
        self.inner = processes.serve(
            self.server,
            self.folder / "server",
            address=self.address,
            certificate=self.folder / "server.pem",
            key=self.folder / "server.key",
            authority=self.folder / "authority.pem",
        )
        self.control = Control(self.inner, authority=self.folder / "authority.pem")
        self.control.admit(self.keys)
        if self.ear is None:  # the sites' way in, beside the ordinary gate
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

    def begin(self, conductor="lend"):
        """A run; with the lending conductor, one whose transport is ready for use."""
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
