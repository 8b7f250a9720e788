"""Makes the golden set of one version, with that version's own code, into tests/golden/<version>.

It runs in a checkout of the version, with this file given by its path: `python PATH/make.py VERSION OUT`. A set is made
once. Later versions must read and verify it; whatever they can't, CHANGELOG.md names with the reason.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path.cwd() / "src"), str(Path.cwd())]

from choral.asking.question import Question  # noqa: E402
from choral.core.ledger import Ledger  # noqa: E402
from choral.report import write_report  # noqa: E402
from choral.run.folder import RunFolder  # noqa: E402
from choral.run.inquiry import begun  # noqa: E402
from choral.run.runs import Run  # noqa: E402
from tests.run import small, test_inquiry, test_persons, test_sum_study  # noqa: E402
from tests.run.consortium import Consortium, Sockets, agents  # noqa: E402

KEPT = (
    "run.json", "rounds.jsonl", "result.json", "signatures.json", "study.toml", "model.json", "model.safetensors",
    "report.html", "privacy.yaml", "questions.jsonl", "models.jsonl",
    "ledgers",
)  # fmt: skip
PAGES = ("poisson", "once", "device", "additive", "deployed", "persons")  # runs whose pages are kept
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
}


def keep(run: Path, out: Path) -> None:
    """Copy what a finished run leaves for others, with its page."""
    write_report(run)
    out.mkdir(parents=True)
    for path in filter(Path.exists, (run / name for name in KEPT if name != "report.html" or out.name in PAGES)):
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, out / path.name)


def trained(out: Path, scratch: Path) -> None:
    """Rehearse every plan of the list, and simulate two."""
    persons = {**test_persons.SETTINGS, **test_persons.PERSONS, "epsilon": 4.0}
    studies = {name: lambda given=given: small.study(seed=None, **given) for name, given in RUNS.items()}
    studies["persons"] = lambda: test_persons.study(batch=12, epsilon=4.0)
    studies["persons_once"] = lambda: test_persons.study(**test_persons.ONCE, epsilon=persons["epsilon"])
    for name, study in studies.items():
        try:
            settled = study()
        except Exception as error:  # a setting that this version does not have is left out, and said
            print(f"{name}: left out: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        Run("rehearsal", settled, folder=RunFolder.create(scratch / name)).finish()
        keep(scratch / name, out / name)
    Run("simulation", small.study(seed=5), folder=RunFolder.create(scratch / "simulated")).finish()
    keep(scratch / "simulated", out / "simulated")


def asked(out: Path, scratch: Path) -> None:
    """Ask a study four questions, and make an additive model out of sums."""
    from choral.run.inquiry import made

    where = [{"column": "age", "at_least": 60}]
    questions = [
        Question(name="count", parameters={"where": where}), test_inquiry.TABLE,
        Question(name="mean", parameters={"column": "age"}),
        Question(name="percentiles", parameters={"column": "age"}),
    ]  # fmt: skip
    inquiry = test_inquiry.inquiry(test_inquiry.study(ask={"epsilon": 2.0, "most": 12}), scratch / "asked", "rehearsal")
    answered = []
    for question in questions:
        try:
            answered.append(inquiry.ask(question).answer.rows)
        except Exception as error:
            print(f"{question.name}: left out: {error}", file=sys.stderr)
    (out / "asked").mkdir()
    shutil.copyfile(scratch / "asked/questions.jsonl", out / "asked/questions.jsonl")
    shutil.copytree(scratch / "asked/ledgers", out / "asked/ledgers")
    (out / "asked" / "answers.json").write_text(json.dumps(answered, indent=1) + "\n")
    given = {"epsilon": 3.0, "model": "additive", "rounds": 2, "bins": 3, **test_sum_study.SICK, "seed": None}
    made(begun("rehearsal", test_sum_study.frame(), given, out=scratch / "additive"))
    keep(scratch / "additive", out / "additive")


def deployed(out: Path, scratch: Path) -> dict[str, object]:
    """Run a study of three sites to its end over sockets, and keep its folder, its homes' ledgers and its digests."""
    consortium = Consortium(scratch / "consortium")
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
    agreement = consortium.agreement
    return {"study": agreement.digest.hex(), "run": agreement.run_name, "terms": agreement.terms.digest.hex()}


def main() -> None:
    """Make the set of the version whose checkout this runs in."""
    out = Path(sys.argv[2]) / sys.argv[1]
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        (scratch / "consortium").mkdir()
        trained(out, scratch)
        asked(out, scratch)
        digests = deployed(out, scratch)
    ledgers = sorted(
        path for path in out.rglob("*") if path.is_file() and "ledger" in path.name and path.suffix != ".json"
    )
    spent = {str(path.relative_to(out)): Ledger.read(path).balance.epsilon for path in ledgers}
    (out / "expected.json").write_text(json.dumps({"digests": digests, "spent": spent}, indent=1) + "\n")


if __name__ == "__main__":
    main()
