"""The last line of verify, over runs that are kept of both versions: never more is proved than was signed."""

from pathlib import Path

import msgspec
import pytest

from choral.record import read_run
from choral.report.signed import Outside
from choral.report.verify import signed_sentence, standing

VECTORS = Path(__file__).parents[1] / "vectors"
NOTHING = Outside(keys={})


def of(name, outside=NOTHING, **changes):
    return standing(read_run(VECTORS / name), outside, **{"other_pages": False} | changes)


@pytest.mark.parametrize(
    ("name", "proved", "trusted"),
    [
        ("present_version/simulation", "every ε follows from the ledgers", "nobody signs a run that protects nobody"),
        ("present_version/rehearsal", "all 6 devices signed the whole record", "that KEYS are the run's own"),
        ("present_version/deployment", "3 of 3 sites signed the study", "that STUDY is the number that the sites"),
        ("first_version/rehearsed", "covers these only", "the rounds, the test figures, the data's description"),
        ("first_version/deployed", "the uploads that the server counts", "also that this was a deployment"),
    ],
)
def test_what_was_not_signed_is_taken_on_trust(name, proved, trusted):
    found = of(name)
    assert proved in found.proved and trusted in found.trusted
    assert ("signed" in found.proved) is (name not in ("present_version/simulation", "first_version/deployed"))


def test_keys_that_came_another_way_leave_nothing_to_compare():
    known = Outside(keys={"device 1": b"key"})
    found = of("present_version/rehearsal", known)
    assert "with the keys of the roster that was given" in found.proved and "KEYS" not in found.trusted


def test_words_of_other_pages_are_taken_on_trust():
    assert "the words of a page that another version wrote" in of("present_version/rehearsal", other_pages=True).trusted


def test_sites_that_have_not_signed_are_counted_and_named():
    record = read_run(VECTORS / "present_version/deployment")
    first, *others = record.signatures.devices
    silent = msgspec.structs.replace(first, signature=None, why="did not answer")
    signatures = msgspec.structs.replace(record.signatures, devices=(silent, *others))
    record = type(record)(folder=record.folder, about=record.about, rounds=[], result=None, signatures=signatures)
    assert signed_sentence(record) == "2 of 3 sites signed the whole record"
    found = standing(record, NOTHING, other_pages=False)
    assert "2 of 3 sites signed" in found.proved
    assert f"what was paid by {first.device}, who did not sign" in found.trusted
