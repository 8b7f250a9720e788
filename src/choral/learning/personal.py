"""A site's personal model: near the shared one, and as far from it as the site's own rows insist.

Three quarters of it are v = argmin Σ_{own rows} ℓ(v) + ‖v − c‖²/(2κ), with κ on the scale of the sum, and one quarter
is the site alone. The centre c is the shared model θ with its outputs rescaled and shifted to suit the site's rows: θ
points the right way, but cut slopes and noise change its length, and sites differ in how common a class is. What v owes
to the noise in θ and what a site alone owes to its few rows are different errors, so a mean of both has less of each.
The model is a function of θ and of the site's own rows, computed without noise: it stays at the site, costs no ε and is
private towards nobody who reads it. No proof depends on the solver, so it is damped Newton in float64. Of a network the
last layer is solved for, on the shared layers below it. Of a user's model the parameters that are marked private are
solved for, near their first values and without a part alone: a mean of two networks is no network between them.

Private parameters never leave a site: a head at home on a shared body, for a user's model. During a run they keep the
values that `init` gives them, which are public and the same everywhere: the body is trained as if they were constants,
so nothing of them is clipped, noised or sent, and no proof changes. Trained on a site's rows between the steps they
would make every other row's gradient depend on each row, which no clip bounds: a row could then move an update by more
than the clip. After the run each site fits them to its own rows, without noise, and keeps them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Self, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.optimize import minimize

from choral.core.errors import PlanError, TrainingError
from choral.core.plan import require_number
from choral.learning.evaluate import decide
from choral.learning.models import Link, Model
from choral.tables.records import Labels

Rows: TypeAlias = tuple[NDArray[np.float32], Labels]  # features and labels
_MOST_STEPS_OF_A_HEAD = 500


def with_head(model: Model, shared: NDArray[np.float32], head: NDArray[np.float64]) -> NDArray[np.float32]:
    """The flat vector of the whole model: the shared body and these private parameters."""
    assert model.whole is not None  # noqa: S101 - asked of models with private parameters only
    tree = {**model.unravel(jnp.asarray(shared)), **_head_of(model, jnp.asarray(head, jnp.float32))}
    return np.asarray(model.whole.ravel(tree))


def fitted_head(
    model: Model, shared: NDArray[np.float32], rows: Rows, kappa: float, kappa_alone: float
) -> NDArray[np.float32]:
    """The whole model with the private parameters that fit these rows, pulled to where they were during the run.

    For κ = ∞ they are pulled to 0 with `kappa_alone` in place of that.
    """
    start = np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(model.private)])
    if kappa == 0 or (np.isfinite(kappa) and model.classes and len(np.unique(rows[1])) < 2):
        return with_head(model, shared, start)
    centre = start if np.isfinite(kappa) else np.zeros_like(start)
    pull = 1 / (kappa if np.isfinite(kappa) else kappa_alone)
    whole, body = model.whole, model.unravel(jnp.asarray(shared))
    assert whole is not None  # noqa: S101 - a model with private parameters

    @jax.jit
    def value(head: Array, features: Array, labels: Array) -> Array:
        tree = {**body, **_head_of(model, head)}
        losses = jax.vmap(whole.loss, in_axes=(None, 0, 0))(tree, features, labels)
        return losses.sum() + 0.5 * pull * jnp.square(head - jnp.asarray(centre, jnp.float32)).sum()

    both = jax.jit(jax.value_and_grad(value))
    features, labels = jnp.asarray(rows[0].reshape(-1, *model.row)), jnp.asarray(rows[1])

    def lost_and_slope(head: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        lost, slope = both(jnp.asarray(head, jnp.float32), features, labels)
        return float(lost), np.asarray(slope, np.float64)

    found = minimize(lost_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS_OF_A_HEAD})
    return with_head(model, shared, found.x)


def judged_whole(
    model: Model, parameters: NDArray[np.float32], rows: Rows
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What a model says of these rows and what each loses; a shared vector has the private parameters of the run."""
    assert model.whole is not None  # noqa: S101 - asked of models with private parameters only
    judge = model if len(parameters) == model.size else model.whole
    tree, features = judge.unravel(jnp.asarray(parameters)), jnp.asarray(rows[0].reshape(-1, *model.row))
    losses = jax.vmap(judge.loss, in_axes=(None, 0, 0))(tree, features, jnp.asarray(rows[1]))
    return np.asarray(judge.predict(tree, features), np.float64), np.asarray(losses, np.float64)


def _head_of(model: Model, flat: Array) -> dict[str, object]:
    """The private parameters as they stand in the tree."""
    leaves, form = jax.tree.flatten(model.private)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])
    parts = [flat[end - np.size(leaf) : end].reshape(np.shape(leaf)) for leaf, end in zip(leaves, ends, strict=True)]
    return dict(jax.tree.unflatten(form, parts))


KAPPA = 0.1  # proposed to all sites, since few rows choose badly; docs/benchmarks.md has what it reaches
SHARED, ALONE = 0.0, math.inf  # the two ends of κ: θ itself, and a model that does not know θ
FACTORS = {0.1: "almost shared", 1 / 3: "mostly shared", 3.0: "mostly ours", 10.0: "almost ours alone"}
FEWEST = 30  # validation rows of a site that may depart from the proposed κ
MOST_SOLVED = 8192  # parameters of the last layer: Newton's matrix then takes half a gibibyte
_SCALE_VARIANCE, _SHIFT_VARIANCE = 0.1, 1.0  # how far few rows may rescale and shift what the shared model says
_KAPPA_ALONE = 1.0  # how far a model that does not know θ may be from 0: scikit-learn's C = 1
_SHARE_ALONE = 0.25  # of a personal model that is the site alone; decision 53 has the tables it was chosen on
_MOST_STEPS, _CLOSE = 100, 1e-12

Matrix: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How good a model is on some rows: mean loss, and the share of right answers or the root mean squared error."""

    loss: float
    accuracy: float | None = None
    rmse: float | None = None

    @classmethod
    def of(cls, model: Model, parameters: NDArray[np.float32], rows: Rows, *, unit: float = 1.0) -> Self:
        """The standing of a model on these rows; `unit` is what 1 on the label's scale is in its own unit."""
        (outputs, losses), labels = _judged(model, parameters, rows), rows[1]
        loss = float(losses.mean())
        if model.classes:
            return cls(loss=loss, accuracy=float((decide(outputs.astype(np.float32)) == labels).mean()))
        return cls(loss=loss, rmse=unit * float(np.sqrt(np.square(outputs[:, 0] - labels).mean())))

    def to_dict(self) -> dict[str, float]:
        """The figures that the kind of label has."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True, eq=False)
class Personal:
    """A site's own model, the κ that it has, and why."""

    parameters: NDArray[np.float32]
    kappa: float
    because: str

    def __repr__(self) -> str:
        """The κ only: the parameters say something about single rows."""
        return f"Personal(kappa={self.kappa:g})"


def personal(
    model: Model, shared: NDArray[np.float32], train: Rows, validation: Rows | None = None, *, kappa: float = KAPPA
) -> Personal:
    """The site's own model: κ as proposed unless its validation rows insist on another, then fitted on all its rows.

    Validation rows must not be rows that the shared model was trained on, else a site alone looks best.

    >>> from choral.learning.models import linear
    >>> rows = np.float32([[1.0], [-1.0]]), np.float32([1.0, -1.0])
    >>> own = personal(linear(1), np.float32([0.0, 0.0]), rows, kappa=0.5)
    >>> own.parameters.tolist(), own.because
    ([0.5416666865348816, 0.0], '0 validation rows, 30 are needed to choose another')
    """
    require_number("kappa", kappa, below=1e6)
    kept, because = chosen(model, shared, train, validation, kappa=kappa)
    rows = train if validation is None else joined(train, validation)
    return Personal(parameters=fitted(model, shared, rows, kept), kappa=kept, because=because)


def joined(some: Rows, more: Rows) -> Rows:
    """The rows of both."""
    return np.concatenate([some[0], more[0]]), np.concatenate([some[1], more[1]])


def side_by_side(
    model: Model, shared: NDArray[np.float32], rows: Rows, judges: Rows, kappa: float, *, unit: float = 1.0
) -> dict[str, Standing]:
    """How the shared model, a model of these rows alone and a personal one with this κ stand on the judging rows."""
    kinds = {"shared": SHARED, "alone": ALONE, "personal": kappa}
    return {
        name: Standing.of(model, fitted(model, shared, rows, one), judges, unit=unit) for name, one in kinds.items()
    }


def chosen(
    model: Model, shared: NDArray[np.float32], train: Rows, validation: Rows | None, *, kappa: float
) -> tuple[float, str]:
    """The κ of a site and why: the proposed one, unless another gains more than one standard error.

    The gain of a candidate is the mean over validation rows of what each row loses less by it.
    """
    if _one_class(model, train[1]):
        return kappa, "the site's rows hold one class only, so nothing can be chosen"
    count = 0 if validation is None else len(validation[1])
    if validation is None or count < FEWEST:
        return kappa, f"{count} validation rows, {FEWEST} are needed to choose another"

    lost = {
        candidate: _judged(model, fitted(model, shared, train, candidate), validation)[1]
        for candidate in (kappa, SHARED, *(factor * kappa for factor in FACTORS), ALONE)
    }
    best = least_lossy(lost, kappa)
    if best == kappa:
        return kappa, f"nothing else gains more than one standard error on {count:,} validation rows"
    return best, f"it gains more than one standard error over the proposed κ on {count:,} validation rows"


def least_lossy(lost: Mapping[float, Matrix], proposed: float) -> float:
    """The κ whose rows lose least, if they gain more than one standard error over the proposed one; else that one.

    >>> least_lossy({0.1: np.array([1.0, 3.0, 2.0]), 1.0: np.array([0.5, 1.5, 1.0])}, 0.1)
    1.0
    """
    best, most = proposed, 0.0
    for candidate, losses in lost.items():
        gains = lost[proposed] - losses
        gain = float(gains.mean())
        if gain > max(most, float(gains.std(ddof=1)) / math.sqrt(len(gains))):
            best, most = candidate, gain
    return best


def in_words(kappa: float, proposed: float = KAPPA) -> str:
    """Whose model a κ makes it.

    >>> in_words(0.3), in_words(SHARED), in_words(KAPPA)
    ('mostly ours', 'the shared model', 'as proposed')
    """
    if kappa in (SHARED, ALONE):
        return "the shared model" if kappa == SHARED else "ours alone"
    return next(
        (words for factor, words in FACTORS.items() if math.isclose(kappa, factor * proposed)),
        "as proposed",
    )


def fitted(model: Model, shared: NDArray[np.float32], rows: Rows, kappa: float) -> NDArray[np.float32]:
    """The site's model for one κ; θ itself for κ = 0, and for κ = ∞ the site alone, which does not know θ.

    >>> from choral.learning.models import linear
    >>> rows = np.float32([[1.0], [-1.0]]), np.float32([1.0, -1.0])
    >>> fitted(linear(1), np.float32([1.0, 0.0]), rows, 0.5).tolist()  # near: 1, and alone: 2/3
    [0.9166666865348816, 0.0]
    """
    if model.whole is not None:
        return fitted_head(model, shared, rows, kappa, _KAPPA_ALONE)
    head = _head(model)
    if kappa == SHARED or not len(rows[1]):
        return shared
    below = _below(model, shared, rows[0])
    last = shared[-head:].astype(np.float64).reshape(below.shape[1], -1)
    own = _minimised(model.link, below, rows[1], np.zeros_like(last), _KAPPA_ALONE)
    if kappa != ALONE:
        own = (1 - _SHARE_ALONE) * _near(model, below, rows[1], last, kappa) + _SHARE_ALONE * own
    return np.concatenate([shared[:-head], own.ravel().astype(np.float32)])


def _near(model: Model, below: Matrix, labels: Labels, last: Matrix, kappa: float) -> Matrix:
    """The last layer near the shared one; that one itself where one class says nothing of a direction."""
    if _one_class(model, labels):
        return last
    return _minimised(model.link, below, labels, _recentred(model.link, below @ last, labels, last), kappa)


def _one_class(model: Model, labels: Labels) -> bool:
    return bool(model.classes) and len(np.unique(labels)) < 2


def _head(model: Model) -> int:
    """How many parameters the last layer has, or CH204 for a model that has none or too large a one."""
    if not model.widths:
        raise PlanError(
            "CH204",
            f'a personal model of "{model.name}".',
            why="choral does not know which of its parameters belong to a site.",
            fix="Mark them in choral.model(…, private=[…]), or use logistic, linear or mlp.",
        )
    size = (model.widths[-2] + 1) * model.widths[-1]
    if size > MOST_SOLVED:
        raise PlanError(
            "CH204",
            f"a personal model with {size:,} parameters in its last layer.",
            fix=f"Use at most {MOST_SOLVED:,}: fewer features, classes or hidden units.",
        )
    return size


def _below(model: Model, parameters: NDArray[np.float32], features: NDArray[np.float32]) -> Matrix:
    """What the last layer sees of each row, and a 1 for its bias."""
    rows, start = features.astype(np.float64), 0
    for fan, out in zip(model.widths[:-2], model.widths[1:-1], strict=True):
        layer = parameters[start : start + (fan + 1) * out].astype(np.float64).reshape(fan + 1, out)
        rows, start = np.maximum(rows @ layer[:-1] + layer[-1], 0), start + layer.size
    return np.hstack([rows, np.ones((len(rows), 1))])


def _judged(model: Model, parameters: NDArray[np.float32], rows: Rows) -> tuple[Matrix, Matrix]:
    """What a model says of these rows, and what each of them loses."""
    if model.whole is not None:
        return judged_whole(model, parameters, rows)
    last = parameters[-_head(model) :].astype(np.float64)
    below = _below(model, parameters, rows[0])
    outputs = below @ last.reshape(below.shape[1], -1)
    return outputs, _losses(model.link, outputs, rows[1])


def _recentred(link: Link, outputs: Matrix, labels: Labels, shared: Matrix) -> Matrix:
    """The shared layer with its outputs rescaled and shifted to suit these rows, by less where rows are few."""
    rows, outs = outputs.shape
    # One column for the scale and one for each output's shift: a problem in 1 + outs numbers.
    columns = np.concatenate([outputs[:, :, None], np.broadcast_to(np.eye(outs), (rows, outs, outs))], axis=2)
    start = np.concatenate([[1.0], np.zeros(outs)])
    weight = 1 / np.concatenate([[_SCALE_VARIANCE], np.full(outs, _SHIFT_VARIANCE)])

    def value(numbers: Matrix) -> float:
        return float(_losses(link, columns @ numbers, labels).sum() + (weight * np.square(numbers - start)).sum() / 2)

    def derivatives(numbers: Matrix) -> tuple[Matrix, Matrix]:
        slopes, curves = _slopes_and_curves(link, columns @ numbers, labels)
        gradient = np.einsum("nk,nkp->p", slopes, columns) + weight * (numbers - start)
        return gradient, np.einsum("nkp,nkl,nlq->pq", columns, curves, columns, optimize=True) + np.diag(weight)

    scale, *shifts = _newton(start, value, derivatives)
    centre = np.asarray(float(scale) * shared, np.float64)
    centre[-1] += shifts
    return centre


def _minimised(link: Link, rows: Matrix, labels: Labels, centre: Matrix, kappa: float) -> Matrix:
    """argmin_w Σ ℓ(rows·w) + ‖w − centre‖²/(2κ)."""

    def value(flat: Matrix) -> float:
        weights = flat.reshape(centre.shape)
        return float(_losses(link, rows @ weights, labels).sum() + np.square(weights - centre).sum() / (2 * kappa))

    def derivatives(flat: Matrix) -> tuple[Matrix, Matrix]:
        weights = flat.reshape(centre.shape)
        slopes, curves = _slopes_and_curves(link, rows @ weights, labels)
        gradient = rows.T @ slopes + (weights - centre) / kappa
        return gradient.ravel(), _hessian(rows, curves, kappa)

    return _newton(centre.ravel(), value, derivatives).reshape(centre.shape)


def _newton(
    start: Matrix, value: Callable[[Matrix], float], derivatives: Callable[[Matrix], tuple[Matrix, Matrix]]
) -> Matrix:
    """Where a convex function is least, by Newton's method, each step halved until the function falls enough."""
    point = start
    for _ in range(_MOST_STEPS):
        gradient, hessian = derivatives(point)
        try:
            step = np.asarray(np.linalg.solve(hessian, gradient), np.float64)
        except np.linalg.LinAlgError:  # 1/κ is lost next to numbers that are too large
            break
        here, falls, length = value(point), float(gradient @ step), 1.0
        if falls <= _CLOSE * max(1.0, here):  # at most half of it can still be gained near the minimum
            return point - step
        while not value(point - length * step) <= here - 0.25 * length * falls and length > _CLOSE:
            length /= 2
        point = point - length * step
    raise TrainingError(
        "CH700",
        "a personal model was not found.",
        why="The shared model or the features are not finite, or far from their declared range.",
        fix="Check the shared model's file and the table's ranges.",
    )


def _hessian(rows: Matrix, curves: Matrix, kappa: float) -> Matrix:
    """The matrix of second derivatives over (feature, output) pairs, in the order of the flat vector."""
    wide, outs = rows.shape[1], curves.shape[1]
    hessian = np.zeros((wide, outs, wide, outs))
    for first in range(outs):
        for second in range(first + 1):
            block = rows.T @ (rows * curves[:, first, second, None])
            hessian[:, first, :, second] = hessian[:, second, :, first] = block
    flat: Matrix = hessian.reshape(wide * outs, wide * outs)
    flat[np.diag_indices_from(flat)] += 1 / kappa
    return flat


def _losses(link: Link, outputs: Matrix, labels: Labels) -> Matrix:
    """Each row's loss in float64, as `learning.models.losses` has it."""
    if link == "softmax":
        return np.asarray(-_log_shares(outputs)[np.arange(len(labels)), labels])
    if link == "sigmoid":
        return np.asarray(np.logaddexp(0, outputs[:, 0]) - labels * outputs[:, 0])
    return np.asarray(0.5 * np.square(outputs[:, 0] - labels))


def _slopes_and_curves(link: Link, outputs: Matrix, labels: Labels) -> tuple[Matrix, Matrix]:
    """First and second derivatives of each row's loss in its outputs."""
    if link == "softmax":
        shares, one = np.exp(_log_shares(outputs)), np.eye(outputs.shape[1])
        return shares - one[labels], shares[:, :, None] * (one - shares[:, None, :])
    given = labels.astype(np.float64)[:, None]
    if link == "sigmoid":
        shares = np.exp(-np.logaddexp(0, -outputs))
        return shares - given, (shares * (1 - shares))[:, :, None]
    return outputs - given, np.ones((*outputs.shape, 1))


def _log_shares(outputs: Matrix) -> Matrix:
    calm = outputs - outputs.max(axis=1, keepdims=True)
    return np.asarray(calm - np.log(np.exp(calm).sum(axis=1, keepdims=True)))
