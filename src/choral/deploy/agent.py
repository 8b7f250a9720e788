"""A device's own process: it holds vault, ledger, rows and round secrets, and answers what the relay hands in."""

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from choral import __version__
from choral.backends import local_socket
from choral.backends.connecting import Pauses
from choral.config import read_text
from choral.core.device import Device, Prepare, Prepared, Respondent
from choral.core.errors import ChoralError, DeploymentError, LedgerError, TrainingError, TrustError
from choral.core.keys import Identity
from choral.core.ledger import Charge, Ledger, Receipt
from choral.core.masks import Stream
from choral.core.messages import (
    CloseEarly,
    Refusal,
    Signed,
    Turn,
    Upload,
    Vector,
    decode,
    encode,
    is_about_a_question,
)
from choral.core.signed import REQUEST_HEAD, Listener, SignedEnd, answered, signed_refusal
from choral.core.terms import MODEL_TYPE, MOST_CHARGED, another_charge
from choral.deploy.certificates import check_dates
from choral.deploy.home import AUTHORITY, FLOWER, LOG, NODE_KEY, Approval, Home, check_table, reserve_in
from choral.deploy.ownership import keep
from choral.record import QUESTIONS, SiteQuestion
from choral.run.folder import append_line, now, receipt_text, tensors, unheard
from choral.tables.reading import Table

if TYPE_CHECKING:
    from choral.run.questions import CheckedQuestion

CUT_OFF, REACHED, FINISHED = "cut_off", "reached", "finished"  # events of a connection, which a status shows
GREETED = "greeted"  # the server has asked who this is, and said how long it waits
_MOST_DIGITS = 8  # of the seconds that a server says it waits: three years
LOOK = 1.0  # seconds between two looks at the node and the socket
EVERY = 30.0  # seconds between two looks
SOON = 3.0  # the same once the study is over, since the server is about to end, and first while something is in the way
RECENT = 60.0  # seconds for which a node that gave up counts as one that is not let in
_SHOWN = 2**16  # the last bytes of a log that a status looks at: some hundred lines


Tell = Callable[[str], None]


class LogLine(TypedDict):
    """A line of a site's log: when something happened, what it was, and its numbers."""

    at: str
    event: str
    round: NotRequired[int]
    attempt: NotRequired[int]
    bytes: NotRequired[int]
    seconds: NotRequired[float]
    code: NotRequired[str]
    cause: NotRequired[int | str]
    waits: NotRequired[int]


class Journal:
    """It says what happened on a device, one JSON object per line: codes and numbers, no value, no text of others."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, event: str, **numbers: float | str) -> None:
        """Add a line; a log that can't be written stops nothing."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **numbers})
        try:
            with open(self.path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(line.encode() + b"\n")
        except OSError:
            pass

    def last(self) -> list[LogLine]:
        """The last lines, the newest first; what a power cut left of one is passed over, also in front of the next."""
        try:
            with open(self.path, "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _SHOWN))
                lines = file.read().split(b"\n")
        except OSError:
            return []
        newest = []
        for line in reversed(lines):
            with contextlib.suppress(ValueError):
                newest.append(json.loads(line))
        return newest


class Agent(contextlib.AbstractContextManager["Agent"]):
    """One approved device, ready to be asked; `answer` takes a relayed request and is called one at a time.

    Opening it takes the ledger's lock, so that two agents on one home are impossible (CH404), and checks everything
    that was approved once more. `tell` is given each refusal of this device in words, for its owner's screen, and not
    again before it has taken part in something.
    """

    def __init__(
        self, home: Home, passphrase: str | None = None, *, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.home, self.name, self.journal = home, home.joined.name, Journal(home.path / LOG)
        self._tell, self._refused = tell, set[str]()
        _ = home.approval  # without one there is nothing to open
        self.ledger: Ledger = home.open_ledger(home.vault(passphrase))
        try:
            vault = home.vault(passphrase)  # read under the lock: what another agent wrote last is in it
            self.study, approval = home.approved(vault)
            self.study.require_runnable()
            held = home.approved_holdings(self.study, approval, vault)
            self.trainer, self.costs, self._since = held.trainer, held.costs, approval.since
            if self.study.run_name not in self.ledger.balance.open_plans:  # approved before there were reservations
                reserve_in(self.ledger, self.study, held.costs, began=approval.since, needed=False)
            self.device = Device(
                self.study.terms,
                vault,
                train=self.train,
                charge=self.charge,
                payable=self._check_payable,
                check=self.trainer.check,
                account=lambda: (self._charged(), self.ledger.receipt),
                rounds=self.study.plan.rounds,
            )
            self.identity = Identity(vault.memory.id, vault.memory.secret)
            self.listener = Listener(
                study=self.study.digest,
                server_key=self.study.server_key,
                device=self.device.number,
                heard=lambda: vault.memory.heard,
                hear=lambda counter: vault.change(heard=counter),
            )
            self.respondent = Respondent(self.study.terms, vault, self._preparation(approval))
            self.trainer.trial(self.study.settled.trained.start(0))  # compiled before the server's deadlines run
        except BaseException:
            self.ledger.close()
            raise
        self.journal.note("started", choral=__version__, study=self.study.digest.hex())

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    def answer(self, request: bytes | bytearray) -> Vector:
        """The reply to a relayed request: this device's id, or what its half of the protocol says to a frame."""
        kind, asked = request[:1], memoryview(request)[1:]
        if kind == local_socket.HELLO:
            self._note_wait(bytes(asked[: _MOST_DIGITS + 1]))
            return self.name.encode()
        if kind != local_socket.FRAME:
            raise TrustError("CH600", "malformed message: of no known kind.")
        begin = time.monotonic()
        try:
            frame = self.listener.opened(asked)
        except ChoralError as error:
            reply: Vector = encode(
                signed_refusal(self.identity, self.device.number, self._turn_of(asked[REQUEST_HEAD:]), error.code)
            )
            self._note(b"", reply, 0, time.monotonic() - begin, error)
        else:
            half = self.respondent if is_about_a_question(frame) else self.device
            reply = half.answer(frame)
            size = self.respondent.upload_bytes if half is self.respondent else self.study.terms.upload_bytes
            self._note(frame, reply, size, time.monotonic() - begin, half.refusal)
        return answered(self.identity, asked, reply)

    def _turn_of(self, frame: Vector) -> Turn:
        """The turn that a refused frame names, so that an honest server knows what was refused."""
        terms = self.study.terms
        with contextlib.suppress(ChoralError):
            return decode(frame, vector_bytes=terms.model_bytes, records_bytes=terms.records_bytes)[0].turn
        return Turn(0, 0)

    def _note_wait(self, seconds: bytes) -> None:
        """Keep how long the server waits for the other sites, for whoever asks this one; anything else is ignored."""
        if seconds.isdigit() and len(seconds) <= _MOST_DIGITS:
            self.journal.note(GREETED, waits=int(seconds))

    def _preparation(self, approval: Approval) -> Prepare:
        """It is what this site does with questions: those that its study may ask, about the table that was approved."""
        study = self.study
        if not study.job.ask.allowed:
            return _no_questions
        from choral.run.questions import AskTerms, preparation  # the questions of a study that asks some

        terms = AskTerms.of(study.job, run=study.run_name, devices=len(study.roster))
        terms = terms.without(approval.policy.struck)

        def table(_question: "CheckedQuestion") -> Table:
            found = study.table_in(Path(approval.data), approval.written)
            check_table(study.digest_of(found), approval.table, data=Path(approval.data))
            return found

        def note(number: int, words: str) -> None:
            line = SiteQuestion(number=number, words=words, at=now())
            append_line(self.home.path / QUESTIONS, line, fix="Nothing was sent; make the home writable.")

        return preparation(terms, ledger=self.ledger, table=table, noise=lambda _: Stream.fresh(), note=note)

    def _note(
        self, frame: Vector, reply: Vector, vector_bytes: int, seconds: float, refusal: ChoralError | None
    ) -> None:
        terms = self.study.terms
        said, _ = decode(reply, vector_bytes=vector_bytes, records_bytes=terms.records_bytes)
        numbers: dict[str, int | str] = {"round": said.turn.round, "attempt": said.turn.attempt, "bytes": len(reply)}
        if isinstance(said, Refusal):
            numbers["code"] = said.code
            numbers["cause"] = "server" if said.cause is None else said.cause  # a device's number: no text of others
            if refusal is not None and said.code not in self._refused:
                self._tell(str(refusal))
            self._refused.add(said.code)
        elif isinstance(said, Upload):
            self._refused.clear()
        if isinstance(said, Signed) and self.device.signed is not None:
            self._keep_end(frame, self.device.signed)
        self.journal.note(type(said).__name__.lower(), **numbers, seconds=round(seconds, 3))

    def _keep_end(self, frame: Vector, signed: SignedEnd) -> None:
        """Keep the end that was just signed, why it came early, and the final model, for predictions at this site."""
        terms = self.study.terms
        message, model = decode(frame, vector_bytes=terms.model_bytes, records_bytes=terms.records_bytes)
        early = message.reason.decode("utf-8", "replace") if isinstance(message, CloseEarly) else ""
        keep(self.home.receipt_path(self.study), receipt_text(self.study.roster[self.name], signed, early=early))
        if len(model) == terms.model_bytes:  # a site signs whatever it is handed, but only a whole model is of use
            parameters = np.frombuffer(model, MODEL_TYPE).astype(np.float32)
            keep(self.home.model_path(self.study), tensors(parameters, {"format": "choral flat vector"}))

    def _charged(self) -> int:
        """It says how many uploads of this run the ledger has paid for."""
        return self.ledger.balance.charges_of(self.study.run_name)

    def _paid(self) -> int:
        """It says how many of them were in the passes over the approved table."""
        return self._charged() - self._since

    def train(self, model: NDArray[np.float32], round_number: int, attempt: int) -> NDArray[np.float32]:
        """The update of a turn that is paid for; a record is never used more often than that (CH703)."""
        # The turn is paid for by now; the charges say where in its passes the device stands, so no record is used more
        # often than is charged for.
        self.trainer.rounds = self._paid() - 1
        try:
            return self.trainer.update(model)
        except ChoralError:
            raise
        except Exception as error:
            raise TrainingError(
                "CH700",
                f"round {round_number}, attempt {attempt}: training failed ({type(error).__name__}). Nothing was sent.",
                fix="Approve the study again: one round is then tried here.",
            ) from None

    def _next_charge(self, round_number: int, attempt: int) -> Charge:
        if not 1 <= round_number <= self.study.plan.rounds:
            raise LedgerError(
                "CH409",
                f"round {round_number} of a study that was approved for {self.study.plan.rounds} rounds.",
                why="Nothing was sent.",
                fix="More rounds take another study, and another approval.",
            )
        return self.costs.of(0).charge(
            self._paid(), run=self.study.run_name, round_number=round_number, attempt=attempt
        )

    def _check_payable(self, round_number: int, attempt: int) -> None:
        # The ledger knows of a charge even where a crash kept the vault from noting it.
        if self.ledger.balance.charges_of(self.study.run_name, round_number) >= MOST_CHARGED:
            raise another_charge(round_number, MOST_CHARGED)
        self.ledger.balance.check(self._next_charge(round_number, attempt))
        with self.device.vault.room():
            pass  # who can't write a turn down says so before others are charged for it

    def charge(self, round_number: int, attempt: int) -> Receipt:
        """Debit the ledger for a turn: durable when it returns, or refused."""
        receipt = self.ledger.charge(self._next_charge(round_number, attempt))
        self.journal.note("charged", round=round_number, attempt=attempt)  # ε is composed where somebody asks for it
        return receipt

    def serve(self, stop: threading.Event | None = None, *, on_loopback: bool = local_socket.NO_UNIX_SOCKETS) -> None:
        """Answer at the home's socket until asked to stop."""
        most = len(local_socket.FRAME) + REQUEST_HEAD + self.study.frame_bytes
        local_socket.serve(self.home.socket, self.answer, stop=stop, most_bytes=most, on_loopback=on_loopback)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.ledger.close()
        self.journal.note("stopped")


def _no_questions(_question: bytes) -> Prepared:
    """It is what a device says whose study may ask nothing."""
    raise TrustError("CH608", "the study that was approved here may ask nothing.", fix="The device drops out.")


def answers(home: Home, *, timeout: float = 2.0) -> bool:
    """It says whether the home's agent is there."""
    try:
        return local_socket.ask(home.socket, local_socket.HELLO, timeout=timeout) == home.joined.name.encode()
    except ChoralError:
        return False


class ConnectionWatch:
    """Looks by `check`, which raises what is in the way; `refused` is in the way if the node gives up nevertheless."""

    def __init__(
        self,
        check: Callable[[], None],
        refused: Callable[[], ChoralError],
        *,
        journal: Journal,
        tell: Tell,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._check, self._refused, self._journal, self._tell, self._over = check, refused, journal, tell, over
        self.finished = threading.Event()  # the site has signed the end of its study, and the server is gone
        self._pauses = Pauses(SOON, EVERY)
        self._gave_up: float | None = None
        self._now: tuple[str, str] | None = None  # the kind of what is in the way, and an empty one if nothing is

    def gave_up(self) -> None:
        """Note that the node has ended by itself a moment ago."""
        self._gave_up = time.monotonic()

    def watch(self, stop: threading.Event) -> None:
        """Look at once and then repeatedly; this needs its own thread, since an address may take long to be found."""
        while not stop.is_set():
            self.look()
            if self.finished.is_set():
                return
            if not self._is_cut_off:
                self._pauses.begin()
            stop.wait(SOON if self._over() else self._pauses.next() if self._is_cut_off else EVERY)

    def look(self) -> None:
        """Look once, and tell what has changed: to people in words, to the log by its code."""
        error = self._found()
        if error is not None and self._over():  # whoever has signed the end misses nothing when the server ends
            self._journal.note(FINISHED)
            self.finished.set()
            return
        # What to do about it identifies a kind: how much a clock is wrong, for example, changes all the time.
        kind = ("", "") if error is None else (error.code, error.fix)
        if kind == self._now:
            return
        before, self._now = self._now, kind
        if error is not None:
            self._journal.note(CUT_OFF, code=error.code)
            self._tell(str(error))
        else:
            self._journal.note(REACHED)
            if before is not None:
                self._tell("the server can be reached again.")

    @property
    def _is_cut_off(self) -> bool:
        return self._now is not None and self._now != ("", "")

    def _found(self) -> ChoralError | None:
        try:
            self._check()
        except ChoralError as error:
            return error
        recent = self._gave_up is not None and time.monotonic() - self._gave_up < RECENT
        return self._refused() if recent else None


def attend(
    home: Home,
    passphrase: str | None = None,
    *,
    agent_only: bool = False,
    stop: threading.Event,
    tell: Tell,
    begun: Callable[[], None] = unheard,
) -> bool:
    """Answer for a site until its study is over, or until asked to stop; whether the study is over.

    The agent is here, and next to it Flower's node, which only calls out.

    `begun` is called once, when everything is up and nobody has refused. What keeps the node from its server is
    reported in words as it begins and ends, and is in the log; so is why the device refuses a turn.
    """
    with Agent(home, passphrase, tell=tell) as agent, ExitStack() as stack:
        closed: list[ChoralError] = []  # why its socket did not open, or has closed

        def serve() -> None:
            try:
                agent.serve(stop)
            except ChoralError as error:
                closed.append(error)

        listening = threading.Thread(target=serve, name="socket")
        stack.callback(listening.join)
        stack.callback(stop.set)
        listening.start()
        processes, connection = None, None
        if not agent_only:
            from choral.backends.flower import children, reach  # Flower is an extra

            address, authority = home.joined.server.address, home.path / AUTHORITY

            def look() -> None:
                trusted = read_text(authority)
                check_dates(reach.check_reach(address, authority=authority), trusted)

            connection = ConnectionWatch(
                look,
                lambda: reach.not_let_in(address),
                journal=agent.journal,
                tell=tell,
                over=lambda: home.finished(agent.study),
            )
            processes = stack.enter_context(children.Children())
            children.connect(
                processes,
                home.path / FLOWER,
                superlink=address,
                authority=authority,
                key=home.path / NODE_KEY,
                door=home.socket,
                gave_up=connection.gave_up,
            )
            threading.Thread(target=connection.watch, args=(stop,), name="connection", daemon=True).start()
        while not stop.wait(LOOK):
            if connection is not None and connection.finished.is_set():
                break
            if processes is not None:
                processes.check()
            if not listening.is_alive():
                raise next(
                    iter(closed), DeploymentError("CH900", "the agent's socket has closed.", fix="Start it again.")
                )
            begun()
            begun = unheard
        begun()  # if it was stopped so early
        return home.finished(agent.study)
