"""Bytes as Flower carries them, and what the relay makes of anything else."""

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from choral.backends.flower.parcels import parcel, unpacked


@pytest.mark.parametrize("data", [b"", b"frame", bytes(range(256)) * 1000])
def test_a_parcel_holds_its_bytes(data):
    assert unpacked(parcel(data)) == data
    assert unpacked(parcel(memoryview(bytearray(data)))) == data


def test_what_is_no_parcel_is_none():
    for other in (
        RecordDict(),
        RecordDict({"refusal": ConfigRecord({"code": "CH901"})}),
        RecordDict({"parcel": ConfigRecord({"bytes": "frame"})}),
        RecordDict({"parcel": ArrayRecord()}),
    ):
        assert unpacked(other) is None
