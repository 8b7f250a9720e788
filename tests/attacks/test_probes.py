"""Devices that lie about what they uploaded: caught by the sum of the answers, named when the turn is opened."""

import msgspec
import numpy as np
import pytest

from choral.core.errors import SumError
from choral.core.messages import OpenedKeys, ProbeAnswer, encode, pack, unpack
from choral.core.plan import SecureSum
from choral.probes.projections import upload_digest
from choral.probes.round import ProbeInquiry
from tests.protocol.world import World

SIX = SecureSum(cohort=6, smallest_sum=5, threshold=4, colluders=1)
LIAR = 2


def world(opened_turns=1):
    return World(SIX, parameters=7, probes=8, opened_turns=opened_turns)


def play(here, change, *, audit=False, watched=b"", shown=lambda _, frame: frame):
    """A turn in which `change` may replace what a device says, and `shown` what it hears; the round, and its error."""
    round, error = here.round(inquiry=ProbeInquiry(audit=audit, watched=watched)), None
    while round.sum is None and error is None:
        for number, frame in round.outbox().items():
            message, vector = here.read_all(here.devices[number].answer(shown(number, frame)))
            message, vector = change(number, message, vector)
            round.receive(number, encode(message, vector))
        try:
            round.advance()
        except SumError as raised:
            error = raised
    return round, error


def answering(shift):
    """Devices that add numbers to what they answer."""

    def change(number, message, vector):
        if isinstance(message, ProbeAnswer) and number in shift:
            numbers = np.frombuffer(message.numbers, "<i8") + shift[number]
            message = msgspec.structs.replace(message, numbers=numbers.astype("<i8").tobytes())
        return message, vector

    return change


def test_a_false_answer_fails_the_check_and_the_opened_turn_names_its_sender_alone():
    here = world()
    round, error = play(here, answering({LIAR: 1}))
    assert error.code == "CH505" and round.sum is None
    assert round.findings.named == {LIAR: "answered its probes falsely"}
    assert here.terms.ids[LIAR] in str(error)


def test_a_false_answer_along_the_watched_direction_alone_fails_the_check_and_names_its_sender():
    watched = bytes(range(1, 8))
    assert play(world(), answering({}), watched=watched)[1] is None
    round, error = play(world(), answering({LIAR: np.array([0] * 8 + [1])}), watched=watched)
    assert error.code == "CH505" and round.sum is None
    assert round.findings.named == {LIAR: "answered its probes falsely"}


def test_without_an_opened_turn_the_sum_is_not_applied_and_nobody_is_named():
    round, error = play(world(opened_turns=0), answering({LIAR: 1}))
    assert error.code == "CH505" and round.sum is None and not round.findings.named


def test_two_false_answers_that_cancel_pass_the_check_and_are_named_by_an_audit():
    shift = {LIAR: 1000, 4: -1000}
    round, error = play(world(), answering(shift))
    assert error is None and round.sum is not None
    round, error = play(world(), answering(shift), audit=True)
    assert error.code == "CH505" and round.sum is None
    assert round.findings.named.keys() == shift.keys()


def test_a_device_that_trains_again_for_its_answer_is_caught_by_the_sum():
    """Other noise than it masked: its answer is P·x' for an x' that is one step away in one number."""
    here = world()
    original, seed = here.devices[LIAR], {}

    def change(number, message, vector):
        if isinstance(message, ProbeAnswer) and number == LIAR:
            seed["answer"] = np.frombuffer(message.numbers, "<i8")
            message = msgspec.structs.replace(message, numbers=(seed["answer"] + 255).astype("<i8").tobytes())
        return message, vector

    round, error = play(here, change)
    assert original is here.devices[LIAR] and error.code == "CH505"
    assert round.findings.named == {LIAR: "answered its probes falsely"}


def test_words_out_of_range_are_traced_to_their_sender():
    here, sent = world(), {}

    def change(number, message, vector):
        if number == LIAR and vector:
            sent["honest"] = upload_digest(message.context, here.terms.ids[LIAR], vector)
            words = np.frombuffer(bytes(vector), "<u4").copy()
            words[:7] += np.uint32(2**31)
            vector = words.tobytes()
        return message, vector

    def shown(number, frame):
        """What the liar's own software is shown: the digest that it knows."""
        if number != LIAR or frame[11] != 11:
            return frame
        message = here.read(frame)
        digests = unpack(message.digests, 32, most=6) | {LIAR: sent["honest"]}
        return encode(msgspec.structs.replace(message, digests=pack(digests)))

    round, error = play(here, change, shown=shown)
    assert error.code in ("CH502", "CH505")
    assert round.findings.named == {LIAR: "sent words out of range"}


def test_a_neighbour_that_shows_a_false_pair_key_is_named_and_frames_nobody():
    def change(number, message, vector):
        if isinstance(message, OpenedKeys) and number == 0:
            keys = unpack(message.keys, 32, most=6)
            message = msgspec.structs.replace(message, keys=pack(keys | {LIAR: bytes(32)}))
        return message, vector

    round, error = play(world(), change, audit=True)
    assert error.code == "CH505"
    assert round.findings.named == {0: "revealed another mask key than it had laid down"}


def test_a_liar_that_keeps_silent_when_the_turn_is_opened_is_taken_apart_by_its_neighbours_keys():
    here = world()
    lying = answering({LIAR: 1})

    def change(number, message, vector):
        if isinstance(message, OpenedKeys) and number == LIAR:
            message = msgspec.structs.replace(message, keys=b"")
        return lying(number, message, vector)

    round, error = play(here, change)
    assert error.code == "CH505"
    assert round.findings.named == {LIAR: "answered its probes falsely"}


@pytest.mark.parametrize("silent", [set(), {5}])
def test_opened_uploads_are_what_the_devices_encoded_also_after_a_drop_out(silent):
    """Nobody lies, one may be missing: the opened turn finds nothing to name, though every upload is taken apart."""
    here = world()
    round, first = here.round(inquiry=ProbeInquiry(audit=True)), True
    while round.sum is None:
        here.step(round, silent if first else ())
        first = False
    assert not round.findings.named and here.agrees(round.sum)


def test_a_shout_that_wraps_is_no_way_past_the_check_of_sums():
    """Answers are added as unbounded integers: 2^63 twice is not 0."""
    round, error = play(world(opened_turns=0), answering({LIAR: np.int64(2**62), 4: np.int64(2**62)}))
    assert error.code == "CH505" and round.sum is None
