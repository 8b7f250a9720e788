"""A consortium in one process: a study folder, sites with their own homes, and agents behind real sockets."""

import contextlib
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from choral.backends import local_socket
from choral.core.errors import DeploymentError
from choral.core.keys import Identity
from choral.core.signed import ANSWER_HEAD, answered
from choral.deploy.agent import Agent
from choral.deploy.approving import approve
from choral.deploy.enrolment import SPEAKS, enrol, prepare
from choral.deploy.home import Home, Policy
from choral.deploy.serving import Deployed, speaker_of
from choral.server.speaker import answer_in

JOB = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
cohort = 3
rounds = 3
rows = 60
deadline = 30
[local]
steps = 2
batch = 12
step_size = 0.5
clip = 1.0
[data]
label = "sick"
classes = ["no", "yes"]
[data.columns.age]
bounds = [0, 100]
[data.columns.pulse]
bounds = [30, 220]
[data.columns.smokes]
levels = ["no", "yes"]
[run]
name = "hearts"
"""
NAMES = ("harbour", "hill", "lake")


def table(path: Path, *, seed: int, rows: int = 80) -> Path:
    """A made-up table of patients, in an order of columns of its own, with one column that nobody declared."""
    rng = np.random.default_rng(seed)
    age, pulse = rng.uniform(20, 90, rows), rng.uniform(50, 150, rows)
    sick = (age / 100 + pulse / 220 + 0.2 * rng.normal(size=rows)) > 1
    lines = ["sick,name,pulse,smokes,age"]
    lines += [
        f"{'yes' if s else 'no'},CANARY{seed}x{row},{p:.1f},{'yes' if row % 3 else 'no'},{a:.1f}"
        for row, (a, p, s) in enumerate(zip(age, pulse, sick, strict=True))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


class Consortium:
    """A coordinator's folder and the homes of its sites, up to the study file; nothing is approved yet."""

    def __init__(self, folder: Path, names=NAMES, job: str = JOB) -> None:
        self.folder, self.study = folder, folder / "study"
        (folder / "choral.toml").write_text(job)
        self.invitation = prepare(self.study, folder / "choral.toml", "127.0.0.1:9092")
        self.homes = {name: Home.join(folder / name, self.invitation, name) for name in names}
        self.tables = {name: table(folder / f"{name}.csv", seed=seed) for seed, name in enumerate(names)}
        self.enrol()

    def copy(self, folder: Path) -> "Consortium":
        """The same in another folder, as it is now; the tables stay where they are."""
        other = Consortium.__new__(Consortium)
        for name in (self.study.name, *self.homes):
            shutil.copytree(self.folder / name, folder / name)
        other.__dict__ |= self.__dict__ | {"folder": folder, "study": folder / self.study.name}
        other.homes = {name: Home(folder / name) for name in self.homes}
        return other

    def enrol(self):
        cards = []
        for name, home in self.homes.items():
            path = self.folder / f"{name}.card"
            path.write_text(home.card().text)
            cards.append(path)
        self.agreement = enrol(self.study, cards)
        return self.agreement

    def approve(self, *names, **policy):
        settings = {"epsilon": 4.0, "delta": 1e-4, **policy}
        for name in names or self.homes:
            approve(self.homes[name], self.study / "study.toml", Policy(**settings), self.tables[name], record=True)

    def conductor(self, transport, **settings) -> Deployed:
        return Deployed(self.study, transport, **{"patience": 2.0, **settings})


class Sockets:
    """A transport that asks every agent through its own socket, as the relay of a node does."""

    def __init__(self, homes) -> None:
        self.homes = homes
        self.seen: list[bytes] = []

    def unproved(self):
        return {}

    def reasons(self):
        return {}

    def expect(self, ids, *, deadline):
        self.ids, self.deadline = tuple(ids), deadline

    def present(self):
        found = set()
        for number, name in enumerate(self.ids):
            with contextlib.suppress(DeploymentError):
                if local_socket.ask(self.homes[name].socket, local_socket.HELLO, timeout=5) == name.encode():
                    found.add(number)
        return frozenset(found)

    def announce(self, waits):
        self.announced = waits if waits is not None else getattr(self, "announced", None)

    def gather(self, needed, *, patience, looked=lambda: None):  # noqa: ARG002 - nobody comes later
        looked()
        here = self.present()
        if len(here) < needed:
            raise DeploymentError("CH903", "too few are connected.")
        return here

    def exchange(self, outbox, heads):
        """The answers of `answers`; one that was changed there is signed as if its device had said it."""
        self.heads, self.signed = heads, {}
        for number, answer in self.answers(outbox):
            reply = self.signed.get(number, b"")
            if reply[ANSWER_HEAD:] != answer:
                memory = self.homes[self.ids[number]].vault().memory
                reply = answered(Identity(memory.id, memory.secret), heads[number], answer)
            yield number, reply

    def answers(self, outbox):
        self.seen += [bytes(frame) for frame in outbox.values()]
        with ThreadPoolExecutor(len(outbox)) as pool:
            for number, reply in pool.map(self._ask, outbox.items()):
                if reply is not None:
                    self.seen.append(reply[ANSWER_HEAD:])
                    self.signed[number] = reply
                    yield number, reply[ANSWER_HEAD:]

    def _ask(self, item):
        number, frame = item
        request = local_socket.FRAME + self.heads[number] + frame
        try:
            return number, local_socket.ask(self.homes[self.ids[number]].socket, request, timeout=self.deadline)
        except DeploymentError:
            return number, None


def as_server(agent, frame):
    """What an agent says to a frame that its study's server has signed for it, its own signature checked."""
    study = next(folder / "study" for folder in agent.home.path.parents if (folder / "study" / SPEAKS).exists())
    speaker = speaker_of(study, agent.study)
    head = speaker.head(agent.device.number, frame)
    reply = agent.answer(local_socket.FRAME + head + frame)
    return bytes(answer_in(reply, head, agent.study.roster[agent.name]))


@contextlib.contextmanager
def agents(homes, *, on_loopback=False, **passphrases):
    """Agents of these homes, each serving its door from a thread until the block ends."""
    with contextlib.ExitStack() as stack:
        running = {}
        for name, home in homes.items():
            agent = stack.enter_context(Agent(home, passphrases.get(name)))
            stop = threading.Event()
            thread = threading.Thread(target=agent.serve, args=(stop,), kwargs={"on_loopback": on_loopback})
            stack.callback(thread.join)
            stack.callback(stop.set)
            thread.start()
            while thread.is_alive() and not home.socket.exists():
                thread.join(0.01)
            running[name] = agent
        yield running
