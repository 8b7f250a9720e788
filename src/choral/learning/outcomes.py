"""Sites that predict different things on shared columns: each site's own column takes the label's place."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from choral.core.errors import ConfigError
from choral.learning.reading import Table


def labelled(
    tables: list[tuple[str, Table]], label: str, own: Mapping[str, str], declared: Collection[str]
) -> list[tuple[str, Table]]:
    """The tables by device, each with its device's own column in the label's place.

    >>> table = Table(source="t", columns={"age": [1], "died": [0]})
    >>> labelled([("north", table)], "outcome", {"north": "died"}, ["age"])[0][1].columns
    {'age': [1], 'outcome': [0]}
    """
    known = {name for name, _ in tables}
    if stranger := next((name for name in own if name not in known), None):
        raise ConfigError(
            "CH102",
            f'[data.labels] names "{stranger}", which has no file.',
            fix=f"Devices have the names of their files: {', '.join(sorted(known)[:8])}.",
        )
    return [(name, with_outcome(table, label, own.get(name), declared, own.values())) for name, table in tables]


def with_outcome(
    table: Table, label: str, own: str | None, declared: Collection[str], others: Collection[str] = ()
) -> Table:
    """The table with its own column in the label's place, if it has one; what `others` have there is left out."""
    if own is None and not others:
        return table
    if own in declared:
        raise ConfigError(
            "CH102",
            f'the label "{own}" is a declared column.',
            why="A model that reads its own label learns nothing else.",
            fix="Name a column that the study does not read.",
        )
    left_out = {label, own, *others}
    cells = table.cells(label if own is None else own)
    kept = {name: column for name, column in table.columns.items() if name not in left_out}
    return replace(table, columns={**kept, label: cells})
