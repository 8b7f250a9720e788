"""Every claim of a finished run, worked out again from its ledgers, hashes and signatures."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from choral.errors import ChoralError, StorageError
from choral.plan import Budget, Plan, SecureSum
from choral.privacy import events
from choral.privacy.ledger import Ledger
from choral.report.registry import entry_text
from choral.report.sheet import page
from choral.run.costs import Costs
from choral.run.folder import (
    MOST_LEDGERS,
    RunRecord,
    charged_rounds,
    hashes,
    ledger_file,
    of_right_form,
    read_json,
    read_run,
)
from choral.run.signatures import SIGNED, signed_fields, signs
from choral.run.statement import planned_statement, privacy_statement
from choral.run.watch import Watch, unwatched
from choral.secagg.keys import Bundle, Roster

EXACT = 1e-9  # two runs of one formula on two machines may differ in the last bits


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check: what was checked, and what is wrong, if anything."""

    check: str
    wrong: tuple[str, ...] = ()


def verify(folder: str | Path, watch: Watch = unwatched) -> tuple[Finding, ...]:
    """What every check of a finished run found; the run is as it says it is if no finding has anything wrong."""
    record = read_run(folder)
    if record.result is None:
        raise StorageError("CH802", "is not finished.", where=str(folder), fix="Finish it: choral resume RUN.")
    with of_right_form(record.folder):
        checks = _checks(record)
    watched = watch(checks.items(), total=len(checks), label="CHECK")
    return tuple(Finding(check=name, wrong=tuple(_told(check, record))) for name, check in watched)


def _checks(record: RunRecord) -> dict[str, Callable[[RunRecord], list[str]]]:
    """What there is to check of a run of this kind, by the sentence that holds if nothing is wrong."""
    about = record.about
    signed = signs(about["kind"], seeded=about["seeded"], private=_has_ledgers(record))
    checks: dict[str, Callable[[RunRecord], list[str]]] = {
        "files are those that the result names": _files,
        "the result is that of the last round": _rounds,
        "the plan is the one that was charged for": _plan,
        "every ledger is whole, its owner's, and pays for every round": _ledgers,
        "every ε follows from the ledgers": _epsilons,
        **({"every device signed the model and its ledger": _signatures} if signed else {}),
        "the report and the registry entry say what the result says": _pages,
    }
    if record.about["kind"] == "deployment":
        # Ledgers and their signatures are with the devices: a server can only count what it was sent.
        for name in [name for name, check in checks.items() if check in (_ledgers, _epsilons, _signatures)]:
            del checks[name]
        checks["every ε follows from the updates that the server counts; ledgers stay with the devices"] = _epsilons
    return checks


def _told(check: Callable[[RunRecord], list[str]], record: RunRecord) -> list[str]:
    try:
        with of_right_form(record.folder):
            return check(record)
    except ChoralError as error:
        return [str(error)]
    except OSError as error:
        return [f"a file of the run can't be read: {error.strerror}"]


def _result(record: RunRecord) -> dict[str, Any]:
    return record.result or {}


def _files(record: RunRecord) -> list[str]:
    named, there = _result(record)["files"], hashes(record.folder)
    wrong = [f"{name} is missing" for name in sorted(named.keys() - there.keys())]
    wrong += [f"{name} is there, but the result does not name it" for name in sorted(there.keys() - named.keys())]
    return wrong + [f"{name} was changed" for name in sorted(named) if name in there and named[name] != there[name]]


def _rounds(record: RunRecord) -> list[str]:
    result, done = _result(record), len(record.rounds)
    measured = record.rounds[-1]["test"] if record.rounds else {}
    wrong = [] if result["rounds_done"] == done else [f"rounds.jsonl has {done:,} rounds, the result another number"]
    # Where the last round was not measured, the result's figures are its own.
    return wrong + (["the test figures are not those of the last round"] if result["test"] != measured != {} else [])


def _plan(record: RunRecord) -> list[str]:
    digest = Plan.from_dict(record.about["plan"]).digest
    return [] if digest == record.about["plan_digest"] else ["the plan's numbers do not have the plan's digest"]


def _costs(record: RunRecord) -> Costs:
    devices, delta = record.about["devices"], record.about["delta"]
    return Costs(
        plan=Plan.from_dict(record.about["plan"]),
        secure=SecureSum(**record.about["secure_sum"]),
        rows=np.array([device["rows"] for device in devices]),
        limits=tuple(Budget(epsilon=device["limit"], delta=delta) for device in devices),
        names=tuple(device["name"] for device in devices),
    )


def _has_ledgers(record: RunRecord) -> bool:
    if record.about["kind"] == "deployment":
        return False
    return record.about["plan"]["noise"] > 0 and len(record.about["devices"]) <= MOST_LEDGERS


def _ledger(record: RunRecord, number: int) -> Ledger:
    return Ledger.read(record.folder / "ledgers" / ledger_file(number))


def _ledgers(record: RunRecord) -> list[str]:
    if not _has_ledgers(record):
        return []
    costs, wrong = _costs(record), []
    released: dict[int, list[int]] = {number: [] for number in range(len(costs.names))}
    for line in record.rounds:
        for device in line["included"]:
            released[device].append(line["round"])
    for number, name in enumerate(costs.names):
        ledger = _ledger(record, number)
        charges = [charge for charge in ledger.balance.charges if charge.plan == costs.plan.digest]
        if ledger.device != name or ledger.limit != costs.limits[number]:
            wrong.append(f"{name}: the ledger is of {ledger.device}, or has another limit than the run")
        if missing := set(released[number]) - {charge.round for charge in charges}:
            wrong.append(f"{name}: round {min(missing)} was released, but not charged")
        expected = [costs.event(number, before) for before in range(len(charges))]
        if [events.to_dict(charge.event) for charge in charges] != [events.to_dict(event) for event in expected]:
            wrong.append(f"{name}: a charge is not what the plan costs")
        if len(charges) != len(ledger.balance.charges):
            wrong.append(f"{name}: the ledger holds charges of another plan")
    return wrong


def _epsilons(record: RunRecord) -> list[str]:
    costs = _costs(record)
    if _has_ledgers(record):
        rounds = [len(_ledger(record, number).balance.charges) for number in range(len(costs.names))]
    else:
        last = {"included": [], "wasted": _result(record)["wasted"]}
        rounds = charged_rounds([*record.rounds, last], len(costs.names)).tolist()
    told = _result(record)["privacy"]
    first_form = "none" not in told and "charged_delta" not in told
    again = privacy_statement(costs, np.array(rounds), stopped="running" in told, first_form=first_form)
    planned = json.loads(json.dumps(planned_statement(costs, first_form=first_form)))
    return differences(told, json.loads(json.dumps(again))) + differences(
        record.about.get("planned", planned), planned, "planned"
    )


def differences(told: Any, worked_out: Any, where: str = "privacy") -> list[str]:  # noqa: ANN401 - any JSON value
    """Where a value of the result differs from the one that was worked out again.

    >>> differences({"epsilon": 1.0}, {"epsilon": 2.0})
    ['privacy.epsilon says 1.0, but 2.0 follows from the ledgers']
    """
    if isinstance(told, dict) and isinstance(worked_out, dict) and told.keys() == worked_out.keys():
        return [line for key in told for line in differences(told[key], worked_out[key], f"{where}.{key}")]
    if isinstance(told, list) and isinstance(worked_out, list) and len(told) == len(worked_out):
        pairs = enumerate(zip(told, worked_out, strict=True), start=1)
        return [line for number, (a, b) in pairs for line in differences(a, b, f"{where}[{number}]")]
    if isinstance(told, float) and isinstance(worked_out, float):
        same = abs(told - worked_out) <= EXACT * max(abs(told), abs(worked_out))
    else:
        same = told == worked_out
    return [] if same else [f"{where} says {told}, but {worked_out} follows from the ledgers"]


def _signatures(record: RunRecord) -> list[str]:
    entries = read_json(record.folder / "signatures.json")["devices"]
    model = (record.folder / "model.safetensors").read_bytes()
    names = [device["name"] for device in record.about["devices"]]
    if [entry["device"] for entry in entries] != names:
        return ["the signatures are not of the run's devices"]
    bundles = [
        Bundle(
            id=entry["device"],
            identity=bytes.fromhex(entry["identity"]),
            agreement=bytes.fromhex(entry["agreement"]),
            signature=bytes.fromhex(entry["bundle_signature"]),
        )
        for entry in entries
    ]
    Roster.of(bundles)  # verifies every bundle
    wrong = []
    for number, (bundle, entry) in enumerate(zip(bundles, entries, strict=True)):
        seal = _ledger(record, number).receipt.seal
        try:
            fields = signed_fields(record.about["plan_digest"], model, seal)
            bundle.check(bytes.fromhex(entry["signature"]), SIGNED, *fields)
        except ChoralError:
            wrong.append(f"{bundle.id}: its signature is not under this plan, this model and this ledger")
    return wrong


def _pages(record: RunRecord) -> list[str]:
    wrong = []
    for name, text in (("report.html", page(record)), ("privacy.yaml", entry_text(record))):
        path = record.folder / name
        if path.exists() and path.read_text(encoding="utf-8") != text:
            wrong.append(f"{name} does not say what the result says; make it anew: choral report RUN")
    return wrong
