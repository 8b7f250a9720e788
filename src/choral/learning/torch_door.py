"""The door for models of others: an nn.Module of PyTorch, checked before it is trained, and whatever makes a model."""

import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, PlanError, TrainingError
from choral.core.plan import require_whole
from choral.learning.models import GIVEN, Maker, Model, Tree
from choral.learning.models.model import shape_of_row
from choral.tables.records import by

if TYPE_CHECKING:
    from choral.learning.torch_steps import TorchModule

MOST_PARAMETERS = 2**31 - 1


def named_maker(given: object) -> tuple[str, Maker]:
    """What a job calls a model that somebody gives from Python, and what makes it for the shapes of the data.

    It is a function of features= and classes=, however it was made, a model that is there already, or an nn.Module.

    >>> named_maker(lambda features, classes: None)[0]
    'given:lambda'
    """
    inner = getattr(given, "func", given)  # of functools.partial
    module, name = getattr(given, "__module__", None), str(getattr(inner, "__qualname__", type(given).__name__))
    importable = getattr(sys.modules.get(str(module)), name, None) is given
    if callable(given) and importable:
        return f"{module}:{name}", given
    name = given.name if isinstance(given, Model) else name.rpartition(".")[2]
    said = f"{GIVEN}:{'_'.join(re.findall('[A-Za-z0-9_]+', name))}"
    if isinstance(given, Model):
        return said, lambda **_: given
    if is_module(given):
        return said, lambda **shapes: own_module(given, **shapes)
    if callable(given):
        return said, given
    raise ConfigError(
        "CH102",
        f"model is a {type(given).__name__}.",
        fix="Give a name, a function of features= and classes=, a choral.model, a choral.torch, or an nn.Module.",
    )


def own_module(module: Any, *, features: int | Sequence[int], classes: int) -> Model:  # noqa: ANN401 - an nn.Module
    """A PyTorch module with the usual loss: cross entropy for classes, and squared error for numbers."""
    torch = sys.modules["torch"]
    loss = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss
    return own(module, loss, features=features, classes=classes, name=type(module).__name__)


def is_module(given: object) -> bool:
    """Whether it is an nn.Module; where PyTorch was not imported, nothing is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.nn.Module)


def own(
    module: Any,  # noqa: ANN401 - an nn.Module, which only the extra knows
    loss: Callable[[Any, Any], Any],
    *,
    features: int | Sequence[int],
    classes: int = 2,
    name: str = "torch",
    keep_weights: bool = False,
) -> Model:
    """A PyTorch module as a model: `loss(outputs, labels)` of a row, for example torch.nn.functional.cross_entropy.

    `features` is how many each row has, or the shape of a row. The module starts from weights drawn again with the
    run's seed, or from its present ones with `keep_weights`; those must be public. Parameters without `requires_grad`
    stay as they are.
    """
    torch_steps = _torch_steps()
    shape = shape_of_row(features)
    count = math.prod(require_whole("features", size) for size in shape)
    outside: TorchModule = torch_steps.TorchModule(module, loss, classes=classes, axes=len(shape))
    if not 1 <= outside.size <= MOST_PARAMETERS:
        raise PlanError("CH200", f'the model "{name}" has {outside.size:,} parameters.', fix="Use 1 to 2,147,483,647.")
    _check_shapes(outside, name, shape, classes, outside.start(None if keep_weights else 0))

    def init(seed: int) -> Tree:
        return outside.start(None if keep_weights else seed)

    def elsewhere(*_: object) -> Any:  # noqa: ANN401 - never returns
        raise ConfigError(
            "CH107",
            f'the model "{name}" is computed by PyTorch, and this needs its loss in JAX.',
            fix="Write the model in JAX, with choral.model, for audits and attacks.",
        )

    return Model(
        name=name, features=count, classes=classes, init=init, loss=elsewhere, predict=elsewhere, shape=shape,
        trainer=torch_steps.TorchTrainer, outside=outside,
    )  # fmt: skip


def _torch_steps() -> Any:  # noqa: ANN401 - a module
    """The module that knows PyTorch, or CH106 where the extra is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ConfigError("CH106", "PyTorch modules need torch.", fix="pip install 'choral[torch]'") from None
    from choral.learning import torch_steps

    return torch_steps


def _check_shapes(
    outside: "TorchModule", name: str, shape: tuple[int, ...], classes: int, start: list[NDArray[np.float32]]
) -> None:
    """Refuse a module that does not take such rows, or whose outputs or loss have another shape than agreed."""
    rows = np.random.default_rng(0).uniform(-1, 1, (5, *shape)).astype(np.float32)
    labels, weights = np.zeros(5, np.int32 if classes else np.float32), np.ones(5, np.float32)
    flat, kept = np.concatenate([leaf.ravel() for leaf in start]), outside.kept
    try:
        outputs = outside.outputs(flat, rows)
        alone = [outside.outputs(flat, rows[one : one + 1]) for one in range(5)]
        total = outside.gradient(flat, rows, labels, weights)
        outside.check_closed_form(flat, rows, labels, total)
        outside.check_mapped(flat, rows, labels)
        again = outside.outputs(flat, rows)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise TrainingError(
            "CH701",
            f'the model "{name}" does not accept {by(shape)} features: {str(error).strip().splitlines()[0][:200]}.',
            fix="The module takes rows, loss takes the outputs and the labels of rows, and torch.func can follow both.",
        ) from error
    if outputs.shape not in ((5, classes or 1), (5, 1)):
        raise TrainingError(
            "CH701",
            f'the model "{name}" predicts shape {outputs.shape} for 5 rows.',
            fix=f"Return shape (rows, {classes or 1}).",
        )
    if any(one.shape != outputs[:1].shape for one in alone) or not np.allclose(
        np.concatenate(alone), outputs, atol=1e-3
    ):
        raise ConfigError(
            "CH107",
            f'the model "{name}" gives a row another output when other rows are there.',
            why="Its gradient could not be clipped row by row.",
            fix="Let the module treat every row by itself.",
        )
    if kept != outside.kept or not np.array_equal(outputs, again):
        raise ConfigError(
            "CH107",
            f'the model "{name}" keeps something from one call to the next.',
            why="A row could move the gradients of others, and no clip would bound that.",
            fix="Let the module depend on its parameters and its rows alone.",
        )
