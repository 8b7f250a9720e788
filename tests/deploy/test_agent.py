"""A device's own process: what it does for one charge does not grow with what it was charged before."""

import sys

import pytest

from choral.deploy.agent import Agent
from tests.run.consortium import JOB, Consortium

ROUNDS = 60


@pytest.fixture(scope="module")
def hill(tmp_path_factory):
    job = JOB.replace("rounds = 3", f"rounds = {ROUNDS}").replace("epsilon = 4.0", "epsilon = 20.0")
    made = Consortium(tmp_path_factory.mktemp("sites"), job=job)
    made.approve("hill", epsilon=30.0)
    return made.homes["hill"]


def lines_of(work):
    """How many lines of Python something takes: its work, which no other load of the machine changes."""
    count = 0

    def trace(_frame, event, _):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_work_of_one_charge_does_not_grow_with_the_ledger(hill):
    with Agent(hill) as agent:

        def pay(number):
            agent._check_payable(number, 0)
            agent.charge(number, 0)

        def work(number):
            return lines_of(lambda: pay(number))

        first = [work(number) for number in range(1, 11)]
        for number in range(11, ROUNDS - 9):
            pay(number)
        last = [work(number) for number in range(ROUNDS - 9, ROUNDS + 1)]
    assert min(last) <= min(first) and max(last) <= 1.1 * max(first)
