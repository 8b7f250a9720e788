"""The screen by which a site's owner decides about a study: short paragraphs, the number to compare last."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from choral.plan import unit_of
from choral.privacy.display import up

if TYPE_CHECKING:
    from choral.deploy.preview import Preview

Paragraph = Callable[["Preview"], list[str]]


def screen(told: "Preview", *, recorded: bool) -> list[str]:
    """The lines about a study, and the question, or what was recorded."""
    end = [
        "APPROVED  this study with this table and nothing else: any change is refused.",
        "NEXT      choral device run",
    ] if recorded else [
        "NOTHING was recorded or sent. Add --yes if all checks are the same."
    ]  # fmt: skip
    return [*(line for paragraph in PARAGRAPHS for line in paragraph(told)), *_number(told), *end]


def _study(told: "Preview") -> list[str]:
    return [f"STUDY     {told.study}: {told.model} with {told.parameters:,} parameters, {told.rounds} rounds"]


def _code(told: "Preview") -> list[str]:
    if not told.code_path:
        return []
    return [
        f"CODE      {told.code_path}",
        f"          SHA-256 {told.code_sha256}",
        "          runs here as you; read it first. A change of this file is refused; what it imports is not checked",
    ]


def _devices(told: "Preview") -> list[str]:
    return [
        f"DEVICES   {len(told.devices)}, and nobody else:",
        *(f"  {name}{' (this site)' if name == told.device else ''}" for name in told.devices),
    ]


def _keys(told: "Preview") -> list[str]:
    if told.hybrid:
        return ["KEYS      X25519 with ML-KEM-768, erased after every turn"]
    return ["KEYS      X25519 from the cards: whoever steals this home later may read past uploads, noise and all"]


def _reads(told: "Preview") -> list[str]:
    values = " or ".join(told.classes) or "a number"
    return [
        f"READS     {unit_of(told.unit).reads.format(count=told.rows)} the columns {', '.join(told.columns)}",
        f"          and the label {told.label} ({values}); one round was tried here, and nothing was sent",
    ]


def _protects(told: "Preview") -> list[str]:
    return [f"PROTECTS  {unit_of(told.unit).loses.format(adjacency=told.adjacency)}"]


def _sends(told: "Preview") -> list[str]:
    helped = f"{told.colluders} of them help{'s' * (told.colluders == 1)} it" if told.colluders else "nobody helps it"
    return [
        f"SENDS     {told.upload_bytes:,} masked bytes per round; receives the model, {told.download_bytes:,} bytes",
        f"          the server learns sums of {told.smallest_sum} devices or more; "
        f"if {told.lying * 'it lies and '}{helped}, of {told.crowd} honest ones or more",
        *_shows(told),
    ]


def _shows(told: "Preview") -> list[str]:
    if not told.probes:
        return []
    return [
        f"          and {told.probes} random projections of this device's own noisy update in every round;",
        f"          in at most {told.opened_turns} rounds the server may see this site's own noisy update; "
        "ε counts that already",
    ]


def _costs(told: "Preview") -> list[str]:
    from choral.deploy.reserving import cap_in_words

    terms = f"δ = {told.delta:g}, {told.adjacency}, rule {told.rule}, against {told.adversary}"
    cap = cap_in_words(planned=told.planned_rounds, uploads=told.uploads, epsilon=told.epsilon_uploads, terms=terms)
    return [
        f"COSTS     ε = {up(told.epsilon_a_round)} per round, ε = {up(told.epsilon_planned)} for the "
        f"{told.planned_rounds} rounds planned here",
        f"          ({terms})",
        *_costs_of_sums(told),
        f"CAP       {cap}",
        f"NOISE     {told.law.replace('_', ' ')}, {told.noise:.4g} on {told.noise_on}, added here",
    ]


def _costs_of_sums(told: "Preview") -> list[str]:
    if told.epsilon_sum_planned is None:
        return []
    return [
        f"          ε = {up(told.epsilon_sum_planned)} for them if the secure sum holds "
        f"(δ = {told.delta:g}, {told.adjacency}, rule {told.sum_rule}, against {told.sum_adversary})",
    ]


def _asks(told: "Preview") -> list[str]:
    return [f"ASKS      {told.asks}"] if told.asks else []


def _limit(told: "Preview") -> list[str]:
    before = [f"          earlier studies: δ = {told.delta:g}, {told.terms_before}"] if told.terms_before else []
    return [
        f"LIMIT     ε = {told.epsilon_limit:g} in all, of which ε = {up(told.epsilon_spent_before)} is taken; "
        "beyond it this device refuses, whatever the server says",
        *before,
        *_limit_of_sums(told),
    ]


def _limit_of_sums(told: "Preview") -> list[str]:
    if told.epsilon_sum_limit is None:
        return []
    return [
        f"          ε = {told.epsilon_sum_limit:g} in all against a server that sees only sums, "
        f"of which ε = {up(told.epsilon_sum_spent_before)} is taken",
    ]


def _number(told: "Preview") -> list[str]:
    from choral.deploy.comparing import spaced

    return [
        f"NUMBER    {spaced(told.own_number)}: read it to all other sites, in one call, and type theirs:",
        "          choral device compare …; each two of you must then see the same check",
    ]


PARAGRAPHS: tuple[Paragraph, ...] = (_study, _code, _devices, _keys, _reads, _sends, _costs, _asks, _limit, _protects)
