"""What the owner of a site wants to know of it, as values: approval, budget, and what happened last."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

import msgspec

from choral.accounting.ledger_statement import statement_of
from choral.core.errors import TrustError
from choral.core.ledger import Ledger
from choral.deploy.agent import CUT_OFF, GREETED, REACHED, Journal, LogLine, answers
from choral.deploy.certificates import valid_until
from choral.deploy.home import LOG, Home, Policy
from choral.record import STUDY
from choral.record.fields import Record
from choral.record.ledgers import LastEntry, LedgerLimit, Spent
from choral.run.agreement import Agreement


class Approved(Record, frozen=True, kw_only=True):
    """The study that a site has approved, when, and for which file."""

    study: str
    at: str
    data: str


class SiteLedger(Record, frozen=True, kw_only=True):
    """What a status shows of the ledger's statement."""

    limit: LedgerLimit
    spent: Spent
    charges: int
    receipt: LastEntry


class SiteStatus(Record, frozen=True, kw_only=True):
    """Where a site stands; `choral device status --json` prints it."""

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
    """Where this site stands now, by its files and by whether its agent answers."""
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
    """When the server that has last called gives up waiting for other sites, by this machine's clock."""
    greeted = next((line for line in lines if line["event"] == GREETED and line["at"] >= since), None)
    if greeted is None:
        return None
    return (datetime.fromisoformat(greeted["at"]) + timedelta(seconds=greeted["waits"])).isoformat(timespec="seconds")


def _progress(home: Home, approved: Approved | None, lines: Sequence[LogLine]) -> tuple[bool, str | None]:
    """Whether the approved study is over here, and since when the site waits for its first round."""
    if approved is None:
        return False, None
    study = Agreement.read(home.path / STUDY)
    begun = study.digest.hex() == approved.study and any(
        line["event"] == "charged" and line["at"] >= approved.at for line in lines
    )
    over = home.receipt_path(study).exists()
    return over, None if begun or over else approved.at
