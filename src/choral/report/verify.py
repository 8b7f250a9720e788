"""Every claim of a finished run, computed again from its ledgers, hashes and signatures."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from choral import config
from choral.accounting.costs import Costs
from choral.core import events
from choral.core.errors import ChoralError, StorageError
from choral.core.plan import Budget
from choral.planner.prospect import happened
from choral.record import DEVICES, RunRecord, charged_rounds, joined_rounds, of_right_form, read_run
from choral.record.description import KindName
from choral.report import signed, words
from choral.report.pages import check_pages
from choral.report.probes import PROBES_HOLD, check_probes
from choral.report.questions import QUESTIONS_HOLD, check_questions, has_questions
from choral.report.signed import Note, Outside, ledger_of, signers, version_of
from choral.run.folder import MOST_LEDGERS, Watch, hashes, signs, unwatched
from choral.run.statement import in_form_of, planned_statement, privacy_statement, several_form
from choral.run.study import plan_of_questions, price_of

EXACT = 1e-9  # two runs of one formula on two machines may differ in the last bits
# For each sampled step: up to 0.2.0 a library laid their losses on the grid, whose floats lose so much at most.
OF_A_STEP = 1e-10


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check: what was checked, what is wrong, if anything, and what is worth knowing."""

    check: str
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What all checks found and, if nothing is wrong, who signed and what that proves; iterating gives the findings."""

    kind: KindName
    findings: tuple[CheckResult, ...]
    proved: str = ""
    trusted: str = ""
    signed: tuple[str, ...] = ()
    unsigned: dict[str, str] = field(default_factory=dict)
    keys: str | None = None

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.findings)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.wrong for finding in self.findings)


def verify(
    folder: str | Path,
    watch: Watch = unwatched,
    *,
    roster: Iterable[str | Path] = (),
    receipts: Iterable[str | Path] = (),
) -> Verdict:
    """What every check of a finished run found; the run is as it says it is if no finding has anything wrong.

    `roster` are files with the devices' public keys (study.toml, cards, an earlier copy of signatures.json), `receipts`
    those that sites kept when they signed: both must have come another way than the folder.
    """
    outside = Outside.read(roster, receipts)
    record = read_run(folder)
    if record.result is None and has_questions(record):  # asked, and not trained yet
        return Verdict(
            kind=record.about.kind,
            findings=(_found(QUESTIONS_HOLD, check_questions, record),),
            proved="the questions, which is all that this run has done so far",
            trusted="that the ledgers and the register are those that were written",
        )
    record.finished  # noqa: B018 - refused here where it is not
    with of_right_form(record.folder):
        checks = _checks(record, outside)
    watched = watch(checks.items(), total=len(checks), label="CHECK")
    findings = tuple(_found(name, check, record) for name, check in watched)
    if any(finding.wrong for finding in findings):
        return Verdict(kind=record.about.kind, findings=findings)
    with of_right_form(record.folder):
        said = standing(record, outside, other_pages=bool(findings[-1].notes))
        names, unsigned = signed.signers(record)
        return Verdict(
            kind=record.about.kind,
            findings=findings,
            signed=names,
            unsigned=unsigned,
            keys=signed.keys(record),
            proved=said.proved,
            trusted=said.trusted,
        )


Check = Callable[[RunRecord], list[str]]


def _checks(record: RunRecord, outside: Outside) -> dict[str, Check]:
    """What there is to check of a run of this kind, by the sentence that holds if nothing is wrong."""
    about, deployed = record.about, record.about.traits.deployed
    counted = "the uploads that the server counts" if deployed else "the ledgers"
    checks: dict[str, Check] = {
        "the run is of the kind that it says": _kind,
        "files are those that the result names": _files,
        "the result is that of the last round": _rounds,
        "the plan is the one that was charged for": _plan,
    }
    if record.result is not None and record.result.verdict is not None:
        checks["the verdict on joining follows from the figures"] = _verdict
    if not deployed:  # a site's ledger stays with the site
        checks["every ledger is whole, its owner's, and pays for every round"] = _ledgers
    checks[f"every ε follows from {counted}"] = _epsilons
    if has_questions(record):
        checks[QUESTIONS_HOLD] = check_questions
    if about.plan.probes:
        checks[PROBES_HOLD] = check_probes
    old_deployment = deployed and about.format == 1 and record.signatures is None
    if signs(about.kind, seeded=about.seeded, ledgers=_has_ledgers(record)) and not old_deployment:
        checks[signed_sentence(record)] = signed.check_signatures
    if outside.keys:
        checks["the devices' keys are those of the roster that was given"] = outside.check_keys
    if outside.receipts:
        checks["the receipts that were given are of this record"] = outside.check_receipts
    checks["the report and the registry entry say what the result says"] = check_pages
    return checks


def _found(name: str, check: Check, record: RunRecord) -> CheckResult:
    lines = _lines_of(check, record)
    notes = tuple(line for line in lines if isinstance(line, Note))
    return CheckResult(check=name, wrong=tuple(line for line in lines if not isinstance(line, Note)), notes=notes)


def _lines_of(check: Callable[[RunRecord], list[str]], record: RunRecord) -> list[str]:
    try:
        with of_right_form(record.folder):
            return check(record)
    except ChoralError as error:
        return [str(error)]
    except OSError as error:
        return [f"a file of the run can't be read: {error.strerror}"]


def _kind(record: RunRecord) -> list[str]:
    """Whether the record has what a run of its kind has, and nothing that only another kind has."""
    about, deployed = record.about, record.about.traits.deployed
    job = config.parse(about.job, source="the job in run.json", recorded=True)
    wrong = ["the job has a seed, and the run says that it has none"] * (job.run.seed is not None and not about.seeded)
    if not deployed:
        return wrong + ["it has a study, as only a deployment has"] * (about.study is not None)
    if about.seeded or about.seed is not None or record.finished.sight:
        wrong.append("it has a seed, or shows an update of one device, and a server has neither")
    if about.format > 1 and not wrong:
        study = signed.study_of(record.folder)
        described = (about.study, about.plan_digest, about.job, [device.name for device in about.devices])
        names = [bundle.id for bundle in study.roster]
        if described != (study.digest.hex(), study.plan.digest, study.file.job, names):
            wrong.append("run.json does not say what study.toml says")
    return wrong


def _files(record: RunRecord) -> list[str]:
    named, there = record.finished.files, hashes(record.folder)
    wrong = [f"{name} is missing" for name in sorted(named.keys() - there.keys())]
    wrong += [f"{name} is there, but the result does not name it" for name in sorted(there.keys() - named.keys())]
    return wrong + [f"{name} was changed" for name in sorted(named) if name in there and named[name] != there[name]]


def _rounds(record: RunRecord) -> list[str]:
    result, done = record.finished, len(record.rounds)
    measured = record.rounds[-1].test if record.rounds else {}
    wrong = (
        []
        if result.rounds_done == done
        else [f"rounds.jsonl has {words.count(done, 'round')}, the result another number"]
    )
    # Where the last round was not measured, the result's figures are its own.
    return wrong + (["the test figures are not those of the last round"] if result.test != measured != {} else [])


def _verdict(record: RunRecord) -> list[str]:
    """Whether the verdict is the one that the figures give."""
    result = record.finished
    found = happened(result.test, result.measured, result.baselines)
    return [] if result.verdict == found else ["the figures give another verdict on joining"]


def _plan(record: RunRecord) -> list[str]:
    return (
        []
        if record.about.plan.digest == record.about.plan_digest
        else ["the plan's numbers do not have the plan's digest"]
    )


def costs_of(record: RunRecord) -> Costs:
    """What rounds cost each device, by the numbers in run.json."""
    devices, delta, secure = record.about.devices, record.about.delta, record.about.secure_sum
    if secure is None:
        raise StorageError("CH802", "has no secure sum.", where=str(record.folder / "run.json"), fix="Restore it.")
    return Costs(
        plan=record.about.plan,
        secure=secure,
        rows=np.array([device.rows for device in devices]),
        limits=tuple(Budget(epsilon=device.limit, delta=delta) for device in devices),
        names=tuple(device.name for device in devices),
        against=record.about.against,
        questions=price_of(config.parse(record.about.job, source="the job in run.json", recorded=True), len(devices)),
    )


def _has_ledgers(record: RunRecord) -> bool:
    about = record.about
    return not about.traits.deployed and about.plan.noise > 0 and len(about.devices) <= MOST_LEDGERS


def _ledgers(record: RunRecord) -> list[str]:
    if not _has_ledgers(record):
        return []
    costs, wrong = costs_of(record), []
    released: dict[int, list[int]] = {number: [] for number in range(len(costs.names))}
    for line in record.rounds:
        for device in line.included:
            released[device].append(line.round)
    for number, name in enumerate(costs.names):
        ledger = ledger_of(record, number)
        charges = [charge for charge in ledger.balance.charges if charge.plan == costs.plan.digest]
        if ledger.device != name or (ledger.limit, ledger.sum_epsilon) != costs.ledger_limits(number):
            wrong.append(f"{name}: the ledger is of {ledger.device}, or has another limit than the run")
        if missing := set(released[number]) - {charge.round for charge in charges}:
            wrong.append(f"{name}: round {min(missing)} was released, but not charged")
        expected = [costs.of(number).event(before) for before in range(len(charges))]
        if [events.to_dict(charge.event) for charge in charges] != [events.to_dict(event) for event in expected]:
            wrong.append(f"{name}: a charge is not what the plan costs")
        by = costs.rule(number)
        terms = (by.rule, by.adversary, by.adjacency)
        if any((charge.rule, charge.adversary, charge.adjacency) != terms for charge in charges):
            wrong.append(f"{name}: a charge names another rule, adversary or adjacency than the plan's")
        sums = [costs.of(number).sum_event(before) for before in range(len(charges))]
        # Runs of before have no figure for sums in their charges, and claim it from the plan alone.
        if any(charge.summed not in (None, event) for charge, event in zip(charges, sums, strict=True)):
            wrong.append(f"{name}: a charge is not what the plan costs with the secure sum")
        asked = plan_of_questions(costs.plan.digest)
        if any(charge.plan not in (costs.plan.digest, asked) for charge in ledger.balance.charges):
            wrong.append(f"{name}: the ledger holds charges of another plan")
    return wrong


def _epsilons(record: RunRecord) -> list[str]:
    costs = costs_of(record)
    if _has_ledgers(record):
        ledgers = [ledger_of(record, number).balance for number in range(len(costs.names))]
        rounds = [sum(charge.plan == costs.plan.digest for charge in ledger.charges) for ledger in ledgers]
    else:
        rounds = charged_rounds(record.rounds, len(costs.names), record.finished.wasted).tolist()
    said, promised = record.finished.privacy, record.about.planned
    first_form = said.none is None and said.charged_delta is None
    again = privacy_statement(
        costs,
        np.array(rounds),
        joined=joined_rounds(record.rounds, len(costs.names)),
        refused=record.finished.refused if record.about.traits.deployed else None,
        stopped=said.running is not None,
        first_form=first_form,
        several=several_form(said),
    )
    again = in_form_of(said, again, np.array(rounds), costs)
    planned = planned_statement(costs, first_form=first_form, several=several_form(promised))
    within = EXACT + (0 if costs.plan.partitioned else OF_A_STEP * costs.plan.rounds * costs.plan.local_steps)
    return differences(said.to_dict(), again.to_dict(), within=within) + differences(
        promised and promised.to_dict(), planned and planned.to_dict(), "planned", within=within
    )


def differences(recorded: object, worked_out: object, where: str = "privacy", *, within: float = EXACT) -> list[str]:
    """Where a value of the result differs from the one that was computed again, numbers by more than `within`.

    >>> differences({"epsilon": 1.0}, {"epsilon": 2.0})
    ['privacy.epsilon says 1.0, but 2.0 follows from the ledgers']
    """
    if isinstance(recorded, dict) and isinstance(worked_out, dict) and recorded.keys() == worked_out.keys():
        return [
            line
            for key in recorded
            for line in differences(recorded[key], worked_out[key], f"{where}.{key}", within=within)
        ]
    if isinstance(recorded, list) and isinstance(worked_out, list) and len(recorded) == len(worked_out):
        pairs = enumerate(zip(recorded, worked_out, strict=True), start=1)
        return [line for number, (a, b) in pairs for line in differences(a, b, f"{where}[{number}]", within=within)]
    if isinstance(recorded, float) and isinstance(worked_out, float):
        same = abs(recorded - worked_out) <= within * max(abs(recorded), abs(worked_out))
    else:
        same = recorded == worked_out
    return [] if same else [f"{where} says {recorded}, but {worked_out} follows from the ledgers"]


@dataclass(frozen=True, kw_only=True)
class ProvedAndTrusted:
    """Two sentences without their first words."""

    proved: str
    trusted: str


def signed_sentence(record: RunRecord) -> str:
    """What the check of the signatures is called: what they cover, and in a deployment how many there are."""
    if record.about.traits.deployed:
        signed, unsigned = signers(record)
        return f"{len(signed)} of {words.count(len(signed) + len(unsigned), 'site')} signed the whole record"
    if version_of(record) == 1:
        return "every device signed the plan, the model and its ledger (by an older version: nothing else)"
    return "every device signed the whole record"


def standing(record: RunRecord, outside: Outside, *, other_pages: bool) -> ProvedAndTrusted:
    """What the checks prove of a run in which nothing is wrong, and what they can't."""
    proved, trusted = _of_kind(record, outside)
    if other_pages:
        trusted.append("the words of a page that another version wrote, or whose sentences were reworded")
    return ProvedAndTrusted(proved="; ".join(proved), trusted="; ".join(trusted))


def _of_kind(record: RunRecord, outside: Outside) -> tuple[list[str], list[str]]:
    deployed = record.about.traits.deployed
    source = "the uploads that the server counts" if deployed else "the ledgers"
    follows = f"every ε follows from {source}"
    signed, unsigned = signers(record)
    if not signed:
        if deployed:
            return [follows], ["all that the server wrote, also that this was a deployment: an older version, unsigned"]
        return [follows], ["all that the files say: nobody signs a run that protects nobody"]
    if version_of(record) == 1:
        covers = (
            "every device signed the plan, the model and its ledger (signed by an older version: covers these only)"
        )
        rest = "the rounds, the test figures, the data's description and the kind of the run"
        return [follows, covers], [rest, *_keys(record, outside)]
    if not deployed:
        signatures = f"all {words.count(len(signed), 'device')} signed the whole record{_compared(outside)}"
        return [follows, signatures], [
            "the test figures and the data's description, by whoever ran it",
            *_keys(record, outside),
        ]
    signatures = (
        f"{len(signed)} of {words.count(len(signed) + len(unsigned), 'site')} signed the study, the model, "
        f"their payments and this record{_compared(outside)}"
    )
    trusted = ["the server's own account of the rounds and its test figures, as they stood when the sites signed"]
    if unsigned:
        trusted.append(f"what was paid by {', '.join(sorted(unsigned)[:8])}, who did not sign")
    return [follows, signatures], [*trusted, *_keys(record, outside)]


def _compared(outside: Outside) -> str:
    """With which keys, if any came another way."""
    if outside.keys:
        return " with the keys of the roster that was given"
    return f", {words.count(len(outside.receipts), 'receipt')} compared" if outside.receipts else ""


def _keys(record: RunRecord, outside: Outside) -> list[str]:
    """Why a signature alone does not show whose it is, and what would."""
    kept = (record.folder / DEVICES).exists()
    own = {receipt.device for receipt in outside.receipts}  # whoever handed in a receipt handed in its key with it
    if not kept and (outside.keys or own >= set(signers(record)[0])):
        return []
    if record.about.traits.deployed:
        return ["that STUDY is the number that the sites approved (compare it, or give --roster study.toml)"]
    if kept:
        return [f"whoever has had this folder: the devices' private keys still lie in {DEVICES}/"]
    return [
        "that KEYS are the run's own: whoever can rewrite the whole folder can sign it again with other keys "
        "(compare them with a note from the run's end, or give --roster)"
    ]
