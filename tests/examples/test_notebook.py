"""The notebook runs from its first cell to its last, without Jupyter, and ends with a figure."""

import ast
import json
import shutil
from pathlib import Path

from docs.hooks.style import faults

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOK = FOLDER / "notebooks" / "from_csv_to_figure.ipynb"


def cells(kind):
    return ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def run(code, names):
    """Run a cell, and give the value of its last line, as a notebook does."""
    *body, last = ast.parse(code).body
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    exec(compile(ast.Module([last], []), "cell", "exec"), names)
    return None


def test_the_cells_run_in_order_and_draw_the_figure(tmp_path, monkeypatch):
    for name in ("hospitals", "notebooks"):
        shutil.copytree(FOLDER / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "notebooks")
    names: dict[str, object] = {}
    shown = [run(code, names) for code in cells("code")]
    assert sum(hasattr(value, "_repr_svg_") for value in shown) == 2
    assert all(hasattr(value, "_repr_html_") or hasattr(value, "_repr_svg_") for value in shown)
    assert (tmp_path / "notebooks" / "accuracy.svg").read_text().startswith("<svg")
    curve = names["curve"]
    assert curve.epsilon.tolist() == [0.25, 0.5, 1.0, 2.0] and curve.accuracy.iloc[-1] > 0.7
    assert names["result"].by_site().to_frame().site.tolist() == ["hospital-a", "hospital-b", "hospital-c"]


def test_it_is_kept_without_outputs_and_in_plain_words():
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert cell.get("outputs", []) == [] and cell.get("execution_count") is None
    assert [fault for text in cells("markdown") for fault in faults(text)] == []
