"""The coordinator's folder: from a choral.toml to a study, cards that come back, the public table, and decisions."""

import hashlib
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from choral import __version__, config
from choral.config import Job
from choral.config.toml import to_toml
from choral.core.errors import ConfigError, StorageError, TrustError
from choral.core.keys import framed
from choral.deploy.certificates import (
    Pair,
    check_dates,
    check_signature,
    host_of,
    new_authority,
    server_certificate,
    sign,
    speaking_key,
)
from choral.deploy.home import AUTHORITY, Invitation
from choral.deploy.ownership import keep, private
from choral.record import PROBES, STUDY, Decision, read_decisions
from choral.record.reader import DECISIONS
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
from choral.run.folder import append_line, now, write_whole
from choral.run.planning import plan_of
from choral.run.study import Study, check_delta, encoder_of, model_of
from choral.tables.reading import Table
from choral.tables.records import Records

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
        secure_sum=secure.described,
        devices=sorted(devices, key=lambda device: device.id),
    )
    check_names(file, job)
    read = Agreement.of(to_toml(msgspec.to_builtins(file)), "study.toml")  # as the sites will read it
    return read.with_code_in(job.folder)


def decide(study: Path, device: str, *, excluded: bool, because: Path) -> Decision:
    """Write a decision about a device: it counts from the next round on, until another one about the same device.

    It holds the digest of the file that says why, and that of the answers to probes as they are now.
    """
    agreement = Agreement.read(study / STUDY)
    names = [bundle.id for bundle in agreement.roster]
    if device not in names:
        raise ConfigError("CH102", f'"{device}" is no device of the study.', fix=f"Devices: {', '.join(names)}.")
    answers = study / "runs" / agreement.file.run / PROBES
    unsigned = Decision(
        device=device,
        excluded=excluded,
        because=_digest_of(because),
        answers=hashlib.sha256(answers.read_bytes()).hexdigest() if answers.exists() else None,
        at=now(),
    )
    signed = sign((study / KEY).read_text(), _text(agreement, unsigned))
    made = Decision(**unsigned.to_dict() | {"signature": signed.hex()})  # type: ignore[arg-type]
    append_line(study / DECISIONS, made, fix="Free some space, then decide again.")
    return made


def excluded_by(study: Path, agreement: Agreement) -> frozenset[str]:
    """The devices that stand excluded, by decisions that all bear the coordinator's signature; else CH606."""
    standing: dict[str, bool] = {}
    for decision in read_decisions(study):
        certificate = (study / CERTIFICATE).read_text()
        check_signature(certificate, bytes.fromhex(decision.signature), _text(agreement, decision))
        standing[decision.device] = decision.excluded
    return frozenset(device for device, excluded in standing.items() if excluded)


def _text(agreement: Agreement, decision: Decision) -> bytes:
    """It is what is signed: the study, the device, what was decided, why, on which answers, and when."""
    word = "exclude" if decision.excluded else "readmit"
    fields = (decision.device, word, decision.because, decision.answers or "", decision.at)
    return framed("decision", agreement.digest, *(text.encode() for text in fields))


def _digest_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            "CH102",
            f"{path.name} can't be read: {error.strerror}.",
            where="--because",
            fix="Give the file that says why.",
        ) from None


TEST = "test.*"


def keep_test(folder: Path, table: Path) -> None:
    """Put a public table that fits the declared columns next to the study, to measure the model on after each round."""
    if table.is_dir():
        raise ConfigError("CH105", "is a folder.", where=str(table), fix="Give the public rows as one .npz file.")
    study = Agreement.read(folder / STUDY).with_code_in(folder)
    with tempfile.TemporaryDirectory(dir=folder) as checked:
        copy = Path(checked, table.name)  # what is checked is what is kept, whatever happens to the file meanwhile
        try:
            write_whole(copy, table.read_bytes())
        except OSError as error:
            fix = "Give a table whose rows are public."
            raise ConfigError("CH105", f"can't be read: {error.strerror}.", where=str(table), fix=fix) from None
        _read_test(copy, study)
        for old in folder.glob(TEST):
            old.unlink()
        os.replace(copy, folder / TEST.replace(".*", "".join(table.suffixes)))


def with_public_test(folder: Path, study: Agreement) -> Study:
    """The study of an agreement, with the rows of that table to test on if there is one."""
    settled, table = study.settled, next(folder.glob(TEST), None)
    return settled if table is None else replace(settled, split=replace(settled.split, test=_read_test(table, study)))


def public_table(folder: Path, study: Agreement) -> Table | None:
    """That table as it is, for models on sums; None if there is none."""
    path = next(folder.glob(TEST), None)
    return None if path is None else study.table_in(path)


def _read_test(path: Path, study: Agreement) -> Records:
    features, labels = study.encoded(study.table_in(path))
    return Records.of([("test", features, labels)], classes=len(study.settled.data.classes))
