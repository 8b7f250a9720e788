"""Two files that differ in one row, read as a site reads them: the claim survives, unless a row decides a column."""

import json
from dataclasses import replace

import pytest

from choral.cli import main
from choral.tables.cells import Format, order_of
from choral_lab.audit.two_files import ROWS, reading_case

TRAININGS = 40_000


def test_no_other_row_is_read_differently_and_the_claim_survives():
    case = reading_case(trainings=TRAININGS)
    found = case.measure()
    assert (case.moved, case.refused) == (0, 4)
    assert found.survived and 0.4 < found.lower_bound < case.trial.epsilon <= 1.0


def test_the_command_prints_the_bound_and_what_was_tried(capsys):
    assert main(["audit", "--case", "reading", "--json", "--trainings", str(TRAININGS)]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["survived"] and shown["lower_bound"] <= shown["proved_epsilon"] and shown["other_rows_moved"] == 0


@pytest.mark.parametrize("rounds", [1, 3])
def test_where_a_row_decides_the_order_of_all_dates_even_one_round_refutes_the_claim_of_three(monkeypatch, rounds):
    """As files were read in 0.2.0: one round of three, whose ε = 1 is for all three, shows ε ≥ 5."""
    by_itself = Format.days

    def by_all(self, cells):
        return by_itself(replace(self, dates=order_of(cell for cell in cells if isinstance(cell, str))), cells)

    monkeypatch.setattr(Format, "days", by_all)
    case = reading_case(trainings=TRAININGS)
    once = replace(case.once, plan=replace(case.once.plan, rounds=rounds))
    found = replace(case, once=once).measure()
    assert case.moved > ROWS / 2
    assert not found.survived and found.lower_bound > 5 > 4 * case.trial.epsilon
