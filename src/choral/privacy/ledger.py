"""What a device has lost and may still lose: charged before anything is sent, refused when its limit would be passed.

`Balance` is the arithmetic, in memory; `Ledger` keeps it in a sealed file that outlives runs (docs/ledger.md).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from choral.errors import ChoralError, LedgerError, PlanError
from choral.plan import Budget, require_whole
from choral.privacy import chain, events
from choral.privacy.chain import Chain, Lines, Receipt
from choral.privacy.events import Event, epsilon_of
from choral.privacy.rules import ADJACENCY, EVERYONE
from choral.privacy.shown import figures_up

__all__ = ["Balance", "Charge", "Ledger", "Receipt"]

VERSION = 1
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One upload and what it can lose at most: the event that `rule` proves for this round of this plan.

    >>> Charge(rule="S1", plan="9f3c", round=3, event=events.Gaussian(mu=0.2)).attempt
    0
    """

    rule: str
    plan: str
    round: int
    event: Event
    attempt: int = 0
    adversary: str = EVERYONE

    def __post_init__(self) -> None:
        require_whole("round", self.round, least=0)
        require_whole("attempt", self.attempt, least=0)
        for name in ("rule", "plan", "adversary"):
            value = getattr(self, name)
            if not (isinstance(value, str) and _PLAIN.fullmatch(value)):
                raise PlanError(
                    "CH200", f"a charge's {name} is no short line of text.", fix="Give 1 to 200 characters."
                )

    def to_dict(self) -> dict[str, Any]:
        """The charge as plain values for JSON."""
        plain = {name: getattr(self, name) for name in ("rule", "plan", "round", "attempt", "adversary")}
        return plain | {"event": events.to_dict(self.event)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The charge that `to_dict` described; other keys are left alone."""
        plain = {name: values[name] for name in ("rule", "plan", "round", "attempt", "adversary") if name in values}
        return cls(**plain, event=events.from_dict(dict(values["event"])))


class Balance:
    """A device's limit and charges, in memory: what a ledger is without its file.

    >>> balance = Balance(device="site-a", limit=Budget(epsilon=1.0, delta=1e-5))
    >>> balance.take(Charge(rule="S1", plan="9f3c", round=1, event=events.Gaussian(mu=0.2)))
    >>> round(balance.epsilon, 4)
    0.7255
    """

    def __init__(self, *, device: str, limit: Budget) -> None:
        self.device = device
        self.limit = limit
        self.charges: list[Charge] = []
        self._seen: set[tuple[str, int, int]] = set()

    @property
    def epsilon(self) -> float:
        """ε spent so far at the limit's δ, all events composed."""
        return epsilon_of((charge.event for charge in self.charges), self.limit.delta)

    def epsilon_with(self, event: Event) -> float:
        """ε after one more event; nothing is charged."""
        return epsilon_of([*(charge.event for charge in self.charges), event], self.limit.delta)

    def check(self, charge: Charge) -> None:
        """Refuse a charge that was made already (CH405) or would pass the limit (CH401)."""
        which = f"device {self.device} refuses round {charge.round}"
        if (charge.plan, charge.round, charge.attempt) in self._seen:
            raise LedgerError(
                "CH405", f"{which}: attempt {charge.attempt} of this plan was charged already. Nothing was sent.",
                why="One charge pays for one upload.", fix="Ask again with the next attempt, and fresh noise.",
            )  # fmt: skip
        after = self.epsilon_with(charge.event)
        if not after <= self.limit.epsilon:  # so that NaN is refused too
            raise LedgerError(
                "CH401",
                f"{which}: it has spent ε = {figures_up(self.epsilon, 4)} of {self.limit.epsilon:.4g}; this would make "
                f"{figures_up(after, 4)} (δ = {self.limit.delta:.3g}, {ADJACENCY}, rule {charge.rule}, "
                f"against {charge.adversary}).",
                why="Nothing was sent.",
                fix="Only the data owner can raise the limit.",
            )

    def take(self, charge: Charge) -> None:
        """Count a charge, or refuse it and stay as before."""
        self.check(charge)
        self._count(charge)

    def _count(self, charge: Charge) -> None:
        self._seen.add((charge.plan, charge.round, charge.attempt))
        self.charges.append(charge)

    @property
    def adversaries(self) -> tuple[str, ...]:
        """Against whom the charges were worked out; ε holds against the one that all of them name."""
        return tuple(dict.fromkeys(charge.adversary for charge in self.charges)) or (EVERYONE,)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules of the charges, in the order of their first use."""
        return tuple(dict.fromkeys(charge.rule for charge in self.charges))


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
        self._receipt = lines.receipt
        self.entries: list[dict[str, Any]] = []
        self.torn = lines.torn  # bytes that an interrupted write left at the end; nothing was sent for them
        self.balance = _opening(path, lines)
        for number, body in enumerate(lines.bodies[1:], start=2):
            self._apply(number, body)

    @classmethod
    def open(
        cls, path: Path | str, *, limit: Budget | None = None, device: str | None = None, receipt: Receipt | None = None
    ) -> Self:
        """The ledger for writing, made with this limit if there is none; a receipt shows that it is the latest one."""
        path = Path(path)
        header = None if limit is None else _header(device or path.stem, limit)
        writer, lines = Chain.open(path, first=header, receipt=receipt)
        try:
            ledger = cls(path, lines, writer)
            if limit is not None and limit != ledger.limit:
                told = f"ε = {ledger.limit.epsilon:g} at δ = {ledger.limit.delta:g}"
                raise LedgerError(
                    "CH406", f"the ledger's limit is {told}, not the one given.", where=str(path),
                    fix="Only the data owner changes it: choral ledger FILE --limit.",
                )  # fmt: skip
            if lines.torn:
                ledger._append({"kind": "recovered", "bytes": lines.torn})
        except BaseException:
            writer.close()
            raise
        return ledger

    @classmethod
    def read(cls, path: Path | str, *, receipt: Receipt | None = None) -> Self:
        """The ledger for reading only: no lock, no recovery, nothing written."""
        path = Path(path)
        return cls(path, chain.read(path, receipt), None)

    @property
    def device(self) -> str:
        """Whose ledger this is."""
        return self.balance.device

    @property
    def limit(self) -> Budget:
        """The limit as its last entry has it."""
        return self.balance.limit

    @property
    def receipt(self) -> Receipt:
        """The receipt of the last entry: keep it away from the file, and give it to the next `open`."""
        return self._receipt

    def charge(self, charge: Charge) -> Receipt:
        """The receipt of a charge that is on the disk: only now may the caller send. A refusal writes nothing."""
        self.balance.check(charge)
        return self._append({"kind": "charge", **charge.to_dict()})

    def set_limit(self, limit: Budget) -> Receipt:
        """The receipt of a new limit, for the data's owner alone to set; what was spent stays spent."""
        return self._append({"kind": "limit", "epsilon": limit.epsilon, "delta": limit.delta})

    def _append(self, body: dict[str, Any]) -> Receipt:
        if self._writer is None:
            raise LedgerError(
                "CH404", "the ledger was opened for reading.", where=str(self.path), fix="Use Ledger.open."
            )
        body["at"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._receipt = self._writer.append(body)
        self._apply(self._receipt.entries, body)
        return self._receipt

    def _apply(self, number: int, body: dict[str, Any]) -> None:
        kind = body.get("kind")
        try:
            if kind == "charge":
                # Not checked against the limit: what was charged was sent, whatever the limit says today.
                self.balance._count(Charge.from_dict(body))
            elif kind == "limit":
                self.balance.limit = Budget(epsilon=body["epsilon"], delta=body["delta"])
            elif kind != "recovered":
                raise LedgerError("CH403", "of an unknown kind.")
        except (ChoralError, KeyError, TypeError, ValueError):
            raise LedgerError(
                "CH403", f"line {number} of the ledger is an entry that this version can't read.", where=str(self.path),
                why="It may be a charge, so nothing more may be spent.", fix="Use the version of choral that wrote it.",
            ) from None  # fmt: skip
        self.entries.append(body)

    def statement(self) -> dict[str, Any]:
        """What was spent of the limit, by which rules and against whom, with every entry and the receipt."""
        balance = self.balance
        return {
            "device": self.device,
            "limit": {"epsilon": self.limit.epsilon, "delta": self.limit.delta},
            "spent": {
                "epsilon": balance.epsilon,
                "delta": self.limit.delta,
                "rules": list(balance.rules),
                "adjacency": ADJACENCY,
                "adversaries": list(balance.adversaries),
            },
            "charges": len(balance.charges),
            "torn_bytes": self.torn,
            "receipt": {"entries": self.receipt.entries, "seal": self.receipt.seal},
            "entries": self.entries,
        }

    def close(self) -> None:
        """Give the file and its lock back."""
        if self._writer is not None:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _header(device: str, limit: Budget) -> dict[str, Any]:
    return {"choral": "ledger", "version": VERSION, "device": device, "epsilon": limit.epsilon, "delta": limit.delta}


def _opening(path: Path, lines: Lines) -> Balance:
    header = lines.bodies[0]
    try:
        version = require_whole("version", header["version"])
        if header["choral"] == "ledger" and version <= VERSION:
            limit = Budget(epsilon=header["epsilon"], delta=header["delta"])
            return Balance(device=str(header["device"]), limit=limit)
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
