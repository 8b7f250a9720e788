"""Makes the golden set of one version, with that version's own code, into tests/golden/<version>.

It runs in a checkout of the version, with this file given by its path: `python PATH/make.py VERSION OUT`. A set is made
once. Later versions must read and verify it; whatever they can't, CHANGELOG.md names with the reason. Names of runs
after OUT, or `studies`, add these alone to a set. What a version does not have is left out, and named on the way.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module, util
from pathlib import Path

sys.path[:0] = [str(Path.cwd() / "src"), str(Path.cwd())]

from choral.report import write_report  # noqa: E402
from choral.run.agreement import Agreement  # noqa: E402
from choral.run.folder import RunFolder  # noqa: E402
from choral.run.runs import Run  # noqa: E402
from tests.run import small  # noqa: E402
from tests.run.consortium import JOB, NAMES, Consortium, Sockets, agents  # noqa: E402

ROOMS = ("choral.core", "choral.privacy")  # where the ledger is, by version
Ledger = import_module(next(f"{room}.ledger" for room in ROOMS if util.find_spec(room))).Ledger
KEPT = (
    "run.json", "rounds.jsonl", "result.json", "signatures.json", "study.toml", "model.json", "model.safetensors",
    "report.html", "privacy.yaml", "questions.jsonl", "models.jsonl", "probes.jsonl", "decisions.jsonl",
    "ledgers",
)  # fmt: skip
PAGES = ("poisson", "once", "device", "additive", "deployed", "persons", "robust")  # runs whose pages are kept
ONCE = {"noise_is_added": "once", "local_steps": None, "step_size": None, "clip": None, "batch": None}
PARTITION = {"sampling": "partition", "local_steps": 1}
DEVICE = {"unit": "device", "clip": 0.5, "epsilon": 20.0}
RUNS = {
    "poisson": {},
    "partition": PARTITION,
    "once": ONCE,
    "once_of_a_part": {**ONCE, "sampling": "poisson"},
    "discrete_gaussian": {**PARTITION, "law": "discrete_gaussian"},
    "skellam": {**PARTITION, "law": "skellam"},
    "once_of_whole_numbers": {**ONCE, "law": "discrete_gaussian"},
    "device": DEVICE,
    "device_of_whole_numbers": {**DEVICE, "law": "discrete_gaussian"},
    "adaptive_clip": {**DEVICE, "clip_quantile": 0.5},
    "momentum": {"server": "momentum", "server_momentum": 0.5},
    "against_sums": {**PARTITION, "against": "server and colluders"},
    "small_delta": {"delta": 1e-6},
    "local_momentum": {"momentum": 0.5},
    "proximal": {"proximal": 0.1},
    "schedule": {"schedule": "linear"},
    "paper_sum": {"secure_sum": "paper"},
    "packed": {"packed": True},
    "robust": {"devices": 12, "cohort": 12, "rounds": 3, "robust": True, "colluders": 1},
}
LOCAL = "[local]\nsteps = 2\nbatch = 12\nstep_size = 0.5\nclip = 1.0\n"
ONE_STEP = ("steps = 2", 'steps = 1\nsampling = "partition"')
# Studies of which the digest, the safety number and the terms are kept: what is replaced in the study that is run.
STUDIES: dict[str, tuple[tuple[str, str], ...]] = {
    "once": ((LOCAL, ""), ("delta = 1e-4", 'delta = 1e-4\nnoise_is_added = "once"')),
    "partition": (ONE_STEP,),
    "discrete_gaussian": (ONE_STEP, ("delta = 1e-4", 'delta = 1e-4\nlaw = "discrete_gaussian"')),
    "skellam": (ONE_STEP, ("delta = 1e-4", 'delta = 1e-4\nlaw = "skellam"')),
    "device": (("epsilon = 4.0", 'epsilon = 20.0\nunit = "device"'),),
    "adaptive_clip": (("epsilon = 4.0", 'epsilon = 20.0\nunit = "device"'), ("[data]", "clip_quantile = 0.5\n[data]")),
    "robust": (("cohort = 3", "cohort = 4\ncolluders = 0\nrobust = true"),),
    "packed": (("cohort = 3", "cohort = 4\ncolluders = 0\npacked = true"),),
    "local_momentum": (("clip = 1.0", "clip = 1.0\nmomentum = 0.5"),),
    "proximal": (("clip = 1.0", "clip = 1.0\nproximal = 0.1"),),
    "schedule": (("clip = 1.0", 'clip = 1.0\nschedule = "linear"'),),
    "against_sums": (ONE_STEP, ("delta = 1e-4", 'delta = 1e-4\nagainst = "server and colluders"')),
    "asking": (("[run]", '[ask]\nepsilon = 2.0\nmost = 3\nnames = ["count", "table", "logistic"]\n[run]'),),
}  # fmt: skip


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """A block that a version which does not know what it needs leaves with a line about it."""
    try:
        yield
    except Exception as error:
        print(f"{name}: left out: {type(error).__name__}: {error}", file=sys.stderr)


def keep(run: Path, out: Path) -> None:
    """Copy what a finished run leaves for others, with its page."""
    write_report(run)
    out.mkdir(parents=True)
    for path in filter(Path.exists, (run / name for name in KEPT if name != "report.html" or out.name in PAGES)):
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, out / path.name)


def persons_study(**changes: object) -> object:
    """A study whose unit is a person."""
    from tests.run import test_persons

    return test_persons.study(**{"epsilon": 4.0, **(changes or test_persons.ONCE)})


def trained(out: Path, scratch: Path, wanted: list[str]) -> None:
    """Rehearse every plan of the list, and simulate one."""
    studies = {name: lambda given=given: small.study(seed=None, **given) for name, given in RUNS.items()}
    studies["robust"] = lambda: small.study(small.rows(480, 70), seed=None, **RUNS["robust"])
    studies["persons"] = lambda: persons_study(batch=12)
    studies["persons_once"] = persons_study
    for name in wanted or studies:
        with left_out(name):
            Run("rehearsal", studies[name](), folder=RunFolder.create(scratch / name)).finish()
            keep(scratch / name, out / name)
    if not wanted:
        Run("simulation", small.study(seed=5), folder=RunFolder.create(scratch / "simulated")).finish()
        keep(scratch / "simulated", out / "simulated")


def asked(out: Path, scratch: Path) -> None:
    """Ask a study four questions, and make an additive model out of sums."""
    from choral.asking.question import Question
    from choral.run.inquiry import begun, made
    from tests.run import test_inquiry, test_sum_study

    where = [{"column": "age", "at_least": 60}]
    questions = [
        Question(name="count", parameters={"where": where}), test_inquiry.TABLE,
        Question(name="mean", parameters={"column": "age"}),
        Question(name="percentiles", parameters={"column": "age"}),
    ]  # fmt: skip
    inquiry = test_inquiry.inquiry(test_inquiry.study(ask={"epsilon": 2.0, "most": 12}), scratch / "asked", "rehearsal")
    answered = []
    for question in questions:
        with left_out(question.name):
            answered.append(inquiry.ask(question).answer.rows)
    (out / "asked").mkdir()
    shutil.copyfile(scratch / "asked/questions.jsonl", out / "asked/questions.jsonl")
    shutil.copytree(scratch / "asked/ledgers", out / "asked/ledgers")
    (out / "asked" / "answers.json").write_text(json.dumps(answered, indent=1) + "\n")
    given = {"epsilon": 3.0, "model": "additive", "rounds": 2, "bins": 3, **test_sum_study.SICK, "seed": None}
    made(begun("rehearsal", test_sum_study.frame(), given, out=scratch / "additive"))
    keep(scratch / "additive", out / "additive")


def deployed(out: Path, scratch: Path) -> dict[str, object]:
    """Run a study of three sites to its end over sockets, and keep its folder, its homes' ledgers and its digests."""
    consortium = Consortium(scratch)
    consortium.approve()
    with agents(consortium.homes):
        consortium.conductor(Sockets(consortium.homes)).run()
    keep(next((consortium.study / "runs").iterdir()), out / "deployed")
    shutil.copyfile(consortium.study / "study.toml", out / "deployed.study.toml")
    shutil.copyfile(consortium.study / "invitation.toml", out / "deployed.invitation.toml")
    for name, home in consortium.homes.items():
        for path in home.path.rglob("*ledger*"):
            if path.is_file() and "lock" not in path.name:
                (out / "site_ledgers").mkdir(exist_ok=True)
                shutil.copyfile(path, out / "site_ledgers" / f"{name}.{path.name}")
    return digests_of(consortium.agreement)


def enrolled(out: Path, scratch: Path) -> dict[str, dict[str, object]]:
    """Enrol sites into a study of each kind, and keep the study's file with its digests."""
    found: dict[str, dict[str, object]] = {}
    for name, changes in STUDIES.items():
        with left_out(f"study {name}"):
            job = JOB
            for before, after in changes:
                assert before in job, before
                job = job.replace(before, after)
            (scratch / name).mkdir()
            names = (*NAMES, "moor") if "cohort = 4" in job else NAMES
            study = Consortium(scratch / name, names=names, job=job).study / "study.toml"
            found[name] = digests_of(Agreement.read(study))
            (out / "studies").mkdir(exist_ok=True)
            shutil.copyfile(study, out / "studies" / f"{name}.study.toml")
    return found


def digests_of(agreement: Agreement) -> dict[str, object]:
    """What the sites of a study compare and approve, and what every frame of it is bound to."""
    return {
        "study": agreement.digest.hex(), "run": agreement.run_name, "terms": agreement.terms.digest.hex(),
        "number": agreement.safety_number,
    }  # fmt: skip


def main() -> None:
    """Make the set of the version whose checkout this runs in, or add some runs to it."""
    out, wanted = Path(sys.argv[2]) / sys.argv[1], sys.argv[3:]
    out.mkdir(parents=True, exist_ok=True)
    expected = out / "expected.json"
    known = json.loads(expected.read_text()) if expected.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        trained(out, scratch, [one for one in wanted if one != "studies"])
        if not wanted:
            with left_out("questions"):
                asked(out, scratch)
            (scratch / "consortium").mkdir()
            known["digests"] = deployed(out, scratch / "consortium")
        if not wanted or "studies" in wanted:
            (scratch / "studies").mkdir()
            known["studies"] = enrolled(out, scratch / "studies")
    ledgers = sorted(
        path for path in out.rglob("*") if path.is_file() and "ledger" in path.name and path.suffix != ".json"
    )
    known["spent"] = {str(path.relative_to(out)): Ledger.read(path).balance.epsilon for path in ledgers}
    expected.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
