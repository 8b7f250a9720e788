"""The researcher's front door: experiments with and without privacy, measured over repeats, compared and drawn.

    from choral_lab import research

A `Task` is rows and a model, an `Experiment` one way to train it; `Measurements` keep its curves. `tuned` chooses among
candidates by validation rows, `paired` compares repeat by repeat; `panel`, `measure` and `write_page` draw. No ledger,
no keys: for runs that anybody is promised something of there are `choral.simulate` and `choral.rehearse`.
"""

from choral.accounting.calibrate import Rule
from choral.learning.models import Model, logistic, mlp
from choral.planner.numbers import largest_step_size
from choral.tables.records import Records, Split, hold_out
from choral_lab.convergence_bounds import logistic_constants
from choral_lab.research.comparisons import Anchors, all_in_one_place, anchors
from choral_lab.research.experiment import Curve, Experiment, Task
from choral_lab.research.measurements import Measurements
from choral_lab.research.page import table, write_page
from choral_lab.research.panels import panel
from choral_lab.research.repeats import compared, differences, ends, last, paired, spread
from choral_lab.research.results import Figure, Found, ResultsFile, measure
from choral_lab.research.theory import SO_FAR, bounded, regularised, theorem_2
from choral_lab.research.tuning import Method, budgeted, grid, over_epsilon, tuned, tuned_over, validated
from choral_lab.research.verdicts import Claims, Side, difference, judged, judged_over, kept, means, number, reached

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
