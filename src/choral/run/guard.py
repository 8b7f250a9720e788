"""The server's eye on devices: probes for each round, what their answers say, and a line of it for the record."""

import base64
import hashlib
import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from choral.core.codec import Codec, Integers
from choral.core.messages import Turn
from choral.core.plan import Plan, SecureSum
from choral.probes.projections import MOST_WATCHED, Answers, answers_of, probe_rows, watched_of
from choral.probes.round import AskedProbes, ProbeInquiry
from choral.probes.rules import (
    LEAST_COHORT,
    MOST_REMEMBERED,
    MOST_WATCHED_PARAMETERS,
    Direction,
    Evidence,
    Judgement,
    Seen,
    judge,
    seen_in,
    widest,
)
from choral.record import ProbeLine, read_probes
from choral.run.study import Study
from choral.server.round import Sum


def _joined(watching: Iterable[tuple[str, NDArray[np.int8]]]) -> bytes:
    return b"".join(vector.tobytes() for _, vector in watching)


def seed_from(seed: int, turn: Turn) -> bytes:
    """It is what the probes of a turn are drawn from in a run that can be repeated.

    >>> seed_from(7, Turn(1, 0)) == seed_from(7, Turn(1, 1))
    False
    """
    return hashlib.sha256(f"choral/1|{seed}|probes|{turn.round}|{turn.attempt}".encode()).digest()


def noise_in_grid(plan: Plan, codec: Codec) -> float:
    """The proved deviation of one number of an update, in grid steps: that of all its local steps together."""
    return codec.noise_in_grid * math.sqrt(plan.mechanism.noises(plan))


@dataclass
class Guard:
    """A server asks and remembers by it; the same lines make the same guard, wherever a run goes on or is checked."""

    plan: Plan
    secure: SecureSum
    parameters: int
    noise: float  # the proved deviation of one number of an update, in grid steps
    names: tuple[str, ...]
    longest: float = math.inf  # how many times as long as its noise an update could be by the codec's range alone
    evidence: Evidence = field(default_factory=Evidence)
    direction: Direction | None = None
    audited: int = 0  # the round that is opened although its sum is right; nobody can predict it
    _judged: Judgement = field(default_factory=lambda: Judgement(refused={}))

    @classmethod
    def of(cls, plan: Plan, secure: SecureSum, codec: Codec, parameters: int, names: Iterable[str]) -> Self:
        """The guard of a plan with probes, before its first round."""
        noise = noise_in_grid(plan, codec)
        longest = codec.largest / noise
        return cls(plan=plan, secure=secure, parameters=parameters, noise=noise, names=tuple(names), longest=longest)

    @property
    def widest(self) -> float:
        """q: how many times its mean an honest squared length may seem to be."""
        return widest(self.plan.probes)

    @classmethod
    def of_study(cls, study: Study, folder: Path | None) -> Self | None:
        """The guard of a study whose devices are probed, which remembers the rounds that the folder has."""
        if not study.plan.probes:
            return None
        names = study.data.records.names
        guard = cls.of(study.plan, study.secure, study.codec, study.trained.size, names)
        guard.take_up(() if folder is None else read_probes(folder))
        guard.audited = 1 + secrets.randbelow(study.plan.rounds)
        return guard

    def _watching(self, most: int) -> list[tuple[str, NDArray[np.int8]]]:
        """It is what is watched in the next round: the common direction, once there is one, and suspects' own pasts."""
        if self.direction is None or self.direction.norm == 0 or self.parameters > MOST_WATCHED_PARAMETERS or not most:
            return []
        return [("", self.direction.bytes_), *self.evidence.to_watch(most - 1)]

    @property
    def watched(self) -> bytes:
        """The same as the bytes that devices are shown."""
        return _joined(self._watching(MOST_WATCHED))

    def watched_in(self, line: ProbeLine) -> bytes:
        """The round of a line watched this, as far as it has answers: versions up to 0.2 watched no past."""
        return _joined(self._watching(self._count_in(line.answers)))

    def _count_in(self, answers: Mapping[str, Sequence[int]]) -> int:
        """It says how many vectors these answers are about, next to the probes."""
        return len(next(iter(answers.values()), ())) - self.plan.probes if answers else 0

    def probing(self, turn: Turn) -> ProbeInquiry:
        """The server's questions of a turn."""
        return ProbeInquiry(watched=self.watched, judge=self.judge, audit=turn.round == self.audited)

    def judge(self, answers: Mapping[int, Answers], most: int) -> frozenset[int]:
        """Whom a turn leaves out by its answers, at most so many."""
        by_name = {self.names[number]: said.tolist() for number, said in answers.items()}
        self._judged = judge(self.seen(by_name), most=most) if by_name else Judgement(refused={})
        return frozenset(number for number in answers if self.names[number] in self._judged.refused)

    def seen(self, answers: Mapping[str, Sequence[int]]) -> Seen:
        """The answers, as the rules look at them."""
        watched = [
            (name, float(np.linalg.norm(vector.astype(np.float64))))
            for name, vector in self._watching(max(0, self._count_in(answers)))
        ]
        return seen_in(answers, probes=self.plan.probes, watched=watched, noise=self.noise, parameters=self.parameters)

    def drawn(self, seed: bytes) -> NDArray[np.float64] | None:
        """P of a turn, or None where the pasts of all devices would take too much room."""
        if self.parameters * len(self.names) > MOST_REMEMBERED:
            return None
        return np.array(list(probe_rows(seed, self.plan.probes, self.parameters)), np.float64)

    def note(
        self,
        turn: Turn,
        seed: bytes,
        answers: Mapping[int, Answers],
        total: NDArray[np.signedinteger[Any]],
        count: int,
        asked: AskedProbes | None = None,
    ) -> ProbeLine:
        """The line of a turn that ended in this sum of so many; `asked` where its probes follow from the uploads."""
        before = self.direction or Direction(bytes_=np.zeros(self.parameters, np.int8), scale=0.0)
        after = before.moved(total, count)
        kept = self.parameters <= MOST_WATCHED_PARAMETERS
        line = ProbeLine(
            round=turn.round,
            attempt=turn.attempt,
            seed=seed.hex(),
            context=None if asked is None else asked.context.hex(),
            digests={} if asked is None else {self.names[n]: digest.hex() for n, digest in asked.digests.items()},
            answers={self.names[n]: tuple(said.tolist()) for n, said in sorted(answers.items())},
            refused=dict(self._judged.refused),
            spared=self._judged.spared,
            following=base64.b64encode(after.bytes_.tobytes()).decode() if kept else "",
            scale=after.scale if kept else 0.0,
        )
        self.take_up([line])
        return msgspec.structs.replace(line, named=self.named)

    def noted(self, probing: ProbeInquiry, opened: Sum, *, drawn: bool = True) -> ProbeLine:
        """The same of a turn that ran; `drawn` if its probes follow from the uploads."""
        asked = probing.asked
        assert asked is not None  # noqa: S101 - every turn of terms with probes has some
        known = asked if drawn else None
        return self.note(opened.turn, asked.seed, asked.answers, opened.integers, opened.count, known)

    def simulated(
        self, turn: Turn, seed: bytes, integers: Mapping[int, Integers]
    ) -> tuple[ProbeLine, tuple[int, ...], NDArray[np.int64]]:
        """The line of a turn without messages, who is in its sum, and the sum."""
        watched = watched_of(self.watched, self.parameters)
        answers = {device: answers_of(seed, self.plan.probes, own, watched) for device, own in integers.items()}
        out = self.judge(answers, max(0, len(answers) - self.secure.smallest_sum))
        included = tuple(device for device in integers if device not in out)
        total = np.array([integers[device] for device in included], np.int64).sum(axis=0)
        return self.note(turn, seed, answers, total, len(included)), included, total

    def take_up(self, lines: Iterable[ProbeLine]) -> None:
        """Count these lines, in their order: evidence, and the direction that the last of them leaves behind."""
        for line in lines:
            self.evidence.take(
                self.seen(line.answers), round_number=line.round, drawn=self.drawn(bytes.fromhex(line.seed))
            )
            if line.following:
                bytes_ = watched_of(base64.b64decode(line.following), self.parameters)[0]
                self.direction = Direction(bytes_=bytes_, scale=line.scale)

    @property
    def named(self) -> dict[str, int]:
        """Everybody who was named so far, with the round."""
        return self.evidence.named

    @property
    def excluded(self) -> frozenset[int]:
        """The named that later rounds leave out: nobody in small cohorts, and never more than can be spared."""
        named = self.named
        found = [number for number, name in enumerate(self.names) if name in named]
        enough = self.plan.cohort >= LEAST_COHORT and len(self.names) - len(found) >= self.secure.smallest_sum
        return frozenset(found if enough else ())

    def judged_again(self, line: ProbeLine) -> ProbeLine:
        """The line with what follows from its answers; then it is counted."""
        most = max(0, len(line.answers) - self.secure.smallest_sum)
        found = judge(self.seen(line.answers), most=most)
        self.take_up([line])
        return msgspec.structs.replace(line, refused=dict(found.refused), spared=found.spared, named=self.named)
