"""Every module has a test file of its name, or one that calls it directly, or a reason why neither is needed."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src" / "choral", ROOT / "tests"

# Modules that no test imports, and what does test them.
EXEMPT = {
    "choral.cli.": "verbs are tested by the words that people type: tests/cli, tests/report/test_verbs.py and others",
    "choral.research.": "tests/research asks the room by its front door, and draws its panels and pages",
    "choral.planner.": "tests/test_planner.py asks the room by its one front door",
    "choral.front": "choral.simulate, rehearse and fit are called by tests/run and tests/examples",
    "choral.asking.": "tests/asking asks the room by its front door, choral.asking.catalogue, kind by kind",
    "choral.backends.compiled": "the engine's programs, run in every test of tests/backends/test_vectorised.py",
    "choral.backends.once": "simulations with noise once: tests/run/test_once.py compares them with rehearsals",
    "choral.plan.": "tests/test_plan.py and tests/test_secure_sum_plan.py ask the room by its front door",
    "choral.backends.drawing": "the engine's batches and noise, compared in tests/backends/test_vectorised.py",
    "choral.backends.flower.conducting": "a process, started in tests/backends/test_flower.py",
    "choral.backends.flower.enclosed": "a process, started in tests/backends/test_flower_strangers.py",
    "choral.backends.flower.executor": "a process, started in tests/backends/test_flower.py",
    "choral.backends.flower.tasks": "the loop of those two processes",
    "choral.config.settings": "tables of fields: tests/test_config.py tries every one of them",
    "choral.config.lines": "where a complaint's line is found: tests/test_config.py compares every line number",
    "choral.deploy.preview": "a table of fields that tests/deploy/test_site.py and tests/cli/test_sites.py read",
    "choral.deploy.public_test": "31 lines, run by tests/deploy/test_serving.py",
    "choral.deploy.reserving": "approvals reserve: tests/deploy/test_site.py, tests/attacks/test_deployed_sites.py",
    "choral.learning.batches.": "tests/learning/test_batches.py asks the room by its one front door, drawer_of",
    "choral.learning.models.": "tests/learning/test_models.py asks the room by its front door",
    "choral.learning.feed": "rows read in pieces, compared in tests/backends/test_vectorised.py",
    "choral.learning.fit": "33 lines, run by every engine of tests/backends/test_vectorised.py",
    "choral.privacy.mechanisms.": "tests/privacy/test_mechanisms.py and test_golden.py ask the room by its front door",
    "choral.record.": "tests/record/test_fields.py and tests/run/test_folder.py use the front door",
    "choral.report.attacker": "a section of the page that tests/report/test_report_page.py reads",
    "choral.report.questions": "tests/cli/test_ask.py goes through verify and the page, as people do",
    "choral.report.signed": "tests/run/test_forged_runs.py goes through verify, as people do",
    "choral.report.trust": "the last line of verify: tests/run/test_forged_runs.py",
    "choral.run.baselines": "run by --compare: tests/run/test_regression.py and test_unusual.py",
    "choral.run.devices": "37 lines, run by every rehearsal",
    "choral.run.metrics": "25 lines, run by every simulation",
    "choral.run.register": "30 lines, run by every question of tests/run/test_inquiry.py",
    "choral.run.result": "what choral.simulate returns: tests/run/test_runs.py",
    "choral.run.watch": "a callback of one line; tests/cli/test_terminal.py sees its bars",
}


def modules():
    for file in sorted(SOURCE.rglob("*.py")):
        if file.stem not in ("__init__", "__main__"):
            yield file.relative_to(SOURCE).with_suffix("").parts


def has_a_file_of_its_name(parts):
    """As tests/protocol/test_bonds.py for choral.protocol.bonds; deeper names are joined, as test_flower_gate.py."""
    room, rest = (parts[:1], parts[1:]) if len(parts) > 1 else ((), parts)
    return TESTS.joinpath(*room, f"test_{'_'.join(rest)}.py").exists()


def called_directly():
    """All that tests import from choral, by its full name."""
    for file in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{name.name}" for name in node.names)
            elif isinstance(node, ast.Import):
                yield from (name.name for name in node.names)


def test_every_module_has_its_tests_or_a_reason_why_they_are_elsewhere():
    called, groups = set(called_directly()), tuple(name for name in EXEMPT if name.endswith("."))
    untested = [
        name
        for parts in modules()
        if (name := ".".join(("choral", *parts))) not in called
        if not has_a_file_of_its_name(parts) and name not in EXEMPT and not name.startswith(groups)
    ]
    assert untested == [], "write a test file of that name, or say in EXEMPT what tests it"
