"""A server that sends a model so large that float32 rounds a whole step, noise and all, to nothing or to a lot.

Then the other devices' noise is no longer in the sum, and a device refuses exactly when its step leaves the range: that
tells of its data, and outside the secure sum.
"""

from dataclasses import replace

import numpy as np
import pytest

from choral.core.codec import Codec
from choral.core.device import Device
from choral.core.messages import Call, Omega, Refusal, Turn, encode, pack
from choral.core.plan import Plan
from choral.core.vault import Memory, Vault
from choral.learning.models import binary
from choral.learning.trainer import LocalTraining
from choral.run.folder import MemoryStore
from tests.protocol.world import TEN, FakeLedger, World

# Two local steps, since the update of a single one is not a difference of models. C = 2η(G + z·σ) = 0.98 by
# docs/secure-sum.md; numbers between 2^22 and 2^23 lie 0.5 apart, so two steps round to 1 > C where each is above 0.25,
# that is where the mean of 1 − y over the batch is above 0.595.
PLAN = Plan(devices=10, cohort=10, rounds=20, rows=100, batch=100, local_steps=2, step_size=0.42, clip=1.0, noise=0.02,
            sampling="partition")  # fmt: skip
MODEL = np.float32([0, 1.5 * 2**22])  # weight and bias: every prediction is 1
CODEC = Codec.for_plan(PLAN, TEN, 2)


class Careless(Device):
    """A device that starts from any model."""

    def _check_model(self, model: np.ndarray) -> None:
        pass


class Generous(Careless):
    """And that is charged for what it uploads, and for nothing else."""

    def _pay(self, turn: Turn) -> None:
        pass

    def _upload(self, message: Omega, model: memoryview) -> bytearray:
        upload = super()._upload(message, model)
        super()._pay(message.turn)
        return upload


def trainer_of(zeros: int) -> LocalTraining:
    labels = (np.arange(100) >= zeros).astype(np.int32)
    return LocalTraining(model=binary(1), plan=PLAN, features=np.zeros((100, 1), np.float32), labels=labels)


def answers(
    kind: type[Device], zeros: int, limit: int, asked: int = 12, model: np.ndarray = MODEL
) -> tuple[list[str], int]:
    """What a device with so many labels 0 of 100 says to OMEGA after OMEGA, and how often it is charged."""
    world = World(parameters=2)
    world.terms = replace(world.terms, codec=CODEC)
    identity, ledger = world.identities[0], FakeLedger(limit)
    trainer = trainer_of(zeros)
    vault = Vault.create(MemoryStore(), Memory(id=identity.id, secret=identity.to_bytes()))
    device = kind(world.terms, vault, train=lambda model, *_: trainer.update(model), charge=ledger.charge)
    said = []
    for round in range(asked):
        turn = Turn(round, 0)
        ready = world.read(device.answer(encode(Call(turn=turn))))
        cohort = dict.fromkeys(range(10), bytes(16)) | {0: ready.nonce}
        omega = Omega(turn=turn, terms=world.terms.digest, cohort=pack(cohort))
        reply = world.read(device.answer(encode(omega, model.tobytes())))
        said.append(reply.code if isinstance(reply, Refusal) else "upload")
    return said, len(ledger.charged)


def test_refusals_tell_of_the_data_and_are_free_where_only_uploads_are_charged():
    assert answers(Generous, zeros=70, limit=5) == (["CH501"] * 12, 0)
    assert answers(Generous, zeros=50, limit=5) == (["upload"] * 5 + ["CH401"] * 7, 5)


@pytest.mark.parametrize(("zeros", "first"), [(70, "CH501"), (50, "upload")])
def test_every_answer_that_tells_of_the_data_is_charged_and_the_limit_ends_them(zeros, first):
    assert answers(Careless, zeros=zeros, limit=5) == ([first] * 5 + ["CH401"] * 7, 5)


@pytest.mark.parametrize("zeros", [70, 50])
def test_a_device_refuses_such_a_model_before_it_looks_at_its_data(zeros):
    assert answers(Device, zeros=zeros, limit=5) == (["CH605"] * 12, 0)


def test_where_parameters_are_too_large_the_other_devices_noise_is_no_longer_in_the_sum():
    # Steps of a device with 30 labels 0 of 100 round to nothing, noise and all: its update hides nobody else's.
    trainer = trainer_of(zeros=30)
    assert not np.any([trainer.update(MODEL) for _ in range(20)], axis=0)[1]
    assert len({float(trainer.update(MODEL / np.float32(2**20))[1]) for _ in range(20)}) == 20


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.01 * CODEC.largest_parameter])
def test_one_parameter_too_large_or_not_finite_is_enough(value):
    # By hand: 2^22·ησ = 35,232; the next power of two below it is 2^15, where float32 has a spacing of 2^-8 < ησ/2.
    assert CODEC.largest_parameter == pytest.approx(2**22 * 0.42 * 0.02)
    assert np.spacing(np.float32(CODEC.largest_parameter)) == 2.0**-8 < 0.42 * 0.02 / 2
    assert answers(Device, zeros=50, limit=5, asked=1, model=np.float32([value, 0])) == (["CH605"], 0)
    assert answers(Device, zeros=50, limit=5, asked=1, model=np.float32([1000, -1000])) == (["upload"], 1)
