"""Parameters that never leave a site: a head at home on a shared body, for a user's model.

During a run they keep the values that `init` gives them, which are public and the same everywhere: the body is trained
as if they were constants, so nothing of them is clipped, noised or sent, and no proof changes. Trained on a site's rows
between the steps they would make every other row's gradient depend on each row, which no clip bounds: a row could then
move an update by more than the clip. After the run each site fits them to its own rows, without noise, and keeps them.
"""

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.optimize import minimize

from choral.learning.models.model import Model
from choral.tables.records import Labels

Rows: TypeAlias = tuple[NDArray[np.float32], Labels]  # features and labels
_MOST_STEPS = 500


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

    found = minimize(lost_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": _MOST_STEPS})
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
