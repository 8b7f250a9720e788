"""Records are read by attributes, and a new field costs one declaration."""

import json
from pathlib import Path

import pytest

from choral.core.errors import StorageError
from choral.record import About, RoundLine, Statement, converted, read_run

VECTORS = Path(__file__).parents[1] / "vectors"
RUNS = sorted(path.parent for path in VECTORS.glob("*_version/*/run.json"))
COST = {
    "rounds": 13, "local_steps": 1, "cohort": 10, "devices": 16, "rows": 2440, "batch": 244, "noise": 0.005,
    "clip": 1.0, "delta": 1e-4,
}  # fmt: skip


def test_there_are_runs_of_both_versions():
    assert {path.parent.name for path in RUNS} == {"first_version", "present_version"}
    assert len(RUNS) == 8


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_record_is_written_as_it_was_read_byte_for_byte(folder):
    record = read_run(folder)

    def text(value):
        return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    assert text(record.about.to_dict()) == (folder / "run.json").read_text()
    assert text(record.result.to_dict()) == (folder / "result.json").read_text()
    lines = "".join(json.dumps(line.to_dict(), ensure_ascii=False) + "\n" for line in record.rounds)
    assert lines == (folder / "rounds.jsonl").read_text()
    if record.signatures is not None and record.signatures.version > 1:
        assert text(record.signatures.to_dict()) == (folder / "signatures.json").read_text()


class AboutWithColour(About, frozen=True, kw_only=True):
    """run.json with one more field: this declaration is all that it takes."""

    colour: str = "red"


def test_a_field_with_a_default_is_written_and_read_without_any_other_edit():
    about = read_run(VECTORS / "present_version" / "simulation").about
    known = {name: getattr(about, name) for name in about.__struct_fields__}
    plain, blue = AboutWithColour(**known), AboutWithColour(**known, colour="blue")
    assert plain.to_dict() == about.to_dict(), "files that do not need the field stay as they are"
    assert blue.to_dict() == {**about.to_dict(), "colour": "blue"}
    for one in (plain, blue):
        written = one.to_dict() | {"plan": about.plan, "secure_sum": about.secure_sum}
        assert converted(written, AboutWithColour, Path("run.json")) == one


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"colour": "red"}, "unknown field `colour`"),
        ({"round": "one"}, r"Expected `int`, got `str` - at `\$.round`"),
        ({"cohort": [0.5]}, r"Expected `int`, got `float` - at `\$.cohort\[0\]`"),
        ({"note": None}, r"Expected `str`, got `null` - at `\$.note`"),
    ],
)
def test_a_line_of_another_form_is_refused_with_the_field_that_is_wrong(change, why):
    line = {"round": 1, "seconds": 0.1, "cohort": [0], "included": [0], "test": {}, "note": ""}
    assert converted(line, RoundLine, Path("rounds.jsonl")).included == (0,)
    with pytest.raises(StorageError, match=f"CH802 rounds.jsonl does not have the form that it should: .*{why}"):
        converted(line | change, RoundLine, Path("rounds.jsonl"))


@pytest.mark.parametrize("name", ["against_everyone", "none"])
def test_a_statement_without_claims_and_without_a_reason_is_refused(name):
    value = {"delta": 1e-5, "adjacency": "one record replaced"}
    if name == "none":
        value |= read_run(VECTORS / "present_version" / "rehearsal").result.privacy.to_dict() | {"none": "nothing"}
    with pytest.raises(StorageError, match="either claims or the reason why there are none"):
        converted(value, Statement, Path("result.json"))
