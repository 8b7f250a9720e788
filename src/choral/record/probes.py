"""probes.jsonl: what each device answered to its probes, and what followed from it."""

from typing import Annotated

from msgspec import Meta, field

from choral.record.fields import Record

Seed = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class ProbeLine(Record, frozen=True, kw_only=True):
    """The probes of one turn that ended in a sum; `choral verify` computes `refused`, `spared` and `named` again.

    `seed` follows from `context`, the uploads' `digests` and what was watched; in a run that can be repeated it follows
    from the run's seed, and both are left out. `answers` are P·x and, where a direction was watched, ⟨v, x⟩.
    `following` is the direction that the next round watches, in base64, and `scale` the size of one of its steps.
    """

    round: int
    attempt: int
    seed: Seed
    context: str | None = None
    digests: dict[str, str] = field(default_factory=dict)
    answers: dict[str, tuple[int, ...]]
    refused: dict[str, str] = field(default_factory=dict)
    spared: tuple[str, ...] = ()
    named: dict[str, int] = field(default_factory=dict)
    following: str = ""
    scale: float = 0.0
