"""The server's half of a deployment: a study's rounds over whatever transport it is given, resumable at any point."""

import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral import federation
from choral.backends.wire import Connected, Wire
from choral.deploy.closing import close, closing_reason, mark_closing
from choral.deploy.describing import described
from choral.deploy.enrolment import STUDY, private
from choral.deploy.public_test import keep_test as keep_test
from choral.deploy.public_test import public_rows
from choral.errors import DeploymentError, RunError, StorageError
from choral.plan import Participation
from choral.protocol.device import MOST_CHARGED
from choral.protocol.findings import Findings
from choral.protocol.messages import Turn
from choral.record import (
    Baselines,
    Outcome,
    RoundLine,
    charged_rounds,
    converted,
    read_json,
    read_run,
)
from choral.run.agreement import Agreement
from choral.run.folder import RunFolder, now, write_json, write_whole
from choral.run.metrics import metrics
from choral.run.places import Opened
from choral.run.result import model_card
from choral.run.statement import privacy_statement, releases
from choral.server_step import State

STATE, TURN, STOP = "state.json", "turn.json", "stop"
PATIENCE = 3600.0  # seconds that a server waits for enough sites to be connected, before it gives up for now
CAUGHT = "CH606"  # a device that contradicted what it had laid down itself: it is called no more
# A device that says one of these will say it again: asking changes neither its budget, its table nor its approval.
LASTING = frozenset({"CH305", "CH400", "CH401", "CH402", "CH403", "CH406", "CH409", "CH601", "CH602", "CH603"})


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """turn.json: the last turn that was tried, on disk before anything of it was sent."""

    round: int
    attempt: int
    cohort: tuple[int, ...]
    wasted: tuple[int, ...]


def conduct(folder: str, transport: Connected) -> None:
    """Run a study's rounds to their end over the transport, from where its run folder says that they stopped."""
    Conductor(Path(folder), transport).run()


class Conductor:
    """One run of a study under way: a backend for the loop over rounds, and the keeper of the run folder."""

    def __init__(self, folder: Path, transport: Connected, *, patience: float = PATIENCE) -> None:
        self.study = Agreement.read(folder / STUDY).with_code_in(folder)
        self.run_folder = run_folder(folder, self.study)
        self.test = public_rows(folder, self.study)
        self.transport, self.patience = transport, patience
        self.wire = Wire(self.study.terms, transport)
        self.names = self.study.terms.ids
        self.gone: dict[int, str] = {}  # who has refused for good, by code; asked again only when the server restarts
        self.findings = Findings(terms=self.study.terms)  # since the last round that is over
        self.wasted: list[int] = []  # charged in attempts that failed, since the last round that is over
        # From the system's randomness and never written down: nobody foresees who is called.
        self.seed = secrets.randbits(62)
        self.counts = np.zeros(len(self.names), dtype=np.int64)
        self.spoilt = 0  # numbers of the last sum that were out of range
        self._waited = False
        self._last_turn = Turn(0, 0)

    # What the loop over rounds needs

    def may_join(self) -> NDArray[np.bool_]:
        """Who can be called now: connected, and not gone for good. Waits while too few are connected."""
        left = [number for number in range(len(self.names)) if number not in self.gone]
        needed = self.study.secure.smallest_sum
        if len(left) < needed or self.stopped:
            return np.zeros(len(self.names), dtype=np.bool_)
        if not self._waited:  # for everybody once; a site that is down must not delay every round
            self._state("waiting for devices")
            self._gather(len(self.names), self.study.file.deadline)
            self._waited = True
        here = self.transport.present().difference(self.gone)
        if len(here) < needed:
            self._state("waiting for devices")
            self._gather(needed + len(self.gone), self.patience)
            here = self.transport.present().difference(self.gone)
        if len(here) < needed:
            raise DeploymentError(
                "CH903",
                f"{len(here)} of {len(left)} devices are connected, {needed} are needed.",
                fix="Ask the sites to start theirs; then choral server run goes on. Nothing is lost.",
            )
        willing = np.zeros(len(self.names), dtype=np.bool_)
        willing[list(here)] = True
        return willing

    def _gather(self, needed: int, patience: float) -> None:
        try:
            self.transport.gather(needed, patience=patience)
        except DeploymentError as error:
            if error.code != "CH903":
                raise

    def round(self, parameters: NDArray[np.float32], cohort: Sequence[int], *, round: int, attempt: int) -> Opened:
        """The sum of a turn, which is on disk as tried before anything is sent."""
        turn = Turn(round, attempt)
        self._last_turn = turn
        tried = Tried(round=round, attempt=attempt, cohort=tuple(cohort), wasted=tuple(self.wasted))
        write_json(self.run_folder.path / TURN, msgspec.to_builtins(tried))
        self._state("round", turn, cohort)
        included: tuple[int, ...] = ()
        try:
            opened = self.wire.attempt(turn, cohort, parameters, following=self._next(turn, cohort))
            included = tuple(self.study.terms.numbers[name] for name in opened.included)
            self.counts[list(included)] += 1
            self.spoilt = opened.spoilt
            return Opened(total=opened.integers, included=included)
        finally:
            self.findings.add(self.wire.findings)
            self.gone |= {number: code for number, code in self.findings.refusals.items() if code in LASTING}
            self.gone |= dict.fromkeys(self.findings.named, CAUGHT)
            self.wasted += [number for number in self.wire.uploaded if number not in included]

    def _next(self, turn: Turn, cohort: Sequence[int]) -> tuple[int, ...] | None:
        """The next round's cohort if all goes well, so that its call can ride on this round's end."""
        plan = self.study.plan
        if turn.round >= plan.rounds or self.stopped:
            return None
        willing = np.array(sorted(self.transport.present().difference(self.gone)), dtype=np.intp)
        counts = self.counts.copy()
        counts[list(cohort)] += 1
        return federation.cohort_of(
            plan, willing, counts, seed=self.seed, round=turn.round + 1, attempt=0, participation=self._participation
        )

    @property
    def _participation(self) -> Participation:
        return self.study.job.federation.participation

    @property
    def stopped(self) -> bool:
        """Whether the coordinator has asked for an end, or the sites were asked to sign it: they take no turn after."""
        return (self.run_folder.path / STOP).exists() or closing_reason(self.run_folder.path) is not None

    # The run

    def run(self) -> None:
        """All rounds that are left, each on disk as it ends; then the model and the result."""
        with self.run_folder.locked():
            self._run()

    def _run(self) -> None:
        folder, study, terms = self.run_folder, self.study, self.study.terms
        require_unfinished(folder)
        self._state("starting")
        self.transport.expect(terms.ids, deadline=study.file.deadline)
        if not (folder.path / "run.json").exists():
            write_whole(folder.path / STUDY, study.text.encode())
            folder.begin(described(study, tested_on=None if self.test is None else len(self.test.labels)))
        try:
            parameters, lines, seconds = self._rounds()
        except RunError as error:
            self._state("failed", code=error.code, reason=str(error))
            raise
        folder.write_model(
            parameters, model_card(study.model, study.classes, study.features, study.columns, study.number)
        )
        folder.finish(self._signed(parameters, lines, seconds))
        self._state("finished")

    def _signed(self, parameters: NDArray[np.float32], lines: list[RoundLine], seconds: float) -> Outcome:
        """The result, signed by all sites that are there; who is away costs its own signature only."""
        mark_closing(self.run_folder.path, self._why_it_ended(len(lines)))
        self._state("asking the sites to sign")
        if not self._waited:
            self._gather(len(self.names), self.study.file.deadline)
        return close(
            self.run_folder.path,
            self.study.terms,
            self.transport,
            lambda lost: self._result(parameters, lines, seconds, lost),
            counted=charged_rounds(lines, len(self.names), self.wasted),
            most=self.study.plan.rounds * federation.MOST_ATTEMPTS,
            turn=self._last_turn,
            parameters=parameters,
        )

    def _rounds(self) -> tuple[NDArray[np.float32], list[RoundLine], float]:
        folder, study = self.run_folder, self.study
        last, kept = folder.checkpoint()
        parameters = study.model.start(0) if kept is None else kept
        state = folder.server_state(study.job.server_step.init(parameters))
        lines, begin = folder.forget_after(last), time.monotonic()
        before = sum(line.seconds for line in lines[-1:])
        for line in lines:
            self.counts[list(line.included)] += 1
        first_attempt = self._after_a_crash(last + 1)
        if self._used_up():
            lines.append(self._pass_over(last + 1, parameters, state, before))
            last, first_attempt = last + 1, 0
        steps = federation.rounds(
            study.plan,
            self,
            parameters,
            grid=study.terms.codec.grid,
            seed=self.seed,
            may_join=self.may_join,
            smallest_cohort=study.secure.smallest_sum,
            participation=self._participation,
            first=last + 1,
            first_attempt=first_attempt,
            counts=self.counts,
            server=study.job.server_step,
            state=state,
        )
        for step in steps:
            parameters = step.parameters
            line = RoundLine(
                round=step.round,
                seconds=round(before + time.monotonic() - begin, 3),
                cohort=step.cohort,
                included=step.included,
                test=self._metrics(parameters),
                note=step.note,
                wasted=tuple(sorted(self.wasted)),
                spoilt=self.spoilt,
                **self.findings.as_dict(),
            )
            self.wasted, self.findings = [], Findings(terms=study.terms)
            lines.append(line)
            folder.add_round(line, parameters, step.state)
        return parameters, lines, before + time.monotonic() - begin

    def _after_a_crash(self, round: int) -> int:
        """The first attempt of a round that was never tried; who was asked in the last one may have been charged."""
        path = self.run_folder.path / TURN
        if not path.exists():
            self._last_turn = Turn(0, 0)
            return 0
        tried = converted(read_json(path), Tried, path)
        self._last_turn = Turn(tried.round, tried.attempt)
        if tried.round != round:
            return 0
        self.wasted = [*tried.wasted, *tried.cohort]
        return tried.attempt + 1

    def _used_up(self) -> bool:
        """Whether the round under way has cost some device all the attempts that a device pays for."""
        return max(Counter(self.wasted).values(), default=0) >= MOST_CHARGED

    def _pass_over(self, round: int, parameters: NDArray[np.float32], state: State, seconds: float) -> RoundLine:
        """The line of a round that can't be tried any more: the model stays as it is, and the next round is due."""
        note = f"passed over: {MOST_CHARGED} attempts were charged, and no device pays for more."
        line = RoundLine(
            round=round,
            seconds=seconds,
            cohort=(),
            included=(),
            test=self._metrics(parameters),
            note=note,
            wasted=tuple(sorted(self.wasted)),
        )
        self.wasted = []
        self.run_folder.add_round(line, parameters, state)
        return line

    def _metrics(self, parameters: NDArray[np.float32]) -> dict[str, float]:
        """Accuracy, loss and AUC on the public test table, if the coordinator has one; sites tell none."""
        if self.test is None:
            return {}
        study, wanted = self.study, self.study.job.run.gradient_norm
        return metrics(study.model, parameters, self.test, study.number, gradient_norm=wanted)

    # What is written down

    def _named(self, codes: Mapping[int, str]) -> dict[str, str]:
        return {self.names[number]: code for number, code in sorted(codes.items()) if number < len(self.names)}

    def _state(self, state: str, turn: Turn | None = None, cohort: Sequence[int] = (), **more: str) -> None:
        told: dict[str, Any] = {"state": state, "at": now(), "gone": self._named(self.gone), **more}
        told |= {"not_proved": dict(claims)} if (claims := self.transport.unproved()) else {}
        if turn is not None:
            told |= {"round": turn.round, "attempt": turn.attempt, "cohort": [self.names[one] for one in cohort]}
        write_json(self.run_folder.path / STATE, told)

    def _result(
        self, parameters: NDArray[np.float32], lines: list[RoundLine], seconds: float, lost: list[int]
    ) -> Outcome:
        """The result, with what a server can truly claim: it counts what it was sent; the ledgers are the devices'.

        `lost` are the devices that paid for an upload which never arrived, each as often.
        """
        study, plan = self.study, self.study.plan
        wasted = sorted([*self.wasted, *lost])
        rounds = charged_rounds(lines, plan.devices, wasted)
        return Outcome(
            finished=now(),
            seconds=round(seconds, 3),
            rounds_done=len(lines),
            stopped=self._why_it_ended(len(lines)),
            wasted=tuple(wasted),
            test=(lines[-1].test if lines else {}) or self._metrics(parameters),
            baselines=Baselines(without_privacy=None, alone=None),
            privacy=privacy_statement(study.costs, rounds, stopped=len(lines) < plan.rounds and self.stopped),
            claim="ε at the most, for a device with the rows that the plan names, after every update that the server"
            " was sent or may have been sent; what a device has spent is in its own ledger, which never leaves it",
            refused=self._named(self.gone),
            sight=None,
            releases=releases(plan, len(lines), compare=False, sizes=False),
            files={},
        )

    def _why_it_ended(self, done: int) -> str:
        planned = self.study.plan.rounds
        if (known := closing_reason(self.run_folder.path)) is not None:
            return known
        if done == planned:
            return "all rounds are done"
        if self.stopped:
            return f"after round {done} of {planned}: the coordinator stopped it"
        told = ", ".join(f"{name} {code}" for name, code in self._named(self.gone).items())
        return f"after round {done} of {planned}: too few devices are willing to go on ({told})"


def run_folder(folder: Path, study: Agreement) -> RunFolder:
    """The run folder of a study: every enrolment has its own."""
    return RunFolder(private(folder / "runs" / study.file.run))


def require_unfinished(folder: RunFolder) -> None:
    """Nothing, or CH800 for a run that has its result."""
    if (folder.path / "result.json").exists():
        raise StorageError(
            "CH800", "is finished.", where=str(folder.path), fix="Enrol again for another run: choral server enrol."
        )


def status(folder: Path, study: Agreement | None = None) -> dict[str, Any]:
    """Where a study stands: its round, who took part, who refused by which code, and the time left."""
    study = study or Agreement.read(folder / STUDY)
    path, names = run_folder(folder, study).path, [bundle.id for bundle in study.roster]
    told: dict[str, Any] = {
        "study": study.file.name,
        "devices": names,
        "rounds_planned": study.plan.rounds,
        "folder": str(path),
        "stopping": (path / STOP).exists(),
    }
    if not (path / "run.json").exists():
        return {**told, "state": "not started", "rounds_done": 0, "took_part": {}, "seconds_left": None}
    record = read_run(path)
    done = len(record.rounds)
    spent = record.rounds[-1].seconds if done else 0.0
    counts = np.zeros(study.plan.devices, dtype=np.int64)
    for line in record.rounds:
        counts[list(line.included)] += 1
    state = read_json(path / STATE) if (path / STATE).exists() else {"state": "starting"}
    return {
        **told,
        **state,
        "rounds_done": done,
        "took_part": dict(zip(names, map(int, counts), strict=True)),
        "seconds_left": round(spent / done * (study.plan.rounds - done), 1) if done else None,
        "stopped": record.result.stopped if record.result else None,
        "test": record.rounds[-1].test if done else {},
    }


def stop(folder: Path) -> None:
    """Ask a run to end after the round under way; it then writes its model and its result."""
    run = run_folder(folder, Agreement.read(folder / STUDY))
    require_unfinished(run)
    if not (run.path / "run.json").exists():  # it would end before its first round, and a study is run once
        raise StorageError("CH802", "has not begun.", where=str(run.path), fix="choral server run STUDY begins it.")
    write_json(run.path / STOP, {"at": now()})
