"""The end of a run: what a device signs once nothing more will be asked of it, and how others check it."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from choral.core.keys import Bundle, Identity, digest
from choral.core.messages import Turn, Vector

SIGNED = "end of run"
SALT_BYTES = 16
END = Turn(2**32 - 1, 2**32 - 1)  # a device that has signed the end of a run takes no turn after this one


class ChargeReceipt(Protocol):
    """What a ledger returns once a charge is durable."""

    @property
    def entries(self) -> int:
        """How long the ledger is."""

    @property
    def seal(self) -> str:
        """How it ends."""


# How many uploads of this run the ledger has paid for, and how the ledger ends now.
Account = Callable[[], tuple[int, ChargeReceipt]]


@dataclass(frozen=True, kw_only=True)
class Closing:
    """What a device states when a run ends.

    It knows by itself which run it took part in and with whom (`run`, `roster`), how many uploads its ledger has paid
    for (`paid`), and how that ledger ends (`receipt`, a commitment). It was handed the final parameters (`model`, their
    SHA-256) and the digest of the run's record (`record`). It can't check these two; by its signature nobody can put
    others in their place later.
    """

    run: str
    roster: bytes
    record: bytes
    model: bytes
    paid: int
    receipt: bytes

    @property
    def fields(self) -> tuple[bytes, ...]:
        """The fields under the signature, in their order."""
        return self.run.encode(), self.roster, self.record, self.model, str(self.paid).encode(), self.receipt

    def signed_by(self, identity: Identity) -> bytes:
        """The device's signature under the statement."""
        return identity.sign(SIGNED, *self.fields)

    def check(self, bundle: Bundle, signature: bytes) -> None:
        """Nothing if this device signed the statement, else a TrustError.

        >>> a = Identity.fresh("a")
        >>> closing = Closing(run="9f3c", roster=b"r", record=b"d", model=b"m", paid=3, receipt=b"c")
        >>> closing.check(a.bundle, closing.signed_by(a))
        """
        bundle.check(signature, SIGNED, *self.fields)


@dataclass(frozen=True, kw_only=True)
class SignedEnd:
    """What a device keeps of the end that it signed: with the salt it can show which receipt it meant."""

    closing: Closing
    signature: bytes
    entries: int
    seal: str
    salt: bytes


def committed(entries: int, seal: str, salt: bytes) -> bytes:
    """A ledger's receipt behind a salt.

    A bare seal would tell too much: it is a hash over few unknowns, so whoever has it can try out how many rows the
    device has. With the salt, which nobody else knows, the device can show later which receipt it meant.

    >>> committed(3, "9f3c", b"salt") == committed(4, "9f3c", b"salt")
    False
    """
    return digest("receipt", salt, str(entries).encode(), seal.encode())


def sign_end(
    identity: Identity, *, run: str, roster: bytes, record: bytes, model: Vector, paid: int, entries: int, seal: str
) -> SignedEnd:
    """The end of a run, signed by this device; `entries` and `seal` are its ledger's receipt.

    >>> a = Identity.fresh("a")
    >>> end = sign_end(a, run="9f3c", roster=b"", record=b"", model=b"", paid=1, entries=2, seal="77")
    >>> end.closing.check(a.bundle, end.signature)
    """
    salt = os.urandom(SALT_BYTES)
    closing = Closing(
        run=run,
        roster=roster,
        record=record,
        model=hashlib.sha256(model).digest(),
        paid=paid,
        receipt=committed(entries, seal, salt),
    )
    signature = closing.signed_by(identity)
    return SignedEnd(closing=closing, signature=signature, entries=entries, seal=seal, salt=salt)
