"""src/choral/errors.toml tells of every code, in messages that the code can print."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from docs.hooks import check

ROOT = Path(__file__).parents[2]
TOLD = tomllib.loads((ROOT / "src/choral/errors.toml").read_text())


def pattern_of(node):
    """A regular expression for what an expression can say: constants as they stand, anything for the rest."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(pattern_of(part) for part in node.values)
    return ".*"


TREES = [ast.parse(path.read_text()) for path in sorted((ROOT / "src/choral").rglob("*.py"))]
NODES = [node for tree in TREES for node in ast.walk(tree)]


def is_code(node):
    return isinstance(node, ast.Constant) and re.fullmatch(r"CH\d{3}", str(node.value)) is not None


def usual_codes():
    """Function -> the code that it takes when none is given: `def refused(what, code="CH605")`."""
    for node in (node for node in NODES if isinstance(node, ast.FunctionDef)):
        names = [one.arg for one in (*node.args.args, *node.args.kwonlyargs)]
        defaults = [None] * (len(names) - len(node.args.defaults + node.args.kw_defaults))
        given = dict(zip(names, [*defaults, *node.args.defaults, *node.args.kw_defaults], strict=True))
        if is_code(given.get("code")):
            yield node.name, given["code"].value


def raised():
    """(code, pattern of what, pattern of the fix) of every call that has a code, given or usual."""
    usual = dict(usual_codes())
    for node in (node for node in NODES if isinstance(node, ast.Call) and node.args):
        words = {word.arg: word.value for word in node.keywords}
        fix = pattern_of(words["fix"]) if "fix" in words else ""
        if is_code(node.args[0]):
            yield node.args[0].value, pattern_of(node.args[1]) if len(node.args) > 1 else ".*", fix
        elif is_code(words.get("code")):
            yield words["code"].value, pattern_of(node.args[0]), fix
        elif isinstance(node.func, ast.Name) and node.func.id in usual:
            yield usual[node.func.id], pattern_of(node.args[0]), fix


CALLS = list(raised())


@pytest.mark.parametrize("code", [code for code in TOLD if "message" in TOLD[code]])
def test_the_message_shown_is_one_that_the_code_can_print(code):
    message = TOLD[code]["message"]
    assert message.startswith(f"{code} ")
    forms = [(what, fix) for one, what, fix in CALLS if one == code]
    assert any(re.search(what, message) and re.search(fix, message) for what, fix in forms), forms


def test_a_message_that_no_code_prints_would_be_noticed():
    forms = [what for one, what, _ in CALLS if one == "CH310"]
    assert re.search(forms[0], TOLD["CH310"]["message"])
    assert not any(re.search(what, "CH310 the label is dull.") for what in forms)


def test_every_code_is_reported_with_its_cause_and_the_way_out():
    assert check.unexplained(ROOT) == []
    assert [code for code, story in TOLD.items() if not (story["cause"].endswith(".") and story["way_out"])] == []


def test_a_code_without_a_message_is_one_that_nothing_raises():
    silent = {code for code in TOLD if "message" not in TOLD[code]}
    assert silent & {code for code, _, _ in CALLS} == set()


def test_no_message_shows_where_files_lie_on_a_machine():
    assert [
        code for code, story in TOLD.items() if re.search(r"/(tmp|home|root|work)/", story.get("message", ""))
    ] == []
