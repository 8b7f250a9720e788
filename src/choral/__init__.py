"""Federated learning with a server that nobody has to trust and a budget that only the data's holder can spend."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from choral.accounting.account import account as account
    from choral.accounting.calibrate import noise_for as noise_for
    from choral.core.errors import ChoralError as ChoralError
    from choral.core.ledger import Ledger as Ledger
    from choral.core.plan import Budget as Budget
    from choral.core.plan import Plan as Plan
    from choral.core.plan import SecureSum as SecureSum
    from choral.front import Trained as Trained
    from choral.front import fit as fit
    from choral.front import open_run as open
    from choral.front import rehearsal as rehearsal
    from choral.front import rehearse as rehearse
    from choral.front import resume as resume
    from choral.front import simulate as simulate
    from choral.front import study as study
    from choral.front.estimators import Classifier as Classifier
    from choral.front.estimators import Regressor as Regressor
    from choral.learning.models.model import own as model
    from choral.learning.torch_door import own as torch
    from choral.planner import plan_for as plan_for
    from choral.report import write_report as write_report
    from choral.report.verify import verify as verify
    from choral.run.result import Result as Result
    from choral.tables.sources import load as load
    from choral.tables.sources import load_adult as load_adult

# Public name -> the room that holds it, and its name there if it has another. Rooms load when a name is first used:
# `import choral` stays fast.
_ROOM_OF = {
    "Budget": "choral.core.plan",
    "ChoralError": "choral.core.errors",
    "Classifier": "choral.front.estimators",
    "Ledger": "choral.core.ledger",
    "Plan": "choral.core.plan",
    "Regressor": "choral.front.estimators",
    "Result": "choral.run.result",
    "SecureSum": "choral.core.plan",
    "Trained": "choral.front",
    "account": "choral.accounting.account",
    "fit": "choral.front",
    "convert": "choral.accounting.conversions",
    "load": "choral.tables.sources",
    "load_adult": "choral.tables.sources",
    "model": "choral.learning.models.model:own",
    "noise_for": "choral.accounting.calibrate",
    "open": "choral.front:open_run",
    "plan_for": "choral.planner",
    "rehearsal": "choral.front",
    "rehearse": "choral.front",
    "resume": "choral.front",
    "rho_for": "choral.accounting.conversions",
    "simulate": "choral.front",
    "study": "choral.front",
    "torch": "choral.learning.torch_door:own",
    "verify": "choral.report.verify",
    "write_report": "choral.report",
}

# What another distribution offers now, and its place there.
_MOVED = {"convergence": "choral_lab.convergence_bounds.convergence", "research": "choral_lab.research"}

__all__ = [
    "Budget",
    "ChoralError",
    "Classifier",
    "Ledger",
    "Plan",
    "Regressor",
    "Result",
    "SecureSum",
    "Trained",
    "__version__",
    "account",
    "convert",
    "fit",
    "load",
    "load_adult",
    "model",
    "noise_for",
    "open",
    "plan_for",
    "rehearsal",
    "rehearse",
    "resume",
    "rho_for",
    "simulate",
    "study",
    "torch",
    "verify",
    "write_report",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - each name has its own type, see TYPE_CHECKING above
    if name in _MOVED:
        raise ImportError(f"choral.{name} is {_MOVED[name]} now: run pip install ./lab in a checkout of choral.")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'choral' has no attribute {name!r}")
    room, _, inner = _ROOM_OF[name].partition(":")
    value = getattr(import_module(room), inner or name)
    globals()[name] = value  # over the room of the same name, where there is one
    return value


def __dir__() -> list[str]:
    return __all__
