"""The modules of choral that a site's process loads over a whole study: who trusts one reads these, and no others."""

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from choral.asking.question import Question
from choral.deploy.agent import CUT_OFF, answers
from choral.deploy.asking import put
from choral.deploy.serving import run_folder
from tests.deploy.test_asking import ASKING
from tests.run.consortium import JOB, Consortium, Sockets, agents

PINNED, CHILD = Path(__file__).parent / "loaded.txt", Path(__file__).parent / "child.py"
SITE = "harbour"
# Rooms that no site needs: they propose, measure, show, and run a server.
STRANGE = ("planner", "report", "research", "audit", "attack", "output", "front", "paper", "server", "federation")


@contextmanager
def site_process(home, out, *flags):
    """`choral device run` for a home, as its own process, which writes what it has loaded by its end into a file."""
    words = [sys.executable, "-P", str(CHILD), str(out), "device", "run", *flags, "--home", str(home.path)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not answers(home):
            assert process.poll() is None, "the site's process has ended"
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def loaded_over_a_study(folder, job, questions=()):
    """The names of all modules that one site has loaded when a study of three is over."""
    sites, out = Consortium(folder, job=job), folder / "loaded.txt"
    sites.approve()
    for question in questions:
        put(run_folder(sites.study, sites.agreement).path, sites.agreement, question)
    with (
        site_process(sites.homes[SITE], out, "--agent-only"),
        agents({name: home for name, home in sites.homes.items() if name != SITE}),
    ):
        sites.conductor(Sockets(sites.homes)).run()
    return set(out.read_text(encoding="utf-8").split())


def test_a_site_that_trains_on_a_table_loads_these_modules_and_no_others(tmp_path):
    found, pinned = loaded_over_a_study(tmp_path, JOB), set(PINNED.read_text(encoding="utf-8").split())
    assert not {name for name in found if name.split(".")[1:2] and name.split(".")[1] in STRANGE}
    assert not {name for name in found if name.startswith("choral.asking.")}
    assert found <= pinned, (
        f"a site's process loads {len(found - pinned)} modules more: {', '.join(sorted(found - pinned))}. Put what it "
        f"needs of them where it belongs; or, if whoever trusts a site has to read them, add them to {PINNED}."
    )
    assert pinned <= found, f"a site's process loads these no more, so take them out of {PINNED}: {pinned - found}."


def test_a_site_that_is_asked_loads_the_kinds_of_questions_that_were_asked(tmp_path):
    question = Question(name="mean", parameters={"column": "age"})
    job = ASKING.replace('names = ["count", "table", "logistic"]', 'names = ["count", "mean", "logistic"]')
    found = loaded_over_a_study(tmp_path, job, [question])
    kinds = {"cross_tables", "moments", "column_bounds", "survival", "quantiles", "gradients", "hazard"}
    assert {kind for kind in kinds if f"choral.asking.{kind}" in found} == {"moments"}


def test_a_site_with_its_node_loads_nothing_of_the_servers_half_of_flower(tmp_path):
    pytest.importorskip("flwr", reason="an extra of choral's")
    sites, out = Consortium(tmp_path), tmp_path / "loaded.txt"
    sites.approve(SITE)
    log = sites.homes[SITE].path / "log.jsonl"
    with site_process(sites.homes[SITE], out):
        while CUT_OFF not in log.read_text(encoding="utf-8"):  # it has looked for its server, and nobody is there
            time.sleep(0.1)
    found = {name.rpartition(".")[2] for name in out.read_text(encoding="utf-8").split() if ".flower." in name}
    assert found == {"api", "children", "reach"}
