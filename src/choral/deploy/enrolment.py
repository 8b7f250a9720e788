"""From a choral.toml to a study: the coordinator's folder, the invitation that goes out, the cards that come back."""

import os
import secrets
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from choral import __version__, config
from choral.config import Job
from choral.config.toml import to_toml
from choral.core.errors import ConfigError, StorageError, TrustError
from choral.core.keys import Identity
from choral.deploy.certificates import Pair, check_dates, fingerprint, new_authority, server_certificate, speaking_key
from choral.deploy.ownership import check_owner
from choral.record import STUDY as STUDY
from choral.run.agreement import FORMAT, Agreement, StudyFile, check_server_key, other_version, protocol_of, sent
from choral.run.deployable import check_deployable, check_names, columns_of, row_of
from choral.run.enrolled import Enrolled
from choral.run.folder import write_whole
from choral.run.names import require_device_name, require_name
from choral.run.planning import plan_of
from choral.run.study import check_delta, encoder_of, model_of

JOB, INVITATION, CARDS = "choral.toml", "invitation.toml", "cards"
AUTHORITY, CERTIFICATE, KEY, SPEAKS = "authority.pem", "server.pem", "server.key", "speaks.key"


class Invitation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a coordinator sends out: where the server is, the certificate by which sites know it, and its key."""

    format: int
    name: str
    address: str
    certificate: str
    server_key: str = ""  # under which it signs its frames; none in a home that joined with choral 0.2

    @classmethod
    def read(cls, path: str | Path) -> "Invitation":
        """The invitation in a file."""
        invitation = sent(path, cls)
        if invitation.format != FORMAT:
            raise other_version(f"the invitation has format {invitation.format}, this choral has {FORMAT}", str(path))
        check_server_key(invitation.server_key, invitation.format, str(path))
        host_of(invitation.address)  # refuses what is none
        require_name("the study's name", invitation.name)
        require_name("the server's address", invitation.address)
        _ = invitation.fingerprint  # refuses what is no certificate
        return invitation

    @property
    def fingerprint(self) -> str:
        """The certificate's SHA-256, to be compared by phone."""
        return fingerprint(self.certificate)


class Joined(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who this device is, and the server that it knows from its invitation."""

    name: str
    node: str
    server: Invitation
    offers: tuple[str, ...] = ()  # of its card; none on cards of 0.1


def card_of(identity: Identity, node: str) -> Enrolled:
    """What a device sends back: its signed bundle, and its node's key under its signature."""
    bundle = identity.bundle
    return Enrolled(
        id=bundle.id,
        identity=bundle.identity.hex(),
        agreement=bundle.agreement.hex(),
        signature=bundle.signature.hex(),
        node=node,
        node_signature=identity.sign("node key", node.encode()).hex(),
        offers=bundle.offers,
    )


def card_text(card: Enrolled) -> str:
    """The file of a card."""
    return "# The public card of a choral device: send it to the coordinator.\n" + to_toml(msgspec.to_builtins(card))


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
        keep(folder / CARDS / f"{bytes.fromhex(card.identity)[:8].hex()}.card", card_text(card))
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


def host_of(address: str) -> str:
    """The host of host:port, or CH102.

    >>> host_of("fl.example.org:9092"), host_of("[::1]:9092")
    ('fl.example.org', '::1')
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError("CH102", f'the address is "{address}".', fix="Give host:port, as in fl.example.org:9092.")
    return host.removeprefix("[").removesuffix("]")


def private(folder: Path) -> Path:
    """The folder, made if need be, for its owner's eyes only; one of another user is refused (CH801)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_owner(folder)
        os.chmod(folder, 0o700)
    except OSError as error:
        fix = "Choose another folder, or fix its permissions."
        raise StorageError("CH801", f"can't be made: {error.strerror}.", where=str(folder), fix=fix) from None
    return folder


def keep(path: Path, content: str | bytes) -> None:
    """The file with this content, for its owner's eyes only; a crash leaves the old file or the new one."""
    private(path.parent)
    write_whole(path, content if isinstance(content, bytes) else content.encode(), mode=0o600)


def keep_json(path: Path, value: msgspec.Struct) -> None:
    """The file with this value as JSON, written so that its owner can read it."""
    keep(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n")
