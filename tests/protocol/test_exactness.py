"""The opened sum is the plain sum: over random plans, mask modes and patterns of drop-outs, and over many rounds."""

import random

import numpy as np
import pytest

from choral.core.errors import SumError
from choral.core.plan import SecureSum
from choral.run.planning import sparse
from tests.cases import cases
from tests.protocol.world import SilentTransport, World

ENROLMENTS = (2, 3, 5, 10, 30, 200)


def a_plan(dice: random.Random, cohort: int) -> SecureSum:
    """Any plan on a complete graph that its own bounds allow."""
    adversary = dice.choice(("curious", "lying"))
    smallest = dice.randint(cohort // 2 + 1 if cohort > 2 else 2, cohort)
    if adversary == "lying":
        # s + u_min ≥ r + c + 1 and s ≤ u_min - 1 need 2·u_min ≥ r + c + 2.
        smallest = max(smallest, (cohort + 3) // 2)
        colluders = dice.randint(0, 2 * smallest - cohort - 2)
        threshold = dice.randint(cohort + colluders + 1 - smallest, smallest - 1)
    else:
        threshold = dice.randint(1, smallest - 1)
        colluders = dice.randint(0, threshold - 1)
    bits = dice.choice((16, 32, 64))
    return SecureSum(
        cohort=cohort,
        smallest_sum=smallest,
        threshold=threshold,
        colluders=colluders,
        adversary=adversary,
        modulus_bits=bits,
    )


def a_pattern(dice: random.Random, called: list[int], secure: SecureSum) -> dict[int, int]:
    """Who falls silent from which exchange on (1 UPLOAD, 2 and 3 EDGES or FINAL), so that the sum must still open."""
    spare = len(called) - secure.smallest_sum
    order = dice.sample(called, len(called))
    before_final = dice.randint(0, spare)
    pattern = {number: dice.choice((1, 2, 3)) for number in order[:before_final]}
    # Whoever is left must find s holders besides itself who answer FINAL.
    spare_at_final = len(called) - before_final - 1 - secure.threshold
    for number in order[before_final:][: dice.randint(0, max(spare_at_final, 0))]:
        pattern[number] = 99
    return pattern


class Pattern(SilentTransport):
    """As SilentTransport, but 99 means: silent in FINAL only, whenever that comes."""

    def exchange(self, outbox):
        for number, reply in super().exchange(outbox):
            message = self._world.read(reply)
            if not (self._silent_from.get(number) == 99 and type(message).__name__ == "Opening"):
                yield number, reply


def one_case(seed: int, *, most_devices: int, most_parameters: int) -> None:
    dice = random.Random(seed)
    enrolled = dice.choice([count for count in ENROLMENTS if count <= most_devices])
    cohort = dice.randint(2, enrolled)
    parameters = dice.choice((0, 1, 2, int(10 ** dice.uniform(0, np.log10(most_parameters)))))
    world = World(a_plan(dice, cohort), devices=enrolled, parameters=parameters, seed=seed)
    called = sorted(dice.sample(range(enrolled), cohort))
    pattern = a_pattern(dice, called, world.terms.secure)
    transport = Pattern(world, pattern)
    total = world.wire(transport, attempts=1).sum(dice.randint(0, 10**6), called, world.model)
    assert world.agrees(total), seed
    world.remember_pairs()
    # Silent in UPLOAD is out of the sum for certain; silent in FINAL alone is in it for certain.
    included = {world.terms.numbers[id] for id in total.included}
    assert not included & {number for number, step in pattern.items() if step == 1}
    assert included >= set(called) - {number for number, step in pattern.items() if step != 99}


@pytest.mark.parametrize("block", range(4))
def test_the_opened_sum_is_the_plain_sum_in_random_cases(block):
    for seed in range(100 * block, 100 * (block + 1)):
        one_case(seed, most_devices=30, most_parameters=100)


@pytest.mark.long
@pytest.mark.parametrize("block", cases(40, quick=15))
def test_the_opened_sum_is_the_plain_sum_in_twenty_thousand_random_cases(block):
    for seed in range(1000 + 500 * block, 1000 + 500 * (block + 1)):
        large = seed % 20 == 0
        one_case(seed, most_devices=200 if large else 30, most_parameters=100_000 if large else 3_000)


def test_every_pattern_of_drop_outs_at_or_above_the_threshold_opens_and_none_below():
    # r = 5, u_min = 4, s = 3: each device stays, or is silent from UPLOAD, EDGES or FINAL on; 4^5 patterns.
    world = World(SecureSum(cohort=5, smallest_sum=4, threshold=3, colluders=1), parameters=3)
    opened = 0
    for code in range(4**5):
        steps = [code // 4**place % 4 for place in range(5)]
        pattern = {number: {1: 1, 2: 2, 3: 99}[step] for number, step in enumerate(steps) if step}
        out = {number for number, step in pattern.items() if step == 1}
        if out:
            # Somebody was missing, so EDGES is asked, and silence in it is a drop-out. Else exchange 2 is FINAL.
            out |= {number for number, step in pattern.items() if step == 2}
        included = set(range(5)) - out
        answer_final = {number for number in included if number not in pattern}
        opens = len(included) >= 4 and all(len(answer_final - {owner}) >= 3 for owner in included)
        try:
            total = world.wire(Pattern(world, pattern), attempts=1).sum(code, range(5), world.model)
        except SumError as failure:
            assert failure.code == "CH503" and not opens, pattern
        else:
            assert opens and world.agrees(total), pattern
            assert {world.terms.numbers[id] for id in total.included} == included
            opened += 1
    # By hand: nobody missing 1; one missing, in UPLOAD 5 (its four holders answer); one silent in FINAL, by either way
    # (2 or 3 without anybody in UPLOAD), 10 of which the silent one's own mask needs 3 of 4 others: all open.
    assert opened == 1 + 5 + 10


def test_a_sparse_graph_gives_the_plain_sum():
    # Any ten of a hundred may drop out: with 22 neighbours each device keeps the 11 that its threshold needs, or more.
    world = World(sparse(100), parameters=11)
    for round in range(4):
        dice = random.Random(round)
        pattern = {number: dice.choice((1, 2)) for number in dice.sample(range(100), 10)}
        total = world.wire(Pattern(world, pattern), attempts=1).sum(round, range(100), world.model)
        assert world.agrees(total) and total.count >= 90


def test_a_hundred_rounds_on_one_enrolment():
    rounds_on_one_enrolment(100)


@pytest.mark.long
def test_a_thousand_rounds_on_one_enrolment():
    rounds_on_one_enrolment(1000)


def rounds_on_one_enrolment(count: int) -> None:
    world = World(parameters=3, devices=12)
    wire = world.wire()
    dice = random.Random(0)
    called = sorted(dice.sample(range(12), 10))
    for round in range(count):
        following = sorted(dice.sample(range(12), 10))
        assert world.agrees(wire.sum(round, called, world.model, following=following))
        called = following
    assert sum(len(ledger.charged) for ledger in world.ledgers) == 10 * count
