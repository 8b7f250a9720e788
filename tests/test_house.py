"""The house keeps its own rules: `make check` catches what it says it catches, and nothing else is left open."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*(ROOT / "src/choral").rglob("*.py"), *(ROOT / "lab/src/choral_lab").rglob("*.py")])


def run(*command, cwd):
    return subprocess.run([sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.fixture
def copy_of_the_house(tmp_path):
    for folder in ("src", "lab/src"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.xz"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(house):
    script = (
        "import sys; sys.path[:0] = ['src', 'lab/src']; from importlinter.cli import lint_imports_command as c; c()"
    )
    arguments = [sys.executable, "-c", script, "--no-cache"]
    return subprocess.run(arguments, cwd=house, capture_output=True, text=True, timeout=300)


def test_an_import_against_the_arrows_is_caught(copy_of_the_house):
    clean = lint_imports(copy_of_the_house)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    planted_in = {"src/choral/core/errors.py": "choral.tables.records\nimport choral_lab.audit"}
    planted_in["lab/src/choral_lab/paper/figures.py"] = "choral.tables.records"
    for path, imported in planted_in.items():
        with (copy_of_the_house / path).open("a") as file:
            file.write(f"\nimport {imported}\n")
    planted = lint_imports(copy_of_the_house)
    assert planted.returncode == 1
    assert "choral.core is not allowed to import choral.tables" in planted.stdout
    # The front doors are enough for the paper, and a product that needs its laboratory is none.
    assert "choral_lab.paper is not allowed to import choral.tables" in planted.stdout
    assert "choral is not allowed to import choral_lab" in planted.stdout


def unasked_imports(text, available, seen=None):
    """Packages that no lock provides and no `importorskip` guards, but that are imported when this file is loaded.

    What it imports of this repository is loaded with it, and so are their imports.
    """
    found, asked, seen = set(), set(), set() if seen is None else seen
    for node in ast.parse(text).body:
        call = node.value if isinstance(node, ast.Assign | ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.importorskip":
            asked.add(ast.literal_eval(call.args[0]).split(".")[0])
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
        for name in names:
            if name.split(".")[0] not in available | asked:
                found.add(name.split(".")[0])
            own = [
                folder / f"{name.replace('.', '/')}.py"
                for folder in (ROOT / "src", ROOT / "lab/src", ROOT / "lab", ROOT)
            ]
            for path in (one for one in own if one.exists() and one not in seen):
                seen.add(path)
                found |= unasked_imports(path.read_text(), available | asked, seen)
    return found


def test_no_test_needs_a_package_that_the_lock_lacks_only_to_be_collected():
    # PyTorch is in no lock. One module of helpers imported it, and `make test` ended there on a machine without it.
    locked = set(map(canonicalize_name, pins("requirements-dev.lock")))
    own = {"choral", "choral_lab", "tests", "lab", "bench", "docs", "examples", "tools"}
    available = {*own, *sys.stdlib_module_names}
    for module, distributions in metadata.packages_distributions().items():
        if any(canonicalize_name(one) in locked for one in distributions):
            available.add(module)
    for text in ("import torch", "from torch import nn", "from choral.learning import torch_steps"):
        assert unasked_imports(text, available) == {"torch"}
        assert not unasked_imports(f'torch = pytest.importorskip("torch")\n{text}', available)
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "lab/tests").rglob("*.py")]
    found = {str(path.relative_to(ROOT)): unasked_imports(path.read_text(), available) for path in files}
    assert {name: one for name, one in found.items() if one} == {}


def test_a_room_that_is_not_on_the_map_is_caught(copy_of_the_house):
    (copy_of_the_house / "src/choral/utils.py").write_text('"""A room that nobody planned."""\n')
    planted = lint_imports(copy_of_the_house)
    assert planted.returncode == 1
    assert "choral.utils" in planted.stdout


def test_the_map_shows_every_room_on_its_floor():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    floors = [layer.split(" | ") for layer in contract["layers"]]
    drawn = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1].strip().splitlines()
    assert [line.split()[: len(floor)] for line, floor in zip(drawn, floors, strict=True)] == floors


def named_against_the_arrows(house):
    """Every string of a module that is the name of a room above its own, or of a neighbour: an import in disguise."""
    contract = tomllib.loads((house / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    height = {room: -level for level, rooms in enumerate(contract["layers"]) for room in rooms.split(" | ")}
    found = set()
    for path in sorted((house / "src" / "choral").rglob("*.py")):
        own = path.relative_to(house / "src" / "choral").parts[0].removesuffix(".py")
        texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        named = [re.fullmatch(r"choral\.(\w+)(?:\.\w+)*(?::\w+)?", text) for text in texts if isinstance(text, str)]
        rooms = {match[1] for match in named if match} & set(height) - {own}
        found |= {(own, room) for room in rooms if own in height and height[room] >= height[own]}
    return found


def test_no_room_loads_a_room_above_it_by_its_name(copy_of_the_house):
    assert named_against_the_arrows(copy_of_the_house) == set()
    with (copy_of_the_house / "src/choral/backends/flower/__init__.py").open("a") as file:
        file.write('\nABOVE, NEIGHBOUR, BELOW = "choral.deploy.serving:conduct", "choral.config", "choral.core.plan"\n')
    assert named_against_the_arrows(copy_of_the_house) == {("backends", "deploy"), ("backends", "config")}


PLANTED = {
    "an unused import": ("import os\n", "F401"),
    "an untyped public function": ('def twice(x):\n    """Twice x."""\n    return 2 * x\n', "ANN001"),
    "an undocumented public function": ("def twice(x: int) -> int:\n    return 2 * x\n", "D103"),
    "an undocumented public class": ("class Twice:\n    pass\n", "D101"),
    "a parameter that hides a builtin": (
        'def next_to(round: int) -> int:\n    """The next."""\n    return round + 1\n',
        "A002",
    ),
    "an eval": ('def run(text: str) -> object:\n    """What it says."""\n    return eval(text)\n', "S307"),
    "a pickle": ("import pickle\n\nX = pickle.loads(b'')\n", "S301"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_linter_catches(fault, copy_of_the_house):
    code, rule = PLANTED[fault]
    (copy_of_the_house / "src/choral/core/planted.py").write_text(f'"""A planted fault."""\n\n{code}')
    result = run("ruff", "check", "--no-cache", "src/choral/core/planted.py", cwd=copy_of_the_house)
    assert result.returncode == 1
    assert rule in result.stdout


def test_the_type_checker_catches_a_wrong_type(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "planted.py").write_text("def half(x: int) -> int:\n    return x / 2\n")
    result = run("mypy", "--cache-dir", str(tmp_path / "cache"), "planted.py", cwd=tmp_path)
    assert result.returncode == 1
    assert 'got "float", expected "int"' in result.stdout


def test_every_module_opens_with_a_sentence_about_itself():
    assert [path.name for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_no_source_file_is_longer_than_800_lines():
    assert {path.name: n for path in SOURCES if (n := len(path.read_text().splitlines())) > 800} == {}


MANY_PARAMETERS = {
    "convergence": "public: the symbols of Theorem 2, each by its name",
}


def test_no_function_takes_more_than_12_parameters():
    found = {
        node.name: count
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        if (count := len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])) > 12
    }
    assert set(found) == set(MANY_PARAMETERS), "group some of them into a value, such as a Plan or a Study"


MOST_PRIVATE = 23  # faults that no public way plants, and processes of other programs; was 97
# Names with an underscore that belong to Python, or that notebooks look for.
PYTHONS_OWN = ("_exit", "_replace", "_actions", "_repr_html_", "_repr_svg_")


def private_touches(tests):
    """Every place where a test takes something private of choral: an attribute, an import, or a name to patch."""
    for path in sorted(tests.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            match node:
                case ast.Attribute(value=owner, attr=name) if ast.unparse(owner) not in ("self", "cls", "super()"):
                    names = [name]
                case ast.ImportFrom(module=str(module), names=imported) if module.startswith("choral"):
                    names = [one.name for one in imported]
                case ast.Call(func=ast.Attribute(attr="setattr"), args=arguments):
                    texts = [one.value for one in arguments if isinstance(one, ast.Constant)]
                    names = [text.rpartition(".")[2] for text in texts if isinstance(text, str)]
            for name in names:
                if name.startswith("_") and not name.startswith("__") and name not in PYTHONS_OWN:
                    yield f"{path.relative_to(tests)}:{node.lineno} {name}"


def test_tests_take_little_that_is_private_and_the_count_only_falls(tmp_path):
    (tmp_path / "test_planted.py").write_text(
        "from choral.core.zcdp import _low, high\n"
        "agent._train(self._own)\n"
        "monkeypatch.setattr(module, '_LOOK', 0.0)\n"
        "monkeypatch.setattr('choral.deploy.services._LOOK', 0.0)\n"
        "os._exit(0); agent.__class__\n"
    )
    assert sorted(touch.split()[1] for touch in private_touches(tmp_path)) == ["_LOOK", "_LOOK", "_low", "_train"]
    found = [*private_touches(ROOT / "tests"), *private_touches(ROOT / "lab/tests")]
    assert len(found) <= MOST_PRIVATE, "\n".join(found)


def test_no_secret_room_uses_a_seeded_generator():
    rooms = [path for path in SOURCES if path.parent.name in ("secagg", "protocol")]
    guilty = [path.name for path in rooms if re.search(r"np\.random|numpy\.random|import random", path.read_text())]
    assert guilty == []


def test_the_locks_hold_pinned_packages_and_hashes_and_nothing_else():
    # So neither an address nor an option of an installer can stand in one.
    line = re.compile(r"[\w.\[\]-]+==\S+( ; .+)? \\| {4}--hash=sha256:[0-9a-f]{64}( \\)?")
    locks = sorted(path.name for path in ROOT.glob("requirements*.lock"))
    assert locks == [
        "requirements-dev.lock", "requirements-docs.lock", "requirements-encoder.lock", "requirements-flower.lock",
        "requirements.lock",
    ]  # fmt: skip
    for lock in locks:
        lines = (ROOT / lock).read_text().splitlines()
        assert "--hash=sha256:" in lines[1]
        assert [other for other in lines if not line.fullmatch(other)] == []


def test_a_lock_is_installed_as_it_is_without_solving_it_again():
    # The pip of Python 3.11 does not find the pin of `sqlalchemy` where a package asks for `sqlalchemy[asyncio]`. It
    # took the newest version, which has no hash in the lock, so `make test` ended on new machines when one came out.
    places = ["Makefile", "containers/Containerfile", "docs/deployment.md"]
    lines = [line for place in places for line in (ROOT / place).read_text().splitlines() if "--require-hashes" in line]
    assert len(lines) == 7
    assert [line for line in lines if "--no-deps" not in line] == []


def pins(lock):
    """The versions of a lock by package: more than one where they differ by platform."""
    found = {}
    for name, version in re.findall(r"(?m)^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / lock).read_text()):
        found.setdefault(name, set()).add(version)
    return found


def needed_by(requirement):
    """The names of all packages that a requirement brings here, itself included; extras are followed."""
    found, left = {}, [Requirement(requirement)]
    while left:
        one = left.pop()
        name, wanted = canonicalize_name(one.name), {"", *one.extras}
        if wanted <= found.get(name, set()):
            continue
        found[name] = found.get(name, set()) | wanted
        for more in map(Requirement, metadata.requires(name) or ()):
            if more.marker is None or any(more.marker.evaluate({"extra": extra}) for extra in wanted):
                left.append(more)
    return set(found)


@pytest.mark.parametrize(("lock", "extras"), [("flower", "flower"), ("encoder", "flower,encoder")])
def test_a_site_can_install_all_that_it_needs_by_hash_in_the_versions_that_are_tested_here(lock, extras):
    pytest.importorskip("flwr", reason="an extra of choral's")
    site, tested = pins(f"requirements-{lock}.lock"), pins("requirements-dev.lock")
    needed = needed_by(f"choral[{extras}]") - {"choral"}
    assert "flwr" in needed and "h11" in needed  # what the gate is written on comes with it
    assert ("onnxruntime" in needed) == (lock == "encoder")
    assert needed <= set(site)
    assert set(pins("requirements.lock")) <= set(site)  # and with what is to be there to build choral from its source
    apart = {name for name, versions in site.items() if name in tested and not versions <= tested[name]}
    assert apart == set() and set(site) - set(tested) <= set(pins("requirements.lock"))
    assert f"requirements-{lock}.lock" in (ROOT / "docs/deployment.md").read_text()


def test_every_error_code_that_the_code_raises_is_listed_and_every_listed_code_is_documented_once():
    from choral.core.errors import CODES

    raised = {code for path in SOURCES for code in re.findall(r'"(CH\d{3})"', path.read_text())}
    assert raised <= set(CODES)
    assert len(set(CODES.values())) == len(CODES)
