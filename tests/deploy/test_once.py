"""A deployment with noise once (rule S7): sites see both figures, keep both limits, and check the study themselves."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from choral.accounting.words import up
from choral.backends.wire import Wire
from choral.cli.approval import screen
from choral.core.codec import quantise
from choral.core.errors import LedgerError, SumError, TrustError
from choral.core.exposure import SUMS
from choral.core.ledger import Ledger
from choral.core.messages import Turn
from choral.deploy import approving
from choral.deploy.agent import Agent
from choral.deploy.home import Policy
from choral.learning.once import noisy_upload
from tests.run.consortium import JOB, Consortium, as_server

LOCAL = "[local]\nsteps = 2\nbatch = 12\nstep_size = 0.5\nclip = 1.0\n"
ONCE = JOB.replace(LOCAL, "").replace("delta = 1e-4", 'delta = 1e-4\nnoise_is_added = "once"')


class Agents:
    """Agents of this process, asked as a relay asks them."""

    def __init__(self, running, terms):
        self.agents = [running[name] for name in terms.ids]

    def exchange(self, outbox):
        for number, frame in outbox.items():
            yield number, as_server(self.agents[number], bytes(frame))


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("once"), job=ONCE)


@pytest.fixture
def consortium(enrolled, tmp_path):
    return enrolled.copy(tmp_path)


def approve(consortium, *, epsilon=5.0, **limits):
    study = consortium.study / "study.toml"
    policy = Policy(epsilon=epsilon, delta=1e-4, **limits)
    return [
        approving.approve(home, study, policy, consortium.tables[name], record=True)
        for name, home in consortium.homes.items()
    ]


def rounds(consortium, count):
    """So many rounds of a server with these sites' agents; the model after them."""
    study = consortium.agreement
    model = study.settled.model.start(0)
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(Agent(home)) for name, home in consortium.homes.items()}
        wire = Wire(study.terms, Agents(running, study.terms))
        wire.agree(Turn(1, 0), range(3))
        for number in range(1, count + 1):
            total = wire.attempt(Turn(number, 0), range(3), model)
            model = model + np.float32(total.integers / total.count * study.terms.codec.grid)
    return model


def test_sites_train_and_their_ledgers_keep_both_figures(consortium):
    shown = approve(consortium)
    assert {one.rule for one in shown} == {"S7"} and {one.noise_on for one in shown} == {"the upload"}
    model = rounds(consortium, 3)
    assert np.isfinite(model).all() and np.abs(model).max() > 0
    for home in consortium.homes.values():
        ledger = Ledger.read(home.ledger_path)
        assert len(ledger.balance.charges) == 3
        # Three devices and no colluder: a lying server's sums hold at least two honest noises.
        assert ledger.balance.against(SUMS).spent() < 0.75 * ledger.balance.epsilon


def test_a_limit_for_sums_refuses_a_study_that_would_pass_it(consortium):
    with pytest.raises(LedgerError, match=r"CH408.*a server that sees only sums"):
        approve(consortium, epsilon_sum=0.5)
    shown = approve(consortium, epsilon_sum=4.0)
    assert {one.epsilon_sum_limit for one in shown} == {4.0}


def test_a_lower_limit_for_sums_refuses_the_next_upload(consortium):
    """The owner lowers it after the rounds: a fourth upload, which the approval allows, would pass it."""
    approve(consortium, epsilon_sum=4.0)
    rounds(consortium, 3)
    for home in consortium.homes.values():
        with Ledger.open(home.ledger_path) as ledger:
            ledger.set_limit(ledger.limit, ledger.balance.against(SUMS).spent() * 1.001)
            with pytest.raises(LedgerError, match=r"CH408.*against a server that sees only sums"):
                ledger.charge(replace(ledger.balance.charges[-1], round=4))


@pytest.mark.parametrize(("size", "code"), [(1e3, "CH700"), (1e9, "CH605")])
def test_a_server_cannot_send_a_model_on_which_rounding_is_not_bounded_and_nobody_pays_for_it(consortium, size, code):
    approve(consortium)
    study = consortium.agreement
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(Agent(home)) for name, home in consortium.homes.items()}
        wire = Wire(study.terms, Agents(running, study.terms))
        wire.agree(Turn(1, 0), range(3))
        with pytest.raises(SumError):
            wire.attempt(Turn(1, 0), range(3), np.full(study.settled.model.size, size, np.float32))
    assert set(wire.findings.refusals.values()) == {code}
    assert not any(Ledger.read(home.ledger_path).balance.charges for home in consortium.homes.values())


def test_a_study_that_trusts_the_sum_needs_a_site_that_has_a_limit_for_it(tmp_path):
    job = ONCE.replace('noise_is_added = "once"', 'noise_is_added = "once"\nagainst = "server and colluders"')
    trusting = Consortium(tmp_path, job=job)
    with pytest.raises(TrustError, match=r"CH603.*holds only if the secure sum does.*--max-epsilon-sum"):
        approve(trusting)
    with pytest.raises(TrustError, match=r"CH603.*would cost ε = 7\..*the policy grants 5"):
        approve(trusting, epsilon_sum=4.0)  # the limit against everyone holds all the same
    shown = approve(trusting, epsilon=8.0, epsilon_sum=4.0)
    limit = trusting.agreement.job.privacy.epsilon
    for one in shown:
        assert one.epsilon_sum_planned <= limit < one.epsilon_planned <= 8.0
        assert f"ε = {up(one.epsilon_sum_planned)} for them if the secure sum holds" in "\n".join(screen(one))
    rounds(trusting, 3)
    for home in trusting.homes.values():
        ledger = Ledger.read(home.ledger_path)
        assert ledger.balance.against(SUMS).spent() <= limit < ledger.balance.epsilon


def test_the_integers_of_a_deployed_round_are_those_of_the_function_that_simulations_run(consortium, monkeypatch):
    """With noise and dither that are known: what sites upload over their agents adds up to the simulation's own sum."""
    approve(consortium)
    study = consortium.agreement
    model, terms = study.settled.model, study.terms
    noise = np.linspace(-2, 2, model.size)
    monkeypatch.setattr("choral.learning.once.secure_normal", lambda _: noise)
    monkeypatch.setattr("choral.core.codec._dither", lambda _, start, stop: np.full(stop - start, 0.5, np.float32))
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(Agent(home)) for name, home in consortium.homes.items()}
        wire = Wire(terms, Agents(running, terms))
        wire.agree(Turn(1, 0), range(3))
        total = wire.attempt(Turn(1, 0), range(3), model.start(0))
    expected = np.zeros(model.size, np.int64)
    for table in consortium.tables.values():
        rows = study.encoded(study.table_in(table))
        upload = noisy_upload(model, study.plan, model.start(0), *rows, noise, key=np.zeros((1, 2), np.uint32))
        expected += quantise(upload, np.float32(0.5), terms.codec.grid)
    assert total.count == 3 and total.integers.tolist() == expected.tolist()
