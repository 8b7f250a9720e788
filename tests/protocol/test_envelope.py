"""Heads of frames and answers: what the server signs for one device, once, and what a device signs for one request."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.errors import TrustError
from choral.core.keys import Identity
from choral.core.signed import ANSWER_HEAD, REQUEST_HEAD, Listener, answered
from choral.server import speaker as envelope
from choral.server.speaker import Speaker, answer_in
from tests.vectors import first_envelope, second_envelope

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([one]) * 32) for one in (1, 2))
STUDY = bytes(range(32))
HILL, LAKE = (Identity(name, bytes([one]) * 64) for one, name in enumerate(("hill", "lake"), start=3))


class Site:
    """A device's half with a counter that outlives it, as a vault's does."""

    def __init__(self, device=2, study=STUDY):
        self.heard, self.device, self.study = 0, device, study

    def opened(self, request):
        def hear(counter):
            self.heard = counter

        key = KEY.public_key().public_bytes_raw()
        listener = Listener(study=self.study, server_key=key, device=self.device, heard=lambda: self.heard, hear=hear)
        return bytes(listener.opened(request))

    def refuses(self, request):
        before = self.heard
        with pytest.raises(TrustError) as refusal:
            self.opened(request)
        assert self.heard == before
        return refusal.value.code


def request(frame=b"frame", *, key=KEY, study=STUDY, device=2, first=1):
    return Speaker(key, study=study, first=first).head(device, frame) + frame


def test_a_frame_of_the_server_is_opened_once_and_a_later_one_after_it():
    site, speaker = Site(), Speaker(KEY, study=STUDY, first=5)
    frames = [speaker.head(2, frame) + frame for frame in (b"one", b"two", b"two")]
    assert [site.opened(frame) for frame in frames] == [b"one", b"two", b"two"]
    assert [site.refuses(frame) for frame in frames] == ["CH623"] * 3
    assert site.heard == 7


def test_a_frame_is_signed_for_itself_while_another_thread_sends_another(monkeypatch):
    speaker, packed, others = Speaker(KEY, study=STUDY, first=1), envelope.REQUEST, []

    class Interrupted:
        """Where the numbers of a head are packed, another frame is sent."""

        def pack(self, *fields):
            if not others:
                others.append(None)
                others[0] = speaker.head(3, b"another") + b"another"
            return packed.pack(*fields)

    monkeypatch.setattr(envelope, "REQUEST", Interrupted())
    head = speaker.head(2, b"one")
    monkeypatch.undo()
    assert Site().opened(head + b"one") == b"one" and Site(device=3).opened(others[0]) == b"another"


def test_a_frame_of_anybody_else_or_for_anybody_else_is_refused():
    strange = [
        b"", b"chrl", b"chrl" + bytes(200), bytes(REQUEST_HEAD), request()[: REQUEST_HEAD - 1],
        request(key=OTHER), request(study=bytes(32)), request(device=3),
    ]  # fmt: skip
    assert [Site().refuses(one) for one in strange] == ["CH622"] * len(strange)


def test_another_version_of_the_head_is_refused_in_words():
    newer = bytearray(request())
    newer[4] = 2
    with pytest.raises(TrustError, match=r"CH602 .* names version 2 of signatures, this choral has version 1\."):
        Site().opened(newer)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, REQUEST_HEAD + 4), st.integers(1, 255))
def test_no_byte_of_a_request_can_be_changed(at, by):
    changed = bytearray(request())
    changed[at] ^= by
    assert Site().refuses(changed) in ("CH622", "CH602")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, ANSWER_HEAD + 5), st.integers(1, 255))
def test_no_byte_of_an_answer_can_be_changed(at, by):
    asked = request()
    changed = bytearray(answered(HILL, asked, b"answer"))
    changed[at] ^= by
    with pytest.raises(TrustError, match=r"CH624|CH602"):
        answer_in(changed, asked[:REQUEST_HEAD], HILL.bundle)


def test_an_answer_counts_for_its_request_and_of_its_device_alone():
    asked, again = request(), request(first=2)
    reply = answered(HILL, asked, b"answer")
    assert bytes(answer_in(reply, asked[:REQUEST_HEAD], HILL.bundle)) == b"answer"
    for head, bundle in ((again, HILL), (request(b"other"), HILL), (asked, LAKE)):
        with pytest.raises(TrustError, match="CH624"):
            answer_in(reply, head[:REQUEST_HEAD], bundle.bundle)


def test_what_a_device_signs_elsewhere_is_no_answer_and_what_a_server_signs_is_none_either():
    asked = request()
    for signature in (HILL.sign("ready", asked), HILL.bundle.signature, asked[56:REQUEST_HEAD]):
        with pytest.raises(TrustError, match="CH624"):
            answer_in(answered(HILL, asked, b"x")[:8] + signature + b"x", asked[:REQUEST_HEAD], HILL.bundle)


def test_frames_of_a_round_start_where_words_are_added_fast():
    assert REQUEST_HEAD % 8 == ANSWER_HEAD % 8 == 0


VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "envelope.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("implementation", [first_envelope, second_envelope], ids=["choral", "second"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['kind']}: {vector['name']}")
def test_both_implementations_give_what_the_vectors_say(implementation, vector):
    assert implementation.outcome(vector) == {name: vector[name] for name in ("gives", "refused") if name in vector}


def test_the_second_implementation_has_nothing_of_choral():
    text = (Path(__file__).parents[1] / "vectors" / "second_envelope.py").read_text(encoding="utf-8")
    assert "choral" not in text.replace("docs/secure-sum.md", "")
