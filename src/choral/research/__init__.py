"""The researcher's front door: experiments with and without privacy, measured over repeats, compared and drawn.

    from choral import research

A `Task` is rows and a model, an `Experiment` one way to train it; a `Shelf` keeps its curves. `tuned` chooses among
candidates by validation rows, `paired` compares repeat by repeat; `panel`, `measure` and `write_page` draw. No ledger,
no keys: for runs that anybody is promised something of there are `choral.simulate` and `choral.rehearse`.
"""

from choral.convergence_bounds import largest_step_size, logistic_constants
from choral.learning.models import Model, logistic, mlp
from choral.learning.records import Records
from choral.learning.splits import Split, hold_out
from choral.privacy.calibrate import Rule
from choral.research.experiment import Curve, Experiment, Task
from choral.research.figures import Figure, measure
from choral.research.page import table, write_page
from choral.research.panels import line, panel
from choral.research.repeats import judged, judged_over, last, paired, spread
from choral.research.shelf import Shelf
from choral.research.tuning import Method, anchors, grid, levels, tuned

__all__ = [
    "Curve",
    "Experiment",
    "Figure",
    "Method",
    "Model",
    "Records",
    "Rule",
    "Shelf",
    "Split",
    "Task",
    "anchors",
    "grid",
    "hold_out",
    "judged",
    "judged_over",
    "largest_step_size",
    "last",
    "levels",
    "line",
    "logistic",
    "logistic_constants",
    "measure",
    "mlp",
    "paired",
    "panel",
    "spread",
    "table",
    "tuned",
    "write_page",
]
