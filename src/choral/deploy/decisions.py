"""A coordinator's decisions about devices: who is left out of the rounds to come, signed with the server's own key."""

import hashlib
from pathlib import Path

from choral.core.errors import ConfigError
from choral.core.keys import framed
from choral.deploy.certificates import check_signature, sign
from choral.deploy.enrolment import CERTIFICATE, KEY
from choral.record import PROBES, STUDY, Decision, read_decisions
from choral.record.reader import DECISIONS
from choral.run.agreement import Agreement
from choral.run.folder import append_line, now


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
    """What is signed: the study, the device, what was decided, why, on which answers, and when."""
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
