"""A deployment on one machine, for a first try: every process, key, certificate and connection is a real one."""

import csv
import glob
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib import metadata, resources
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from choral import config
from choral.accounting.costs import most_uploads
from choral.accounting.ledger_statement import statement_of
from choral.accounting.proofs import rounds_each
from choral.config.toml import to_toml
from choral.core.errors import ConfigError, DeploymentError
from choral.core.ledger import Ledger
from choral.deploy import services
from choral.deploy.agent import answers
from choral.deploy.approving import approve
from choral.deploy.enrolment import JOB, enrol, prepare
from choral.deploy.home import AUTHORITY, Home, Policy
from choral.deploy.ownership import keep
from choral.deploy.serving import StudyStatus, run_folder
from choral.record import STUDY, read_run
from choral.record.fields import Record
from choral.record.losses import Spent
from choral.run.agreement import check_deployable
from choral.tables.arrays import is_arrays
from choral.tables.reading import read_rows, resolved

if TYPE_CHECKING:
    from choral.backends.flower.children import Children
    from choral.backends.flower.observe import Observed

Engine = Literal["superlink", "simulation"]
FEWEST = 3  # devices: in a sum of two, each can take its own part away
_START = 180.0  # seconds that all agents may take to read their tables and compile
_DEMO = {
    "name": "demo",
    "epsilon": 2.0,
    "delta": 1e-5,
    "deadline": 60.0,
    "local_steps": 10,
    "batch": 244,
    "step_size": 4.0,
    "clip": 1.0,
    "label": "income",
}


class SiteSpent(Spent, frozen=True, kw_only=True):
    """It is what a site has spent by its own ledger, and in how many rounds."""

    charges: int


class LocalResult(Record, frozen=True, kw_only=True):
    """It is what a deployment on one machine came to; `choral deploy --local --json` prints it."""

    ALWAYS: ClassVar[frozenset[str]] = frozenset({"engine", "kept"})

    engine: str = "flower"
    flower: str
    tls: bool
    node_authentication: bool
    observed: dict[str, bool] | None
    devices: tuple[str, ...]
    parameters: int
    rounds: int
    included: tuple[tuple[str, ...], ...]
    seconds: tuple[float, ...]
    stopped: str | None
    spent: dict[str, SiteSpent]
    kept: str | None = None


class LocalDeployment:
    """A study folder and the homes of its sites in one folder, up to the approvals; then `run` runs it, once."""

    def __init__(
        self, folder: Path, job: str, tables: Mapping[str, Path], encoder: str = "", models: Sequence[str] = ()
    ) -> None:
        from choral.backends.flower import processes  # Flower is an extra

        if len(tables) < FEWEST:
            raise ConfigError(
                "CH102", f"{len(tables)} devices.", fix=f"Use at least {FEWEST}: a sum of fewer hides nobody."
            )
        self.folder, self.study_folder = folder, folder / "study"
        self.observed: Observed | None = None
        (folder / JOB).write_text(job, encoding="utf-8")
        self.invitation = prepare(self.study_folder, folder / JOB, processes.free_address())
        for model in models:  # the coordinator's own copy of each "module:function=FILE"
            name, _, file = model.partition("=")
            if file:
                module = Path(*name.partition(":")[0].split(".")).with_suffix(".py")
                keep(self.study_folder / module, config.read_text(Path(file).expanduser()))
        # Homes by number: a simulated node knows its number and nothing else.
        self.homes = [
            Home.join(folder / "sites" / str(number), self.invitation, name) for number, name in enumerate(tables)
        ]
        cards = []
        for home in self.homes:
            cards.append(folder / f"{home.path.name}.card")
            cards[-1].write_text(home.card().text, encoding="utf-8")
        self.agreement = enrol(self.study_folder, cards)
        costs, limit = self.agreement.settled.costs, self.agreement.settled.limits[0]
        allowed = most_uploads(rounds_each(self.agreement.plan))  # attempts that fail included
        epsilon = max(limit.epsilon, costs.spent_against_everyone(0, allowed, limit.delta))
        for home, table in zip(self.homes, tables.values(), strict=True):
            # Server and sites are one person's here, who has asked for the study.
            policy = Policy(epsilon=epsilon, delta=limit.delta, probes=True, encoder=encoder, models=[*models])
            approve(home, self.study_folder / STUDY, policy, table, record=True)

    def run(self, engine: Engine = "superlink", *, as_root: bool = False) -> Iterator[StudyStatus]:
        """It is where the run stands, each time that this changes, until its end; every process has ended by then.

        Only the simulation engine asks whether root is meant: with the other, nobody else can reach anything here.
        """
        from choral.backends.flower import observe, processes

        authority = self.study_folder / AUTHORITY
        with processes.Children() as sites:
            for home in self.homes:
                words = [sys.executable, "-P", "-m", "choral", "device", "run", "--home", str(home.path)]
                sites.start(home.joined.name, words + ["--agent-only"] * (engine == "simulation"), home.path)
            yield {"state": "starting the sites", "rounds_done": 0}
            self.await_agents(sites)
            if engine == "simulation":
                doors = str(self.folder / "sites/{}/agent.sock")
                states = services.simulate_study(self.study_folder, doors=doors, as_root=as_root)
            else:
                states = services.serve_study(self.study_folder, as_root=True)
            for status in states:
                if engine == "superlink" and self.observed is None:
                    self.observed = observe.observe(self.invitation.address, authority=authority)
                sites.check()
                yield status
                if status["state"] == "failed":
                    raise DeploymentError(
                        "CH900", f"the run ended: {status['reason']}", fix="--keep DIR keeps every log."
                    )

    def await_agents(self, sites: "Children") -> None:
        """Return when every agent answers: the server's deadlines are for rounds, not for compilers."""
        end, left = time.monotonic() + _START, list(self.homes)
        while left:
            sites.check()
            if time.monotonic() > end:
                raise DeploymentError(
                    "CH901", f"{left[0].joined.name} does not answer after {_START:.0f} s.", fix=f"See {left[0].path}."
                )
            left = [home for home in left if not answers(home, timeout=5.0)]
            time.sleep(0.2)

    def result(self, *, kept: Path | None = None) -> LocalResult:
        """The run came to this, by the server's record and the sites' own ledgers, with the place of its files."""
        record = read_run(run_folder(self.study_folder, self.agreement).path)
        names = self.agreement.terms.ids
        ends = [line.seconds for line in record.rounds]  # since the run began, its wait for the sites included
        return LocalResult(
            flower=metadata.version("flwr"),
            tls=self.observed is not None and self.observed.tls,
            node_authentication=self.observed is not None and self.observed.node_authentication,
            observed=None if self.observed is None else asdict(self.observed),
            devices=tuple(names),
            parameters=self.agreement.terms.parameters,
            rounds=len(record.rounds),
            included=tuple(tuple(names[number] for number in line.included) for line in record.rounds),
            seconds=tuple(round(end - begin, 3) for begin, end in pairwise([0.0, *ends])),
            stopped=None if record.result is None else record.result.stopped,
            spent={home.joined.name: _spent(home) for home in self.homes},
            kept=None if kept is None else str(kept),
        )


def _spent(home: Home) -> SiteSpent:
    statement = statement_of(Ledger.read(home.ledger_path))
    return SiteSpent(**msgspec.structs.asdict(statement.spent), charges=statement.charges)


# The job and a table for each site


def of_adult(folder: Path, devices: int, rounds: int) -> LocalDeployment:
    """The demo's deployment: UCI Adult, which comes with choral, dealt over the sites."""
    source = resources.files("choral.tables") / "adult"
    with resources.as_file(source / "adult.csv.xz") as path:
        tables = deal(read_rows(path), devices, folder)
    rows = min(sum(1 for _ in path.open()) - 1 for path in tables.values())
    declared = tomllib.loads((source / "columns.toml").read_text(encoding="utf-8"))
    job = config.job_of(**_DEMO, **declared, cohort=devices, rounds=rounds, rows=rows)
    return LocalDeployment(folder, job.text, tables)


def of_job(
    folder: Path, job_file: Path, devices: int, rounds: int | None, models: Sequence[str] = ()
) -> LocalDeployment:
    """The deployment that a choral.toml describes: a file for each site, or one file dealt over them.

    `models` are "module:function=FILE" of a model that is somebody's own code.
    """
    job = config.read(job_file)
    check_deployable(job)
    text = job.text if rounds is None else with_rounds(job.text, rounds)
    encoder = job.data.encoder_file and str((job.folder / job.data.encoder_file).resolve())
    key = next((key for key in ("csv", "npz", "images") if getattr(job.data, key) is not None), None)
    if key is None:
        raise ConfigError(
            "CH103", "[data] names no csv, npz or images.", where=job.where("data"), fix='Set csv = "sites/*.csv".'
        )
    pattern = getattr(job.data, key)
    paths = [Path(path) for path in sorted(glob.glob(job.pattern(pattern), recursive=True))]
    if len(paths) == devices:
        return LocalDeployment(folder, text, {path.stem: path for path in paths}, encoder, models)
    if len(paths) != 1 or is_arrays(paths[0]):
        raise ConfigError(
            "CH104",
            f"{len(paths)} files match {pattern}, and --local {devices} asks for {devices} sites.",
            where=job.where("data", key),
            fix=f"Use --local {len(paths)}, or name one CSV file to be dealt over the sites.",
        )
    written = resolved(paths[0], job.data.written)
    delimiter, encoding = written.delimiter or ",", written.encoding or "utf-8"
    tables = deal(read_rows(paths[0], delimiter, encoding), devices, folder, delimiter, encoding)
    return LocalDeployment(folder, text, tables, encoder, models)


def deal(
    rows: Iterator[list[str]], devices: int, folder: Path, delimiter: str = ",", encoding: str = "utf-8"
) -> dict[str, Path]:
    """A file for each site, the rows dealt like cards, written as the whole file is."""
    header = next(rows, [])
    paths = {f"site-{number + 1}": folder / f"site-{number + 1}.csv" for number in range(devices)}
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w", encoding=encoding, newline="")) for path in paths.values()]
        hands = [csv.writer(file, delimiter=delimiter) for file in files]
        for hand in hands:
            hand.writerow(header)
        for number, row in enumerate(rows):
            hands[number % devices].writerow(row)
    return paths


def with_rounds(text: str, rounds: int) -> str:
    r"""A job's text with another number of rounds, in choral's own layout: its settings are kept, its comments are not.

    >>> with_rounds("[federation]\nrounds = 20  # many\n", 3)
    '[federation]\nrounds = 3\n'
    """
    content = tomllib.loads(text)
    return to_toml(content | {"federation": content.get("federation", {}) | {"rounds": rounds}})
