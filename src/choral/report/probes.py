"""What a record says about devices' answers to probes, computed again from the answers themselves."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from choral.core.codec import Codec
from choral.core.errors import ConfigError
from choral.core.messages import Turn
from choral.probes.projections import probe_seed
from choral.probes.rules import Suspicion
from choral.record import ProbeLine, RunRecord, read_probes, read_run
from choral.report import words
from choral.report.markup import Markup, element, short, table, together
from choral.run.guard import Guard, seed_from

MOST_SHOWN = 12
PROBES_HOLD = "every refusal and every name follows from the devices' answers"


def guard_of(record: RunRecord) -> Guard:
    """The guard of a run before its first round, by the numbers in run.json."""
    about = record.about
    assert about.secure_sum is not None  # noqa: S101 - a plan with probes has one
    parameters = about.model.parameters + about.plan.mechanism.adaptive
    codec = Codec.for_plan(about.plan, about.secure_sum, parameters, failure=about.plan.out_of_range)
    return Guard.of(about.plan, about.secure_sum, codec, parameters, (device.name for device in about.devices))


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """What speaks against the devices of a run, and in how many rounds each was left out, by which rule."""

    rounds: int
    refused: dict[str, dict[str, int]]
    evidence: tuple[Suspicion, ...]

    def as_dict(self) -> dict[str, object]:
        """The same for machines."""
        return asdict(self)


def suspects(folder: str | Path) -> Suspects:
    """What the answers in a run's folder say about its devices, finished or not."""
    record = read_run(folder)
    if not record.about.plan.probes:
        raise ConfigError(
            "CH104", "the run has no probes.", where=str(folder), fix="Use robust = true in [federation]."
        )
    guard, refused = guard_of(record), dict[str, dict[str, int]]()
    lines = list(read_probes(record.folder))
    guard.take_up(lines)
    for line in lines:
        for device, rule in line.refused.items():
            counted = refused.setdefault(device, {})
            counted[rule] = counted.get(rule, 0) + 1
    return Suspects(rounds=len(lines), refused=refused, evidence=tuple(guard.evidence.suspicions))


def answered(record: RunRecord) -> Markup:
    """What the devices' answers said: how long an update may be, who was left out, and against whom evidence stands."""
    found, guard = suspects(record.folder), guard_of(record)
    rows = [
        (
            short(one.device),
            words.count(sum(found.refused.get(one.device, {}).values()), "round"),
            one.rule,
            f"{one.value:.1f} of {one.limit:g}",
            f"named in round {one.named_in}" if one.named_in else "suspected",
        )
        for one in found.evidence[:MOST_SHOWN]
    ]
    left_out = sum(sum(rules.values()) for rules in found.refused.values())
    sentence = (
        f"Each device answered {words.count(guard.plan.probes, 'random projection')} of its noisy update in "
        f"{words.count(found.rounds, 'round')}; the ε against everyone counts that. Updates were left out "
        f"{words.count(left_out, 'time')}. Seen through the probes, an update of noise may be "
        f"{math.sqrt(guard.widest):.2g} times as long as the noise of an honest one; without probes it could "
        f"be {guard.longest:,.0f} times as long."
    )
    if not rows:
        return element("p", f"{sentence} Evidence stands against nobody.")
    return together(
        element("p", sentence),
        table(("device", "left out", "rule", "evidence", ""), rows),
        element(
            "p", "A name is evidence, and unlike data looks like it too; only an opened turn is proof.", class_="quiet"
        ),
    )


def check_probes(record: RunRecord) -> list[str]:
    """What is wrong with probes.jsonl: its rounds, seeds, refusals, names, and who was included after all."""
    guard, lines = guard_of(record), list(read_probes(record.folder))
    summed = {line.round: line for line in record.rounds if line.included}
    if [line.round for line in lines] != sorted(summed):
        return ["probes.jsonl does not have one line for each round that ended in a sum"]
    wrong = []
    for line in lines:
        where = f"round {line.round}"
        if line.seed != _seed(record, guard, line).hex():
            wrong.append(f"{where}: the probes do not follow from the uploads")
        again = guard.judged_again(line)
        for name in ("refused", "spared", "named"):
            if getattr(line, name) != getattr(again, name):
                wrong.append(f"{where}: {name} does not follow from the answers")
        included = {guard.names[number] for number in summed[line.round].included}
        if not included <= line.answers.keys() - line.refused.keys():
            wrong.append(f"{where}: a device is in the sum that did not answer or was refused")
    return wrong


def _seed(record: RunRecord, guard: Guard, line: ProbeLine) -> bytes:
    """What the probes of a line were drawn from: the uploads, or the seed of a run that can be repeated."""
    if line.context is None and record.about.seed is not None and record.about.predictable:
        return seed_from(record.about.seed, Turn(line.round, line.attempt))
    digests = {guard.names.index(name): bytes.fromhex(sentence) for name, sentence in line.digests.items()}
    return probe_seed(bytes.fromhex(line.context or ""), digests, guard.watched_in(line))
