"""questions.jsonl: every question that was answered, with all that its answer and its cost follow from."""

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


class SiteQuestion(Record, frozen=True, kw_only=True):
    """A line of a site's own log: a question, written before its answer was charged and sent."""

    number: int
    words: str
    at: str
