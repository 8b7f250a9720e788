"""Plants a bug in one function of the source, wherever the function stands in its file and however it is laid out."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class CannotBePlanted(AssertionError):
    """The source no longer has what a planted bug replaces."""


@dataclass(frozen=True)
class Change:
    """What stands in a function, an expression or some statements, and what a bug puts in its place."""

    function: str  # as "choral.core.ledger:Ledger.charge"
    old: str
    new: str


def planted(source: Path, changes: tuple[Change, ...]) -> dict[Path, str]:
    """The text of each file below `source` that these changes touch, after all of them."""
    trees: dict[Path, ast.Module] = {}
    for change in changes:
        file = file_of(source, change)
        tree = trees.setdefault(file, ast.parse(file.read_text()))
        found = exchange(find(tree, source, change), change)
        if found != 1:
            raise CannotBePlanted(f"{change.old!r} stands {found} times in {change.function}, not once")
    return {file: ast.unparse(ast.fix_missing_locations(tree)) + "\n" for file, tree in trees.items()}


def file_of(source: Path, change: Change) -> Path:
    path = source.joinpath(*change.function.partition(":")[0].split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    raise gone(source, change)


def find(tree: ast.Module, source: Path, change: Change) -> Named:
    """The function (or class) that the change names; nested ones are named along the way that leads to them."""
    found = [node for name, node in named(tree) if name == change.function.partition(":")[2]]
    if len(found) != 1:
        raise gone(source, change)
    return found[0]


def named(node: ast.AST, way: str = "") -> Iterator[tuple[str, Named]]:
    for child in ast.iter_child_nodes(node):
        name = way
        if isinstance(child, Named):
            name = f"{way}.{child.name}" if way else child.name
            yield name, child
        yield from named(child, name)


def gone(source: Path, change: Change) -> CannotBePlanted:
    """One sentence about a function that is not where the catalogue says, with where one of its name is now."""
    wanted = change.function.partition(":")[2]
    now = [
        ".".join(file.relative_to(source).with_suffix("").parts) + ":" + name
        for file in sorted(source.rglob("*.py"))
        for name, _ in named(ast.parse(file.read_text()))
        if name.rpartition(".")[2] == wanted.rpartition(".")[2]
    ]
    hint = f"; found with that name: {', '.join(now)}" if now else "; nothing has that name"
    return CannotBePlanted(f"{change.function} is gone or ambiguous{hint}. Name the function that does this step now.")


def exchange(function: Named, change: Change) -> int:
    """Put the new piece in the place of the old one; say in how many places it was."""
    old, new = ast.parse(change.old).body, ast.parse(change.new).body
    assert old and same_text(old) != same_text(new), f"{change.old!r} is replaced by nothing else"
    if len(old) == len(new) == 1 and isinstance(old[0], ast.Expr) and isinstance(new[0], ast.Expr):
        expressions = Expressions(old[0].value, new[0].value)
        expressions.visit(function)
        return expressions.found
    return exchange_statements(function, old, new)


class Expressions(ast.NodeTransformer):
    """Puts one expression in the place of every equal of another."""

    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.old, self.new, self.found = ast.dump(old), new, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.dump(node) == self.old:
            self.found += 1
            return copy.deepcopy(self.new)
        return self.generic_visit(node)


def exchange_statements(function: Named, old: list[ast.stmt], new: list[ast.stmt]) -> int:
    found = 0
    for node in list(ast.walk(function)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if not isinstance(block, list):  # a lambda's body is an expression
                continue
            for start in reversed(range(len(block) - len(old) + 1)):
                if same_text(block[start : start + len(old)]) == same_text(old):
                    found += 1
                    block[start : start + len(old)] = copy.deepcopy(new)
            if field == "body" and not block:
                block.append(ast.Pass())
    return found


def same_text(statements: list[ast.stmt]) -> list[str]:
    """What these statements are, apart from their place and layout."""
    return [ast.dump(statement) for statement in statements]
