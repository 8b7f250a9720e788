"""Rounds that stay on the processors: the integers of rounds that the host draws, on any number of processors."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests.engine.test_compiled import PLAN, engine, start

COHORTS = [[0, 1, 2], [3, 4], [5, 6, 7, 8, 11], [0, 9], [1, 10, 11]]
PLANS = {
    "poisson": PLAN,
    "continue": dataclasses.replace(PLAN, sampling="partition", passes="continue"),
    "reshuffle": dataclasses.replace(PLAN, sampling="partition", passes="reshuffle"),
}


def of_plan(name, *, stay=None):
    """The sum of a round and the model after five rounds, as text; `stay` makes one processor draw."""
    one = engine(PLANS[name], lanes=2, stay=stay)
    total = one.train(start(), 2, np.arange(12), np.arange(12) != 5).total
    *_, last = one.rounds(start(), [np.array(cohort) for cohort in COHORTS], first=4, every=3)
    return [total.tobytes().hex(), last.parameters.tobytes().hex(), one.rounds_of.tolist()]


SOME = ["continue", *(pytest.param(name, marks=pytest.mark.long) for name in ("poisson", "reshuffle"))]


@pytest.mark.parametrize("name", SOME)
def test_rounds_that_stay_have_the_integers_of_rounds_that_the_host_draws(name):
    assert of_plan(name, stay=True) == of_plan(name)


def others(script, count, **variables):
    """What so many processes print that run the script side by side."""
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": "src:.", "CHORAL_CACHE": "off", **variables}
    words = [sys.executable, "-c", textwrap.dedent(script)]
    running = [
        subprocess.Popen([*words, str(number)], env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for number in range(count)
    ]
    ends = [one.communicate(timeout=240) for one in running]
    assert [one.returncode for one in running] == [0] * count, ends[0][1][-2000:]
    return [json.loads(printed.splitlines()[-1]) for printed, _ in ends]


@pytest.mark.long
def test_four_processors_of_one_process_give_the_integers_of_the_host():
    script = """
        import json
        from tests.engine.test_draws import PLANS, engine, of_plan
        assert engine().resident.width == 4
        print(json.dumps({name: of_plan(name) for name in PLANS}))
    """
    (found,) = others(script, 1, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert found == {name: of_plan(name) for name in PLANS}


@pytest.mark.long
def test_two_processes_with_two_processors_each_give_the_integers_of_the_host():
    script = f"""
        import json, sys, jax
        jax.distributed.initialize("127.0.0.1:{free_port()}", num_processes=2, process_id=int(sys.argv[1]))
        from tests.engine.test_draws import PLANS, engine, of_plan
        assert engine().resident.width == 4 and len(jax.local_devices()) == 2
        print(json.dumps({{name: of_plan(name) for name in PLANS}}))
    """
    found = others(script, 2, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    assert found == [{name: of_plan(name) for name in PLANS}] * 2


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]
