"""Makes the runs of the present version that are kept beside this file: `python -m tests.vectors.present_version`.

They are made once per released version. Later versions must verify them, however their sentences are worded then.
"""

import shutil
import tempfile
from pathlib import Path

from choral.report import write_report
from choral.run.folder import RunFolder
from choral.run.runs import Run
from tests.run.consortium import Consortium, Sockets, agents
from tests.run.small import study

HERE = Path(__file__).parent / "present_version"
KEPT = (
    "run.json", "rounds.jsonl", "result.json", "signatures.json", "study.toml", "model.json", "model.safetensors",
    "report.html", "privacy.yaml", "ledgers",
)  # fmt: skip


def keep(run: Path, name: str) -> None:
    """The files of a finished run that verify reads, and its pages."""
    write_report(run)
    (HERE / name).mkdir(parents=True)
    for path in filter(Path.exists, (run / file for file in KEPT)):
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, HERE / name / path.name)


def main() -> None:
    """A simulation, a rehearsal and a deployment, each of three rounds."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for kind, seed in (("simulation", 5), ("rehearsal", None)):
            Run(kind, study(seed=seed), folder=RunFolder.create(folder / kind)).finish()
            keep(folder / kind, kind)
        consortium = Consortium(folder)
        consortium.approve()
        with agents(consortium.homes):
            consortium.conductor(Sockets(consortium.homes)).run()
        keep(next((consortium.study / "runs").iterdir()), "deployment")


if __name__ == "__main__":
    main()
