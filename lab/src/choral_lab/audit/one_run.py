"""One run with many canaries (Steinke, Nasr, Jagielski 2023): rows of one device whose labels are decided by coins.

The adversary knows every row and the plan, except for the coins. What it sees of a round, less what a run without noise
would give, is explained by least squares as a sum of what each coin would change.
"""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.accounting.proofs import rounds_each
from choral.core.plan import Plan
from choral.engine.compiled import CompiledEngine
from choral.learning.clipped import clip_factor, norm
from choral.learning.models import Model
from choral.run.folder import Watch, unwatched
from choral.run.study import Study
from choral.tables.records import Labels
from choral_lab.audit.bounds import one_run_epsilon
from choral_lab.audit.canary import SIGHTS, Sight, View, claims, require_gaussian

CANARIES = 100  # more would hide each other in a model of a few hundred parameters


class Decoder:
    """The coins that explain best what was seen, round after round: ridge regression with the noise that is there."""

    def __init__(self, coins: int, ridge: float) -> None:
        self.inner, self.seen = ridge * np.eye(coins), np.zeros(coins)

    def add(self, changes: NDArray[np.float64], seen: NDArray[np.float64]) -> None:
        """One round: what each coin would change, and what was seen beyond the expected."""
        self.inner += changes @ changes.T
        self.seen += changes @ seen

    @property
    def scores(self) -> NDArray[np.float64]:
        """How far each coin leans to its second side."""
        return np.asarray(np.linalg.solve(self.inner, self.seen))


def _gradients(model: Model, clip: float, parameters: Array, rows: Array, labels: Array) -> Array:
    """The clipped gradient of each row, flat."""
    one = partial(jax.grad(model.loss), model.unravel(parameters))
    flat = jax.vmap(lambda x, y: model.ravel(one(x, y)))(rows, labels)
    return flat * clip_factor(norm(flat), clip)[:, None]


def data_driven(
    study: Study,
    *,
    delta: float,
    canaries: int = CANARIES,
    confidence: float = 0.99,
    seed: int = 0,
    watch: Watch = unwatched,
) -> list[View]:
    """Lower bounds from a single run of the study, with coins for the labels of rows of its first device.

    Half of the coins are guessed, those with the clearest scores; that number is fixed beforehand.
    """
    plan, train, model = study.plan, study.split.train, study.model
    require_gaussian(plan)
    count = min(canaries, int(train.sizes[0]))
    coins = np.random.default_rng([seed, 0xC014]).random(count) < 0.5
    plain = train.labels[:count]  # the first device's rows come first
    # The next class, or the farther end of the label's range.
    turned = (plain + 1) % model.classes if model.classes else np.where(plain > 0, -1, 1)
    turned = turned.astype(plain.dtype)
    calm = replace(plan, batch=plan.rows, sampling="partition", noise=0.0, probes=0, opened_turns=0)

    def engine(its_plan: Plan, labels: Labels) -> CompiledEngine:
        records = replace(train, labels=np.concatenate([labels, train.labels[count:]]))
        return CompiledEngine(model=model, records=records, plan=its_plan, codec=study.codec, seed=study.seed + seed)

    real, expected = engine(plan, np.where(coins, turned, plain)), [engine(calm, side) for side in (plain, turned)]
    rows, gradients = jnp.asarray(train.features[:count]), jax.jit(partial(_gradients, model, plan.clip))
    sides = jnp.asarray(plain), jnp.asarray(turned)
    parameters, rounds = model.start(study.seed), rounds_each(plan)
    reference = parameters  # the model of a run without noise, each coin at a half
    reach = plan.step_size * plan.local_steps / plan.rows  # by which a clipped gradient moves an update, to first order
    noise = plan.local_steps * (plan.step_size * plan.noise) ** 2
    decoders = {sight: Decoder(count, noise / reach**2) for sight in SIGHTS[:2]}
    rng = np.random.default_rng([seed, 0xC0407])
    for number in watch(range(1, plan.rounds + 1), total=plan.rounds, label="ONE RUN"):
        takes_part = number > plan.rounds - rounds  # last, so that the final model shows most
        others = rng.choice(np.arange(1, plan.devices), plan.cohort - takes_part, replace=False)
        cohort = np.sort(np.concatenate([[0] * takes_part, others]).astype(np.int64))
        updates = real.updates(parameters, number, cohort).astype(np.float64)
        if takes_part:
            known = np.mean([side.updates(parameters, number, cohort) for side in expected], axis=0)
            change = np.asarray(
                gradients(parameters, rows, sides[0]) - gradients(parameters, rows, sides[1]), np.float64
            )
            decoders["colluding server"].add(change, (updates - known)[0] / reach)
            decoders["server"].add(change, (updates - known).sum(axis=0) / reach)
        parameters = parameters + updates.mean(axis=0).astype(np.float32)
        reference = reference + np.mean([side.updates(reference, number, cohort) for side in expected], axis=(0, 1))
    scores = {sight: decoder.scores for sight, decoder in decoders.items()}
    scores["final model"] = _margins(model, parameters, rows, *sides)
    scores["final model"] -= _margins(model, reference, rows, *sides)
    return _judge(study, scores, coins, delta=delta, confidence=confidence)


def _margins(
    model: Model, parameters: NDArray[np.float32], rows: Array, plain: Array, turned: Array
) -> NDArray[np.float64]:
    """By how much more a model loses on each row with its plain label than with the turned one."""
    tree, lost = model.unravel(jnp.asarray(parameters)), jax.vmap(model.loss, in_axes=(None, 0, 0))
    return np.asarray(lost(tree, rows, plain) - lost(tree, rows, turned), np.float64)


def _judge(
    study: Study, scores: dict[Sight, NDArray[np.float64]], coins: NDArray[np.bool_], *, delta: float, confidence: float
) -> list[View]:
    claimed = claims(study.costs.of(0).exposure(rounds_each(study.plan)), delta)
    guesses = math.ceil(len(coins) / 2)
    views = []
    for sight in SIGHTS:
        centred = scores[sight] - np.median(scores[sight])
        clearest = np.argsort(-np.abs(centred))[:guesses]
        correct = int(np.count_nonzero((centred[clearest] > 0) == coins[clearest]))
        bound = one_run_epsilon(
            canaries=len(coins), guesses=guesses, correct=correct, delta=delta, confidence=confidence
        )
        evidence = {"canaries": len(coins), "guesses": guesses, "correct": correct}
        views.append(
            View(
                sight=sight,
                canary="data-driven",
                claimed_epsilon=claimed[sight].epsilon,
                rule=claimed[sight].rule,
                lower_bound=bound,
                confidence=confidence,
                evidence=evidence,
            )
        )
    return views
