"""One round of choral, from the rows of six devices to the opened sum, with the parts that a deployment uses.

Read this first: what takes one line here is a module of choral, and the imports say which. The devices live in one
process; their keys, masks, noise and ledgers are real. Run it with `python examples/one_round.py`.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from choral.accounting.calibrate import calibrated
from choral.accounting.costs import Costs
from choral.backends.wire import MemoryTransport, Wire
from choral.core.codec import Codec, Integers
from choral.core.device import Device, Update
from choral.core.errors import SumError
from choral.core.exposure import ADJACENCY
from choral.core.keys import Identity, Roster
from choral.core.ledger import Charge, Ledger
from choral.core.masks import Stream, Words
from choral.core.messages import Turn, Vector
from choral.core.plan import OUT_OF_RANGE, Budget, Plan, SecureSum
from choral.core.printable import figures_up
from choral.core.terms import Terms
from choral.core.vault import Memory, Vault
from choral.federation import cohort_of
from choral.learning.evaluate import evaluate
from choral.learning.models import logistic
from choral.learning.trainer import LocalTraining
from choral.run.folder import MemoryStore
from choral.server.round import Sum
from choral.server_step import mean
from choral.tables.records import hold_out
from choral.tables.sources import load_adult

LIMIT = Budget(epsilon=1.0, delta=1e-5)  # what each device's owner allows in all, for one record replaced


class LossyNetwork(MemoryTransport):
    """Carries frames to the devices and their replies back; of the uploads, the last one is lost on the way."""

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies that arrive. A missing one is no error: the round goes on without that device."""
        replies = dict(super().exchange(outbox))
        last = max(replies)
        if len(replies[last]) > self.devices[last].terms.upload_bytes:  # no other reply is as long as an upload
            print(f"DROP-OUT   the upload of {self.devices[last].terms.ids[last]} is lost; its ledger has paid for it")
            del replies[last]
        return iter(replies.items())


def main(folder: Path) -> tuple[Sum, dict[int, Integers]]:
    """The opened sum, and what each device encoded before it was masked; the ledgers stay in the folder."""
    # Ranges and levels of the columns are public. A scale taken from the rows would be a fact about people.
    split = hold_out(load_adult(devices=6).records, validation=0.0, test=0.1)
    rows, model = split.train, logistic(split.train.features.shape[1])
    print(f"READ       {sum(rows.sizes):,} rows on {rows.devices} devices; no row leaves its device")

    # The plan holds every public number. Part of δ is kept for the rare batch or update that does not fit its room.
    secure = SecureSum.for_cohort(5)  # opens no sum of fewer than 4; one device may drop out, another may collude
    plan = Plan(devices=6, cohort=5, rounds=1, rows=int(min(rows.sizes)), batch=500, local_steps=10, step_size=2.0,
                clip=1.0, noise=0.0)  # fmt: skip
    plan = calibrated(plan, LIMIT)
    costs = Costs(plan=plan, secure=secure, rows=rows.sizes, limits=(LIMIT,) * rows.devices, names=rows.names)
    print(f"CALIBRATE  clip {plan.clip:g}, noise {plan.noise:.4f}: a device's limit pays for one round")

    # Every device makes its own keys, and pins roster and terms: the server can change neither afterwards.
    identities = [Identity.fresh(name) for name in rows.names]
    roster = Roster.of(identity.bundle for identity in identities)
    codec = Codec.for_plan(plan, secure, model.size, failure=OUT_OF_RANGE)
    terms = Terms(roster=roster, secure=secure, codec=codec, parameters=model.size, plan=plan.digest)
    encoded: dict[int, Integers] = {}

    def device(number: int, ledger: Ledger) -> Device:
        """One device. The protocol asks `payable`, and then calls `charge`, `train` and `encode`, in this order."""
        vault = Vault.create(MemoryStore(), Memory(id=rows.names[number], secret=identities[number].to_bytes()))
        trainer = LocalTraining(
            model=model, plan=plan, features=rows.features_of(number), labels=rows.labels_of(number)
        )

        def cost(round_number: int, attempt: int) -> Charge:
            before = len(ledger.balance.charges)
            return costs.of(number).charge(before, run=plan.digest, round_number=round_number, attempt=attempt)

        def encode(update: Update, _round: int, _attempt: int, words: Words) -> None:
            codec.encode(update, Stream.fresh(), out=words)  # floats become integers; the device masks them in place
            encoded[number] = codec.decode(words, model.size, count=1)  # for this story: a device keeps no copy

        return Device(
            terms,
            vault,
            payable=lambda *turn: ledger.balance.check(cost(*turn)),
            charge=lambda *turn: ledger.charge(cost(*turn)),  # durable when it returns, or refused
            train=lambda parameters, *_: trainer.update(parameters),  # clipped, noisy steps on Poisson batches
            encode=encode,
        )

    with ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(folder / name, limit=LIMIT)) for name in rows.names]
        wire = Wire(terms, LossyNetwork(device(number, ledger) for number, ledger in enumerate(ledgers)))
        willing, counts = np.arange(6), np.zeros(6, int)
        cohort = cohort_of(plan, willing, counts, seed=0, round_number=1, attempt=0, participation="uniform")
        print(f"CALL       {len(cohort)} devices: each pays, trains, encodes, masks and uploads")

        # The server adds up masked words. The others give it what removes the lost device's pair masks, then the shares
        # of the self masks of those who are in the sum: never both for one device.
        parameters = model.start()
        opened = wire.attempt(Turn(1, 0), cohort, parameters)
        print(f"OPEN       the sum of {opened.count} noisy updates; the server could read none of them alone")

        better = parameters + mean(opened.integers, opened.count, codec.grid)
        before, after = (evaluate(model, one, split.test).accuracy for one in (parameters, better))
        print(f"APPLY      accuracy on rows that nobody trained on: {before:.3f} before, {after:.3f} after")
        spent, rule = max(ledgers[number].balance.epsilon for number in cohort), costs.rule(cohort[0])
        print(f"LEDGER     every called device has spent ε = {figures_up(spent, 3)} of {LIMIT.epsilon:g}")
        print(f"           (rule {rule.rule}, δ = {LIMIT.delta:g}, {ADJACENCY}, against {rule.adversary})")

        # One round more than the limits pay for: no device is even ready, so none of them is charged.
        try:
            wire.attempt(Turn(2, 0), cohort, better)
        except SumError:
            refusals = wire.findings.refusals  # CH401: the limit would be passed
            codes = ", ".join(set(refusals.values()))
            print(f"REFUSE     a second round: {len(refusals)} devices answer {codes}, and nobody is charged")
    return opened, encoded


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
