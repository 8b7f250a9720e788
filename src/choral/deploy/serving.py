"""The server's half of a deployment: a place whose devices are reached over a transport, to its signed end."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral import federation
from choral.backends.wire import Carrier, Connected, Spoken, Wire
from choral.config import read_text
from choral.core.errors import CODES, ChoralError, DeploymentError, NotReadyError, RunError, StorageError
from choral.core.messages import (
    REASON_BYTES,
    Close,
    CloseEarly,
    Ending,
    Refusal,
    Signed,
    Turn,
    Vector,
    decode,
    encode,
    malformed,
)
from choral.core.signed import Closing
from choral.core.terms import MOST_CHARGED, Terms
from choral.deploy.asking import WaitingQuestions
from choral.deploy.certificates import speaks_with
from choral.deploy.enrolment import SPEAKS, excluded_by, public_table, with_public_test
from choral.deploy.home import FLOWER
from choral.deploy.ownership import private
from choral.record import STUDY, About, Outcome, RoundLine, Signer, converted, joined_rounds, read_json, read_run
from choral.record.description import KindName
from choral.run.agreement import Agreement
from choral.run.folder import (
    RunFolder,
    entry_of,
    hashes,
    now,
    parameter_bytes,
    record_digest,
    write_json,
    write_signatures,
    write_whole,
)
from choral.run.guard import Guard
from choral.run.places import Opened, Place, more_often
from choral.run.runs import Run
from choral.server.findings import Findings
from choral.server.round import Round
from choral.server.speaker import Speaker


class Presence(TypedDict):
    """It says who was connected when the server last looked, and when it last saw each of the others."""

    connected: list[str]
    last_seen: dict[str, str]


class ServerState(TypedDict, total=False):
    """state.json: what a server is doing at the moment, for whoever watches it."""

    state: str
    at: str
    gone: dict[str, str]  # sites that have refused permanently, and their codes
    code: str
    reason: str
    not_proved: dict[str, str]
    round: int
    attempt: int
    cohort: list[str]
    connected: list[str]
    last_seen: dict[str, str]
    why: dict[str, str]  # the code by which a site has last refused or not answered, until it takes part again
    until: str  # when a server that waits for its sites gives up for now
    without_until: str  # when it goes on without those that are missing, if `needed` of them are there
    needed: int


class ConnectedSites:
    """It is what a server has seen of its sites since it was started."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._connected: list[str] = []
        self._last: dict[str, str] = {}

    def look(self, present: Iterable[int], *, at: str) -> bool:
        """Note who is there; whether anybody has come or gone since the last look.

        >>> seen = ConnectedSites(("hill", "lake"))
        >>> seen.look([1], at="10:00"), seen.look([1], at="10:01"), seen.look([], at="10:02")
        (True, False, True)
        >>> seen.now
        {'connected': [], 'last_seen': {'lake': '10:01'}}
        """
        before, self._connected = self._connected, [self._names[number] for number in sorted(present)]
        self._last |= dict.fromkeys(self._connected, at)
        return before != self._connected

    @property
    def now(self) -> Presence:
        """It is what was seen last."""
        return Presence(connected=list(self._connected), last_seen=dict(self._last))


def standing(
    name: str, presence: Presence, refused: Mapping[str, str], excluded: Iterable[str], why: Mapping[str, str]
) -> str:
    """It says whether a site is connected, and if not why, as far as a server can know.

    >>> seen = Presence(connected=["hill"], last_seen={"hill": "10:05", "lake": "10:00"})
    >>> standing("hill", seen, {}, (), {}), standing("lake", seen, {}, (), {"lake": "CH905"})
    ('connected', "missing since 10:00: CH905 a site's clock and its server's differ too much")
    >>> standing("moor", seen, {}, (), {})
    'missing: has not connected since the server was started'
    >>> standing("lake", seen, {"lake": "CH401"}, (), {})
    'refused permanently: CH401 a device has spent its budget'
    """
    if name in refused:
        return f"refused permanently: {reason(refused[name])}"
    if name in excluded:
        return "excluded by the coordinator"
    because = f": {reason(why[name])}" if name in why else ""
    if name in presence["connected"]:
        return "connected" + because.replace(": ", "; it last refused by ", 1)
    if name in presence["last_seen"]:
        return f"missing since {presence['last_seen'][name]}{because}"
    return "missing: has not connected since the server was started" + because


def reason(code: str) -> str:
    """A code in words; one of a newer choral has none here.

    >>> reason("CH801")
    "CH801 a file or folder can't be written"
    """
    return f"{code} {CODES[code]}" if code in CODES else code


def seconds_from_now(seconds: float) -> str:
    """The moment so many seconds from now, to be shown; nothing is decided by it.

    >>> countdown(seconds_from_now(5400.0))
    '90 min'
    """
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def countdown(until: str, *, now: datetime | None = None) -> str:
    """It says how long is left until a moment, in the unit that people would use.

    >>> noon = datetime(2026, 11, 18, 12, tzinfo=UTC)
    >>> countdown("2026-11-18T12:41:10+00:00", now=noon), countdown("2026-11-18T11:59:00+00:00", now=noon)
    ('41 min', '0 s')
    >>> countdown("2029-02-20T12:00:00+00:00", now=noon)
    '825 days'
    """
    left = max(0.0, (datetime.fromisoformat(until) - (now or datetime.now(UTC))).total_seconds())
    if left >= 3 * 86400:
        return f"{left / 86400:.0f} days"
    return f"{left / 3600:.1f} h" if left >= 2 * 3600 else f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s"


MOST_CALLS = 3  # for one agreement, while too few answer
MOST_AGREEMENTS = 2  # for the sake of one device that then does not agree


class KeyAgreements:
    """The agreements of a run over a wire, which knows who has agreed; `findings` are those of the last one."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.findings = wire, Findings(terms=wire.terms)
        self._left_out: Counter[int] = Counter()  # how often each was there and has not agreed
        self._calls = 0

    def needed(self, here: frozenset[int]) -> bool:
        """Somebody here has no keys; who has been left out twice is no reason any more, until a restart."""
        return any(self._left_out[number] < MOST_AGREEMENTS for number in here - self.wire.agreed)

    def make(self, here: frozenset[int], round_number: int) -> None:
        """Let all who are here agree on keys for the rounds from this one on, or CH503 after a few calls."""
        self.findings = Findings(terms=self.wire.terms)
        for call in range(MOST_CALLS):
            self._calls += 1
            try:
                self.wire.agree(Turn(round_number, self._calls), sorted(here))
                break
            except NotReadyError:
                if call == MOST_CALLS - 1:
                    raise
            finally:
                self.findings.add(self.wire.findings)
        self._left_out.update(here - self.wire.agreed)


STATE, TURN, STOP, COUNTED = "state.json", "turn.json", "stop", "speaks.json"
_FRAMES_OF_A_START, _STARTS = 2**32, 2**32  # what a counter of 8 bytes holds
_CLOCK = "CH905"
WAITING, SIGNING = "waiting for devices", "asking the sites to sign"  # states of a server
PATIENCE = 3600.0  # seconds that a server waits for enough sites to be connected, before it gives up for now
CAUGHT = "CH606"  # a device that contradicted what it had sent itself: it is not called again
# A device that says one of these will say it again: asking changes neither its budget, its table nor its approval.
LASTING = frozenset(
    {"CH305", "CH400", "CH401", "CH402", "CH403", "CH406", "CH408", "CH409", "CH601", "CH602", "CH603", "CH611"}
)


class StudyStatus(ServerState, total=False):
    """It is where a study stands; `choral server status --json` prints it."""

    study: str
    devices: list[str]
    rounds_planned: int
    folder: str
    stopping: bool
    excluded: list[str]
    rounds_done: int
    took_part: dict[str, int]
    seconds_left: float | None
    stopped: str | None
    test: dict[str, float]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """turn.json: the last turn that was tried, on disk before anything of it was sent."""

    round: int
    attempt: int
    cohort: tuple[int, ...]
    wasted: tuple[int, ...]


class Starts(msgspec.Struct, frozen=True, kw_only=True):
    """speaks.json: with which number the counters of the server's last start begin, on disk before its first frame."""

    starts: int


def conduct(folder: str, transport: Carrier) -> None:
    """Run a study's rounds to their end over the transport, from where its run folder says that they stopped."""
    Deployed(Path(folder), transport).run()


class Deployed(Place):
    """A place whose devices are at their own sites: it gathers them, says where the run stands, and obeys a stop."""

    kind: KindName = "deployment"
    chosen = True  # the coordinator may stop at any time, and a site may refuse at any time

    def __init__(self, folder: Path, transport: Carrier, *, patience: float = PATIENCE) -> None:
        self.agreement = Agreement.read(folder / STUDY).with_code_in(folder)
        self.study, self.terms = with_public_test(folder, self.agreement), self.agreement.terms
        self.run_folder = run_folder(folder, self.agreement)
        self.transport = Spoken(transport, speaker_of(folder, self.agreement), self.terms.whole.bundles)
        self.patience = patience
        self.wire = Wire(self.terms, self.transport)
        self.agreements = KeyAgreements(self.wire)
        self.names = self.terms.ids
        self.folder = folder
        self.out: set[int] = set()  # the gone, and whom the coordinator has excluded
        self.gone: dict[int, str] = {}  # the code of who has refused permanently, until the server restarts
        self.findings = Findings(terms=self.terms)  # since the last round that is over
        self.lost: list[int] = []  # charged in attempts that failed, since the last round that is over
        self.refusing: dict[int, str] = {}  # the code of who has refused, until it takes part again
        self.counts = np.zeros(len(self.names), dtype=np.int64)
        self.spoilt = 0  # numbers of the last sum that were out of range
        self.questions = WaitingQuestions(
            self.run_folder.path, self.agreement, self.transport, public=public_table(folder, self.agreement)
        )
        self._waited = False
        self._seen = ConnectedSites(self.names)
        self._last_turn = Turn(0, 0)

    def run(self) -> None:
        """All rounds that are left, each on disk as it ends; then the model and the result."""
        folder = self.run_folder
        with folder.locked():
            require_unfinished(folder)
            self._state("starting")
            self.transport.expect(self.names, deadline=self.agreement.file.deadline)
            if not (folder.path / "run.json").exists():
                write_whole(folder.path / STUDY, self.agreement.text.encode())
            run = Run(self, self.study, folder=folder)
            run.begin()
            run.go_on()
            try:
                for _ in run.rounds():
                    pass
            except RunError as error:
                self._state("failed", error=error)
                raise
            run.conclude()
            self._state("finished")

    # Before the rounds

    @property
    def hold_out(self) -> str:
        """It says which rows are not trained on: public ones, if the coordinator has any."""
        tested_on = len(self.study.split.test.labels)
        return "all rows of a site are trained on" + (f"; tested on {tested_on:,} public rows" if tested_on else "")

    def described(self, about: About) -> About:
        """It is what is run, with the digest that every site approved, and the rows that the plan is for."""
        data = msgspec.structs.replace(about.data, rows=int(self.study.rows.sum()))
        return msgspec.structs.replace(about, study=self.agreement.digest.hex(), data=data)

    @contextmanager
    def opened(self, lines: Sequence[RoundLine], *, first: int) -> Iterator[int]:
        """Ready for rounds; after a crash, who was asked in the last turn may have been charged for it."""
        self.counts = joined_rounds(lines, len(self.names))
        self.guard = Guard.of_study(self.study, self.run_folder.path)
        path, attempt = self.run_folder.path / TURN, 0
        if path.exists():
            tried = converted(read_json(path), Tried, path)
            self._last_turn = Turn(tried.round, tried.attempt)
            if tried.round == first:
                self.lost, attempt = [*tried.wasted, *tried.cohort], tried.attempt + 1
        yield attempt

    def out_of_attempts(self) -> str:
        """It says why no attempt is left in this round: it cost a device all those that one pays for."""
        if max(Counter(self.lost).values(), default=0) < MOST_CHARGED:
            return ""
        return f"passed over: {MOST_CHARGED} attempts were charged, and no device pays for more."

    # The rounds

    def may_join(self) -> NDArray[np.bool_]:
        """It finds who is connected and has not refused permanently, and waits while they are too few."""
        excluded = excluded_by(self.folder, self.agreement)
        self.out = {number for number, name in enumerate(self.names) if name in excluded} | self.gone.keys()
        left = [number for number in range(len(self.names)) if number not in self.out]
        needed = self.study.secure.smallest_sum
        if len(left) < needed or self.stopped:
            return np.zeros(len(self.names), dtype=np.bool_)
        if not self._waited and needed < len(left):  # once: a site that is down must not delay every round
            self._gather(len(self.names), self.agreement.file.deadline, enough=needed)
        self._waited = True  # where nobody may be missing, the wait below is the only one
        here = self.transport.present().difference(self.out)
        if len(here) < needed:
            self._gather(needed + len(self.out), self.patience)
            here = self.transport.present().difference(self.out)
        if len(here) < needed:
            raise DeploymentError(
                "CH903",
                f"{len(here)} of {len(left)} devices are connected, {needed} are needed.",
                fix="Ask the sites to start theirs; then choral server run goes on. Nothing is lost.",
            )
        here = self._with_keys(here)
        self.questions.answer_waiting(sorted(here))
        return np.isin(np.arange(len(self.names)), list(here))

    def _with_keys(self, here: frozenset[int]) -> frozenset[int]:
        """It says who of them shares keys; if somebody came who has none, all of them agree on new ones first."""
        if self.terms.hybrid and self.agreements.needed(here):
            self._state("agreeing on keys")
            try:
                self.agreements.make(here, self._last_turn.round)
            finally:
                self._note(self.agreements.findings)
        return here & self.wire.agreed if self.terms.hybrid else here

    def _note(self, found: Findings) -> None:
        self.findings.add(found)
        self.findings.unproved |= dict.fromkeys(self.transport.unsigned, "an answer")
        self.refusing |= found.refusals | self.transport.unsigned
        self.transport.unsigned.clear()
        self.gone |= {number: code for number, code in self.findings.refusals.items() if code in LASTING}
        self.gone |= dict.fromkeys(self.findings.named, CAUGHT)

    def _gather(self, needed: int, patience: float, state: str = WAITING, *, enough: int | None = None) -> None:
        """Wait for so many sites, and say who is missing whenever that changes, and until when the server waits.

        When patience is over, the server goes on if `enough` are there, and else waits once more for them. Without
        `enough` it then gives up for now.
        """
        gives_up = patience if enough is None else patience + (self.patience if enough else 0.0)
        waits = ServerState(until=seconds_from_now(gives_up))
        if enough is not None:
            waits |= {"without_until": seconds_from_now(patience), "needed": enough}
        self._state(state, waits=waits)

        def looked() -> None:
            if self._seen.look(self.transport.present(), at=now()):
                self._state(state, waits=waits)

        self.transport.announce(gives_up if state == WAITING else None)
        try:
            self.transport.gather(needed, patience=patience, looked=looked)
        except DeploymentError as error:
            if error.code != "CH903":
                raise
        finally:
            self.transport.announce(None)

    def round(
        self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round_number: int, attempt: int
    ) -> Opened:
        """The sum of a turn, which is on disk as tried before anything is sent."""
        turn = Turn(round_number, attempt)
        self._last_turn = turn
        tried = Tried(round=round_number, attempt=attempt, cohort=tuple(cohort), wasted=tuple(self.lost))
        write_json(self.run_folder.path / TURN, msgspec.to_builtins(tried))
        self._state("round", turn, cohort)
        included: tuple[int, ...] = ()
        try:
            probing = None if self.guard is None else self.guard.probing(turn)
            round_of = Round if probing is None else probing.round
            opened = self.wire.attempt(turn, cohort, parameters, following=self._next(turn, cohort), round_of=round_of)
            if self.guard is not None and probing is not None:
                self.probed = self.guard.noted(probing, opened)
            included = tuple(self.terms.numbers[name] for name in opened.included)
            self.counts[list(included)] += 1
            self.spoilt = opened.spoilt
            return Opened(total=opened.integers, included=included)
        finally:
            self._note(self.wire.findings)
            self.refusing = {number: code for number, code in self.refusing.items() if number not in included}
            self.lost += [number for number in self.wire.uploaded if number not in included]

    def _next(self, turn: Turn, cohort: Sequence[int]) -> tuple[int, ...] | None:
        """The next round's cohort if all goes well, so that its call can ride on this round's end."""
        study, how = self.study, self.study.participation
        if turn.round >= study.plan.rounds or self.stopped:
            return None
        here = self.transport.present().difference(self.out)
        willing = np.array(sorted(here & self.wire.agreed if self.terms.hybrid else here), dtype=np.intp)
        counts = self.counts.copy()
        counts[list(cohort)] += 1
        return federation.cohort_of(
            study.plan, willing, counts, seed=study.seed, round_number=turn.round + 1, attempt=0, participation=how
        )

    @property
    def stopped(self) -> bool:
        """The coordinator has asked for an end, or sites were asked to sign it: they take no turn after."""
        return (self.run_folder.path / STOP).exists() or closing_reason(self.run_folder.path) is not None

    def noted(self, line: RoundLine, before: Sequence[RoundLine]) -> RoundLine:  # noqa: ARG002 - sites keep the ledgers
        """The line, with what was found out about devices since the one before it."""
        wasted, found = tuple(self.wasted(())), self.findings.as_dict()
        self.lost, self.findings = [], Findings(terms=self.terms)
        return msgspec.structs.replace(line, wasted=wasted, spoilt=self.spoilt, **found)

    def wasted(self, lines: Sequence[RoundLine]) -> list[int]:  # noqa: ARG002 - counted since the last line
        """The devices that were charged since the last round that is over, each as often."""
        return sorted(self.lost)

    # The end

    def why(self, *, chosen: bool) -> str:  # noqa: ARG002 - whoever may have looked, this is what happened
        """It says why the run ends early: the coordinator has stopped it, or too few devices go on."""
        if self.stopped:
            return "the coordinator stopped it"
        refused = ", ".join(f"{name} {code}" for name, code in self._named(self.gone).items())
        return f"too few devices are willing to go on ({refused})"

    def ended(self, run: Run) -> Outcome:
        """The result, signed by all sites that are there; who is away costs its own signature only."""
        path = self.run_folder.path
        mark_closing(path, run.stopped)
        self._state(SIGNING)
        if not self._waited:
            self._gather(len(self.names), self.agreement.file.deadline, SIGNING, enough=0)
        return close(
            path,
            self.terms,
            self.transport,
            lambda lost: self._claimed(run.outcome(lost)),
            counted=self.charged(run.lines, run.wasted),
            most=self.study.plan.rounds * federation.MOST_ATTEMPTS,
            turn=self._last_turn,
            early=(closing_reason(path) or "") if len(run.lines) < self.study.plan.rounds else "",
            parameters=run.parameters,
        )

    def _claimed(self, outcome: Outcome) -> Outcome:
        """The result, with what a server can truly claim: it counts what it was sent; the ledgers are the devices'."""
        return msgspec.structs.replace(
            outcome,
            stopped=closing_reason(self.run_folder.path),
            claim="ε at the most, for a device with the rows that the plan names, after every update that the server"
            " was sent or may have been sent; what a device has spent is in its own ledger, which never leaves it",
            refused=self.refused(),
        )

    def refused(self) -> dict[str, str]:
        """The code by which each site has refused permanently."""
        return self._named(self.gone)

    def _named(self, codes: Mapping[int, str]) -> dict[str, str]:
        return {self.names[number]: code for number, code in sorted(codes.items()) if number < len(self.names)}

    def _state(
        self,
        state: str,
        turn: Turn | None = None,
        cohort: Sequence[int] = (),
        error: ChoralError | None = None,
        waits: ServerState | None = None,
    ) -> None:
        at = now()
        if state != "starting":  # only then is it not known yet who the devices are
            self._seen.look(self.transport.present(), at=at)
        seen = self._seen.now
        current: ServerState = {"state": state, "at": at, "gone": self._named(self.gone)}
        current |= {"connected": seen["connected"], "last_seen": seen["last_seen"]}
        current |= waits or ServerState()
        if why := self._named(self.refusing) | dict(self.transport.reasons()):
            current["why"] = why
        if error is not None:
            current |= {"code": error.code, "reason": str(error)}
        if claims := self.transport.unproved():
            current["not_proved"] = dict(claims)
        if turn is not None:
            current |= {"round": turn.round, "attempt": turn.attempt, "cohort": [self.names[one] for one in cohort]}
        write_json(self.run_folder.path / STATE, current)


def speaker_of(folder: Path, study: Agreement) -> Speaker:
    """The server's voice in a study, above every counter that it has used before, also where its clock was set back.

    Its file says from where on the counters of this start are; the seconds since 1970 begin them, so that a folder from
    a backup repeats none either.
    """
    study.require_runnable()
    public = study.server_key.hex()
    key = speaks_with(read_text(folder / SPEAKS), public)
    path = run_folder(folder, study).path / COUNTED
    before = converted(read_json(path), Starts, path).starts if path.exists() else 0
    starts = max(before + 1, int(time.time()))
    if starts >= _STARTS:
        raise DeploymentError(
            _CLOCK,
            f"this server's clock is {starts:,} s after 1970, and frames are counted up to {_STARTS:,}.",
            fix="Set the clock, and start the server again.",
        )
    write_json(path, msgspec.to_builtins(Starts(starts=starts)))
    return Speaker(key, study=study.digest, first=starts * _FRAMES_OF_A_START)


def run_folder(folder: Path, study: Agreement) -> RunFolder:
    """The run folder of a study: every enrolment has its own."""
    return RunFolder(private(folder / "runs" / study.file.run))


def require_unfinished(folder: RunFolder) -> None:
    """It raises CH800 for a run that has its result."""
    if (folder.path / "result.json").exists():
        raise StorageError(
            "CH800", "is finished.", where=str(folder.path), fix="Enrol again for another run: choral server enrol."
        )


def status(folder: Path, study: Agreement | None = None) -> StudyStatus:
    """It is where a study stands: its round, who took part, who refused by which code, and the time left."""
    study = study or Agreement.read(folder / STUDY)
    path, names = run_folder(folder, study).path, [bundle.id for bundle in study.roster]
    late = dict.fromkeys(with_wrong_clocks(folder, study), _CLOCK)
    shown: StudyStatus = {
        "study": study.file.name,
        "devices": names,
        "rounds_planned": study.plan.rounds,
        "folder": str(path),
        "stopping": (path / STOP).exists(),
        "excluded": sorted(excluded_by(folder, study)),
    }
    if not (path / "run.json").exists():
        return {**shown, "state": "not started", "rounds_done": 0, "took_part": {}, "seconds_left": None}
    record = read_run(path)
    done = len(record.rounds)
    spent = record.rounds[-1].seconds if done else 0.0
    counts = joined_rounds(record.rounds, study.plan.devices)
    state: ServerState = {"state": "starting"}
    if (path / STATE).exists():
        state = converted(read_json(path / STATE), ServerState, path / STATE)
    return {
        **shown,
        **state,
        "why": state.get("why", {}) | late,
        "rounds_done": done,
        "took_part": dict(zip(names, map(int, counts), strict=True)),
        "seconds_left": round(spent / done * (study.plan.rounds - done), 1) if done else None,
        "stopped": record.result.stopped if record.result else None,
        "test": record.rounds[-1].test if done else {},
    }


def with_wrong_clocks(folder: Path, study: Agreement) -> frozenset[str]:
    """The sites that the gate does not let in since their clocks are wrong; none where Flower was never started."""
    if not (folder / FLOWER).exists():
        return frozenset()
    from choral.backends.flower import processes  # Flower is an extra

    return processes.with_wrong_clocks(folder / FLOWER, {device.id: device.node for device in study.file.devices})


def stop(folder: Path) -> None:
    """Ask a run to end after the round under way; it then writes its model and its result."""
    run = run_folder(folder, Agreement.read(folder / STUDY))
    require_unfinished(run)
    if not (run.path / "run.json").exists():  # it would end before its first round, and a study is run once
        raise StorageError("CH802", "has not begun.", where=str(run.path), fix="choral server run STUDY begins it.")
    write_json(run.path / STOP, {"at": now()})


SILENT, CLOSING = "did not answer", "closing.json"


def mark_closing(folder: Path, why: str) -> None:
    """Write down that the run is over, and why, before a site signs: one that has signed takes no turn any more."""
    if closing_reason(folder) is None:
        write_json(folder / CLOSING, {"why": why})


def closing_reason(folder: Path) -> str | None:
    """It says why the run is over, if its sites may have been asked to sign."""
    path = folder / CLOSING
    return str(read_json(path)["why"]) if path.exists() else None


def close(
    folder: Path,
    terms: Terms,
    transport: Connected,
    result_of: Callable[[list[int]], Outcome],
    *,
    counted: NDArray[np.int64],
    most: int,
    turn: Turn,
    early: str,
    parameters: NDArray[np.float32],
) -> Outcome:
    """The result of a run that is over; signatures.json is written with what every site said.

    `counted` is how often the server counts each device as charged. A site may have paid for an upload that never
    arrived; then `result_of` is asked again with that site in its list, so that the claim covers it, and the sites sign
    that one. More than `most` payments can't be true. `early` is why the run ends before its last round, if it does:
    sites sign no such end without it.
    """
    lost: list[int] = []
    for _ in range(2):
        result = result_of(lost)
        entries = _ask(
            terms,
            transport,
            _end(turn, record_digest(result.to_dict(), hashes(folder)), early),
            parameter_bytes(parameters),
            most=most,
        )
        unseen = more_often(np.array([entry.paid or 0 for entry in entries]), counted)
        if lost or not unseen:
            break
        lost = unseen
    write_signatures(folder, entries)
    return result


def _end(turn: Turn, record: bytes, early: str) -> Ending:
    if not early:
        return Close(turn=turn, record=record)
    words = early.encode()
    if len(words) > REASON_BYTES:
        words = early.encode()[: REASON_BYTES - 3].decode(errors="ignore").encode() + "…".encode()
    return CloseEarly(turn=turn, record=record, reason=words)


def _ask(terms: Terms, transport: Connected, message: Ending, model: bytes, *, most: int) -> list[Signer]:
    """An entry for every device; who does not sign is named with the reason, and costs its signature only."""
    bundles = terms.whole.bundles
    entries = [entry_of(bundle, why=SILENT) for bundle in bundles]
    frame = encode(message, model)
    try:
        for sender, reply in transport.exchange(dict.fromkeys(sorted(transport.present()), frame)):
            try:
                entries[sender] = _answered(terms, sender, reply, message.record, model, most=most)
            except ChoralError as error:
                entries[sender] = entry_of(bundles[sender], why=error.code)
    except ChoralError:  # of the transport: whoever has answered by now has signed
        pass
    return entries


def _answered(terms: Terms, sender: int, reply: Vector, record: bytes, model: bytes, *, most: int) -> Signer:
    said, _ = decode(reply, vector_bytes=0, records_bytes=terms.records_bytes)
    bundle = terms.whole.bundles[sender]
    if isinstance(said, Refusal):
        return entry_of(bundle, why=said.code)
    if not isinstance(said, Signed) or said.device != sender or said.paid > most:
        raise malformed("no answer to the end of a run")
    closing = Closing(
        run=terms.plan,
        roster=terms.roster_digest,
        record=record,
        model=hashlib.sha256(model).digest(),
        paid=said.paid,
        receipt=said.receipt,
    )
    closing.check(bundle, said.signature)
    return entry_of(bundle, signed=closing, signature=said.signature)
