"""What holds for each kind of run, and what run.json says of a run."""

from pathlib import Path

import msgspec
import pytest

from choral.record import read_run, traits
from choral.record.description import KINDS

VECTORS = Path(__file__).parents[1] / "vectors" / "present_version"


def test_only_a_deployment_is_deployed_and_only_a_simulation_repeats_and_has_no_masks():
    assert KINDS == ("simulation", "rehearsal", "deployment")
    assert [traits(kind).deployed for kind in KINDS] == [False, False, True]
    assert [traits(kind).masked for kind in KINDS] == [False, True, True]
    assert [traits(kind).repeats for kind in KINDS] == [True, False, False]
    assert [traits(kind).signs for kind in KINDS] == [False, True, True]


@pytest.mark.parametrize(("kind", "seeded", "foreseen"), [
    ("simulation", False, True), ("rehearsal", True, True), ("rehearsal", False, False), ("deployment", False, False),
])  # fmt: skip
def test_noise_can_be_computed_again_in_every_simulation_and_where_there_is_a_seed(kind, seeded, foreseen):
    about = msgspec.structs.replace(read_run(VECTORS / "rehearsal").about, kind=kind, seeded=seeded)
    assert about.predictable is foreseen


def test_records_are_those_of_all_devices_and_only_a_deployments_name_has_its_study():
    about = read_run(VECTORS / "simulation").about
    assert about.records == sum(device.rows for device in about.devices) > 0
    assert about.run_name == about.plan_digest
    deployed = read_run(VECTORS / "deployment").about
    assert deployed.run_name == f"{deployed.plan_digest}:{deployed.study}"


def test_runs_from_before_there_was_a_field_have_none_and_are_written_without_it():
    about = read_run(VECTORS / "simulation").about
    assert about.made_with is None and "made_with" not in about.to_dict()
    newer = msgspec.structs.replace(about, made_with="CPython 3.11.9 on Linux x86_64")
    assert newer.to_dict() == {**about.to_dict(), "made_with": "CPython 3.11.9 on Linux x86_64"}
