"""From a choral.toml to a study: the coordinator's folder, the invitation that goes out, the cards that come back."""

import secrets
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from choral import __version__, config
from choral.config import Job
from choral.config.writing import to_toml
from choral.core.errors import ConfigError, StorageError, TrustError
from choral.deploy.certificates import Pair, check_dates, host_of, new_authority, server_certificate, speaking_key
from choral.deploy.home import AUTHORITY, Invitation
from choral.deploy.ownership import keep, private
from choral.record import STUDY
from choral.run.agreement import (
    FORMAT,
    Agreement,
    Enrolled,
    StudyFile,
    check_deployable,
    check_names,
    columns_of,
    protocol_of,
    require_device_name,
    require_name,
    row_of,
    sent,
)
from choral.run.planning import plan_of
from choral.run.study import check_delta, encoder_of, model_of

JOB, INVITATION, CARDS = "choral.toml", "invitation.toml", "cards"
CERTIFICATE, KEY, SPEAKS = "server.pem", "server.key", "speaks.key"


def read_card(path: str | Path) -> Enrolled:
    """The card in a file, its signatures checked."""
    card = sent(path, Enrolled)
    _ = card.bundle
    require_device_name(card.id)
    return card


def prepare(
    folder: Path,
    job_file: Path,
    address: str,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    authority: Path | None = None,
) -> Invitation:
    """The coordinator's folder with the job, the server's certificate and the invitation to send out.

    An organisation that has a certificate for the server gives it with its key and who issued it: all three.
    """
    host = host_of(address)
    job = config.read(job_file)
    check_deployable(job)
    require_name("the study's name", job.run.name)
    require_name("the server's address", address)
    if folder.exists() and any(folder.iterdir()):
        raise StorageError("CH800", "exists already.", where=str(folder), fix="Choose another folder.")
    if certificate is not None and key is not None and authority is not None:
        server, trusted = (
            Pair(certificate=config.read_text(certificate), key=config.read_text(key)),
            config.read_text(authority),
        )
    elif certificate is None and key is None and authority is None:
        own = new_authority(job.run.name)
        server, trusted = server_certificate(own, host), own.certificate  # its key is needed no more, and not kept
    else:
        raise ConfigError(
            "CH103", "your own certificate is not given completely.", fix="Give --certificate, --key and --authority."
        )
    speaks, server_key = speaking_key()
    invitation = Invitation(
        format=FORMAT, name=job.run.name, address=address, certificate=trusted, server_key=server_key
    )
    check_dates(server.certificate, trusted)  # and refuses what is no certificate, before anything is written
    private(folder)
    for name, text in (
        (JOB, job.text),
        (AUTHORITY, trusted),
        (CERTIFICATE, server.certificate),
        (KEY, server.key),
        (SPEAKS, speaks),
        (INVITATION, "# Sites: choral device join invitation.toml\n" + to_toml(msgspec.to_builtins(invitation))),
    ):
        keep(folder / name, text)
    keep_encoder(folder, job, job.folder)
    return invitation


def keep_encoder(folder: Path, job: Job, near: Path) -> None:
    """Put the job's encoder into the coordinator's folder, compared with its SHA-256, if it is there at all.

    The coordinator needs it only to measure the model on public rows; each site names its own copy.
    """
    path = near / job.data.encoder_file
    if path.is_file() and (encoder := encoder_of(job, path)) is not None:
        keep(folder / path.name, encoder.content)


def enrol(folder: Path, cards: Sequence[Path]) -> Agreement:
    """The study of exactly these cards, written to study.toml; a run that is under way is not touched."""
    invitation = Invitation.read(folder / INVITATION)
    devices = [read_card(path) for path in cards]
    if twice := sorted(id for id, cards_of_it in Counter(card.id for card in devices).items() if cards_of_it > 1):
        raise TrustError(
            "CH600", f'two cards name the device "{twice[0]}".', fix="Ask the sites to choose other names."
        )
    agreement = study_of(
        config.read(folder / JOB),
        devices,
        run=secrets.token_hex(16),
        address=invitation.address,
        certificate=invitation.certificate,
        server_key=invitation.server_key,
    )
    _ = agreement.terms  # refuses rosters, rings and graphs that can't hold a round
    shutil.rmtree(folder / CARDS, ignore_errors=True)
    for card in devices:
        keep(folder / CARDS / f"{bytes.fromhex(card.identity)[:8].hex()}.card", card.text)
    keep(folder / STUDY, agreement.text)
    return agreement


def study_of(
    job: Job, devices: Sequence[Enrolled], *, run: str, address: str, certificate: str, server_key: str
) -> Agreement:
    """The study of these devices over a job; the noise is solved, and what the job leaves out is proposed."""
    check_deployable(job)
    wanted = job.federation.devices
    if wanted is not None and wanted != len(devices):
        raise ConfigError(
            "CH104",
            f"{len(devices)} devices are enrolled, federation.devices says {wanted}.",
            where=job.where("federation", "devices"),
            fix="Give every card, or leave devices out of the file.",
        )
    model = model_of(job, shape=row_of(job), classes=len(job.data.classes or ()))
    rows = job.federation.rows or 0
    check_delta(job, rows * len(devices))
    plan, secure = plan_of(job, model, devices=len(devices), rows=rows, columns=columns_of(job))
    file = StudyFile(
        format=FORMAT,
        name=job.run.name,
        run=run,
        choral=__version__,
        protocol=protocol_of(job, devices),
        address=address,
        deadline=job.federation.deadline,
        certificate=certificate,
        server_key=server_key,
        job=job.text,
        plan=plan.to_dict(),
        secure_sum=asdict(secure),
        devices=sorted(devices, key=lambda device: device.id),
    )
    check_names(file, job)
    read = Agreement.of(to_toml(msgspec.to_builtins(file)), "study.toml")  # as the sites will read it
    return read.with_code_in(job.folder)
