"""Probes in a turn: exact through drop-outs and rings, one answer a turn, refusals; vectors by both implementations."""

import json
from pathlib import Path

import numpy as np
import pytest

from choral.core.errors import SumError
from choral.core.messages import Final, Open, OpenedKeys, Probe, Refusal, Turn, decode, encode, pack, unpack
from choral.core.plan import SecureSum
from choral.probes import round as probing
from choral.probes.projections import answers_of
from choral.probes.round import ProbedRound, ProbeInquiry
from choral.server.uploads import Uploads
from tests.protocol.world import FIRST, World
from tests.vectors import first_probes, second_probes
from tests.vectors.answers import expected, outcome

FIVE = SecureSum(cohort=5, smallest_sum=3, threshold=2, adversary="curious")
VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "probes.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("implementation", [first_probes, second_probes], ids=["choral", "second"])
@pytest.mark.parametrize("vector", VECTORS, ids=[f"{vector['kind']}, {vector['name']}" for vector in VECTORS])
def test_both_implementations_answer_as_the_vector_says(vector, implementation):
    assert outcome(implementation, vector) == expected(vector)


def test_there_are_good_and_bad_vectors_of_frames_and_turns_and_the_second_implementation_is_its_own():
    kinds = {(vector["kind"], "refused" in vector) for vector in VECTORS}
    assert len(kinds) == 5  # what a device answers is never refused there
    text = (Path(__file__).parents[1] / "vectors" / "second_probes.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80 and "from choral" not in text and "import choral" not in text


def world(secure=FIVE, **terms):
    return World(secure, parameters=7, **{"probes": 8, "opened_turns": 1} | terms)


def at_probe(world, **how):
    """A round whose uploads are in, at its probes."""
    round = world.round(**how)
    world.step(round)
    assert round.stage == "probe"
    return round


def test_uploads_are_read_one_at_a_time_for_their_digests(monkeypatch):
    """They may be in a file, which has room for what the memory has not."""
    steps, digest = [], probing.upload_digest

    class Shelf(dict):
        def __getitem__(self, number):
            steps.append("read")
            return super().__getitem__(number)

    def digested(*given):
        steps.append("digest")
        return digest(*given)

    monkeypatch.setattr(probing, "upload_digest", digested)
    here = world()
    round = ProbedRound(here.readiness(), here.model.tobytes(), uploads=Uploads(here.terms.codec.word_bits, Shelf()))
    while round.stage != "probe":
        here.step(round)
    own = steps[-10:]  # devices take the digests of their own uploads earlier
    assert own == ["read", "digest"] * 5


@pytest.mark.parametrize("bits", [{}, {"modulus_bits": 16}, {"modulus_bits": 64}])
@pytest.mark.parametrize("silent", [[], [{4}], [set(), {1}], [{4}, {1}], [set(), {1}, set(), {3}]])
def test_answers_belong_to_the_sum_whoever_drops_out_in_whatever_ring(bits, silent):
    here = world(SecureSum(cohort=5, smallest_sum=3, threshold=2, adversary="curious", **bits))
    watched = np.array([1, -1, 0, 127, -128, 5, 9], np.int8).tobytes()
    round, missing = here.round(inquiry=ProbeInquiry(watched=watched)), list(silent)
    while round.sum is None:
        here.step(round, missing.pop(0) if missing else ())
    assert here.agrees(round.sum)
    for number, said in round.asked.answers.items():
        rows = np.frombuffer(watched, np.int8)[None]
        assert said.tolist() == answers_of(round.asked.seed, 8, here.update(number).astype(np.int64), rows).tolist()


def test_who_is_silent_or_refused_by_the_judge_is_dropped_and_the_judge_is_asked_for_no_more_than_can_be_spared():
    here, asked = world(), []

    def judge(answers, most):
        asked.append((sorted(answers), most))
        return {2}

    round = at_probe(here, inquiry=ProbeInquiry(judge=judge))
    here.step(round, silent={4})
    assert asked == [([0, 1, 2, 3], 1)]
    assert here.finish(round).included == tuple(here.terms.ids[number] for number in (0, 1, 3))


def test_a_device_that_is_restarted_between_upload_and_answer_is_silent_and_trains_nothing_again():
    here = world()
    round = at_probe(here)
    here.devices[2] = here.start(2, train=None, encode=None)
    answers = here.step(round)
    assert isinstance(answers[2], Refusal) and answers[2].code == "CH605"
    found = here.finish(round)
    assert found.count == 4 and here.agrees(found)
    assert here.ledgers[2].charged == [(0, 0)]


def refuses(here, number, message, vector=b""):
    said = here.read(here.devices[number].answer(encode(message, vector)))
    return said.code if isinstance(said, Refusal) else None


def honest_probe(round, number=1):
    frame = round.outbox()[number]
    return decode(frame, vector_bytes=28, records_bytes=680)[0]


def test_a_second_probe_is_refused_and_ends_the_turn():
    here = world()
    round = at_probe(here)
    message = honest_probe(round)
    assert refuses(here, 1, message) is None
    assert refuses(here, 1, message) == "CH605"
    assert refuses(here, 1, Final(turn=FIRST, following=None)) == "CH605"


def changed(message, change):
    digests = change(unpack(message.digests, 32, most=9))
    return Probe(turn=message.turn, digests=pack(digests))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda digests: {n: d for n, d in digests.items() if n != 1}, "CH605"),  # without its own
        (lambda digests: digests | {1: bytes(32)}, "CH605"),  # its own, changed
        (
            lambda digests: {n: digests[n] for n in (0, 1, 2)} | {77: bytes(32)},
            "CH605",
        ),  # of a device outside the cohort
        (lambda digests: {n: digests[n] for n in (0, 1)}, "CH605"),  # of fewer than are ever opened
    ],
)
def test_probes_over_a_foreign_list_of_digests_are_refused(change, code):
    here = world()
    message = honest_probe(at_probe(here))
    assert refuses(here, 1, changed(message, change)) == code
    assert refuses(here, 1, message) == "CH605"  # a doubt ends the turn


def test_probes_before_the_upload_of_another_turn_after_drop_outs_and_of_odd_vectors_are_refused():
    here = world()
    message = Probe(turn=FIRST, digests=pack(dict.fromkeys(range(5), bytes(32))))
    assert refuses(here, 1, message) == "CH605"
    round = at_probe(here)
    message = honest_probe(round)
    assert refuses(here, 0, Probe(turn=Turn(1, 0), digests=message.digests)) == "CH605"
    assert refuses(here, 2, message, b"123") == "CH600"
    assert refuses(here, 3, message, bytes(5 * 7)) == "CH600"  # longer than a model


def test_terms_without_probes_take_none():
    here = World(FIVE, parameters=7)
    round = here.round()
    here.step(round)
    assert refuses(here, 1, Probe(turn=FIRST, digests=pack(dict.fromkeys(range(5), bytes(32))))) == "CH605"


def test_the_terms_digest_holds_probes_and_opened_turns_only_where_there_are_any():
    digests = {
        World(FIVE, probes=probes, opened_turns=turns).terms.digest for probes, turns in ((0, 0), (8, 0), (8, 1))
    }
    assert len(digests) == 3
    asked = world().terms.asked(b"{}", secure=FIVE, codec=world().terms.codec, length=3)
    assert asked.extension is None


def finished(here, turn=FIRST):
    round = here.round(turn)
    here.finish(round)
    return round


def test_opened_turns_are_counted_in_the_vault_and_the_next_is_refused_also_after_a_restart():
    here = world(opened_turns=2)
    for number in range(2):
        finished(here, Turn(number, 0))
        assert isinstance(here.read(here.devices[1].answer(encode(Open(turn=Turn(number, 0))))), OpenedKeys)
    assert refuses(here, 1, Open(turn=Turn(1, 0))) == "CH605"  # once for each turn
    finished(here, Turn(2, 0))
    assert refuses(here, 1, Open(turn=Turn(2, 0))) == "CH609"
    here.devices[1] = here.start(1)
    assert here.devices[1].vault.memory.opened == 2
    finished(here, Turn(3, 0))
    assert refuses(here, 1, Open(turn=Turn(3, 0))) == "CH609"


def test_a_turn_is_opened_only_after_its_sum_and_before_the_next_upload():
    here = world(opened_turns=3)
    round = at_probe(here)
    assert refuses(here, 1, Open(turn=FIRST)) == "CH605"
    here.finish(round)
    next_round = here.round(Turn(1, 0))
    here.step(next_round)
    assert refuses(here, 1, Open(turn=FIRST)) == "CH605"


def test_an_audit_of_an_honest_turn_names_nobody_and_keeps_its_sum():
    here = world()
    round = here.round(inquiry=ProbeInquiry(audit=True))
    while round.sum is None:
        here.step(round)
    assert here.agrees(round.sum) and not round.findings.named
    assert [device.vault.memory.opened for device in here.devices] == [1] * 5


def test_an_audit_with_nothing_left_to_open_keeps_the_sum_of_a_turn_that_passed():
    here = world(opened_turns=0)
    round = here.round(inquiry=ProbeInquiry(audit=True))
    assert here.agrees(here.finish(round))


def test_a_turn_without_enough_answers_ends_before_anything_is_opened():
    here = world()
    round = at_probe(here)
    with pytest.raises(SumError, match="CH503"):
        here.step(round, silent={0, 1, 2})


def test_an_old_vault_that_is_put_back_opens_nothing_more():
    """The ledger knows charges that the old copy does not, and the copy may have forgotten opened turns."""
    here = world(opened_turns=2)
    finished(here, Turn(0, 0))
    old = here.devices[1].vault.memory
    for number in (1, 2):
        finished(here, Turn(number, 0))
        assert isinstance(here.read(here.devices[1].answer(encode(Open(turn=Turn(number, 0))))), OpenedKeys)
    here.devices[1].vault.memory = old
    assert old.opened == 0
    finished(here, Turn(3, 0))
    assert refuses(here, 1, Open(turn=Turn(3, 0))) == "CH609"
