"""Signatures of kept runs verify by the rule of their version; with one byte of the model changed, they do not."""

import shutil
from pathlib import Path

import pytest

from choral.core.errors import StorageError
from choral.record import read_run
from choral.report.signed import check_signatures, keys, ledger_of, signers, study_of, version_of

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.mark.parametrize(
    ("name", "version", "count"),
    [("present_version/rehearsal", 2, 6), ("present_version/deployment", 2, 3), ("first_version/rehearsed", 1, 4)],
)
def test_signatures_of_both_versions_verify(name, version, count):
    record = read_run(VECTORS / name)
    signed, unsigned = signers(record)
    assert (version_of(record), len(signed), unsigned, check_signatures(record)) == (version, count, {}, [])


def test_a_run_without_signatures_has_none_and_no_keys():
    record = read_run(VECTORS / "present_version/simulation")
    assert (version_of(record), signers(record), keys(record)) == (0, ((), {}), None)
    assert check_signatures(record) == ["signatures.json is missing: nobody signed this run"]


@pytest.mark.parametrize("name", ["present_version/rehearsal", "first_version/rehearsed"])
def test_another_figure_in_the_model_is_under_no_signature(name, tmp_path):
    folder = shutil.copytree(VECTORS / name, tmp_path / "run")
    model = bytearray((folder / "model.safetensors").read_bytes())
    model[-1] ^= 1
    (folder / "model.safetensors").write_bytes(model)
    (wrong,) = check_signatures(read_run(folder))
    assert "more: the signature is not under this" in wrong


def test_a_deployments_keys_are_the_number_of_its_study_and_its_ledgers_are_elsewhere():
    record = read_run(VECTORS / "present_version/deployment")
    assert study_of(record.folder).digest.hex() == record.about.study
    assert len("".join(filter(str.isdigit, keys(record)))) >= 30
    with pytest.raises(StorageError, match="CH802"):
        study_of(VECTORS / "present_version/rehearsal")


def test_a_rehearsals_ledgers_have_as_many_charges_as_their_devices_signed_for():
    record = read_run(VECTORS / "present_version/rehearsal")
    for number, entry in enumerate(record.signatures.devices):
        assert len(ledger_of(record, number).balance.charges) == entry.paid
