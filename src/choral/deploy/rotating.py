"""New keys for a site between two studies: its name, its limit and its ledger stay."""

import msgspec

from choral.core.errors import StorageError
from choral.core.keys import HYBRID, Identity, available
from choral.core.signed import END
from choral.deploy.enrolment import keep_json
from choral.deploy.site import APPROVAL, JOINED, Home


def rotate(home: Home, passphrase: str | None = None) -> None:
    """Make new keys for the device and for its node; CH800 while a study goes on, whose roster names the old ones."""
    vault, joined = home.vault(passphrase), home.joined
    if (home.path / APPROVAL).exists() and vault.memory.turn != END:
        raise StorageError(
            "CH800",
            "a study is approved here that has not ended.",
            where=str(home.path),
            why="Its roster names the present keys. What protects its uploads is renewed in the run by itself.",
            fix="Rotate after its end. If the keys were stolen: stop, tell the coordinator, join under another name.",
        )
    (home.path / APPROVAL).unlink(missing_ok=True)
    # If this is cut off anywhere below, no card fits the home, and rotating again repairs it.
    vault.renew(Identity.fresh(joined.name).to_bytes())
    offers = (HYBRID,) if available() else ()
    renewed = msgspec.structs.replace(joined, node=home.fresh_node_key(), offers=offers)
    keep_json(home.path / JOINED, renewed)
