"""signatures.json: who signed the end of a run, what each of them signed, and why others have not."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.core.keys import Bundle, Identity, Roster, digest
from choral.core.ledger import Ledger
from choral.core.signed import Closing, SignedEnd, sign_end
from choral.core.terms import MODEL_TYPE
from choral.core.vault import FileStore, Memory, MemoryStore, Store, Vault
from choral.record import DEVICES, SIGNATURES, Outcome, Signatures, Signer, inside, traits
from choral.record.description import KindName
from choral.run.folder import hashes, ledger_file, write_json

VERSION = 2  # of what is signed: the whole record. Before, signatures covered the plan, the model and the ledger.
OLD_LABEL = "run"


def vault_of(name: str, number: int, folder: Path | None) -> Vault:
    """The device's vault, opened if it is there, else made with fresh keys."""
    if folder is None:
        return Vault.create(MemoryStore(), _fresh(name))
    store: Store = FileStore(inside(folder.parent, f"{folder.name}/device-{number + 1:04}/vault"))
    return Vault.open(store) if store.exists() else Vault.create(store, _fresh(name))


def _fresh(name: str) -> Memory:
    return Memory(id=name, secret=Identity.fresh(name).to_bytes())


def signs(kind: KindName, *, seeded: bool, ledgers: bool) -> bool:
    """Whether devices sign a run: a deployment, or a rehearsal with ledgers whose noise nobody can predict.

    Keys are never made from a seed, so a signature is one thing that a seeded run could not repeat; and a run with
    predictable noise, or without any, protects nobody.

    >>> signs("rehearsal", seeded=False, ledgers=True), signs("rehearsal", seeded=True, ledgers=True)
    (True, False)
    """
    how = traits(kind)
    return how.deployed or (how.signs and ledgers and not seeded)


def record_digest(result: Mapping[str, object], files: Mapping[str, str]) -> bytes:
    """SHA-256 over the result and the hash of every file that it names: of all of a run but the signatures themselves.

    >>> record_digest({"test": 1}, {"run.json": "9f"}) == record_digest({"test": 1}, {"run.json": "9f", "x": "77"})
    False
    """
    rest = {name: value for name, value in result.items() if name != "files"}
    named = {name: value for name, value in files.items() if name != SIGNATURES}
    return digest("record", *(json.dumps(part, sort_keys=True).encode() for part in (rest, named)))


def parameter_bytes(parameters: NDArray[np.float32]) -> bytes:
    """The parameters as a device is handed them, and as it signs them."""
    return np.ascontiguousarray(parameters, MODEL_TYPE).tobytes()


def entry_of(
    bundle: Bundle, *, signed: Closing | None = None, signature: bytes = b"", salt: bytes = b"", why: str = ""
) -> Signer:
    """A device's entry: its public keys, what it signed or why it has not, and the salt where its ledger is public."""
    return Signer(
        device=bundle.id,
        identity=bundle.identity.hex(),
        agreement=bundle.agreement.hex(),
        bundle_signature=bundle.signature.hex(),
        offers=bundle.offers,
        paid=None if signed is None else signed.paid,
        receipt=None if signed is None else signed.receipt.hex(),
        salt=salt.hex() or None,
        signature=signature.hex() or None,
        why=why,
    )


def bundle_of(entry: Signer) -> Bundle:
    """The public keys in an entry, not verified yet."""
    return Bundle(
        id=entry.device,
        identity=bytes.fromhex(entry.identity),
        agreement=bytes.fromhex(entry.agreement),
        signature=bytes.fromhex(entry.bundle_signature),
        offers=entry.offers,
    )


def sign_off(folder: Path, names: Sequence[str], *, run: str, result: Outcome, parameters: NDArray[np.float32]) -> None:
    """Write signatures.json of a run in one process: each device signs with its vault's keys, for its own ledger."""
    record = record_digest(result.to_dict(), hashes(folder))
    identities = [
        Identity(name, vault_of(name, number, folder / DEVICES).memory.secret) for number, name in enumerate(names)
    ]
    roster = Roster.of(identity.bundle for identity in identities).digest
    entries = []
    for number, identity in enumerate(identities):
        ledger = Ledger.read(inside(folder, f"ledgers/{ledger_file(number)}"))
        end = sign_end(
            identity,
            run=run,
            roster=roster,
            record=record,
            model=parameter_bytes(parameters),
            paid=ledger.balance.charges_of(run),
            entries=ledger.receipt.entries,
            seal=ledger.receipt.seal,
        )
        entries.append(entry_of(identity.bundle, signed=end.closing, signature=end.signature, salt=end.salt))
    write_signatures(folder, entries)


def write_signatures(folder: Path, entries: Sequence[Signer]) -> None:
    """Write signatures.json with every device's entry."""
    write_json(folder / SIGNATURES, Signatures(version=VERSION, devices=tuple(entries)).to_dict())


def receipt_text(bundle: Bundle, end: SignedEnd, *, early: str = "") -> str:
    """What a site keeps about its signature, and may give to whoever runs `choral verify --receipts`.

    `early` is why the run ended before its last round, in the server's words.
    """
    closing = end.closing
    kept = {
        "version": VERSION,
        **entry_of(bundle, signed=closing, signature=end.signature, salt=end.salt).to_dict(),
        "run": closing.run,
        "roster": closing.roster.hex(),
        "record": closing.record.hex(),
        "model": closing.model.hex(),
        "ledger": f"{end.entries}:{end.seal}",
        **({"early": early} if early else {}),
    }
    return json.dumps(kept, indent=1) + "\n"
