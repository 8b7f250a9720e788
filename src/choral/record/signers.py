"""signatures.json: who signed the end of a run, what each of them signed, and why others have not."""

from typing import ClassVar

from choral.record.fields import Record


class Signer(Record, frozen=True, kw_only=True):
    """A device's public keys, what it signed or why it has not, and the salt where its ledger is public.

    Only runs of format 1 have the `ledger_seal`, and none of the four fields before it.
    """

    ALWAYS: ClassVar[frozenset[str]] = frozenset(("paid", "receipt", "salt", "why"))

    device: str
    identity: str
    agreement: str
    bundle_signature: str
    offers: tuple[str, ...] = ()  # of its card, which the signature covers; none on cards of 0.1
    paid: int | None = None
    receipt: str | None = None
    salt: str | None = None
    signature: str | None
    why: str = ""
    ledger_seal: str | None = None


class Signatures(Record, frozen=True, kw_only=True):
    """Every device's entry; version 1 covers the plan, the model and the ledger, version 2 the whole record."""

    version: int = 1
    devices: tuple[Signer, ...]


class KeptReceipt(Signer, frozen=True, kw_only=True):
    """What a site keeps about its signature: its entry, and the digests that it signed."""

    version: int
    run: str
    roster: str
    record: str
    model: str
    ledger: str
    early: str = ""  # why the run ended before its last round, in the server's words; not under the signature
