"""What choral 0.2 ran and no later version does: records of it are verified, and new jobs and studies are refused."""

import json
from pathlib import Path

import pytest

from choral import config
from choral.core.errors import ConfigError, PlanError
from choral.core.plan import Plan
from choral.record import read_run
from choral.run.agreement import Agreement

GIVEN = {"devices": 8, "cohort": 8, "rounds": 5, "rows": 100, "batch": 20, "step_size": 0.5, "clip": 1.0, "noise": 0.1,
         "sampling": "partition"}  # fmt: skip
PLAN = Plan(devices=8, cohort=8, rounds=5, rows=100, batch=20, local_steps=10, step_size=0.5, clip=1.0, noise=0.1)
RETIRED = [{"momentum": 0.9}, {"proximal": 0.1}, {"schedule": "cosine"}, {"law": "skellam"}]
LAST = r"was removed\. .*choral 0\.2 is the last version that runs it\."
HERE = Path(__file__).parent


def test_a_plan_without_them_has_the_digest_that_it_always_had():
    # As release 0.1.0 computed it, whose codec had another range.
    before = Plan.from_dict(PLAN.to_dict() | {"codec": 1})
    assert before.digest == "3f4cc0e7dd420264b2d6e37c682f534eb2bfccb8d3caefd9d60d5de4fd315d30"
    usual = {"momentum": 0.0, "proximal": 0.0, "schedule": "constant"}
    assert Plan.from_dict(before.to_dict() | usual) == before


@pytest.mark.parametrize("said", RETIRED, ids=str)
def test_a_plan_of_a_record_says_them_and_has_the_digest_of_its_run(said):
    read = Plan.from_dict({**GIVEN, **said})
    assert read.to_dict().items() >= said.items() and Plan.from_dict(read.to_dict()) == read
    assert read.digest != Plan.from_dict(GIVEN).digest
    with pytest.raises(PlanError, match=LAST):
        read.require_present("study.toml")


@pytest.mark.parametrize("said", [{"momentum": {"a": 1}}, {"retired": [["momentum", 0.9]]}], ids=str)
def test_what_no_version_wrote_is_refused(said):
    with pytest.raises(PlanError, match="CH101 unknown key"):
        Plan.from_dict({**GIVEN, **said})


@pytest.mark.parametrize("run", ["local_momentum", "proximal", "schedule", "skellam"])
def test_a_plan_of_a_run_of_0_2_has_the_digest_that_was_signed(run):
    """tests/golden verifies these runs with their signatures."""
    written = json.loads((HERE.parent / "golden/0.2.0" / run / "run.json").read_text())
    plan = read_run(HERE.parent / "golden/0.2.0" / run).about.plan
    assert list(plan.to_dict().items()) == list(written["plan"].items()) and plan.digest == written["plan_digest"]
    assert plan.retired


def test_a_new_plan_is_refused_with_the_last_version_that_ran_it():
    with pytest.raises(PlanError, match="CH101 law = .skellam. " + LAST):
        Plan(**GIVEN, law="skellam")
    with pytest.raises(TypeError, match="momentum"):
        Plan(**GIVEN, momentum=0.9)


@pytest.mark.parametrize("said", RETIRED, ids=str)
def test_a_new_job_is_refused_with_its_line_and_the_last_version_that_ran_it(said):
    ((key, value),) = said.items()
    table = "privacy" if key == "law" else "local"
    text = f"[privacy]\nepsilon = 2.0\n[{table}]\n" if table == "local" else "[privacy]\nepsilon = 2.0\n"
    text += f"{key} = {json.dumps(value)}\n"
    with pytest.raises(ConfigError, match=rf"CH101 choral\.toml:\d {table}\.{key} = .* " + LAST):
        config.parse(text)
    with pytest.raises(ConfigError, match=rf"CH101 settings.* {table}\.{key} = .* " + LAST):
        config.job_of(epsilon=2.0, **said)
    read, usual = config.parse(text, recorded=True), config.parse(text.rpartition(f"{key} =")[0])
    assert (read.local, read.privacy) == (usual.local, usual.privacy)


@pytest.mark.parametrize("said", RETIRED, ids=str)
@pytest.mark.parametrize("where", ["plan", "job"])
def test_a_study_that_asks_for_them_is_read_and_not_run(said, where):
    ((key, value),) = said.items()
    text = (HERE.parent / "golden/2026-11-20/deployed.study.toml").read_text()
    if where == "plan":
        changed = text.replace("[plan]\n", f"[plan]\n{key} = {json.dumps(value)}\n")
        if key == "law":  # which had one step on a partition
            changed = changed.replace("local_steps = 2", "local_steps = 1").replace('"poisson"', '"partition"')
    else:
        table = "[privacy]" if key == "law" else "[local]"
        changed = text.replace(f"{table}\n", f"{table}\n{key} = {json.dumps(value)}\n")
    assert changed != text
    with pytest.raises((ConfigError, PlanError), match=LAST):
        Agreement.of(changed, "study.toml").require_runnable()
