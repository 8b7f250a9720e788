"""Rule S8 tried out: answers to a question with the noise of the honest devices, as the server opens them.

The worst pair of tables: one row in one cell or in another, which is all of l2. The sum and its noise are made by the
functions that devices use, so a sensitivity, a factor or a number of noises that is wrong shows.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.accounting.proofs import Loss
from choral.asking.question import Question
from choral.config import job_of
from choral.core import private_sums
from choral.core.events import Gaussian
from choral.core.masks import Stream
from choral.core.private_sums import LEAST_SCALE
from choral.core.samplers import discrete_gaussian
from choral.run.folder import Watch, unwatched
from choral.run.questions import AskTerms
from choral.tables.cells import Cell
from choral.tables.reading import Table
from choral_lab.audit.verdict import Finding, Trial

DELTA = 1e-2  # as in the other white-box cases
ANSWERS = 400_000
COMPANY = 10
COLUMNS = {"smoker": {"levels": ["no", "yes"]}, "age": {"bounds": [0, 100]}, "sick": {"levels": ["no", "yes"]}}
ADDITIVE = {"columns": ["smoker", "age"], "target": "sick", "bins": 2}
# A question, and how its two worst rows differ: in their cell, or in the target, so that gradients are opposite.
WORST = {
    "table": (Question(name="table", parameters={"columns": ["smoker"]}), "smoker"),
    "additive": (Question(name="additive_round", parameters=ADDITIVE), "sick"),
}
BLOCK = 2**15  # answers at a time


@dataclass(frozen=True, kw_only=True)
class AskCase:
    """A case before its first answer: `honest` noises of deviation `scale`, on integers that `factor` has multiplied.

    The claim is that of the study: its price, with its own number of noises and the catalogue's sensitivity.
    """

    trial: Trial
    clean: NDArray[np.int64]  # what the canary's device adds up in each world
    l2: float
    factor: int
    scale: float
    honest: int
    name: str = "ask"
    sees: str = "the opened sum of every answer"

    def scores(self, world: int, watch: Watch = unwatched) -> NDArray[np.float64]:
        """The log-likelihood ratios of the answers of one world, under the claim."""
        event = self.trial.loss.event
        assert isinstance(event, Gaussian)  # noqa: S101 - what rule S8 charges
        apart = (self.clean[1] - self.clean[0]).astype(np.float64)
        middle = self.factor * (self.clean[0] + self.clean[1]) / 2
        along = apart / np.linalg.norm(apart)
        starts, found = range(0, self.trial.trainings, BLOCK), []
        for start in watch(starts, total=len(starts), label=f"WORLD {world + 1} OF 2"):
            opened = self.factor * self.clean[world] + self._noise((BLOCK, len(apart)), world, start)
            found.append(event.mu**2 * ((opened - middle) @ along) / (self.factor * self.l2))
        return np.concatenate(found)[: self.trial.trainings]

    def _noise(self, shape: tuple[int, int], world: int, start: int) -> NDArray[np.float64]:
        rng = np.random.Generator(np.random.Philox(key=[self.trial.seed, (world << 60) + start]))
        if self.scale >= LEAST_SCALE:
            stream, count = Stream(rng.bytes(32)), math.prod(shape)
            drawn = sum(discrete_gaussian(int(self.scale), count, stream) for _ in range(self.honest))
            return np.asarray(drawn, np.float64).reshape(shape)
        # What no device draws: noise of too few steps, which only a planted bug has. Its law is computed, not sampled.
        reach = max(8, math.ceil(9 * self.scale))
        one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * self.scale**2))
        law = np.ones(1)
        for _ in range(self.honest):
            law = np.convolve(law, one / one.sum())
        return np.asarray(rng.choice(len(law), shape, p=law / law.sum()) - self.honest * reach, np.float64)

    def measure(self, watch: Watch = unwatched) -> Finding:
        """Answer in both worlds as often as the trial says, and judge."""
        return self.trial.judge(self.scores(0, watch), self.scores(1, watch))

    def as_dict(self) -> dict[str, object]:
        """What was set up, for machines."""
        return {"case": self.name, "sees": self.sees, "factor": self.factor, "scale": self.scale, "l2": self.l2}


def ask_case(
    *,
    epsilon: float = 1.0,
    delta: float = DELTA,
    trainings: int | None = None,
    confidence: float = 0.99,
    seed: int = 0,
    company: int = COMPANY,
    asks: str = "table",
    honest: int | None = None,
    l2: float | None = None,
    factor: int | None = None,
) -> AskCase:
    """The case of a study whose one question costs `epsilon` with the secure sum; nothing is asked yet.

    It `asks` for a table, or for a round of an additive model, which is 0 before its first step.
    Planted bugs: `l2` is a sensitivity that is not the question's, `factor` another factor than the one that rule S8
    needs, and `honest` another number of noises than the claim counts.

    >>> case = ask_case(epsilon=2.0)
    >>> case.trial.loss.rule, case.honest, 1.99 < case.trial.epsilon <= 2.0
    ('S8', 4, True)
    """
    job = job_of(epsilon=1e3, delta=delta, devices=company, columns=COLUMNS, ask={"epsilon_sum": epsilon, "most": 1})
    terms = AskTerms.of(job, run="an audit", devices=company)
    question, differs = WORST[asks]
    checked = terms.read(question.canonical())
    used = checked.summand.l2 if l2 is None else l2
    noise = terms.price.noise_for(used)
    loss = Loss(
        rule=private_sums.RULE,
        event=terms.price.summed or terms.price.everyone,
        adversary=f"a server that sees only sums, helped by {terms.secure.colluders} of the devices",
        certificate=f"each opened sum carries the noise of {terms.price.noises} honest devices",
    )
    many = ANSWERS if trainings is None else trainings
    others: dict[str, Collection[Cell]] = {"smoker": ["no"] * 3, "age": [100] * 3, "sick": ["no"] * 3}
    tables = [Table(source="canary", columns=others | {differs: [level, "no", "yes"]}) for level in ("no", "yes")]
    state = np.zeros(checked.state)
    return AskCase(
        trial=Trial(loss=loss, delta=delta, trainings=many, confidence=confidence, seed=seed),
        clean=np.array([checked.answer(table, state)[:-1] for table in tables]),
        l2=used,
        factor=noise.factor if factor is None else factor,
        scale=noise.scale if factor is None else noise.deviation * factor,
        honest=terms.price.noises if honest is None else honest,
    )
