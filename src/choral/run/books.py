"""The devices' ledgers of one run: on disk, one a device, or only counted where a simulation has very many devices."""

from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from choral.core.ledger import Charge, Ledger, Receipt
from choral.record import inside
from choral.run.folder import MOST_LEDGERS, ledger_file
from choral.run.study import Study, reserve_questions

NO_RECEIPT = Receipt(entries=0, seal="")


def keeps_ledgers(study: Study) -> bool:
    """Whether every device of a run has a ledger file: not where nothing is protected, or for very many devices."""
    return study.plan.devices <= MOST_LEDGERS and study.costs.private


class Books:
    """Who was charged how often; with a folder, each charge is durable in the device's own ledger when it returns.

    A simulation that goes on after a crash repeats a round bit for bit; it counts the charges `before` that round, and
    those that are there already as they come again.
    """

    def __init__(self, study: Study, folder: Path | None, *, before: int | None = None) -> None:
        self.study = study
        self.rounds = np.zeros(study.plan.devices, dtype=np.int64)
        self.ledgers: list[Ledger] = []
        if folder is not None and keeps_ledgers(study):
            folder.mkdir(exist_ok=True)
            try:
                for number, name in enumerate(study.data.records.names):
                    path = inside(folder.parent, f"{folder.name}/{ledger_file(number)}")
                    limit, sum_epsilon = study.costs.ledger_limits(number)
                    self.ledgers.append(Ledger.open(path, limit=limit, sum_epsilon=sum_epsilon, device=name))
            except BaseException:
                self.close()  # whoever fixes the one and tries again must not find the others in use
                raise
            for number, ledger in enumerate(self.ledgers):
                charges = self._charges(ledger)
                self.rounds[number] = sum(before is None or charge.round < before for charge in charges)
                self._reserve(number, ledger)

    def _reserve(self, device: int, ledger: Ledger) -> None:
        """Reserve, once, all uploads that the device's limit pays for: the run may end earlier, but never later."""
        run, costs = self.study.plan.digest, self.study.costs
        rest = range(len(self._charges(ledger)), int(costs.allowed_rounds[device]))
        if rest and run not in ledger.balance.open_plans:
            ledger.reserve(costs.reservation(device, rest, run=run))
        if costs.questions is not None:  # with the rounds, before the first charge: then all is composed exactly
            reserve_questions(ledger, costs.questions, run)

    def _charges(self, ledger: Ledger) -> list[Charge]:
        """What the rounds of this run were charged; questions are counted apart."""
        return [charge for charge in ledger.balance.charges if charge.plan == self.study.plan.digest]

    @property
    def on_disk(self) -> bool:
        """Whether every device has a ledger file."""
        return bool(self.ledgers)

    def may_join(self) -> NDArray[np.bool_]:
        """Which devices can pay for one more round."""
        return self.rounds < self.study.costs.allowed_rounds

    def charge(self, device: int, *, round_number: int, attempt: int, again: bool = False) -> Receipt:
        """The receipt of a charge for one upload, durable by now; refused with CH401 beyond the limit.

        `again` is for simulations that repeat a round after a crash: the same seed releases the very same numbers, so
        a charge that is there already pays for them.
        """
        if not self.ledgers:
            self.rounds[device] += 1
            return NO_RECEIPT
        study, ledger = self.study, self.ledgers[device]
        charges = self._charges(ledger)
        turn = (study.plan.digest, round_number, attempt)
        if again and any((known.plan, known.round, known.attempt) == turn for known in reversed(charges)):
            self.rounds[device] += 1
            return ledger.receipt
        charge = study.costs.charge(
            device, len(charges), run=study.plan.digest, round_number=round_number, attempt=attempt
        )
        receipt = ledger.charge(charge)
        self.rounds[device] += 1
        return receipt

    def spent(self) -> list[float]:
        """ε of each device so far, at its own limit's δ."""
        return self.study.costs.spent_by_all(self.rounds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give every ledger and its lock back."""
        for ledger in self.ledgers:
            ledger.close()
