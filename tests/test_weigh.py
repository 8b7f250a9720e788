"""The scales of the house: what is counted, which limit fails, and that limits only fall."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.weigh import LIMITS, House, tightened

ROOT = Path(__file__).parent.parent
HOW = tomllib.loads(LIMITS.read_text())["count"]

LOAD = "from choral.core import plan\n\n\ndef load(a, b, c, d, e, f, *, g, h, i, j, k):\n    return plan\n"
PLAN = "class Plan:\n    devices: int\n    cohort: int\n    rounds: int\n    rows: int\n    batch: int\n"
ENGINES = "class OnceEngine:\n    x = plan.once or plan.law == 'whole'\n\n\ndef runs_together(): ...\n"
PLANTED = {
    "src/choral/__init__.py": "",
    "src/choral/core/__init__.py": "import choral.core.only\n",
    "src/choral/core/only.py": '"""One importer, in its own room."""\n',
    "src/choral/core/plan.py": PLAN,
    "src/choral/learning/__init__.py": "",
    "src/choral/learning/tables.py": LOAD,
    "src/choral/backends/__init__.py": "",
    "src/choral/backends/fast.py": ENGINES,
    "src/choral/deploy/__init__.py": "",
    "src/choral/deploy/agent.py": "import choral.core.plan\n",
    "lab/src/choral_lab/sweeps.py": "x = 1\n\n",
    "docs/index.md": "# Four words of docs\n",
}  # fmt: skip


@pytest.fixture
def house(tmp_path):
    for name, text in PLANTED.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return House(root=tmp_path, how=HOW)


def test_every_figure_is_counted_as_its_line_says(house):
    # By hand, from the files above: 8 lines in the core, which are 1 + 1 + 6; `once` and `law` on one line are two.
    assert house.figures == {
        "core": 8, "product": 19, "lab": 2, "files": 10, "device_run": 6, "switches": 2, "run_types": 1, "engines": 2,
        "satellites": 1, "tables_load": 1, "words": 5,
    }  # fmt: skip
    assert house.run_types == {"choral.core.plan:Plan": 5} and house.satellites == ["choral.core.only"]
    assert house.rooms["choral_lab.sweeps"] == 2


def test_the_modules_of_a_site_are_those_that_a_test_pins(house):
    (house.root / "tests/deploy").mkdir(parents=True)
    (house.root / "tests/deploy/loaded.txt").write_text("choral\nchoral.core\n")
    assert house.figures["device_run"] == 2


def test_limits_fall_to_the_figure_and_never_rise_or_fall_below_the_goal():
    text = '[files]\nwhat = "f"\nlimit = 300\ngoal = 240\n\n[words]\nwhat = "w"\nlimit = 900\ngoal = 500\n'
    lower = tightened(text, {"files": 200, "words": 700})
    assert [line for line in lower.splitlines() if "limit" in line] == ["limit = 240", "limit = 700"]
    assert tightened(lower, {"files": 999, "words": 999}) == lower


def test_what_is_too_heavy_fails_with_the_figure_and_its_limit(tmp_path):
    for name in ("tools", "docs"):
        (tmp_path / name).mkdir()
    for name in ("__init__.py", "weigh.py"):
        (tmp_path / "tools" / name).write_text((ROOT / "tools" / name).read_text())
    for name, text in PLANTED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before, engines, after = LIMITS.read_text().partition("[engines]")
    first, _, rest = after.partition("limit = ")
    (tmp_path / "tools/weigh.toml").write_text(f"{before}{engines}{first}limit = 1\n{rest.partition(chr(10))[2]}")
    done = subprocess.run([sys.executable, "-m", "tools.weigh"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "engines: 2 is above its limit of 1 " in done.stderr
    assert "tables_load: 1 is above its limit of 0 " in done.stderr and done.stderr.count("above its limit") == 2


def test_every_limit_is_a_figure_with_a_goal_that_is_not_above_it():
    limits = {name: one for name, one in tomllib.loads(LIMITS.read_text()).items() if name != "count"}
    assert all(one["goal"] <= one["limit"] for one in limits.values())
