"""Models as pure functions over a flat float32 vector, and a user's own."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.core.errors import PlanError, TrainingError
from choral.core.plan import require_whole
from choral.tables.records import Labels, by

if TYPE_CHECKING:
    from choral.learning.models.layered import Layered
    from choral.learning.trainer import MakeTrainer

Tree = Any  # a pytree of arrays: whatever a user's init returns
Link = Literal["softmax", "sigmoid", "squared"]
MOST_PARAMETERS = 2**31 - 1

_shape: Callable[..., Any] = jax.ShapeDtypeStruct


class OtherFramework(Protocol):
    """A model's losses and outputs by another framework than JAX, as functions of a flat vector of parameters."""

    def outputs(self, parameters: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """A row of outputs for each row."""

    def losses(self, parameters: NDArray[np.float32], rows: NDArray[np.float32], labels: Labels) -> NDArray[np.float32]:
        """The loss of each row."""

    def gradient(
        self,
        parameters: NDArray[np.float32],
        rows: NDArray[np.float32],
        labels: Labels,
        weights: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """The gradient of the weighted sum of the rows' losses, flat."""

    def trained(self, parameters: NDArray[np.float32]) -> Any:  # noqa: ANN401 - of that framework
        """What was given, in its own framework and with these parameters."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """What is trained: where it starts, what one example loses, what it predicts; d parameters on the wire.

    `init(seed)` gives a pytree of float32 arrays, `loss(tree, x, y)` one number for one example, `predict(tree, rows)`
    a row of outputs for each row. A dense stack also has its `widths`, a network with convolutions its layers, and then
    gradients are clipped in closed form; else by `vmap(grad)`.

    >>> from choral.learning.models import mlp
    >>> mlp(104, (64, 32), 2).size
    8866
    """

    name: str
    features: int
    classes: int  # 0 for a regression
    init: Callable[[int], Tree]
    loss: Callable[[Tree, Array, Array], Array]
    predict: Callable[[Tree, Array], Array]
    widths: tuple[int, ...] = ()
    layered: "Layered | None" = None  # its layers, where some are convolutions
    link: Link = "softmax"
    shape: tuple[int, ...] = ()  # of one row's features, where they are not one after the other
    trainer: "MakeTrainer | None" = None  # how a device trains, where that is not by JAX
    outside: OtherFramework | None = None  # what computes its losses and outputs, where that is not JAX
    of_rows: "Model | None" = None  # the model of one row, where an example is all rows of a person
    whole: "Model | None" = None  # with its private parameters, where some are marked so: `init` leaves them out
    private: dict[str, Tree] | None = None  # their values during a run, the same everywhere
    fixed: "Model | None" = None  # the model itself, where the logarithm of an adaptive clip is one more parameter

    def __reduce__(self) -> str | tuple[Any, ...]:
        """How Python makes a copy of a built-in model: by its kind and its sizes, not by its functions."""
        from choral.learning.models import KINDS

        if self.name not in KINDS or not (self.widths or self.layered):
            return super().__reduce__()
        return _made_again, (self.name, self.row, self.classes, self.hidden)

    @property
    def row(self) -> tuple[int, ...]:
        """The shape of one row."""
        return self.shape or (self.features,)

    @property
    def hidden(self) -> tuple[int, ...]:
        """The sizes of the hidden layers of a built-in network."""
        return self.layered.hidden if self.layered else self.widths[1:-1]

    @property
    def widest(self) -> int:
        """About the most numbers that a computation holds of one row."""
        return max(self.features, *self.widths, self.layered.widest if self.layered else 1)

    def held(self, rows: int) -> int:
        """About how many numbers a local step holds for so many rows."""
        if self.layered:
            return max(self.size, rows * self.layered.widest)
        return self.size * (1 if self.widths else rows)

    @property
    def plainest(self) -> Literal["logistic", "linear", "mlp"]:
        """What the planner knows that is most like it: one layer for classes or numbers, else a network."""
        if len(self.widths) != 2:
            return "mlp"
        return "logistic" if self.classes else "linear"

    @cached_property
    def _shapes(self) -> tuple[list[tuple[int, ...]], Any]:
        leaves, form = jax.tree.flatten(jax.eval_shape(lambda: self.init(0)))
        return [leaf.shape for leaf in leaves], form

    @cached_property
    def size(self) -> int:
        """d, the number of parameters."""
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> list[int]:
        """How many parameters each leaf of the tree holds."""
        return [math.prod(shape) for shape in self._shapes[0]]

    @cached_property
    def starts(self) -> list[int]:
        """Where each leaf of the tree starts in the flat vector."""
        return [sum(self.sizes[:leaf]) for leaf in range(len(self.sizes))]

    def start(self, seed: int = 0) -> NDArray[np.float32]:
        """θ⁰, the flat vector that all devices start from."""
        leaves = jax.tree.leaves(self.init(seed))
        return np.concatenate([np.asarray(leaf, dtype=np.float32).ravel() for leaf in leaves])

    def ravel(self, tree: Tree) -> Array:
        """The tree as one flat float32 vector."""
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(tree)])

    def unravel(self, flat: Array) -> Tree:
        """The tree that `ravel` flattened."""
        shapes, form = self._shapes
        parts = [
            flat[start : start + math.prod(shape)].reshape(shape)
            for start, shape in zip(self.starts, shapes, strict=True)
        ]
        return jax.tree.unflatten(form, parts)


def _made_again(kind: str, shape: tuple[int, ...], classes: int, hidden: tuple[int, ...]) -> Model:
    from choral.learning.models import KINDS

    return KINDS[kind].make(shape, classes, hidden)


def own(
    init: Callable[[int], Tree],
    loss: Callable[[Tree, Array, Array], Array],
    predict: Callable[[Tree, Array], Array],
    *,
    features: int | Sequence[int],
    classes: int = 2,
    name: str = "own",
    trainer: "MakeTrainer | None" = None,
    private: Sequence[str] = (),
) -> Model:
    """A user's own model in JAX, its shapes checked before anything is trained.

    `features` is how many each row has, or the shape of a row where rows are images, say.
    `trainer` makes what takes the local steps on a device, where that is another framework.
    `private` names parameters that never leave a site, keys of the dictionary that `init` returns: a head at home.

    >>> def loss(w, x, y):
    ...     return jnp.square(x @ w - y)
    >>> own(lambda seed: jnp.zeros(3), loss, lambda w, rows: rows @ w[:, None], features=3, classes=0).size
    3
    """
    shape = shape_of_row(features)
    count = math.prod(require_whole("features", size) for size in shape)
    model = Model(
        name=name, features=count, classes=classes, init=init, loss=loss, predict=predict, shape=shape, trainer=trainer
    )
    row, label = _shape(shape, jnp.float32), _shape((), jnp.int32 if classes else jnp.float32)
    tree = jax.eval_shape(lambda: init(0))
    if not jax.tree.leaves(tree) or model.size > MOST_PARAMETERS:
        raise PlanError("CH200", f'the model "{name}" has {model.size:,} parameters.', fix="Use 1 to 2,147,483,647.")
    try:
        lost = jax.eval_shape(loss, tree, row, label)
        outputs = jax.eval_shape(predict, tree, _shape((2, *shape), jnp.float32))
    except (TypeError, ValueError) as error:
        raise TrainingError(
            "CH701",
            f'the model "{name}" does not accept {by(shape)} features: {str(error).splitlines()[0]}',
            fix="loss takes (parameters, one row, one label), predict takes (parameters, rows).",
        ) from error
    if lost.shape != ():
        raise TrainingError(
            "CH701",
            f'the loss of the model "{name}" has shape {lost.shape} for one example.',
            fix="Return one number, for example with jnp.sum or jnp.mean.",
        )
    if outputs.shape[:1] != (2,) or outputs.shape[1:] not in ((classes or 1,), (1,)):
        raise TrainingError(
            "CH701",
            f'the model "{name}" predicts shape {outputs.shape} for 2 rows.',
            fix=f"Return shape (rows, {classes or 1}).",
        )
    return _with_private(model, tuple(private)) if private else model


def shape_of_row(features: int | Sequence[int]) -> tuple[int, ...]:
    """The shape of a row that has so many features, or that is said as it is.

    >>> shape_of_row(4), shape_of_row((8, 8)), shape_of_row(np.int64(4))
    ((4,), (8, 8), (4,))
    """
    sizes = (features,) if isinstance(features, SupportsIndex) else features
    return tuple(operator.index(size) if isinstance(size, SupportsIndex) else size for size in sizes)


def _with_private(whole: Model, names: tuple[str, ...]) -> Model:
    """The model that devices train together: the private parameters are constants in it, and no part of its vector."""
    tree = jax.eval_shape(lambda: whole.init(0))
    if not isinstance(tree, dict) or not set(names) < tree.keys() or whole.trainer is not None:
        known = ", ".join(sorted(map(str, tree))) if isinstance(tree, dict) else "no names"
        raise TrainingError(
            "CH701",
            f'the model "{whole.name}" marks {", ".join(names)} as private; its parameters are {known}.',
            why="They must be some of the keys of the dictionary that init returns, and JAX must train the others.",
            fix='Return {"body": …, "head": …} from init, and give private=["head"].',
        )
    start = whole.init(0)
    private = {name: jax.tree.map(np.asarray, start[name]) for name in names}
    return replace(
        whole,
        init=lambda seed: {name: leaf for name, leaf in whole.init(seed).items() if name not in private},
        loss=lambda shared, row, label: whole.loss({**shared, **private}, row, label),
        predict=lambda shared, rows: whole.predict({**shared, **private}, rows),
        whole=whole,
        private=private,
    )
