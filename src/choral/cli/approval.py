"""The screen by which a site's owner decides about a study: short paragraphs, the number to compare last."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from choral.accounting.words import up
from choral.core.errors import TrustError
from choral.core.plan import unit_of
from choral.core.printable import count

if TYPE_CHECKING:
    from choral.deploy.approving import DrawnNumber

Paragraph = Callable[[SimpleNamespace], Iterator[str]]
Answer = Callable[[str], str | None]
TRIES = 3  # how often a person is asked for the same thing
_ANSWERS = {"yes": True, "y": True, "no": False, "n": False}


def typed(prompt: str) -> str | None:
    """What a person types at a terminal; None where the terminal was closed."""
    try:
        return input(prompt).strip()
    except EOFError:
        return None


def screen(preview: SimpleNamespace, *, asks: bool = False) -> list[str]:
    """The lines about a study, the number to compare last; `asks` if the owner is asked for the others' next."""
    return [*(line for paragraph in PARAGRAPHS for line in paragraph(preview)), *_number(preview, asks=asks)]


def outcome(*, recorded: bool, runs: bool = False, asked: bool = False) -> list[str]:
    """What was recorded and what to do next, unless the device runs now; or how to record it."""
    if recorded:
        return [
            "APPROVED  this study with this table and nothing else: any change is refused.",
            *([] if runs else ["NEXT      choral device run"]),
        ]
    if asked:
        return ["NOTHING was recorded or sent. The same command asks again."]
    return ["NOTHING was recorded or sent. Add --yes if all checks are the same."]


def can_ask() -> bool:
    """Whether a person can be asked: the words come from a terminal, and go to one."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def compare(home: Path, answer: Answer = typed) -> Iterator[str]:
    """The check with each other site, as soon as the owner has typed its six digits; who is passed over is missing.

    What was typed is kept in the home, so that nobody types it twice.
    """
    from choral.deploy.approving import keep_typed, last_drawn

    drawn = last_drawn(home)
    yield from check_lines(drawn)
    for name in drawn.missing:
        for _ in range(TRIES):
            number = answer(f"Six digits of {name}: ")
            if not number:
                break
            try:
                drawn = drawn.with_typed([f"{name}={number}"])
            except TrustError as error:
                yield str(error)
                continue
            keep_typed(home, drawn)
            yield _check_line(name, drawn.checks[name])
            break
    yield from missing_line(drawn)


def check_lines(drawn: "DrawnNumber") -> list[str]:
    """What two sites compare, for each other site whose number was typed."""
    return [_check_line(name, check) for name, check in drawn.checks.items()]


def missing_line(drawn: "DrawnNumber") -> list[str]:
    """The sites with which nothing was compared."""
    return (
        [f"MISSING   {', '.join(drawn.missing)}: not compared, so nobody sees a false key there"]
        if drawn.missing
        else []
    )


def compared_so_far(home: Path) -> list[str]:
    """What was compared by then, where nobody is asked: with `--yes` the owner sees what is missing."""
    from choral.deploy.approving import last_drawn

    drawn = last_drawn(home)
    return [*check_lines(drawn), *missing_line(drawn)]


def _check_line(name: str, check: str) -> str:
    return f"CHECK     {spaced(check)} with {name}: both must see the same"


def spaced(number: str) -> str:
    """Six digits as people read them aloud.

    >>> spaced("417093")
    '417 093'
    """
    return f"{number[:3]} {number[3:]}"


def agreed(answer: Answer = typed) -> bool | None:
    """Whether the owner says yes or no to the study on the screen; None of somebody who says neither three times.

    >>> agreed(lambda _: "Yes"), agreed(lambda _: "y"), agreed(lambda _: "no"), agreed(lambda _: "")
    (True, True, False, None)
    """
    for _ in range(TRIES):
        said = answer("Are all checks the same? Type yes to approve the study: ")
        if said is None:
            break
        if said.lower() in _ANSWERS:
            return _ANSWERS[said.lower()]
    return None


def _study(preview: SimpleNamespace) -> Iterator[str]:
    """What would run, with whom, and under which keys."""
    yield (
        f"STUDY     {preview.study}: {preview.model} with {count(preview.parameters, 'parameter')}, "
        f"{count(preview.rounds, 'round')}"
    )
    if preview.code_path:
        yield f"CODE      {preview.code_path}"
        yield f"          SHA-256 {preview.code_sha256}"
        yield (
            "          runs here as you; read it first. A change of this file is refused; what it imports is not "
            "checked"
        )
    yield f"DEVICES   {len(preview.devices)}, and nobody else:"
    yield from (f"  {name}{' (this site)' if name == preview.device else ''}" for name in preview.devices)
    keys = "from the cards: whoever steals this home later may read past uploads with their noise"
    yield f"KEYS      X25519 {'with ML-KEM-768, erased after every turn' if preview.hybrid else keys}"


def _reads(preview: SimpleNamespace) -> Iterator[str]:
    values = " or ".join(preview.classes) or "a number"
    rows, persons = count(preview.rows, "row"), count(preview.rows, "person")
    read = (
        f"{' × '.join(map(str, preview.shape))} numbers"
        if preview.shape
        else f"the column{'s' * (len(preview.columns) != 1)} {', '.join(preview.columns)}"
    )
    yield f"READS     {unit_of(preview.unit).reads.format(rows=rows, persons=persons)} {read}"
    yield f"          and the label {preview.label} ({values}); one round was tried here, and nothing was sent"
    if preview.encoder:
        yield f"ENCODER   {preview.encoder}"
        yield (
            "          turns each row into numbers, which are kept in this site's home only. A changed file is refused"
        )


def _sends(preview: SimpleNamespace) -> Iterator[str]:
    helped = (
        f"{preview.colluders} of them help{'s' * (preview.colluders == 1)} it"
        if preview.colluders
        else "nobody helps it"
    )
    yield (
        f"SENDS     {count(preview.upload_bytes, 'masked byte')} per round; receives the model, "
        f"{count(preview.download_bytes, 'byte')}"
    )
    yield (
        f"          the server learns sums of {count(preview.smallest_sum, 'device')} or more; "
        f"if {preview.lying * 'it lies and '}{helped}, of {count(preview.crowd, 'honest one')} or more"
    )
    if preview.probes:
        yield (
            f"          and {count(preview.probes, 'random projection')} of this device's own noisy update in every "
            "round;"
        )
        yield (
            f"          in at most {count(preview.opened_turns, 'round')} the server may see this site's own noisy "
            "update; ε counts that already"
        )


def _costs(preview: SimpleNamespace) -> Iterator[str]:
    from choral.deploy.approving import cap_in_words

    terms = f"δ = {preview.delta:g}, {preview.adjacency}, rule {preview.rule}, against {preview.adversary}"
    cap = cap_in_words(
        planned=preview.planned_rounds, uploads=preview.uploads, epsilon=preview.epsilon_uploads, terms=terms
    )
    yield (
        f"COSTS     ε = {up(preview.epsilon_a_round)} per round, ε = {up(preview.epsilon_planned)} for the "
        f"{count(preview.planned_rounds, 'round')} planned here"
    )
    yield f"          ({terms})"
    if preview.epsilon_sum_planned is not None:
        yield (
            f"          ε = {up(preview.epsilon_sum_planned)} for them if the secure sum holds "
            f"(δ = {preview.delta:g}, {preview.adjacency}, rule {preview.sum_rule}, against {preview.sum_adversary})"
        )
    yield f"CAP       {cap}"
    yield f"NOISE     {preview.law.replace('_', ' ')}, {preview.noise:.4g} on {preview.noise_on}, added here"
    if preview.asks:
        yield f"ASKS      {preview.asks}"


def _limit(preview: SimpleNamespace) -> Iterator[str]:
    yield (
        f"LIMIT     ε = {preview.epsilon_limit:g} in all, of which ε = {up(preview.epsilon_spent_before)} is taken; "
        "beyond it this device refuses, whatever the server says"
    )
    if preview.terms_before:
        yield f"          earlier studies: δ = {preview.delta:g}, {preview.terms_before}"
    if preview.epsilon_sum_limit is not None:
        yield (
            f"          ε = {preview.epsilon_sum_limit:g} in all against a server that sees only sums, "
            f"of which ε = {up(preview.epsilon_sum_spent_before)} is taken"
        )
    yield f"PROTECTS  {unit_of(preview.unit).loses.format(adjacency=preview.adjacency)}"


def _number(preview: SimpleNamespace, *, asks: bool) -> list[str]:
    where = "here" if asks else "into choral device compare …"
    return [
        f"NUMBER    {spaced(preview.own_number)}: read it to all other sites, in one call, and type theirs {where}; "
        "each two of you must then see the same check",
    ]


PARAGRAPHS: tuple[Paragraph, ...] = (_study, _reads, _sends, _costs, _limit)
