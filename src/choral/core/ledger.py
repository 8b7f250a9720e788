"""A device's balance in a sealed file that outlives runs: reserved before a study, charged before anything is sent.

`Balance` is the arithmetic, `Ledger` keeps it in its file (docs/ledger.md).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from choral.core import events, sealed
from choral.core.balance import Balance, Price
from choral.core.entries import Charge, Reservation
from choral.core.errors import ChoralError, LedgerError, PlanError
from choral.core.events import Gaussian, Zcdp
from choral.core.exposure import EVERYONE, SUMS
from choral.core.plan import Budget, require_number, require_whole
from choral.core.sealed import Body, Chain, Lines, Receipt

__all__ = ["Balance", "Charge", "Ledger", "Receipt", "Reservation"]

VERSION = 3  # with a limit for sums; 2 without one
RULE_VERSION = 2
_COUNTED = {EVERYONE: "counted", SUMS: "counted_sum"}  # where an entry keeps what a later study counts as


class Ledger:
    """A device's balance in its file; one writer at a time, every charge durable when it returns.

    >>> import tempfile
    >>> with Ledger.open(Path(tempfile.mkdtemp()) / "site-a", limit=Budget(epsilon=1.0, delta=1e-5)) as ledger:
    ...     ledger.charge(Charge(rule="S1", plan="9f3c", round=1, event=events.Gaussian(mu=0.2))).entries
    2
    """

    def __init__(self, path: Path, lines: Lines, writer: Chain | None) -> None:
        self.path = path
        self._writer = writer
        self.receipt = lines.receipt  # of the last entry: keep it away from the file, and give it to the next `open`
        self.entries: list[Body] = []
        self.torn = lines.torn  # bytes that an interrupted write left at the end; nothing was sent for them
        self.balance = _opening(path, lines)
        for number, body in enumerate(lines.bodies[1:], start=2):
            self._apply(number, body)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        limit: Budget | None = None,
        sum_epsilon: float | None = None,
        device: str | None = None,
        receipt: Receipt | None = None,
    ) -> Self:
        """The ledger for writing, made with these limits if there is none; a receipt shows that it is the latest one.

        `sum_epsilon` is the limit against a server that sees only sums; `limit` is the one against everyone.
        """
        path = Path(path)
        header = None if limit is None else _header(device or path.stem, limit, sum_epsilon)
        writer, lines = Chain.open(path, first=header, receipt=receipt)
        try:
            ledger = cls(path, lines, writer)
            if limit is not None and (limit, sum_epsilon) != (ledger.limit, ledger.sum_epsilon):
                present = f"ε = {ledger.limit.epsilon:g} at δ = {ledger.limit.delta:g}"
                if ledger.sum_epsilon is not None:
                    present += f", and ε = {ledger.sum_epsilon:g} with the secure sum"
                raise LedgerError(
                    "CH406", f"the ledger's limit is {present}, not the one given.", where=str(path),
                    fix="Only the data owner changes it: choral ledger FILE --limit.",
                )  # fmt: skip
            if lines.torn:
                ledger._append({"kind": "recovered", "bytes": lines.torn})
            if ledger.balance.by_version_1 and not ledger.balance.adopted:
                ledger._append({"kind": "rule", "version": RULE_VERSION})
        except BaseException:
            writer.close()
            raise
        return ledger

    @classmethod
    def read(cls, path: Path | str, *, receipt: Receipt | None = None) -> Self:
        """The ledger for reading only: no lock, no recovery, nothing written."""
        path = Path(path)
        return cls(path, sealed.read(path, receipt), None)

    @property
    def sum_epsilon(self) -> float | None:
        """The limit against a server that sees only sums, where there is one."""
        return self.balance.sum_epsilon

    @property
    def device(self) -> str:
        """Whose ledger this is."""
        return self.balance.device

    @property
    def limit(self) -> Budget:
        """The limit against everyone as its last entry has it."""
        return self.balance.limit

    def reserve(self, reservation: Reservation) -> Receipt:
        """The receipt of all uploads that a study may make, before the first of them; CH401 or CH408 beyond a limit."""
        prices = self.balance.admissible(reservation)
        return self._append({"kind": "reserve", **reservation.to_dict(), **_counted(prices)})

    def release(self, plan: str) -> Receipt:
        """The receipt after giving back what a plan has reserved and never used; without any, nothing is written."""
        if not self.balance.against(EVERYONE).unused(plan):
            return self.receipt
        return self._append({"kind": "release", "plan": plan})

    def charge(self, charge: Charge) -> Receipt:
        """The receipt of a charge that is on the disk: only now may the caller send. A refusal writes nothing."""
        self.balance.check(charge)
        return self._append({"kind": "charge", **charge.to_dict(), **_counted(self.balance.prices_of(charge))})

    def set_limit(self, limit: Budget, sum_epsilon: float | None = None) -> Receipt:
        """The receipt of new limits, for the data's owner alone to set; what was spent stays spent."""
        plain: Body = {"epsilon": limit.epsilon, "delta": limit.delta}
        if sum_epsilon is None and self.sum_epsilon is None:
            return self._append({"kind": "limit", **plain})
        # A kind that versions without this limit refuse: they would spend beyond it.
        return self._append({"kind": "limits", **plain, "epsilon_sum": sum_epsilon})

    def _append(self, body: Body) -> Receipt:
        if self._writer is None:
            raise LedgerError(
                "CH404", "the ledger was opened for reading.", where=str(self.path), fix="Use Ledger.open."
            )
        body["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        self.receipt = self._writer.append(body)
        self._apply(self.receipt.entries, body)
        return self.receipt

    def _apply(self, number: int, body: Body) -> None:
        try:
            _apply(self.balance, body)
        except (ChoralError, KeyError, TypeError, ValueError):
            raise LedgerError(
                "CH403", f"line {number} of the ledger is an entry that this version can't read.", where=str(self.path),
                why="It may be a charge, so nothing more may be spent.", fix="Use the version of choral that wrote it.",
            ) from None  # fmt: skip
        self.entries.append(body)

    def close(self) -> None:
        """Give the file and its lock back."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _apply(balance: Balance, body: Body) -> None:
    """Do to the balance what an entry says; one of any other kind can't be read."""
    match body["kind"]:
        case "charge":  # not checked against the limits: what was charged was sent, whatever they say today
            balance.count(Charge.from_dict(body), _prices(body))
        case "reserve":
            balance.admit(Reservation.from_dict(body), _prices(body))
        case "release":
            balance.release(body["plan"])
        case "limit" | "limits":
            sums = body.get("epsilon_sum")
            limit = Budget(epsilon=body["epsilon"], delta=body["delta"])
            balance.set_limit(limit, None if sums is None else require_number("epsilon_sum", sums))
        case "rule" if body["version"] == RULE_VERSION:  # a ledger of version 1 goes on by today's rule
            balance.adopt()
        case kind if kind != "recovered":
            raise LedgerError("CH403", "of an unknown kind.")


def _counted(prices: Mapping[str, Price]) -> Body:
    """What a later study counts as, kept with it: it is computed once, before its first upload."""
    return {_COUNTED[who]: events.to_dict(price) for who, price in prices.items() if price is not None}


def _prices(body: Mapping[str, Any]) -> dict[str, Price]:
    prices: dict[str, Price] = {}
    for who, name in _COUNTED.items():
        if name in body:
            price = events.from_dict(dict(body[name]))
            if not isinstance(price, Gaussian | Zcdp):
                raise LedgerError("CH403", "of an unknown kind.")
            prices[who] = price
    return prices


def _header(device: str, limit: Budget, sum_epsilon: float | None) -> Body:
    header = {"choral": "ledger", "version": 2, "device": device, "epsilon": limit.epsilon, "delta": limit.delta}
    return header if sum_epsilon is None else header | {"version": VERSION, "epsilon_sum": sum_epsilon}


def _opening(path: Path, lines: Lines) -> Balance:
    header = lines.bodies[0]
    try:
        version = require_whole("version", header["version"])
        if header["choral"] == "ledger" and version <= VERSION:
            limit = Budget(epsilon=header["epsilon"], delta=header["delta"])
            sums = require_number("epsilon_sum", header["epsilon_sum"]) if version == VERSION else None
            device = str(header["device"])
            return Balance(device=device, limit=limit, sum_epsilon=sums, by_version_1=version == 1)
    except (PlanError, KeyError):
        version = 0
    if version <= VERSION:
        raise LedgerError(
            "CH400", "this is no ledger: its first line is no header.", where=str(path), fix="Check the path."
        )
    raise LedgerError(
        "CH403", f"the ledger has version {version}; this choral reads up to {VERSION}.", where=str(path),
        fix="Use a newer choral.",
    )  # fmt: skip
