"""Frames: what goes in comes out; what no honest party sends is refused by code, before it costs anything."""

import random
import struct
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choral.core.errors import TrustError
from choral.core.messages import (
    ASKING,
    ENDING,
    MAGIC,
    QUESTION_BYTES,
    QUESTIONS,
    VERSION,
    Agreed,
    Call,
    Close,
    CloseEarly,
    Drop,
    Edges,
    Final,
    Gather,
    Inquire,
    Message,
    Offer,
    Offers,
    Omega,
    Opening,
    Paths,
    Ready,
    Refusal,
    Signed,
    Turn,
    Upload,
    Wrapped,
    Wraps,
    decode,
    encode,
    is_about_a_question,
    pack,
    pack_numbers,
    unpack,
)

VECTOR_BYTES, RECORDS_BYTES = 40, 1300

whole = st.integers(0, 2**32 - 1)
turns = st.builds(Turn, whole, whole)
rounds = st.builds(Turn, st.integers(0, 2**31 - 1), whole)
nonces = st.binary(min_size=16, max_size=16)
digests = st.binary(min_size=32, max_size=32)
signatures = st.binary(min_size=64, max_size=64)
announced = st.binary(min_size=80, max_size=80)
checks = st.binary(max_size=16)
records = st.binary(max_size=RECORDS_BYTES)
messages = st.one_of(
    st.builds(Call, turn=turns),
    st.builds(Ready, turn=turns, device=whole, nonce=nonces, signature=signatures),
    st.builds(Omega, turn=turns, terms=digests, cohort=records),
    st.builds(Upload, turn=turns, device=whole, context=digests, commitment=digests, bonds=records, checks=checks),
    st.builds(Drop, turn=turns, dropped=records),
    st.builds(Edges, turn=turns, device=whole, keys=records),
    st.builds(Final, turn=turns, following=st.none() | turns),
    st.builds(Opening, turn=turns, device=whole, keys=records, ready=st.none() | announced),
    st.builds(
        Refusal,
        turn=turns,
        device=whole,
        code=st.from_regex(r"CH[0-9]{3}", fullmatch=True),
        cause=st.none() | whole,
        signature=signatures,
    ),
    st.builds(Gather, turn=rounds, terms=digests),
    st.builds(Offer, turn=rounds, device=whole, key=st.just(b"k" * 1216), signature=signatures),
    st.builds(Offers, turn=rounds, offers=records),
    st.builds(Wrapped, turn=rounds, device=whole, ciphertexts=records),
    st.builds(Wraps, turn=rounds, ciphertexts=records),
    st.builds(Agreed, turn=rounds, device=whole, session=digests),
    st.builds(Paths, turn=rounds, terms=digests, root=digests, size=whole, members=records),
    st.builds(Close, turn=turns, record=digests),
    st.builds(CloseEarly, turn=rounds, record=digests, reason=st.binary(min_size=1, max_size=160)),
    st.builds(Signed, turn=turns, device=whole, paid=whole, receipt=digests, signature=signatures),
)
EXAMPLES: list[Message] = [
    Call(turn=Turn(1, 2)),
    Ready(turn=Turn(1, 2), device=3, nonce=b"n" * 16, signature=b"s" * 64),
    Omega(turn=Turn(1, 2), terms=b"t" * 32, cohort=pack({1: b"n" * 16, 2: b"m" * 16})),
    Upload(
        turn=Turn(1, 2),
        device=3,
        context=b"x" * 32,
        commitment=b"c" * 32,
        bonds=pack({1: b"e" * 116, 2: b"f" * 116}),
        checks=b"k" * 8,
    ),
    Drop(turn=Turn(1, 2), dropped=pack_numbers({1, 2})),
    Edges(turn=Turn(1, 2), device=3, keys=pack({1: b"k" * 32})),
    Final(turn=Turn(1, 2), following=Turn(2, 0)),
    Opening(turn=Turn(1, 2), device=3, keys=pack({1: b"s" * 32}), ready=b"n" * 80),
    Refusal(turn=Turn(1, 2), device=3, code="CH401", cause=None, signature=b"s" * 64),
    Gather(turn=Turn(1, 2), terms=b"t" * 32),
    Offer(turn=Turn(1, 2), device=3, key=b"k" * 1216, signature=b"s" * 64),
    Offers(turn=Turn(1, 2), offers=pack({1: b"o" * 100})),
    Wrapped(turn=Turn(1, 2), device=3, ciphertexts=pack({4: b"w" * 100})),
    Wraps(turn=Turn(1, 2), ciphertexts=pack({1: b"w" * 100})),
    Agreed(turn=Turn(1, 2), device=3, session=b"d" * 32),
    Paths(turn=Turn(1, 2), terms=b"t" * 32, root=b"r" * 32, size=3, members=b"m" * 40),
    Close(turn=Turn(1, 2), record=b"r" * 32),
    CloseEarly(turn=Turn(1, 2), record=b"r" * 32, reason=b"after round 1"),
    Signed(turn=Turn(1, 2), device=3, paid=4, receipt=b"r" * 32, signature=b"s" * 64),
]


def framed(message: Message) -> bytes:
    return encode(
        message, bytes(range(VECTOR_BYTES)) if isinstance(message, Omega | Paths | Upload | Close | CloseEarly) else b""
    )


def read(frame: bytes) -> tuple[Message, memoryview]:
    return decode(frame, vector_bytes=VECTOR_BYTES, records_bytes=RECORDS_BYTES)


def refused(frame: bytes) -> str:
    with pytest.raises(TrustError) as refusal:
        read(frame)
    return refusal.value.code


@given(messages)
def test_a_message_comes_back_as_it_was_sent(message):
    again, vector = read(framed(message))
    assert again == message
    assert bytes(vector) == (
        bytes(range(VECTOR_BYTES)) if isinstance(message, Omega | Paths | Upload | Close | CloseEarly) else b""
    )


def test_the_vector_is_a_view_of_the_frame_and_no_copy():
    frame = framed(EXAMPLES[3])
    assert read(frame)[1].obj is frame


def test_another_version_is_named_as_such():
    frame = bytearray(framed(EXAMPLES[0]))
    struct.pack_into("<H", frame, 4, ENDING + 1)
    assert refused(bytes(frame)) == "CH602"


def test_a_question_travels_in_frames_of_its_own_version_and_a_round_never_does():
    question, first = b"q" * QUESTION_BYTES, Turn(QUESTIONS, 0)
    frame = encode(Inquire(turn=first, question=question))
    assert read(frame)[0] == Inquire(turn=first, question=question)  # longer than any record of such a small cohort
    assert is_about_a_question(frame) and not is_about_a_question(framed(EXAMPLES[0]))
    assert refused(encode(Inquire(turn=first, question=question + b"!"))) == "CH600"
    assert refused(encode(Inquire(turn=Turn(1, 0), question=b"q"))) == "CH600"  # a round that asks
    mislabelled = bytearray(framed(EXAMPLES[0]))
    struct.pack_into("<H", mislabelled, 4, ASKING)
    assert refused(bytes(mislabelled)) == "CH600"


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_frame_cut_short_or_lengthened_anywhere_is_refused(message):
    frame = framed(message)
    for end in range(len(frame)):
        assert refused(frame[:end]) == "CH600"
    assert refused(frame + b"\0") == "CH600"


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc0",  # null
        b"\x91\x63",  # an unknown tag
        b"\x93\x01\x92\x01\x02\x00",  # a field too many
        b"\x92\x01\x92\x01\xff",  # attempt -1
        b"\x92\x01\x92\x01\xcb" + bytes(8),  # attempt 0.0
        b"\x94\x02\x92\x01\x02\x03\xc4\x0f" + bytes(15),  # a nonce of 15 bytes
        b"\x94\x09\x92\x01\x02\x03\xa5CH4\xff1",  # a code that is not text
        b"\x94\x09\x92\x01\x02\x03\xa5CH4x1",  # a code that is none
        b"\x94\x09\x92\x01\x02\x03\xa6CH401\n",  # a code with a line's end
        b"\xdd\xff\xff\xff\xff",  # an array of four thousand million
        b"\x93\x05\x92\x01\x02\xc6\xff\xff\xff\xff",  # four gigabytes announced
        b"\x91" * 200,  # deep nesting
    ],
)
def test_headers_that_do_not_follow_the_schema_are_refused(header):
    assert refused(struct.pack("<4sHI", MAGIC, VERSION, len(header)) + header) == "CH600"


def test_no_error_repeats_what_was_sent():
    frame = framed(EXAMPLES[8]).replace(b"CH401", b"hello")
    with pytest.raises(TrustError) as refusal:
        read(frame)
    assert "hello" not in str(refusal.value) and refusal.value.__cause__ is None


def test_a_frame_beyond_its_cap_is_refused_unread():
    # Its header follows no schema either, but nobody gets that far.
    frame = struct.pack("<4sHI", MAGIC, VERSION, 10) + bytes(1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(TrustError, match="1,000,010 bytes, expected 10 to"):
            read(frame)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def test_decoding_a_large_upload_takes_no_second_vector():
    vector = bytes(4_000_000)
    frame = encode(EXAMPLES[3], vector)
    tracemalloc.start()
    try:
        decode(frame, vector_bytes=len(vector), records_bytes=RECORDS_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


@given(st.dictionaries(whole, st.binary(min_size=5, max_size=5), max_size=20))
def test_records_come_back_in_the_order_of_their_numbers(values):
    assert list(unpack(pack(values), 5, most=20).items()) == sorted(values.items())


@pytest.mark.parametrize(
    "data",
    [pack({1: b"ab"}) + pack({1: b"cd"}), pack({2: b"ab"}) + pack({1: b"cd"}), pack({1: b"ab"})[:-1], pack({1: b"a"})],
)
def test_records_that_are_repeated_unsorted_or_cut_are_refused(data):
    with pytest.raises(TrustError) as refusal:
        unpack(data, 2, most=5)
    assert refusal.value.code == "CH600"


def test_more_records_than_the_cohort_has_devices_are_refused():
    with pytest.raises(TrustError):
        unpack(pack_numbers(range(6)), 0, most=5)


# Fuzzing: nothing but a value or a refusal comes out of a decoder, whatever goes in.


def mutated(dice: random.Random, frame: bytes) -> bytes:
    """A frame with some bytes changed, moved, cut, doubled or blown up; headers more often than the rest."""
    data = bytearray(frame)
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        place = dice.randrange(min(len(data), 60) or 1) if dice.random() < 0.7 else dice.randrange(len(data) or 1)
        match dice.randrange(7):
            case 0:
                data[place : place + 1] = bytes([dice.randrange(256)])
            case 1:
                data[place : place + 1] = bytes([(data[place] if data else 0) ^ 1 << dice.randrange(8)])
            case 2:
                del data[place : place + dice.choice((1, 2, 4, 1000))]
            case 3:
                data[place:place] = data[place : place + dice.choice((1, 4, 30))]
            case 4:
                data[place:place] = dice.choice(
                    (b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdf\x7f", b"\xc0")
                )
            case 5:
                data[place : place + 4] = struct.pack("<I", dice.choice((0, 1, 2**31, 2**32 - 1, len(data))))
            case 6:
                data[place:place] = dice.randbytes(dice.choice((1, 8, 64)))
    return bytes(data)


def survives(frame: bytes) -> bool:
    """Whether the decoders end in a value or in one of our errors; anything else is raised."""
    try:
        message, _ = read(frame)
        for name, width in (("cohort", 16), ("bonds", 116), ("dropped", 0), ("keys", 32)):
            if (data := getattr(message, name, None)) is not None:
                unpack(data, width, most=10)
    except TrustError as refusal:
        assert refusal.code in ("CH600", "CH602")
        return False
    return True


@given(st.binary(max_size=300))
@example(b"")
@settings(max_examples=300)
def test_arbitrary_bytes_end_in_a_message_or_a_refusal(data):
    survives(data)
    survives(struct.pack("<4sHI", MAGIC, VERSION, len(data)) + data)


def fuzz(count: int, seed: int) -> None:
    dice = random.Random(seed)
    frames = [framed(message) for message in EXAMPLES]
    outcomes = {survives(mutated(dice, dice.choice(frames))) for _ in range(count)}
    assert outcomes == {
        True,
        False,
    }  # some mutations keep a message well-formed, so the mutator reaches behind the door
    tracemalloc.start()
    try:
        for _ in range(count // 50):
            frame = mutated(dice, dice.choice(frames))
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            survives(frame)
            # Twice the payload, and what any refusal costs: the exception with its text and traceback.
            assert tracemalloc.get_traced_memory()[1] - before < 2 * len(frame) + 12_000
    finally:
        tracemalloc.stop()


def test_ten_thousand_mutated_messages_are_survived():
    fuzz(10_000, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_a_million_mutated_messages_are_survived(seed):
    fuzz(250_000, seed=100 + seed)
