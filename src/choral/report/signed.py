"""Who signed a run, whether each signature is under this record, and whether the keys are those that came elsewhere."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choral import config
from choral.errors import ChoralError, StorageError
from choral.privacy.ledger import Ledger
from choral.protocol.closing import Closing, committed
from choral.run.agreement import ASK_AGAIN, Agreement, Enrolled, StudyFile, converted
from choral.run.folder import (
    SIGNATURES,
    STUDY,
    RunRecord,
    inside,
    ledger_file,
    of_right_form,
    read_json,
    read_parameters,
)
from choral.run.signatures import OLD_LABEL, VERSION, bundle_of, parameter_bytes, record_digest, run_name
from choral.secagg.keys import Bundle, Roster, safety_number


class Note(str):
    """A line that is worth knowing and that makes nothing wrong."""


def version_of(record: RunRecord) -> int:
    """What the signatures cover: 2 the whole record, 1 plan, model and ledger, 0 if nobody has signed."""
    return 0 if record.signatures is None else int(record.signatures.get("version", 1))


def signers(record: RunRecord) -> tuple[tuple[str, ...], dict[str, str]]:
    """Who has signed, and who has not with the reason; the report names both."""
    entries = (record.signatures or {"devices": ()})["devices"]
    signed = tuple(entry["device"] for entry in entries if entry["signature"])
    return signed, {entry["device"]: entry["why"] for entry in entries if not entry["signature"]}


def keys(record: RunRecord) -> str | None:
    """The digits that stand for everybody's keys: of a deployment the study's number, which its sites approved."""
    if record.about["kind"] == "deployment":
        return safety_number(bytes.fromhex(record.about["study"]))
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


def _study(content: Mapping[str, Any], where: str) -> Agreement:
    return Agreement(file=converted(content, StudyFile, where))


def _roster(record: RunRecord) -> Roster:
    """The keys in signatures.json, every bundle verified."""
    return Roster.of(bundle_of(entry) for entry in (record.signatures or {})["devices"])


def check_signatures(record: RunRecord) -> list[str]:
    """What is wrong with the signatures, by the rule of the version that made them."""
    version = version_of(record)
    if version == 0:
        return [f"{SIGNATURES} is missing: nobody signed this run"]
    if version > VERSION or (version < VERSION and record.about["format"] > 1):
        return [f"{SIGNATURES} has version {version}, which is not that of this run"]
    names = [device["name"] for device in record.about["devices"]]
    if [entry["device"] for entry in (record.signatures or {})["devices"]] != names:
        return ["the signatures are not of the run's devices"]
    return _old(record) if version == 1 else _whole(record)


def _old(record: RunRecord) -> list[str]:
    """Signatures of format 1: under the plan, the SHA-256 of the model's file, and the last seal of the ledger."""
    _roster(record)
    model = hashlib.sha256(inside(record.folder, "model.safetensors").read_bytes()).digest()
    false = []
    for number, entry in enumerate((record.signatures or {})["devices"]):
        fields = (record.about["plan_digest"].encode(), model, ledger_of(record, number).receipt.seal.encode())
        try:
            bundle_of(entry).check(bytes.fromhex(entry["signature"]), OLD_LABEL, *fields)
        except ChoralError:
            false.append(entry["device"])
    return _all_of(false, "signature is not under this plan, this model and this ledger")


def _all_of(names: list[str], what: str) -> list[str]:
    """One line for all devices of which the same is wrong, the first three by name."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return [f"{', '.join(names[:3])}{more}: the {what}"] if names else []


def statement_of(record: RunRecord, entry: Mapping[str, Any], roster: bytes) -> Closing:
    """What a device must have signed for its entry to belong to this record."""
    result = record.result or {}
    parameters, _ = read_parameters(record.folder / "model.safetensors")
    return Closing(
        run=run_name(record.about),
        roster=roster,
        record=record_digest(result, result["files"]),
        model=hashlib.sha256(parameter_bytes(parameters)).digest(),
        paid=entry["paid"],
        receipt=bytes.fromhex(entry["receipt"]),
    )


def _whole(record: RunRecord) -> list[str]:
    """Signatures of format 2: under the whole record, the parameters, what was paid, and the ledger's receipt."""
    roster, deployed = _roster(record), record.about["kind"] == "deployment"
    wrong: list[str] = []
    if deployed and roster.digest != study_of(record.folder).roster.digest:
        wrong.append(f"the keys are not those of {STUDY}")
    signed, unsigned = signers(record)
    if deployed and not signed:
        wrong.append("no site signed it: nothing shows that this was a deployment")
    false = []
    for number, entry in enumerate((record.signatures or {})["devices"]):
        if entry["device"] in unsigned:
            line = f"{entry['device']} has not signed: {entry['why'] or 'no reason is given'}"
            wrong.append(Note(line) if deployed else line)
            continue
        try:
            statement_of(record, entry, roster.digest).check(bundle_of(entry), bytes.fromhex(entry["signature"]))
        except ChoralError:
            false.append(entry["device"])
        wrong += _paid(record, number, entry) if deployed else _receipt(record, number, entry)
    return _all_of(false, "signature is not under this record") + wrong


def _paid(record: RunRecord, number: int, entry: Mapping[str, Any]) -> list[str]:
    """A site's ledger stays with it; what it has paid for, it says under its signature."""
    devices = (record.result or {})["privacy"].get("devices")
    if devices is None or entry["paid"] <= devices[number]["rounds"]:
        return []
    claimed = devices[number]["rounds"]
    return [f"{entry['device']}: it paid for {entry['paid']} uploads, and the record counts {claimed} of them"]


def _receipt(record: RunRecord, number: int, entry: Mapping[str, Any]) -> list[str]:
    receipt = ledger_of(record, number).receipt
    meant = committed(receipt.entries, receipt.seal, bytes.fromhex(entry["salt"]))
    return [] if meant.hex() == entry["receipt"] else [f"{entry['device']}: its ledger is not the one that it signed"]


# What came another way


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Public keys and receipts that did not come with the run's folder."""

    keys: dict[str, bytes]
    studies: tuple[str, ...] = ()
    receipts: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, roster: Iterable[str | Path] = (), receipts: Iterable[str | Path] = ()) -> "Outside":
        """Keys of a study.toml, of cards or of another copy of signatures.json; receipts as sites keep them."""
        known: list[Bundle] = []
        studies: list[str] = []
        for path in map(Path, roster):
            if path.suffix == ".json":
                with of_right_form(path):
                    known += [bundle_of(entry) for entry in read_json(path)["devices"]]
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
            receipts=tuple(read_json(Path(path)) for path in receipts),
        )

    def check_keys(self, record: RunRecord) -> list[str]:
        """Every device of the run must be in the roster with the very key that the folder shows."""
        wrong = []
        if self.studies and record.about.get("study") not in self.studies:
            wrong.append("the run is not one of the study that was given")
        if record.signatures is None:  # a deployment of an older version: its study is all that can be compared
            return wrong if self.studies else ["nobody signed this run, so there is no key to compare"]
        for bundle in _roster(record):
            if bundle.id not in self.keys:
                wrong.append(f"{bundle.id} is not in the roster that was given")
            elif self.keys[bundle.id] != bundle.identity:
                wrong.append(
                    f"{bundle.id} has another key in the roster that was given: the run was signed with keys of its own"
                )
        return wrong

    def check_receipts(self, record: RunRecord) -> list[str]:
        """Each receipt must be of a device of this run, under its key, and of this very record."""
        wrong = []
        bundles = {} if record.signatures is None else {bundle.id: bundle for bundle in _roster(record)}
        for told in self.receipts:
            name, bundle = told["device"], bundle_of(told)
            bundle.verify()
            if name not in bundles:
                wrong.append(f"the receipt of {name} is of no device of this run")
                continue
            try:
                statement_of(record, told, _roster(record).digest).check(bundle, bytes.fromhex(told["signature"]))
            except ChoralError:
                wrong.append(f"{name}: its receipt is of another record, model or set of devices than this run's")
            if bundle.identity != bundles[name].identity:
                wrong.append(f"{name}: its receipt is signed with another key than the one in this folder")
        return wrong
