"""The screen by which a site's owner decides about a study: short paragraphs, the number to compare last."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from choral.plan import unit_of
from choral.privacy.display import up

if TYPE_CHECKING:
    from choral.deploy.comparing import DrawnNumber
    from choral.deploy.preview import Preview

Paragraph = Callable[["Preview"], list[str]]


def screen(preview: "Preview", *, asks: bool = False) -> list[str]:
    """The lines about a study, the number to compare last; `asks` if the owner is asked for the others' next."""
    return [*(line for paragraph in PARAGRAPHS for line in paragraph(preview)), *_number(preview, asks=asks)]


def outcome(*, recorded: bool, runs: bool = False) -> list[str]:
    """What was recorded and what to do next, unless the device runs now; or how to record it."""
    if recorded:
        return [
            "APPROVED  this study with this table and nothing else: any change is refused.",
            *([] if runs else ["NEXT      choral device run"]),
        ]
    return ["NOTHING was recorded or sent. Add --yes if all checks are the same."]


def can_ask() -> bool:
    """Whether a person can be asked: the words come from a terminal, and go to one."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def compared(drawn: "DrawnNumber", answer: Callable[[str], str] = input) -> list[str]:
    """The checks with the other sites, whose numbers the owner types; who is passed over is named as missing."""
    typed = {}
    for name in drawn.others:
        try:
            typed[name] = answer(f"Six digits of {name}: ").strip()
        except EOFError:
            break
    return check_lines(drawn, drawn.checks(f"{name}={number}" for name, number in typed.items() if number))


def check_lines(drawn: "DrawnNumber", checks: Mapping[str, str]) -> list[str]:
    """What two sites compare, for each other site; and who is missing."""
    missing = [name for name in drawn.others if name not in checks]
    return [
        *(f"CHECK     {spaced(check)} with {name}: both must see the same" for name, check in checks.items()),
        *([f"MISSING   {', '.join(missing)}"] if missing else []),
    ]


def spaced(number: str) -> str:
    """Six digits as people read them aloud.

    >>> spaced("417093")
    '417 093'
    """
    return f"{number[:3]} {number[3:]}"


def agreed(answer: Callable[[str], str] = input) -> bool:
    """Whether the owner says yes, in full, to the study on the screen.

    >>> agreed(lambda _: "yes"), agreed(lambda _: "y"), agreed(lambda _: "")
    (True, False, False)
    """
    try:
        return answer("Are all checks the same? Type yes to approve the study: ").strip() == "yes"
    except EOFError:
        return False


def _study(preview: "Preview") -> list[str]:
    return [
        f"STUDY     {preview.study}: {preview.model} with {preview.parameters:,} parameters, {preview.rounds} rounds"
    ]


def _code(preview: "Preview") -> list[str]:
    if not preview.code_path:
        return []
    return [
        f"CODE      {preview.code_path}",
        f"          SHA-256 {preview.code_sha256}",
        "          runs here as you; read it first. A change of this file is refused; what it imports is not checked",
    ]


def _devices(preview: "Preview") -> list[str]:
    return [
        f"DEVICES   {len(preview.devices)}, and nobody else:",
        *(f"  {name}{' (this site)' if name == preview.device else ''}" for name in preview.devices),
    ]


def _keys(preview: "Preview") -> list[str]:
    if preview.hybrid:
        return ["KEYS      X25519 with ML-KEM-768, erased after every turn"]
    return ["KEYS      X25519 from the cards: whoever steals this home later may read past uploads with their noise"]


def _reads(preview: "Preview") -> list[str]:
    values = " or ".join(preview.classes) or "a number"
    read = (
        f"{' × '.join(map(str, preview.shape))} numbers"
        if preview.shape
        else f"the columns {', '.join(preview.columns)}"
    )
    return [
        f"READS     {unit_of(preview.unit).reads.format(count=preview.rows)} {read}",
        f"          and the label {preview.label} ({values}); one round was tried here, and nothing was sent",
        *_encoder(preview),
    ]


def _encoder(preview: "Preview") -> list[str]:
    if not preview.encoder:
        return []
    return [
        f"ENCODER   {preview.encoder}",
        "          turns each row into numbers, which are kept in this site's home only. A changed file is refused",
    ]


def _protects(preview: "Preview") -> list[str]:
    return [f"PROTECTS  {unit_of(preview.unit).loses.format(adjacency=preview.adjacency)}"]


def _sends(preview: "Preview") -> list[str]:
    helped = (
        f"{preview.colluders} of them help{'s' * (preview.colluders == 1)} it"
        if preview.colluders
        else "nobody helps it"
    )
    return [
        f"SENDS     {preview.upload_bytes:,} masked bytes per round; receives the model, "
        f"{preview.download_bytes:,} bytes",
        f"          the server learns sums of {preview.smallest_sum} devices or more; "
        f"if {preview.lying * 'it lies and '}{helped}, of {preview.crowd} honest ones or more",
        *_shows(preview),
    ]


def _shows(preview: "Preview") -> list[str]:
    if not preview.probes:
        return []
    return [
        f"          and {preview.probes} random projections of this device's own noisy update in every round;",
        f"          in at most {preview.opened_turns} rounds the server may see this site's own noisy update; "
        "ε counts that already",
    ]


def _costs(preview: "Preview") -> list[str]:
    from choral.deploy.reserving import cap_in_words

    terms = f"δ = {preview.delta:g}, {preview.adjacency}, rule {preview.rule}, against {preview.adversary}"
    cap = cap_in_words(
        planned=preview.planned_rounds, uploads=preview.uploads, epsilon=preview.epsilon_uploads, terms=terms
    )
    return [
        f"COSTS     ε = {up(preview.epsilon_a_round)} per round, ε = {up(preview.epsilon_planned)} for the "
        f"{preview.planned_rounds} rounds planned here",
        f"          ({terms})",
        *_costs_of_sums(preview),
        f"CAP       {cap}",
        f"NOISE     {preview.law.replace('_', ' ')}, {preview.noise:.4g} on {preview.noise_on}, added here",
    ]


def _costs_of_sums(preview: "Preview") -> list[str]:
    if preview.epsilon_sum_planned is None:
        return []
    return [
        f"          ε = {up(preview.epsilon_sum_planned)} for them if the secure sum holds "
        f"(δ = {preview.delta:g}, {preview.adjacency}, rule {preview.sum_rule}, against {preview.sum_adversary})",
    ]


def _asks(preview: "Preview") -> list[str]:
    return [f"ASKS      {preview.asks}"] if preview.asks else []


def _limit(preview: "Preview") -> list[str]:
    before = (
        [f"          earlier studies: δ = {preview.delta:g}, {preview.terms_before}"] if preview.terms_before else []
    )
    return [
        f"LIMIT     ε = {preview.epsilon_limit:g} in all, of which ε = {up(preview.epsilon_spent_before)} is taken; "
        "beyond it this device refuses, whatever the server says",
        *before,
        *_limit_of_sums(preview),
    ]


def _limit_of_sums(preview: "Preview") -> list[str]:
    if preview.epsilon_sum_limit is None:
        return []
    return [
        f"          ε = {preview.epsilon_sum_limit:g} in all against a server that sees only sums, "
        f"of which ε = {up(preview.epsilon_sum_spent_before)} is taken",
    ]


def _number(preview: "Preview", *, asks: bool) -> list[str]:
    where = "here" if asks else "into choral device compare …"
    return [
        f"NUMBER    {spaced(preview.own_number)}: read it to all other sites, in one call, and type theirs {where}; "
        "each two of you must then see the same check",
    ]


PARAGRAPHS: tuple[Paragraph, ...] = (_study, _code, _devices, _keys, _reads, _sends, _costs, _asks, _limit, _protects)
