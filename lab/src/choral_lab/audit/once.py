"""Rule S7 tried out: many rounds of uploads with noise once, by the functions that devices use, seen as opened sums.

The worst pair of tables that the rule knows: one row with two labels, both so far off that its gradient is clipped in
every step. It moves the upload by all of Δ, so nothing but the noise is between the adversary and the record; where
rows are drawn, its coin is, too.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from choral.accounting.calibrate import loss_under, smallest_noise
from choral.accounting.proofs import Loss
from choral.core.codec import Codec, quantise
from choral.core.exposure import exposure_of
from choral.core.mechanisms import movement
from choral.core.plan import Budget, Plan, Sampling, SecureSum, UnitName, unit_of
from choral.learning.models import Model, linear
from choral.learning.once import LocalWork, local_work, places_of, with_noise
from choral.learning.persons import grouped, model_of_units
from choral.run.folder import Watch, unwatched
from choral_lab.audit.verdict import Finding, Trial

DELTA = 1e-2  # as in the other white-box cases
TRAININGS = 400_000
COMPANY = 10
FAR_OFF = 1000.0  # a label that no model of a few rounds comes near
STEEP = 1000.0  # the canary's feature: the weight and not the intercept takes its gradient
VISITS = 5  # rows of a person, where persons are replaced
BLOCK = 2**15  # trainings at a time

Table = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class OnceCase:
    """A case before its first training; `honest` noises are really there, `claimed` are those that the claim counts."""

    trial: Trial
    plan: Plan
    codec: Codec
    honest: int
    claimed: int
    worlds: tuple[Table, Table]
    name: str = "s7"
    sees: str = "every opened sum of uploads with noise once"
    start: tuple[float, float] = (0.0, 0.0)  # the model that the server sends, in every round
    noise_share: float = 1.0  # of the plan's noise that is really added; less than 1 is a planted bug

    @property
    def model(self) -> Model:
        """One weight and an intercept, least squares; of a person's rows where a person is the unit."""
        return model_of_units(linear(1), self.plan)

    @property
    def places(self) -> int:
        """The rows for which a round has room."""
        return places_of(self.plan, len(self.worlds[0][1]))

    def clean(self, world: int, *, drawn: bool = True) -> NDArray[np.float64]:
        """What the canary's device computes in a world, from a model that the server made up, with the canary or not.

        All other rows are alike and move nothing, so it does not matter which of them are drawn.
        """
        start, (features, labels) = np.array(self.start, np.float32), self.worlds[world]
        used = slice(None if drawn else 1, self.places)
        return local_work(self.model, LocalWork.of(self.plan), start, features[used], labels[used], self.places)

    def scores(self, world: int, watch: Watch = unwatched) -> NDArray[np.float64]:
        """The log-likelihood ratios of the trainings of one world: the server sends the same model in every round."""
        uploads = [self.clean(one) for one in (0, 1)]
        apart, middle = uploads[1] - uploads[0], (uploads[0] + uploads[1]) / 2
        along = apart / np.linalg.norm(apart)
        rate, without = self._rate, None if self.plan.partitioned else self.clean(world, drawn=False)
        deviation = self.plan.noise * math.sqrt(self.claimed) / (movement(self.plan) / 2)
        starts = range(0, self.trial.trainings, BLOCK)
        found = []
        for start in watch(starts, total=len(starts), label=f"WORLD {world + 1} OF 2"):
            rng = np.random.Generator(np.random.Philox(key=[self.trial.seed, (world << 60) + start]))
            total = np.zeros(BLOCK)
            for _ in range(self.plan.rounds):
                clean = uploads[world]
                if without is not None:
                    clean = np.where(rng.random((BLOCK, 1)) < rate, clean, without)
                pull = (self._opened(clean, rng) - middle) @ along / (movement(self.plan) / 2)
                total += _ratio(pull / deviation, deviation, rate)
            found.append(total)
        return np.concatenate(found)[: self.trial.trainings]

    @property
    def _rate(self) -> float:
        """The chance that a round uses the canary."""
        return 1.0 if self.plan.partitioned else self.plan.batch / len(self.worlds[0][1])

    def _opened(self, clean: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
        """The sums of one round, less what the server knows: the uploads of the company without their noise."""
        plan, places = replace(self.plan, noise=self.noise_share * self.plan.noise), self.places
        shape = (BLOCK, clean.shape[-1])
        total = np.zeros(shape)
        for device in range(self.honest):
            upload = with_noise(self.model, plan, places, clean if device == 0 else 0 * clean, rng.normal(size=shape))
            total += quantise(upload, rng.random(shape, np.float32), self.codec.grid)
        return self.codec.grid * total

    def measure(self, watch: Watch = unwatched) -> Finding:
        """Train both worlds as often as the trial says, and judge."""
        return self.trial.judge(self.scores(0, watch), self.scores(1, watch))

    def as_dict(self) -> dict[str, object]:
        """What was set up, for machines."""
        return {"case": self.name, "sees": self.sees, "plan": self.plan.to_dict()}


def _ratio(seen: NDArray[np.float64], deviation: float, rate: float) -> NDArray[np.float64]:
    """ln of one law over the other: a pull of ±1 with chance `rate` under noise, in units of that noise."""
    up, down = ((sign * 2 * seen - 1 / deviation) / (2 * deviation) for sign in (1, -1))
    drawn, left_out = np.log(rate), np.log1p(-rate) if rate < 1 else -np.inf
    ratio: NDArray[np.float64] = np.logaddexp(left_out, drawn + up) - np.logaddexp(left_out, drawn + down)
    return ratio


def persons(count: int = 4, rows: int = VISITS) -> tuple[Table, Table]:
    """Two tables of persons: all rows of the first pull one way or the other, all others are zeros."""
    whose = np.repeat(np.arange(count), rows)

    def units(side: int) -> Table:
        features, labels = np.zeros((len(whose), 1), np.float32), np.zeros(len(whose), np.float32)
        features[whose == 0], labels[whose == 0] = STEEP, side * FAR_OFF
        return grouped(features, labels, whose, rows), np.zeros(count, np.float32)

    return units(-1), units(1)


def canaries(rows: int = 4) -> tuple[Table, Table]:
    """Two tables of one feature: the first record pulls one way or the other, all others are zeros."""
    features = np.zeros((rows, 1), np.float32)
    features[0] = STEEP
    down, up = (np.zeros(rows, np.float32) for _ in range(2))
    down[0], up[0] = -FAR_OFF, FAR_OFF
    return (features, down), (features, up)


def once_case(
    *,
    epsilon: float = 1.0,
    trainings: int | None = None,
    confidence: float = 0.99,
    seed: int = 0,
    honest: int | None = None,
    local_steps: int = 10,
    step_size: float = 0.05,
    row_length: float = 2.0,
    worlds: tuple[Table, Table] | None = None,
    unit: UnitName = "record",
    sampling: Sampling = "partition",
    alone: bool = False,
) -> OnceCase:
    """The case with the least noise for which rule S7 proves `epsilon`, by default with the secure sum.

    `honest` is how many noises are really there, where that is not what the rule counts. With the `unit` "person" it is
    a person with five rows that is replaced. With `sampling` "poisson" a round draws every row with chance ½. A
    device `alone` has the claim against everyone: its own noise counts. Nothing is trained yet.

    >>> case = once_case(epsilon=2.0)
    >>> case.trial.loss.rule, case.honest, 1.99 < case.trial.epsilon <= 2.0
    ('S7', 4, True)
    """
    in_groups = unit_of(unit).groups_rows
    worlds = worlds or (persons() if in_groups else canaries())
    rows = len(worlds[0][1])
    drawn = Plan(
        devices=COMPANY, cohort=COMPANY, rounds=3, rows=rows, batch=rows, local_steps=local_steps,
        step_size=step_size, clip=1.0, noise=1.0, sampling=sampling, noise_is_added="once", row_length=row_length,
        unit=unit, rows_per_person=VISITS if in_groups else 0,
    )  # fmt: skip
    plan = drawn if drawn.partitioned else replace(drawn, batch=rows // 2)
    secure, rule = SecureSum.for_cohort(COMPANY), "proved" if alone else "with_secure_sum"
    part = exposure_of(plan, secure, rows=rows, rounds=plan.rounds)
    part = replace(part, noise=smallest_noise(part, Budget(epsilon=epsilon, delta=DELTA), rule))
    loss = loss_under(rule, part)
    assert isinstance(loss, Loss)  # noqa: S101 - the rule is proved
    plan = replace(plan, noise=part.noise)
    many = TRAININGS if trainings is None else trainings
    claimed = 1 if alone else part.honest_noises
    return OnceCase(
        trial=Trial(loss=loss, delta=DELTA, trainings=many, confidence=confidence, seed=seed),
        plan=plan,
        codec=Codec.for_plan(plan, secure, linear(1).size),
        honest=claimed if honest is None else honest,
        claimed=claimed,
        worlds=worlds,
        name="person" if in_groups else "s7" if plan.partitioned else "s7-sampled",
    )
