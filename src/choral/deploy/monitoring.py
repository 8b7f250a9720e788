"""What a site's monitoring reads: its log and its ledger as Prometheus text, for a file that a collector picks up."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import cast

from choral.accounting.ledger_statement import statement_of
from choral.core.ledger import Ledger
from choral.deploy.agent import CUT_OFF, REACHED, LogLine, answers
from choral.deploy.home import LOG, Home

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, kw_only=True)
class Family:
    """One metric: its name, kind and meaning, and a value for each set of labels."""

    name: str
    kind: str
    meaning: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def text(self) -> str:
        r"""The lines of Prometheus' text format.

        >>> print(Family(name="up", kind="gauge", meaning="Whether it runs.", samples=[({"device": "a"}, 1)]).text())
        # HELP up Whether it runs.
        # TYPE up gauge
        up{device="a"} 1
        """
        return "\n".join(
            [f"# HELP {self.name} {self.meaning}", f"# TYPE {self.name} {self.kind}", *map(self._line, self.samples)]
        )

    def _line(self, sample: tuple[Mapping[str, str], float]) -> str:
        labels, value = sample
        inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        return f"{self.name}{{{inside}}} {value:.17g}"


def prometheus(home: Home) -> str:
    """Everything that a site's log and ledger say in numbers, in Prometheus' text format; nothing is changed."""
    families = [*_now(home), *_logged(home.joined.name, logged_lines(home.path / LOG)), *_spent(home)]
    return "\n".join(family.text() for family in families if family.samples) + "\n"


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


def _now(home: Home) -> list[Family]:
    device, running = {"device": home.joined.name}, answers(home)
    return [
        Family(
            name="choral_agent_up",
            kind="gauge",
            meaning="Whether the site's agent answers.",
            samples=[(device, float(running))],
        )
    ]


def _logged(device: str, lines: Iterable[LogLine]) -> list[Family]:
    """Counters over the whole log, so that they only grow as long as the file is kept."""
    seen: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    sent: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
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
    who = {"device": device}

    def by_event(counts: Mapping[str, float]) -> list[tuple[Mapping[str, str], float]]:
        return [({**who, "event": event}, value) for event, value in sorted(counts.items()) if value]

    return [
        Family(
            name="choral_events_total", kind="counter", meaning="Lines of the log, by event.", samples=by_event(seen)
        ),
        Family(
            name="choral_bytes_total", kind="counter", meaning="Bytes of answers, by event.", samples=by_event(sent)
        ),
        Family(
            name="choral_seconds_total",
            kind="counter",
            meaning="Seconds spent on answers, by event.",
            samples=by_event(seconds),
        ),
        Family(
            name="choral_refusals_total",
            kind="counter",
            meaning="Requests that the site refused, by error code.",
            samples=[({**who, "code": code}, count) for code, count in sorted(refused.items())],
        ),
        Family(
            name="choral_last_round",
            kind="gauge",
            meaning="The last round that the site was asked about.",
            samples=[(who, last_round)] if last_round else [],
        ),
        Family(
            name="choral_server_reachable",
            kind="gauge",
            meaning="Whether the server could be reached when the site last looked.",
            samples=[] if reached is None else [(who, float(reached))],
        ),
        Family(
            name="choral_last_event_timestamp_seconds",
            kind="gauge",
            meaning="When the log got its last line, in seconds since 1970.",
            samples=[(who, last)] if last else [],
        ),
    ]


def _spent(home: Home) -> list[Family]:
    """The ledger's ε, with everything that an ε needs as labels."""
    if not home.ledger_path.exists():
        return []
    statement = statement_of(Ledger.read(home.ledger_path))
    spent, limit = statement.spent, statement.limit
    terms = {
        "device": home.joined.name,
        "delta": f"{limit.delta:g}",
        "rule": " and ".join(spent.rules) or "none yet",
        "adjacency": spent.adjacency,
        "adversary": " and ".join(spent.adversaries),
    }
    return [
        Family(
            name="choral_epsilon_spent",
            kind="gauge",
            meaning="The privacy loss that the ledger has charged so far.",
            samples=[(terms, spent.epsilon)],
        ),
        Family(
            name="choral_epsilon_limit",
            kind="gauge",
            meaning="The privacy loss beyond which the site refuses.",
            samples=[(terms, limit.epsilon)],
        ),
        Family(
            name="choral_charges_total",
            kind="counter",
            meaning="Charges in the ledger.",
            samples=[({"device": home.joined.name}, statement.charges)],
        ),
    ]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _when(value: object) -> float:
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return 0.0
