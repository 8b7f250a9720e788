"""A site in figures: where it stands, what a collector reads of it, and what it has when a study is over."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, cast

import msgspec
import numpy as np

from choral.accounting.ledger_statement import statement_of
from choral.core.errors import StorageError, TrustError
from choral.core.ledger import Ledger
from choral.deploy.agent import CUT_OFF, GREETED, REACHED, Journal, LogLine, answers
from choral.deploy.certificates import valid_until
from choral.deploy.home import LOG, Home, Policy
from choral.deploy.personal import shared_model
from choral.record import PAGES, STUDY, KeptReceipt, SiteEnd, Statement, converted, read_json
from choral.record.fields import Record
from choral.record.losses import LastEntry, LedgerLimit, Spent
from choral.run.agreement import UNSIGNED, Agreement
from choral.run.folder import parameter_bytes
from choral.run.statement import privacy_statement


class Approved(Record, frozen=True, kw_only=True):
    """The study that a site has approved, when, and for which file."""

    study: str
    at: str
    data: str


class SiteLedger(Record, frozen=True, kw_only=True):
    """It is what a status shows of the ledger's statement."""

    limit: LedgerLimit
    spent: Spent
    charges: int
    receipt: LastEntry


class SiteStatus(Record, frozen=True, kw_only=True):
    """It is where a site stands; `choral device status --json` prints it."""

    ALWAYS: ClassVar[frozenset[str]] = frozenset({"server_waits_until"})

    name: str
    server: str
    running: bool
    approved: Approved | None
    policy: dict[str, object] | None
    ledger: SiteLedger | None = None
    last: LogLine | None
    last_refusal: LogLine | None
    cut_off: LogLine | None
    finished: bool
    ended_early: str = ""
    waiting_since: str | None
    server_waits_until: str | None = None
    may_begin_until: str = ""


def status(home: Home) -> SiteStatus:
    """It is where this site stands now, by its files and by whether its agent answers."""
    running, approval = answers(home), None
    try:
        approval = home.approval
    except TrustError:
        approved = None
    else:
        approved = Approved(study=approval.study, at=approval.at, data=Path(approval.data).name)
    lines = Journal(home.path / LOG).last()
    seen = next((line for line in lines if line["event"] in ("started", CUT_OFF, REACHED)), None)
    finished, waiting_since = _progress(home, approved, lines)
    return SiteStatus(
        name=home.joined.name,
        server=home.joined.server.address,
        running=running,
        approved=approved,
        policy=None if approval is None else _as_written(approval.policy),
        ledger=_ledger(home),
        last=next((line for line in lines if "round" in line), None),
        last_refusal=next((line for line in lines if line["event"] == "refusal"), None),
        # Known only while somebody looks: what a stopped agent saw last says nothing about now.
        cut_off=seen if running and seen is not None and seen["event"] == CUT_OFF else None,
        finished=finished,
        ended_early=home.early_end(Agreement.read(home.path / STUDY)) if finished else "",
        waiting_since=waiting_since,
        server_waits_until=None if waiting_since is None else _server_waits_until(lines, since=waiting_since),
        may_begin_until="" if waiting_since is None else valid_until(home.joined.server.certificate),
    )


def _as_written(policy: Policy) -> dict[str, object]:
    written: dict[str, object] = msgspec.to_builtins(policy)
    return written


def _ledger(home: Home) -> SiteLedger | None:
    if not home.ledger_path.exists():
        return None
    said = statement_of(Ledger.read(home.ledger_path))
    return SiteLedger(limit=said.limit, spent=said.spent, charges=said.charges, receipt=said.receipt)


def _server_waits_until(lines: Sequence[LogLine], *, since: str) -> str | None:
    """It says when the server that has last called gives up waiting for other sites, by this machine's clock."""
    greeted = next((line for line in lines if line["event"] == GREETED and line["at"] >= since), None)
    if greeted is None:
        return None
    return (datetime.fromisoformat(greeted["at"]) + timedelta(seconds=greeted["waits"])).isoformat(timespec="seconds")


def _progress(home: Home, approved: Approved | None, lines: Sequence[LogLine]) -> tuple[bool, str | None]:
    """It says whether the approved study is over here, and since when the site waits for its first round."""
    if approved is None:
        return False, None
    study = Agreement.read(home.path / STUDY)
    begun = study.digest.hex() == approved.study and any(
        line["event"] == "charged" and line["at"] >= approved.at for line in lines
    )
    over = home.receipt_path(study).exists()
    return over, None if begun or over else approved.at


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def prometheus(home: Home) -> str:
    """Everything that a site's log and ledger say in numbers, in Prometheus' text format; nothing is changed."""
    device = {"device": home.joined.name}
    lines = metric("choral_agent_up", "Whether the site's agent answers.", [(device, float(answers(home)))])
    lines += _logged(device, logged_lines(home.path / LOG))
    return "\n".join([*lines, *(_spent(home, device) if home.ledger_path.exists() else ())]) + "\n"


def metric(name: str, meaning: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> list[str]:
    r"""The lines of one metric, with a value for each set of labels; none without any. What ends in total only grows.

    >>> print(*metric("up", "Whether it runs.", [({"device": "a"}, 1)]), sep="\n")
    # HELP up Whether it runs.
    # TYPE up gauge
    up{device="a"} 1
    """
    lines = []
    for labels, value in samples:
        inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.17g}")
    kind = "counter" if name.endswith("_total") else "gauge"
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *lines] if lines else []


def logged_lines(path: Path) -> Iterator[LogLine]:
    """The lines of a log, the oldest first; a line that a power cut left incomplete is passed over."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        for line in file:
            try:
                read = json.loads(line)
            except ValueError:
                continue
            if isinstance(read, dict) and isinstance(read.get("event"), str):
                yield cast("LogLine", read)


def _logged(device: Mapping[str, str], lines: Iterable[LogLine]) -> list[str]:
    """Counters over the whole log, so that they only grow as long as the file is kept."""
    seen, refused = Counter[str](), Counter[str]()
    sent, seconds = defaultdict[str, float](float), defaultdict[str, float](float)
    last, reached, last_round = 0.0, None, 0
    for line in lines:
        event = line["event"]
        seen[event] += 1
        sent[event] += _number(line.get("bytes"))
        seconds[event] += _number(line.get("seconds"))
        last_round = max(last_round, int(_number(line.get("round"))))
        if event == "refusal":
            refused[str(line.get("code", ""))] += 1
        if event in (CUT_OFF, REACHED):
            reached = event == REACHED
        last = max(last, _when(line.get("at")))

    def by(label: str, counts: Mapping[str, float]) -> list[tuple[Mapping[str, str], float]]:
        return [({**device, label: name}, value) for name, value in sorted(counts.items()) if value]

    looked = [] if reached is None else [(device, float(reached))]
    return [
        *metric("choral_events_total", "Lines of the log, by event.", by("event", seen)),
        *metric("choral_bytes_total", "Bytes of answers, by event.", by("event", sent)),
        *metric("choral_seconds_total", "Seconds spent on answers, by event.", by("event", seconds)),
        *metric("choral_refusals_total", "Requests that the site refused, by error code.", by("code", refused)),
        *metric(
            "choral_last_round",
            "The last round that the site was asked about.",
            [(device, last_round)] if last_round else [],
        ),
        *metric("choral_server_reachable", "Whether the server could be reached when the site last looked.", looked),
        *metric(
            "choral_last_event_timestamp_seconds",
            "When the log got its last line, in seconds since 1970.",
            [(device, last)] if last else [],
        ),
    ]


def _spent(home: Home, device: Mapping[str, str]) -> list[str]:
    """The ledger's ε, with everything that an ε needs as labels."""
    statement = statement_of(Ledger.read(home.ledger_path))
    spent, limit = statement.spent, statement.limit
    terms = {
        **device,
        "delta": f"{limit.delta:g}",
        "rule": " and ".join(spent.rules) or "none yet",
        "adjacency": spent.adjacency,
        "adversary": " and ".join(spent.adversaries),
    }
    charged, beyond = "that the ledger has charged so far", "beyond which the site refuses"
    return [
        *metric("choral_epsilon_spent", f"The privacy loss {charged}.", [(terms, spent.epsilon)]),
        *metric("choral_epsilon_limit", f"The privacy loss {beyond}.", [(terms, limit.epsilon)]),
        *metric("choral_charges_total", "Charges in the ledger.", [(device, statement.charges)]),
    ]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _when(value: object) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return 0.0


PAGE = "result.html"


def site_end(home: Home, passphrase: str | None = None) -> SiteEnd:
    """A site has this of its approved study, every part checked against the others; CH802 before it has signed."""
    study, approval = home.approved(home.vault(passphrase))
    path = home.receipt_path(study)
    if not home.finished(study):
        raise StorageError(
            "CH802",
            f"the study {study.file.name} is not finished here.",
            where=str(home.path),
            why="A site signs when the last round is over, and has its result from then on.",
            fix="Keep choral device run going until it says that the study is finished.",
        )
    receipt = converted(read_json(path), KeptReceipt, path)
    parameters = shared_model(home, study)  # refuses any other model than the one that was signed
    after = statement_of(Ledger.read(home.ledger_path))
    return SiteEnd(
        device=home.joined.name,
        study=study.file.name,
        study_digest=study.digest.hex(),
        safety_number=study.safety_number,
        run=study.file.run,
        approved=approval.at,
        table=Path(approval.data).name,
        rows=approval.rows or study.plan.rows,
        rows_known=approval.rows > 0,
        columns=study.reads,
        label=study.target.name,
        parties=study.terms.ids,
        server=study.file.address,
        plan=study.plan,
        against=study.settled.costs.against,
        privacy=claimed_of_the_run(study, home.joined.name, receipt.paid or 0),
        paid=receipt.paid or 0,
        record=receipt.record,
        model=hashlib.sha256(parameter_bytes(parameters)).hexdigest(),
        ledger=receipt.ledger,
        limit=after.limit,
        reserved=after.reserved.epsilon,
        spent=after.spent,
        with_secure_sum=after.with_secure_sum,
        pages=1 if study.file.format == UNSIGNED else PAGES,
    )


def claimed_of_the_run(study: Agreement, device: str, paid: int) -> Statement:
    """The statement of the run by the public numbers of its plan, with every upload that this site has paid for.

    It is the server's own where all rounds were done and no attempt failed.
    """
    costs = study.settled.costs
    rounds = costs.allowed_rounds.copy()
    own = costs.names.index(device)
    rounds[own] = np.maximum(rounds[own], paid)
    return msgspec.structs.replace(privacy_statement(costs, rounds, refused={}), devices=None)
