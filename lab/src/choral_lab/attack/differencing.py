"""Two counts that differ by one person: right every time without noise, and bounded by Φ(μ/2) with it."""

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from choral.asking.question import Question
from choral.config import job_of
from choral.core.exposure import ADJACENCY, EVERYONE
from choral.core.masks import Stream
from choral.core.plan import require_whole
from choral.run.inquiry import answer_privacy
from choral.run.questions import AskTerms, CheckedQuestion
from choral.tables.reading import Table

DEVICES = 16
ROWS = 200  # of each device
TARGET_AGE = 99  # nobody else is as old, so a filter can leave this one person out
COLUMNS = {"age": {"bounds": [0, 120]}, "smoker": {"levels": ["no", "yes"]}}
SMOKERS = {"column": "smoker", "levels": ["yes"]}
QUESTIONS = (
    Question(name="count", parameters={"where": [SMOKERS]}),
    Question(name="count", parameters={"where": [SMOKERS, {"column": "age", "below": TARGET_AGE}]}),
)


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How often an attacker with this sight was right, and the most that anybody with it could be."""

    sees: str
    adversary: str
    right: float
    bound: float
    mu: float
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Differencing:
    """The attack, tried often: one coin per trial decides what the target's cell holds."""

    trials: int
    seed: int
    delta: float
    rule: str
    adjacency: str
    without_noise: float
    with_noise: tuple[Guesses, ...]

    @property
    def error(self) -> float:
        """The standard deviation of a share of so many fair trials."""
        return 0.5 / math.sqrt(self.trials)

    def as_dict(self) -> dict[str, object]:
        """The attack for machines."""
        return asdict(self) | {"error": self.error}


def people(smokes: bool, seed: int) -> list[Table]:
    """The devices' tables; the first person of the first device is the target, and all others stay as they are."""
    rng = np.random.default_rng([seed, 1])
    tables = []
    for device in range(DEVICES):
        ages, smokers = rng.integers(18, TARGET_AGE, ROWS).tolist(), rng.choice(["no", "yes"], ROWS).tolist()
        if device == 0:
            ages[0], smokers[0] = TARGET_AGE, "yes" if smokes else "no"
        tables.append(Table(source=f"device {device + 1}", columns={"age": ages, "smoker": smokers}))
    return tables


def differencing(*, epsilon: float = 1.0, trials: int = 4000, seed: int = 0, delta: float = 1e-5) -> Differencing:
    """The attack at a budget for both questions together; noise and sensitivity are those of the deployed device.

    >>> found = differencing(trials=400)
    >>> found.without_noise, all(one.right <= one.bound + 4 * found.error for one in found.with_noise)
    (1.0, True)
    """
    require_whole("trials", trials, least=10)
    job = job_of(
        epsilon=2 * epsilon, delta=delta, devices=DEVICES, columns=COLUMNS, ask={"epsilon": epsilon, "most": 2}
    )
    terms = AskTerms.of(job, run="a demonstration", devices=DEVICES)
    checked = [terms.read(question.canonical()) for question in QUESTIONS]
    clean = np.array([[_total(one, people(smokes, seed)) for one in checked] for smokes in (False, True)])
    coins = np.random.default_rng([seed, 2]).integers(0, 2, trials)
    price, privacy = terms.price, answer_privacy(terms.price, delta=delta, colluders=terms.secure.colluders, asked=0)
    sights = (
        ("the opened sums", privacy.adversary_sum, price.noises, price.reserved_of_sums.mu, privacy.epsilon_sum_in_all),
        ("one device's answers, without masks", EVERYONE, 1, price.reserved.mu, privacy.epsilon_in_all),
    )
    return Differencing(
        trials=trials,
        seed=seed,
        delta=delta,
        rule=privacy.rule,
        adjacency=ADJACENCY,
        without_noise=float(np.mean(_guessed(clean[coins], 1.0) == coins)),
        with_noise=tuple(
            Guesses(
                sees=sees,
                adversary=adversary,
                right=float(np.mean(_guessed(_noisy(checked, clean[coins], noises, seed), 1.0) == coins)),
                bound=NormalDist().cdf(mu / 2),
                mu=mu,
                epsilon=whole,
            )
            for sees, adversary, noises, mu, whole in sights
        ),
    )


def _total(checked: CheckedQuestion, tables: list[Table]) -> int:
    return int(sum(checked.answer(table)[0] for table in tables))


def _noisy(checked: list[CheckedQuestion], clean: NDArray[np.int64], noises: int, seed: int) -> NDArray[np.float64]:
    """The answers of every trial with so many devices' noise: the noise of the others is known to the attacker."""
    stream = Stream(np.random.default_rng([seed, 3, noises]).bytes(32))
    noise = np.zeros(clean.shape)
    for place, one in enumerate(checked):
        for _ in range(noises):
            noise[:, place] += one.codec.whole_noise(len(clean), stream) / one.noise.factor
    return clean + noise


def _guessed(answers: NDArray[np.floating] | NDArray[np.int64], apart: float) -> NDArray[np.int64]:
    """1 where the difference of the two answers is nearer to what a smoker makes it."""
    return (answers[:, 0] - answers[:, 1] > apart / 2).astype(np.int64)
