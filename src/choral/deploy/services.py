"""A study's server on Flower: its processes from their start to the end of the run."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from choral.config import read_text
from choral.core.errors import DeploymentError
from choral.core.keys import require_available
from choral.deploy.certificates import check_dates, host_of, speaks_with
from choral.deploy.enrolment import CERTIFICATE, KEY, SPEAKS
from choral.deploy.home import AUTHORITY, FLOWER
from choral.deploy.ownership import UNIX, keep
from choral.deploy.serving import StudyStatus, conduct, require_unfinished, run_folder, status
from choral.record import STUDY
from choral.run.agreement import Agreement

if TYPE_CHECKING:
    from choral.backends.flower.children import Children
    from choral.backends.flower.control import Control

CONDUCTOR = f"{conduct.__module__}:{conduct.__name__}"  # what Flower's processes, which are below, load to run a study
_ROOT = 0  # the user's number
LOOK = 1.0  # seconds between two looks at the state of a run
GLANCE = 0.2  # the same at what its folder says: a round may take less than a second


def check_user(user: int, *, as_root: bool) -> None:
    """It raises CH907 where a server would have the rights of root without having been given them on purpose.

    >>> check_user(1000, as_root=False)
    """
    if user == _ROOT and not as_root:
        raise DeploymentError(
            "CH907",
            "the server would run as root.",
            why="Whoever finds a fault in what it opens to the network would then have this machine.",
            fix="Run it as the user who owns the study's folder (chown -R USER STUDY); or add --as-root.",
        )


def _user() -> int:
    """The number of the user who runs this; CH908 on Windows, which has none, and no sockets to hide Flower behind."""
    if not UNIX:
        raise DeploymentError(
            "CH908",
            "a server does not run on this system.",
            why="Flower's APIs start runs without a login, and only Unix sockets hide them from other users.",
            fix="Run the server on Linux or macOS; a site may be elsewhere.",
        )
    return os.geteuid()


def serve_study(folder: Path, *, listen: str | None = None, as_root: bool = False) -> Iterator[StudyStatus]:
    """It is where the study's run stands, each time that this changes, until it has ended; stops what it started."""
    user, study = _user(), Agreement.read(folder / STUDY)
    check_user(user, as_root=as_root)  # after a look whether there is a study: who runs it matters for one that is
    require_unfinished(run_folder(folder, study))
    study.require_runnable()
    public = study.server_key.hex()
    speaks_with(read_text(folder / SPEAKS), public)
    if study.hybrid:
        require_available()
    check_dates(read_text(folder / CERTIFICATE), read_text(folder / AUTHORITY))  # Flower's processes would not say why
    from choral.backends.flower import processes  # Flower is an extra

    with processes.Children() as children:
        link = processes.serve(
            children,
            folder / FLOWER,
            nodes=[device.node for device in study.file.devices],
            address=listen or listens_at(study.file.address),
            certificate=folder / CERTIFICATE,
            key=folder / KEY,
            authority=folder / AUTHORITY,
            frame_bytes=study.frame_bytes,
            patience=study.file.deadline,
        )
        with processes.Control(link) as control:
            nodes = control.nodes({device.id: device.node for device in study.file.devices})
            processes.conduct(children, folder / FLOWER, link=link, study=folder, conductor=CONDUCTOR, nodes=nodes)
            yield from _watched(folder, study, children, control, control.start(folder))
    yield _ended(folder, study)


def simulate_study(folder: Path, *, doors: str, as_root: bool = False) -> Iterator[StudyStatus]:
    """The same on Flower's simulation engine; `{}` in the path of doors is the number of a device.

    The app is left in the study's folder, for whoever wants to hand it to `flwr run`. Every user of this machine can
    reach the engine, and run code through it as the user who has started it.
    """
    user, study = _user(), Agreement.read(folder / STUDY)
    check_user(user, as_root=as_root)
    from choral.backends.flower import control, processes  # Flower is an extra

    keep(folder / FLOWER / "app" / "pyproject.toml", control.app(folder, conductor=CONDUCTOR, doors=doors))
    with processes.Children() as children:
        inner = processes.simulate(children, folder / FLOWER)
        with processes.Control(inner) as link:
            run = link.start(folder, conductor=CONDUCTOR, doors=doors, simulated=len(study.file.devices))
            yield from _watched(folder, study, children, link, run)
    yield _ended(folder, study)


def _watched(folder: Path, study: Agreement, children: "Children", link: "Control", run: int) -> Iterator[StudyStatus]:
    shown: StudyStatus = {}
    asked = -LOOK
    while True:
        children.check()  # first: a SuperLink that has ended can't be asked, and its log says more
        if time.monotonic() >= asked + LOOK:
            asked = time.monotonic()
            if link.state(run).over:
                return
        if (current := status(folder, study)) != shown:
            shown = current
            yield current
        time.sleep(GLANCE)


def _ended(folder: Path, study: Agreement) -> StudyStatus:
    current = status(folder, study)
    if current["state"] not in ("finished", "failed"):
        raise DeploymentError(
            "CH900",
            "the server's app ended before its run.",
            fix=f"See {folder / FLOWER}; then choral server run goes on.",
        )
    return current


def listens_at(address: str) -> str:
    """It is where a server listens that sites reach at this address: everywhere, unless it is this machine's own.

    >>> listens_at("fl.example.org:9092"), listens_at("127.0.0.1:9092")
    ('0.0.0.0:9092', '127.0.0.1:9092')
    """
    local = host_of(address) in ("localhost", "127.0.0.1", "::1")
    return address if local else f"0.0.0.0:{address.rpartition(':')[2]}"
