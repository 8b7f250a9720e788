"""The models that can be trained: one file for each built-in kind, and a user's own.

A new kind is a file with its function and its KIND, and one line in KINDS; docs/configuration.md lists them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from choral.learning.models.built_in import BuiltIn
from choral.learning.models.cnn import KIND as CNN
from choral.learning.models.cnn import cnn
from choral.learning.models.linear import KIND as LINEAR
from choral.learning.models.linear import linear
from choral.learning.models.logistic import KIND as LOGISTIC
from choral.learning.models.logistic import binary, logistic
from choral.learning.models.mlp import KIND as MLP
from choral.learning.models.mlp import mlp

if TYPE_CHECKING:
    from choral.learning.models.dense import losses, slopes
    from choral.learning.models.model import MOST_PARAMETERS, Link, Model, Tree, own

__all__ = [
    "GIVEN", "KINDS", "MOST_PARAMETERS", "Link", "Maker", "Model", "Tree", "binary", "cnn", "linear", "logistic",
    "losses", "mlp", "own", "slopes",
]  # fmt: skip

Maker: TypeAlias = Callable[..., object]  # takes features= and classes=, and gives a model
GIVEN = "given"  # the module in the name of a model that no other process can import
KINDS: dict[str, BuiltIn] = {"logistic": LOGISTIC, "linear": LINEAR, "mlp": MLP, "cnn": CNN}  # the plainest first


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what needs JAX is loaded when it is first used
    if name not in __all__:
        raise AttributeError(name)
    from choral.learning.models import dense, model

    return getattr(dense if name in ("losses", "slopes") else model, name)
