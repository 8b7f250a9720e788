"""A device and a question: refused before anybody pays, charged before a row is read, and masks that fit it alone."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from choral.backends.wire import MemoryTransport, Wire
from choral.core.codec import Codec, WholeCodec
from choral.core.device import Prepared, Respondent
from choral.core.errors import ConfigError, LedgerError, NotReadyError, SumError, TrustError
from choral.core.masks import Stream
from choral.core.messages import QUESTIONS, Call, Inquire, Omega, Refusal, Turn, decode, encode, pack
from choral.core.plan import SecureSum
from choral.core.terms import Terms
from choral.core.vault import Memory, Vault
from choral.run.folder import MemoryStore
from tests.protocol.world import FakeLedger, enrolled

FOUR = SecureSum.for_cohort(4)
ASKED = SecureSum.for_cohort(4, modulus_bits=64)
CODEC = WholeCodec.of(ASKED, factor=1, largest=1, scale=1024, tail=16)
FIRST = Turn(QUESTIONS + 1, 0)
QUESTION = b'{"name":"count","parameters":{}}'


@dataclass
class Site:
    """What one device does, in the order in which it does it."""

    number: int
    ledger: FakeLedger = field(default_factory=FakeLedger)
    did: list[str] = field(default_factory=list)
    known: tuple[bytes, ...] = (QUESTION,)

    def prepare(self, question):
        if question not in self.known:
            raise TrustError("CH608", "unknown.")
        self.did.append("checked")

        def payable(_round, _attempt):
            if len(self.ledger.charged) >= self.ledger.limit:
                raise LedgerError("CH407", "used up.")

        def charge(round, attempt):
            self.did.append("charged")
            return self.ledger.charge(round, attempt)

        def answer(_model, _round, _attempt):
            self.did.append("read")
            return np.array([10 * self.number, 100])

        def encoded(whole, _round, _attempt, out):
            CODEC.encode_whole(whole, Stream(bytes(31) + bytes([self.number])), out)

        return Prepared(
            secure=ASKED, codec=CODEC, length=2, train=answer, encode=encoded, charge=charge, payable=payable
        )


def world():
    identities, roster = enrolled(4)
    terms = Terms(
        roster=roster, secure=FOUR, codec=Codec(grid=0.5, largest=100, cohort=4), parameters=3, plan="run"
    )  # fmt: skip
    sites = [Site(number) for number in range(4)]
    vaults = [Vault.create(MemoryStore(), Memory(id=one.id, secret=one.to_bytes())) for one in identities]
    devices = [Respondent(terms, vault, site.prepare) for vault, site in zip(vaults, sites, strict=True)]
    return terms, sites, devices


def asked(terms, question=QUESTION):
    return terms.asked(question, secure=ASKED, codec=CODEC, length=2)


def ask(terms, devices, turn=FIRST, question=QUESTION):
    wire = Wire(asked(terms, question), MemoryTransport(devices))
    return wire.attempt(turn, range(4), np.empty(0, np.float32))


def code(frame):
    message, _ = decode(frame, vector_bytes=0, records_bytes=4096)
    assert isinstance(message, Refusal)
    return message.code


def test_only_the_sum_is_opened_and_each_device_checks_then_charges_then_reads():
    terms, sites, devices = world()
    opened = ask(terms, devices)
    noise = sum(CODEC.whole_noise(1, Stream(bytes(31) + bytes([number]))) for number in range(4))
    assert opened.integers.tolist() == [60 + int(noise[0]), 400]
    assert {tuple(site.did) for site in sites} == {("checked", "charged", "read")}


def test_a_question_that_one_device_does_not_know_costs_nobody_anything():
    terms, sites, devices = world()
    for site in sites[1:]:
        site.known += (b"new",)
    with pytest.raises(NotReadyError, match=r"CH503 .*nobody is charged.*CH608"):
        ask(terms, devices, question=b"new")
    assert all(site.ledger.charged == [] and "read" not in site.did for site in sites)


def test_a_device_that_can_not_pay_says_so_before_the_others_pay():
    terms, sites, devices = world()
    sites[2].ledger.limit = 0
    with pytest.raises(NotReadyError, match="device-0002 CH407 because of itself"):
        ask(terms, devices)
    assert all(site.ledger.charged == [] for site in sites)


def test_devices_that_were_asked_different_questions_never_open_a_sum():
    terms, sites, devices = world()
    for site in sites:
        site.known += (b"other",)

    class TwoFaced(MemoryTransport):
        def exchange(self, outbox):
            for number, frame in outbox.items():
                message, _ = decode(frame, vector_bytes=0, records_bytes=4096)
                if isinstance(message, Inquire) and number == 3:
                    frame = encode(Inquire(turn=message.turn, question=b"other"))
                yield number, self.devices[number].answer(frame)

    wire = Wire(asked(terms), TwoFaced(devices))
    with pytest.raises(SumError):
        wire.attempt(FIRST, range(4), np.empty(0, np.float32))
    assert wire.findings.refusals[3] == "CH603"  # it was asked under other terms than those of the cohort
    assert sites[3].ledger.charged == []


@dataclass
class At(Site):
    """A device whose question is asked at a state of two finite numbers."""

    def prepare(self, question):
        def check(state):
            if not np.isfinite(state).all():
                raise ConfigError("CH102", "no state.")

        return replace(super().prepare(question), state=2, check=check)


def at_states(*states):
    """What becomes of a turn in which the server shows each device its own state."""
    terms, _, devices = world()
    sites = [At(number) for number in range(4)]
    for device, site in zip(devices, sites, strict=True):
        device._prepare = site.prepare

    class TwoFaced(MemoryTransport):
        def exchange(self, outbox):
            for number, frame in outbox.items():
                message, _ = decode(frame, vector_bytes=16 * (len(frame) > 150), records_bytes=4096)
                shown = encode(message, np.array(states[number]).tobytes()) if isinstance(message, Omega) else frame
                yield number, self.devices[number].answer(shown)

    wire = Wire(replace(asked(terms), state=2), TwoFaced(devices))
    return wire, sites


def test_a_state_that_is_not_finite_is_refused_before_the_charge():
    wire, sites = at_states(*[(0.0, np.nan)] * 4)
    with pytest.raises(SumError, match="CH503"):
        wire.attempt(FIRST, range(4), np.zeros(2))
    assert set(wire.findings.refusals.values()) == {"CH102"} and all(site.ledger.charged == [] for site in sites)


def test_devices_that_were_shown_different_states_never_open_a_sum():
    wire, sites = at_states((0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 2.0))
    with pytest.raises(SumError):
        wire.attempt(FIRST, range(4), np.zeros(2))
    assert all(site.did[-1] == "read" for site in sites)  # all have paid and answered, and the masks do not cancel


def test_at_one_state_the_sum_is_opened():
    wire, _ = at_states(*[(0.0, 1.0)] * 4)
    assert wire.attempt(FIRST, range(4), np.zeros(2)).integers[1] == 400


def test_no_two_questions_share_terms_and_no_question_shares_them_with_training():
    terms, _, _ = world()
    digests = {terms.digest, asked(terms).digest, asked(terms, b"other").digest}
    assert len(digests) == 3
    assert asked(terms).within == terms.digest


def test_questions_are_counted_apart_from_rounds_and_never_answered_twice():
    terms, _sites, devices = world()
    ask(terms, devices, Turn(QUESTIONS + 5, 0))
    memory = devices[0].vault.memory
    assert (memory.asked, memory.turn) == (Turn(QUESTIONS + 5, 0), None)
    for turn in (Turn(QUESTIONS + 5, 0), Turn(QUESTIONS + 4, 0), Turn(QUESTIONS + 5, 1)):
        assert code(devices[0].answer(encode(Inquire(turn=turn, question=QUESTION)))) in ("CH605", "CH607")
    ask(terms, devices, Turn(QUESTIONS + 6, 0))


def test_frames_out_of_order_or_of_rounds_are_refused():
    terms, sites, devices = world()
    omega = Omega(turn=FIRST, terms=asked(terms).digest, cohort=pack({0: bytes(16)}))
    assert code(devices[0].answer(encode(omega))) == "CH605"  # nothing was asked
    assert code(devices[0].answer(encode(Call(turn=Turn(1, 0))))) == "CH605"
    assert code(devices[0].answer(b"nonsense")) == "CH600"
    assert sites[0].did == []
