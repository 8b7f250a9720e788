"""Federated learning with a server that nobody has to trust and a budget that only the data's holder can spend."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from choral.errors import ChoralError as ChoralError
    from choral.plan import Budget as Budget
    from choral.plan import Plan as Plan
    from choral.plan import SecureSum as SecureSum

# Public name -> the room that holds it. Rooms load when a name is first used: `import choral` stays fast.
_ROOM_OF = {
    "Budget": "choral.plan",
    "ChoralError": "choral.errors",
    "Plan": "choral.plan",
    "SecureSum": "choral.plan",
}

__all__ = ["Budget", "ChoralError", "Plan", "SecureSum", "__version__"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - each name has its own type, see TYPE_CHECKING above
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'choral' has no attribute {name!r}")
    return getattr(import_module(_ROOM_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
