"""What devices sign: the digest covers the result and every file but the signatures, and keys are read back."""

import numpy as np
import pytest

from choral.core.errors import TrustError
from choral.core.keys import Identity
from choral.run.folder import (
    bundle_of,
    entry_of,
    parameter_bytes,
    record_digest,
    signs,
    vault_of,
)

FILES = {"run.json": "9f", "rounds.jsonl": "77"}


def test_the_digest_changes_with_the_result_and_with_every_file_but_signatures_json():
    first = record_digest({"test": 1, "files": {}}, FILES)
    assert first == record_digest({"files": {"run.json": "other"}, "test": 1}, FILES | {"signatures.json": "aa"})
    for result, files in (({"test": 2}, FILES), ({"test": 1}, FILES | {"run.json": "9e"}), ({"test": 1}, {})):
        assert record_digest(result, files) != first


@pytest.mark.parametrize(
    ("kind", "seeded", "ledgers", "expected"),
    [
        ("simulation", False, True, False),
        ("rehearsal", False, True, True),
        ("rehearsal", True, True, False),
        ("rehearsal", False, False, False),
        ("deployment", False, False, True),
    ],
)
def test_devices_sign_what_protects_somebody(kind, seeded, ledgers, expected):
    assert signs(kind, seeded=seeded, ledgers=ledgers) is expected


def test_an_entry_holds_the_public_keys_and_they_verify_when_they_are_read_back():
    identity = Identity.fresh("hill")
    entry = entry_of(identity.bundle, why="did not answer")
    assert bundle_of(entry) == identity.bundle and (entry.signature, entry.why) == (None, "did not answer")
    bundle_of(entry).check(identity.sign("end", b"text"), "end", b"text")
    with pytest.raises(TrustError, match="CH606"):
        bundle_of(entry).check(identity.sign("end", b"text"), "end", b"another")


def test_a_vault_is_made_once_with_fresh_keys_and_opened_afterwards(tmp_path):
    (tmp_path / "devices").mkdir()
    made = vault_of("hill", 3, tmp_path / "devices")
    assert (tmp_path / "devices/device-0004/vault").exists()
    assert vault_of("hill", 3, tmp_path / "devices").memory.secret == made.memory.secret
    assert vault_of("hill", 3, None).memory.secret != made.memory.secret


def test_parameters_are_signed_as_little_endian_float32_whatever_they_are_held_as():
    assert parameter_bytes(np.array([1.0, -2.0])) == b"\0\0\x80\x3f\0\0\0\xc0"  # IEEE 754
    assert parameter_bytes(np.array([[1.0, 9.0], [-2.0, 9.0]], ">f4")[:, 0]) == b"\0\0\x80\x3f\0\0\0\xc0"
