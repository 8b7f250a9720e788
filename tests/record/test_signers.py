"""signatures.json: entries of both versions are read, and who has not signed is written with the reason."""

from pathlib import Path

import pytest

from choral.core.errors import StorageError
from choral.record import converted
from choral.record.outcome import Signatures, Signer

KEYS = {"device": "hill", "identity": "aa", "agreement": "bb", "bundle_signature": "cc"}


def test_who_has_not_signed_is_written_with_nulls_and_the_reason():
    entry = Signer(**KEYS, signature=None, why="did not answer")
    assert entry.to_dict() == {
        **KEYS, "paid": None, "receipt": None, "salt": None, "signature": None, "why": "did not answer"
    }  # fmt: skip
    assert converted(entry.to_dict(), Signer, Path("signatures.json")) == entry


def test_an_entry_of_the_first_version_has_the_seal_of_its_ledger_and_no_version():
    first = {"devices": [{**KEYS, "signature": "dd", "ledger_seal": "ee"}]}
    read = converted(first, Signatures, Path("signatures.json"))
    assert (read.version, read.devices[0].ledger_seal, read.devices[0].paid) == (1, "ee", None)


def test_an_entry_that_does_not_say_whether_it_is_signed_is_refused():
    with pytest.raises(StorageError, match=r"CH802 .*missing required field `signature`"):
        converted({"version": 2, "devices": [KEYS]}, Signatures, Path("signatures.json"))
