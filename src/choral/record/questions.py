"""questions.jsonl: every question that was answered, with all that its answer and its cost follow from."""

import msgspec

from choral.record.fields import Record


class AnsweredQuestion(Record, frozen=True, kw_only=True):
    """One opened sum. `question` is its canonical JSON; `total` has the noise in it, in units of 1/`factor`.

    `rows` are those of the included devices. `l2`, `factor` and `scale` follow from the question and the study, and
    `choral verify` works them out again.
    """

    number: int
    question: str
    words: str
    at: str
    included: tuple[int, ...]
    rows: int
    l2: float
    factor: int
    scale: int
    total: tuple[int, ...]
    state: str = ""  # SHA-256 of the public state that it was asked at, in hex: a round of a model has one


class SumModelLine(Record, frozen=True, kw_only=True):
    """models.jsonl: a model on sums, which follows from the answers that have these numbers.

    `state` is the model; `figures` say how well it does on rows that it was not made from, where there are any.
    """

    question: str
    words: str
    at: str
    numbers: tuple[int, ...]
    rows: int
    state: tuple[float, ...]
    figures: dict[str, float] = msgspec.field(default_factory=dict)


class AnswerPrivacy(Record, frozen=True, kw_only=True):
    """What one answer costs, and what all questions of the study together may cost, against whom and by which rule."""

    rule: str
    delta: float
    adjacency: str
    epsilon: float
    epsilon_in_all: float
    adversary: str
    epsilon_sum: float
    epsilon_sum_in_all: float
    adversary_sum: str
    asked: int
    most: int
    from_register: bool = False
    sums: int = 1  # that the answer is made of: a model has one per round


class SiteQuestion(Record, frozen=True, kw_only=True):
    """A line of a site's own log: a question, written before its answer was charged and sent."""

    number: int
    words: str
    at: str
