"""Survival curves of `bench.sums`: how far they are off, how often their intervals hold, and log-rank tests."""

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.harness import NoFigureError
from bench.sum_settings import of_table, terms_of
from bench.sum_tables import SumTable
from choral.asking.catalogue import estimate, summand
from choral.asking.question import Question
from choral.run.questions import AskTerms
from choral.tables.reading import Table

PERMUTATIONS, NOISES = 1000, 200


def survival_error(table: SumTable, kind: str, seed: int, folder: Path) -> float:
    """The largest error of a survival curve at the ends of its bins."""
    question, found = Question(name="km", parameters=table.survival), of_table(table, kind, 1, seed, folder)
    true = _curve(question, found.terms, found.study.data.tables)
    return float(np.abs(np.array([row["estimate"] for row in found.ask(question).rows]) - true).max())


def _curve(question: Question, terms: AskTerms, tables: Sequence[Table]) -> NDArray[np.float64]:
    total = sum(summand(question, terms.columns).total(table) for table in tables)
    count = sum(table.rows for table in tables)
    rows = estimate(question, terms.columns, total, rows=count, deviation=0.0).rows  # type: ignore[arg-type]
    return np.array([row["estimate"] for row in rows])


def whole_table(table: SumTable, columns: Sequence[str]) -> Table:
    """All rows in one table, with these columns."""
    return Table(source="all rows", columns={name: table.rows[name].tolist() for name in columns})


def coverage(table: SumTable, draws: int, kind: str) -> float:
    """How often the intervals of a survival curve hold the population's curve, over bins and samples."""
    question, terms = Question(name="km", parameters=table.survival), terms_of(table, kind)
    checked, whole = terms.read(question.canonical()), whole_table(table, ("time", "event"))
    deviation = checked.noise.deviation * np.sqrt(table.devices)
    true, held = _curve(question, terms, [whole]), list[bool]()
    chance = np.random.default_rng(1)
    for _ in range(draws):
        picked = chance.integers(0, whole.rows, whole.rows)
        cells = {name: np.array(whole.cells(name))[picked].tolist() for name in whole.columns}
        total = checked.summand.total(Table(source="sample", columns=cells))
        noisy = total + chance.normal(0, deviation, len(total))
        rows = estimate(question, terms.columns, noisy, rows=whole.rows, deviation=deviation).rows  # type: ignore[arg-type]
        held += [
            row["low"] <= truth <= row["high"] for row, truth in zip(rows, true, strict=True) if not row["is_rough"]
        ]
    if not held:
        raise NoFigureError("every interval is rough")
    return float(np.mean(held))


def expected_error(table: SumTable, kind: str, **asked_otherwise: float) -> float:
    """The mean over many noises of the largest error of a survival curve: five seeds tell it within about a fifth."""
    question = Question(name="km", parameters={**table.survival, **asked_otherwise})
    terms, whole = terms_of(table, kind), whole_table(table, ("time", "event"))
    checked, chance, errors = terms.read(question.canonical()), np.random.default_rng(3), list[float]()
    deviation, total = checked.noise.deviation * np.sqrt(table.devices), checked.summand.total(whole)
    true = _curve(question, terms, [whole])
    for _ in range(NOISES):
        noisy = total + chance.normal(0, deviation, len(total))
        rows = estimate(question, terms.columns, noisy, rows=whole.rows, deviation=deviation).rows  # type: ignore[arg-type]
        errors.append(float(np.abs(np.array([row["estimate"] for row in rows]) - true).max()))
    return statistics.mean(errors)


def permuted_totals(table: SumTable, arm: str) -> list[NDArray[np.int64]]:
    """The cells of survival by arms, for many ways to give the arms to patients at random."""
    question, whole = _by_arm(table, arm), whole_table(table, ("time", "event", arm))
    sums, chance = summand(question, terms_of(table, "sum").columns), np.random.default_rng(2)
    arms = np.array(whole.cells(arm))
    dealt = ({**whole.columns, arm: chance.permutation(arms).tolist()} for _ in range(PERMUTATIONS))
    return [sums.total(Table(source="permuted", columns=columns)) for columns in dealt]


def false_alarms(table: SumTable, arm: str, permuted: Sequence[NDArray[np.int64]], kind: str) -> float:
    """How often the log-rank test says that arms differ which were given to patients at random."""
    question, terms = _by_arm(table, arm), terms_of(table, kind)
    checked, chance, alarms = terms.read(question.canonical()), np.random.default_rng(3), 0
    deviation = checked.noise.deviation * np.sqrt(table.devices)
    for total in permuted:
        noisy = total + chance.normal(0, deviation, len(total))
        test = estimate(question, terms.columns, noisy, rows=len(table.rows), deviation=deviation).test  # type: ignore[arg-type]
        assert test is not None
        alarms += test["p"] < 0.05
    return alarms / len(permuted)


def _by_arm(table: SumTable, arm: str) -> Question:
    return Question(name="km", parameters={**table.survival, "by": [arm]})
