"""Power cuts over real Flower: nodes and the SuperLink killed in mid-round, and coming back."""

import contextlib
import random
import threading
import time
from collections import Counter

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from choral.backends.flower.node import LET_IN
from choral.core.errors import DeploymentError, SumError
from choral.core.messages import Turn
from choral.core.plan import SecureSum
from tests.backends.flower_stage import Stage
from tests.protocol.world import World


class Cuts:
    """A world of devices over Flower, whose sites lose their power at chosen moments and get it back later."""

    def __init__(self, world, stage):
        self.world, self.stage = world, stage
        self.included, self.cut = Counter(), Counter()
        self.down = {}  # device -> when it comes back
        self.lock = threading.Lock()

    def restart(self, number):
        """A device over what its disk holds: round secrets are gone."""
        device = self.world.start(number)
        self.stage.answers[number] = device.answer

    def power_cut(self, number, seconds=20.0):
        with self.lock:
            self.stage.kill(number)
            self.restart(number)
            self.cut[number] += 1
            self.down[number] = time.monotonic() + seconds

    def bring_back(self):
        """What a service manager does at the sites; from the main thread, to which children are tied."""
        with self.lock:
            for number in [number for number, until in self.down.items() if time.monotonic() > until]:
                del self.down[number]
                self.stage.open_node(number)
            for number, node in enumerate(self.stage.nodes):
                if number not in self.down:
                    node.check()

    def await_all(self, seconds=300):
        """Return when every site is there again."""

        def here():
            self.bring_back()
            with contextlib.suppress(DeploymentError):
                return self.stage.transport.gather(len(self.stage.ids), patience=4)
            return None

        self.stage.until(here, seconds)

    def round(self, number, cohort, rng, attempts=4):
        """One round, tried until it opens; its sum is right."""
        for attempt in range(attempts):
            self.bring_back()
            self.stage.transport.gather(self.world.terms.secure.smallest_sum, patience=200)
            here = sorted(self.stage.transport.present())
            called = rng.sample(here, min(cohort, len(here)))
            try:
                total = self.world.wire(self.stage.transport).attempt(Turn(number, attempt), called, self.world.model)
            except SumError:
                continue
            assert self.world.agrees(total)
            self.included.update(self.world.terms.numbers[id] for id in total.included)
            return total
        raise AssertionError(f"round {number} never opened")

    def check_charges(self):
        """Nobody is charged less than was released, or more than once a power cut beyond what was used."""
        for number, ledger in enumerate(self.world.ledgers):
            charged = len(ledger.charged)
            assert len(set(ledger.charged)) == charged
            assert self.included[number] <= charged <= self.included[number] + 1, (number, self.cut[number])


@pytest.mark.long
def test_a_node_killed_in_mid_round_is_left_out_and_comes_back():
    world = World(SecureSum(cohort=4, smallest_sum=3, threshold=2), parameters=50)
    with Stage(world.terms.ids, [device.answer for device in world.devices], deadline=40, overhear=False) as stage:
        cuts, rng = Cuts(world, stage), random.Random(1)
        stage.transport.gather(4, patience=120)
        assert cuts.round(1, 4, rng).count == 4
        answer = stage.answers[2]

        def answers_once_more(frame):
            """READY is said; the model arrives, and the power goes before anything is trained."""
            if len(frame) > 200:
                threading.Thread(target=cuts.power_cut, args=(2,)).start()
                time.sleep(3)
            return answer(frame)

        stage.answers[2] = answers_once_more
        total = cuts.round(2, 4, rng)
        assert total.count == 3 and world.terms.ids[2] not in total.included
        cuts.await_all()
        assert cuts.round(3, 4, rng).count == 4
        cuts.check_charges()


@pytest.mark.long
def test_a_node_that_was_killed_is_let_in_when_it_starts_again_and_is_back_within_two_rounds():
    world = World(SecureSum(cohort=4, smallest_sum=3, threshold=2), parameters=50)
    with Stage(world.terms.ids, [device.answer for device in world.devices], deadline=40, overhear=False) as stage:
        cuts, rng = Cuts(world, stage), random.Random(1)
        stage.transport.gather(4, patience=120)
        assert cuts.round(1, 4, rng).count == 4
        stage.kill(2)  # the SuperLink does not hear that it is gone, and believes for a minute that it is there
        stage.open_node(2)
        log = stage.home(2) / "flower" / "node.log"
        Stage.until(lambda: log.read_text().count(LET_IN) == 2 or "Failed to init" in log.read_text(), 60)
        assert "Failed to init" not in log.read_text()
        assert 4 in [cuts.round(number, 4, rng).count for number in (2, 3)]


@pytest.mark.long
def test_a_superlink_killed_in_mid_run_loses_nothing_but_the_turn_under_way():
    world = World(SecureSum(cohort=3, smallest_sum=3, threshold=2), parameters=50)
    with Stage(world.terms.ids, [device.answer for device in world.devices], deadline=40, overhear=False) as stage:
        cuts, rng = Cuts(world, stage), random.Random(1)
        stage.transport.gather(3, patience=120)
        assert cuts.round(1, 3, rng).count == 3
        stage.kill_server()
        stage.open_server()
        stage.begin()
        cuts.await_all()
        assert cuts.round(2, 3, rng).count == 3
        cuts.check_charges()


@pytest.mark.long
def test_sixteen_nodes_with_a_million_parameters_of_which_a_third_lose_power_over_twenty_rounds():
    secure = SecureSum(cohort=12, smallest_sum=9, threshold=8, colluders=2)
    world = World(secure, devices=16, parameters=1_000_000)
    rng = random.Random(7)
    # 30 % of 16, each once, in rounds of their own choice, at any moment of the round.
    victims = dict(zip(sorted(rng.sample(range(1, 20), 5)), rng.sample(range(16), 5), strict=True))
    with Stage(world.terms.ids, [device.answer for device in world.devices], deadline=90, overhear=False) as stage:
        cuts = Cuts(world, stage)
        stage.transport.gather(16, patience=280)
        for number in range(1, 21):
            timer = None
            if number in victims:
                timer = threading.Timer(rng.uniform(0, 15), cuts.power_cut, args=(victims[number],))
                timer.start()
            begin = time.monotonic()
            total = cuts.round(number, 12, rng)
            print(f"round {number}: {total.count} in {time.monotonic() - begin:.0f} s", flush=True)
            if timer is not None:
                timer.join()
        assert sum(cuts.cut.values()) == 5
        cuts.check_charges()
