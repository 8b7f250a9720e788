"""What devices sign at the end of a rehearsal, and where their keys lie meanwhile."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from choral.privacy.ledger import Ledger
from choral.protocol.vault import FileStore, Memory, MemoryStore, Store, Vault
from choral.run.folder import ledger_file
from choral.secagg.keys import Identity

SIGNED = "run"


def vault_of(name: str, number: int, folder: Path | None) -> Vault:
    """The device's vault, opened if it is there, else made with fresh keys."""
    store: Store = MemoryStore() if folder is None else FileStore(folder / f"device-{number + 1:04}" / "vault")
    if isinstance(store, FileStore) and store.path.exists():
        return Vault.open(store)
    return Vault.create(store, Memory(id=name, secret=Identity.fresh(name).to_bytes()))


def signs(kind: str, *, seeded: bool, private: bool) -> bool:
    """Whether devices sign a run: a rehearsal whose noise nobody can foresee; other runs protect nobody.

    Keys are never made from a seed, so a signature is one thing that a seeded run could not repeat.

    >>> signs("rehearsal", seeded=False, private=True), signs("rehearsal", seeded=True, private=True)
    (True, False)
    """
    return kind == "rehearsal" and private and not seeded


def signed_fields(plan: str, model: bytes, seal: str) -> tuple[bytes, bytes, bytes]:
    """What a device signs at the end of a run: plan, SHA-256 of the model's file, and the last seal of its ledger."""
    return plan.encode(), hashlib.sha256(model).digest(), seal.encode()


def sign_off(names: Sequence[str], plan: str, folder: Path, model: bytes) -> list[dict[str, str]]:
    """Every device's signature under the plan, the model and the end of its own ledger, with the keys to check it."""
    signed = []
    for number, name in enumerate(names):
        identity = Identity(name, vault_of(name, number, folder / "devices").memory.secret)
        seal = Ledger.read(folder / "ledgers" / ledger_file(number)).receipt.seal
        bundle = identity.bundle
        signed.append(
            {
                "device": name,
                "identity": bundle.identity.hex(),
                "agreement": bundle.agreement.hex(),
                "bundle_signature": bundle.signature.hex(),
                "ledger_seal": seal,
                "signature": identity.sign(SIGNED, *signed_fields(plan, model, seal)).hex(),
            }
        )
    return signed
