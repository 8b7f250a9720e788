"""Who signed a run, whether each signature is under this record, and whether the keys are those that came elsewhere."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from choral import config
from choral.core.errors import ChoralError, StorageError
from choral.core.keys import Bundle, Roster, safety_number
from choral.core.ledger import Ledger
from choral.core.signed import Closing, committed
from choral.record import (
    SIGNATURES,
    STUDY,
    KeptReceipt,
    RunRecord,
    Signatures,
    Signer,
    inside,
    of_right_form,
    read_json,
)
from choral.record import converted as as_record
from choral.report import words
from choral.run.agreement import ASK_AGAIN, Agreement, Enrolled, StudyFile, converted
from choral.run.folder import (
    OLD_LABEL,
    VERSION,
    bundle_of,
    ledger_file,
    parameter_bytes,
    read_parameters,
    record_digest,
)
from choral.trees.merkle import roster_tree


class Note(str):
    """A line that is worth knowing and that makes nothing wrong."""


def version_of(record: RunRecord) -> int:
    """What the signatures cover: 2 the whole record, 1 plan, model and ledger, 0 if nobody has signed."""
    return 0 if record.signatures is None else record.signatures.version


def signers(record: RunRecord) -> tuple[tuple[str, ...], dict[str, str]]:
    """Who has signed, and who has not with the reason; the report names both."""
    entries = _entries(record)
    signed = tuple(entry.device for entry in entries if entry.signature)
    return signed, {entry.device: entry.why for entry in entries if not entry.signature}


def _entries(record: RunRecord) -> tuple[Signer, ...]:
    return () if record.signatures is None else record.signatures.devices


def keys(record: RunRecord) -> str | None:
    """The digits that stand for everybody's keys: of a deployment the study's number, which its sites approved."""
    if record.about.traits.deployed:
        return safety_number(bytes.fromhex(record.about.study or ""))
    return None if record.signatures is None else _roster(record).safety_number


def ledger_of(record: RunRecord, number: int) -> Ledger:
    """A device's ledger in the run's folder."""
    return Ledger.read(inside(record.folder, f"ledgers/{ledger_file(number)}"))


def study_of(folder: Path) -> Agreement:
    """The study that a deployment's folder holds; of any version, since it is only compared."""
    path = inside(folder, STUDY)
    if not path.exists():
        raise StorageError("CH802", "is not there.", where=str(path), fix="Restore it: sites approved its number.")
    return _study(config.read_toml(config.read_text(path), source=str(path), fix=ASK_AGAIN), str(path))


def _study(content: Mapping[str, object], where: str) -> Agreement:
    return Agreement(file=converted(content, StudyFile, where))


def _roster(record: RunRecord) -> Roster:
    """The keys in signatures.json, every bundle verified."""
    return Roster.of(bundle_of(entry) for entry in _entries(record))


def _roster_digest(record: RunRecord) -> bytes:
    """The digest of the roster as the devices signed it: the root of its tree where their lists are trees."""
    roster = _roster(record)
    trees = record.about.traits.deployed and study_of(record.folder).trees
    return roster_tree(roster).root if trees else roster.digest


def check_signatures(record: RunRecord) -> list[str]:
    """What is wrong with the signatures, by the rule of the version that made them."""
    version = version_of(record)
    if version == 0:
        return [f"{SIGNATURES} is missing: nobody signed this run"]
    if version > VERSION or (version < VERSION and record.about.format > 1):
        return [f"{SIGNATURES} has version {version}, which is not that of this run"]
    if [entry.device for entry in _entries(record)] != [device.name for device in record.about.devices]:
        return ["the signatures are not of the run's devices"]
    return _old(record) if version == 1 else _whole(record)


def _old(record: RunRecord) -> list[str]:
    """Signatures of format 1: under the plan, the SHA-256 of the model's file, and the last seal of the ledger."""
    _roster(record)
    model = hashlib.sha256(inside(record.folder, "model.safetensors").read_bytes()).digest()
    false = []
    for number, entry in enumerate(_entries(record)):
        fields = (record.about.plan_digest.encode(), model, ledger_of(record, number).receipt.seal.encode())
        try:
            bundle_of(entry).check(bytes.fromhex(entry.signature or ""), OLD_LABEL, *fields)
        except ChoralError:
            false.append(entry.device)
    return _all_of(false, "signature is not under this plan, this model and this ledger")


def _all_of(names: list[str], what: str) -> list[str]:
    """One line for all devices of which the same is wrong, the first three by name."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{', '.join(names[:3])}{more}: the {what}"] if names else []


def closing_of(record: RunRecord) -> Closing:
    """What every device must have signed for its entry to belong to this record, without what is its own.

    The digest is over the JSON of result.json as it stands there: a number keeps the form in which it was signed.
    """
    parameters, _ = read_parameters(record.folder / "model.safetensors")
    return Closing(
        run=record.about.run_name,
        roster=_roster_digest(record),
        record=record_digest(read_json(record.folder / "result.json"), record.finished.files),
        model=hashlib.sha256(parameter_bytes(parameters)).digest(),
        paid=0,
        receipt=b"",
    )


def _check_entry(closing: Closing, entry: Signer) -> None:
    """Nothing, or an error where the entry's signature is not under this record and what the entry says."""
    own = replace(closing, paid=entry.paid or 0, receipt=bytes.fromhex(entry.receipt or ""))
    own.check(bundle_of(entry), bytes.fromhex(entry.signature or ""))


def _whole(record: RunRecord) -> list[str]:
    """Signatures of format 2: under the whole record, the parameters, what was paid, and the ledger's receipt."""
    roster, deployed = _roster(record), record.about.traits.deployed
    wrong: list[str] = []
    if deployed and roster.digest != study_of(record.folder).roster.digest:
        wrong.append(f"the keys are not those of {STUDY}")
    signed, unsigned = signers(record)
    if deployed and not signed:
        wrong.append("no site signed it: nothing shows that this was a deployment")
    false, closing = [], closing_of(record)
    for number, entry in enumerate(_entries(record)):
        if entry.device in unsigned:
            line = f"{entry.device} has not signed: {entry.why or 'no reason is given'}"
            wrong.append(Note(line) if deployed else line)
            continue
        try:
            _check_entry(closing, entry)
        except ChoralError:
            false.append(entry.device)
        wrong += _paid(record, number, entry) if deployed else _receipt(record, number, entry)
    return _all_of(false, "signature is not under this record") + wrong


def _paid(record: RunRecord, number: int, entry: Signer) -> list[str]:
    """A site's ledger stays with it; what it has paid for, it says under its signature."""
    devices, paid = record.finished.privacy.devices, entry.paid or 0
    if devices is None or paid <= devices[number].rounds:
        return []
    uploads = words.count(paid, "upload")
    return [f"{entry.device}: it paid for {uploads}, and the record counts {devices[number].rounds} of them"]


def _receipt(record: RunRecord, number: int, entry: Signer) -> list[str]:
    receipt = ledger_of(record, number).receipt
    meant = committed(receipt.entries, receipt.seal, bytes.fromhex(entry.salt or ""))
    return [] if meant.hex() == entry.receipt else [f"{entry.device}: its ledger is not the one that it signed"]


# What came another way


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Public keys and receipts that did not come with the run's folder."""

    keys: dict[str, bytes]
    studies: tuple[str, ...] = ()
    receipts: tuple[KeptReceipt, ...] = ()

    @classmethod
    def read(cls, roster: Iterable[str | Path] = (), receipts: Iterable[str | Path] = ()) -> "Outside":
        """Keys of a study.toml, of cards or of another copy of signatures.json; receipts as sites keep them."""
        known: list[Bundle] = []
        studies: list[str] = []
        for path in map(Path, roster):
            if path.suffix == ".json":
                with of_right_form(path):
                    known += [bundle_of(entry) for entry in as_record(read_json(path), Signatures, path).devices]
                continue
            content = config.read_toml(config.read_text(path), source=str(path), fix=ASK_AGAIN)
            if "devices" in content:
                study = _study(content, str(path))
                studies.append(study.digest.hex())
                known += study.roster
            else:
                known.append(converted(content, Enrolled, str(path)).bundle)
        for bundle in known:
            bundle.verify()
        return cls(
            keys={bundle.id: bundle.identity for bundle in known},
            studies=tuple(studies),
            receipts=tuple(as_record(read_json(Path(path)), KeptReceipt, Path(path)) for path in receipts),
        )

    def check_keys(self, record: RunRecord) -> list[str]:
        """Every device of the run must be in the roster with the very key that the folder shows."""
        wrong = []
        if self.studies and record.about.study not in self.studies:
            wrong.append("the run is not one of the study that was given")
        if record.signatures is None:  # a deployment of an older version: its study is all that can be compared
            return wrong if self.studies else ["nobody signed this run, so there is no key to compare"]
        for bundle in _roster(record):
            if bundle.id not in self.keys:
                wrong.append(f"{bundle.id} is not in the roster that was given")
            elif self.keys[bundle.id] != bundle.identity:
                wrong.append(
                    f"{bundle.id} has another key in the roster that was given: the run was signed with other keys"
                )
        return wrong

    def check_receipts(self, record: RunRecord) -> list[str]:
        """Each receipt must be of a device of this run, under its key, and of this very record."""
        wrong = []
        bundles = {} if record.signatures is None else {bundle.id: bundle for bundle in _roster(record)}
        closing = closing_of(record) if bundles else None
        for receipt in self.receipts:
            name, bundle = receipt.device, bundle_of(receipt)
            bundle.verify()
            if closing is None or name not in bundles:
                wrong.append(f"the receipt of {name} is of no device of this run")
                continue
            try:
                _check_entry(closing, receipt)
            except ChoralError:
                wrong.append(f"{name}: its receipt is of another record, model or set of devices than this run's")
            if bundle.identity != bundles[name].identity:
                wrong.append(f"{name}: its receipt is signed with another key than the one in this folder")
        return wrong
