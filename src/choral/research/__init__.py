"""The researcher's front door: experiments with and without privacy, measured over repeats, compared and drawn.

    from choral import research

A `Task` is rows and a model, an `Experiment` one way to train it; `Measurements` keep its curves. `tuned` chooses among
candidates by validation rows, `paired` compares repeat by repeat; `panel`, `measure` and `write_page` draw. No ledger,
no keys: for runs that anybody is promised something of there are `choral.simulate` and `choral.rehearse`.
"""

from choral.accounting.calibrate import Rule
from choral.convergence_bounds import largest_step_size, logistic_constants
from choral.learning.models import Model, logistic, mlp
from choral.research.comparisons import Anchors, all_in_one_place, anchors
from choral.research.experiment import Curve, Experiment, Task
from choral.research.measurements import Measurements
from choral.research.page import table, write_page
from choral.research.panels import panel
from choral.research.repeats import compared, differences, ends, last, paired, spread
from choral.research.results import Figure, Found, ResultsFile, measure
from choral.research.theory import SO_FAR, bounded, regularised, theorem_2
from choral.research.tuning import Method, budgeted, grid, over_epsilon, tuned, tuned_over, validated
from choral.research.verdicts import Claims, Side, difference, judged, judged_over, kept, means, number, reached
from choral.tables.records import Records, Split, hold_out

__all__ = [
    "SO_FAR",
    "Anchors",
    "Claims",
    "Curve",
    "Experiment",
    "Figure",
    "Found",
    "Measurements",
    "Method",
    "Model",
    "Records",
    "ResultsFile",
    "Rule",
    "Side",
    "Split",
    "Task",
    "all_in_one_place",
    "anchors",
    "bounded",
    "budgeted",
    "compared",
    "difference",
    "differences",
    "ends",
    "grid",
    "hold_out",
    "judged",
    "judged_over",
    "kept",
    "largest_step_size",
    "last",
    "logistic",
    "logistic_constants",
    "means",
    "measure",
    "mlp",
    "number",
    "over_epsilon",
    "paired",
    "panel",
    "reached",
    "regularised",
    "spread",
    "table",
    "theorem_2",
    "tuned",
    "tuned_over",
    "validated",
    "write_page",
]
