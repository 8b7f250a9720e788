"""The questions of a run on its page, and checked: each noise and charge is computed again from the question."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from choral import config
from choral.accounting.words import up
from choral.asking.answer import Answer
from choral.asking.catalogue import ROUNDS, estimate, read_model
from choral.asking.question import Question
from choral.core.errors import ConfigError, TableError
from choral.core.printable import count
from choral.record import (
    QUESTIONS,
    About,
    AnsweredQuestion,
    AnswerPrivacy,
    RunRecord,
    read_questions,
    read_run,
    read_sum_models,
)
from choral.report import charts
from choral.report.markup import Markup, element, short, table, together
from choral.report.signed import ledger_of
from choral.run.folder import write_whole
from choral.run.inquiry import answer_privacy
from choral.run.modelling import AnswerRegister, from_register, opened_sum
from choral.run.questions import AskTerms

MOST_SHOWN, MOST_DETAILED = 200, 40  # questions on a page, in a line each and with what they say
QUESTIONS_HOLD = "every question was asked as the study allows, with the noise that it needs, and was paid for"


def asked_questions(record: RunRecord) -> Markup:
    """Every question that was answered, with its noise, what it cost and what it says; and the models on sums."""
    about = read_run(record.folder).about  # a page's own record has long texts cut, and the job is one
    delta = about.delta
    terms = terms_of(about)
    loss = price_of(terms, delta)
    answered = list(read_questions(record.folder))
    plain = [one for one in answered if not _is_round(one)]
    rows = [
        [
            str(one.number),
            short(one.words, 200),
            f"{count(len(one.included), 'device')}, {count(one.rows, 'row')}",
            f"{one.scale * math.sqrt(len(one.included)) / one.factor:.4g}",
            f"{one.l2 * math.sqrt(one.rows) / 2:.4g}",
        ]
        for one in plain[:MOST_SHOWN]
    ]
    rounds = len(answered) - len(plain)
    also = f" {rounds} of them {'was a sum' if rounds == 1 else 'were sums'} of models." if rounds else ""
    left = loss.most - len(answered)
    cost = (
        f"Each question costs ε ≤ {up(loss.epsilon, 4)} against {loss.adversary}, and ε ≤ {up(loss.epsilon_sum, 4)} "
        f"against {loss.adversary_sum}; all {loss.most} that may be asked cost ε ≤ {up(loss.epsilon_in_all)} and "
        f"ε ≤ {up(loss.epsilon_sum_in_all)} (rule {loss.rule}, δ = {delta:g}, {loss.adjacency}). The statement above "
        f"contains them.{also} {left} of {loss.most} {'was' if left == 1 else 'were'} not answered."
    )
    listed = [table(("number", "question", "asked of", "noise (sd)", "sampling (sd), at most"), rows)] if rows else []
    details = [_detail(terms, one) for one in plain[:MOST_DETAILED]]
    return together(
        *listed, element("p", f"{approved(about, terms)} {cost}"), *details, *_shown_models(record, terms, delta)
    )


def approved(about: About, terms: AskTerms) -> str:
    """Who approved the questions: in a deployment every site, before its first answer; elsewhere nobody had to."""
    names, columns = ", ".join(terms.names), ", ".join(terms.columns)
    what = f"questions of these names: {names}; about these columns: {columns}; at most {terms.price.most} of them."
    if not about.traits.deployed:
        return f"Nobody approved them: all devices are in one process. The study allows {what}"
    sites = ", ".join(device.name for device in about.devices)
    return (
        f"Approved with the study, by each site for itself before it answered: {sites}. A site may have struck some "
        f"of them, and then it is not among those that answered. The study allows {what}"
    )


def _is_round(one: AnsweredQuestion) -> bool:
    return Question.read(one.question.encode()).name in ROUNDS


def _detail(terms: AskTerms, one: AnsweredQuestion) -> Markup:
    """What an answer says; a question that the noise leaves without one says so."""
    question, opened = Question.read(one.question.encode()), opened_sum(one)
    heading = element("h3", f"{one.number}. {short(one.words, 200)}")
    try:
        answer = estimate(question, terms.columns, opened.total, rows=opened.rows, deviation=opened.deviation)  # type: ignore[arg-type]
    except TableError as error:
        return together(heading, element("p", str(error)))
    return together(heading, shown(question.name, answer))


def _shown_models(record: RunRecord, terms: AskTerms, delta: float) -> list[Markup]:
    register, found = AnswerRegister(record.folder), list[Markup]()
    for line in read_sum_models(record.folder):
        question = Question.read(line.question.encode())
        made = from_register(read_model(question, terms.columns), terms, register)
        if made is None:
            continue
        loss = price_of(terms, delta, sums=len(made.sums))
        figures = "".join(
            f" {name.replace('_', '-')} {value:.4f} on test rows." for name, value in line.figures.items()
        )
        cost = (
            f"{count(loss.sums, 'sum')}, ε ≤ {up(loss.epsilon, 4)} against {loss.adversary}, and "
            f"ε ≤ {up(loss.epsilon_sum, 4)} against {loss.adversary_sum} (rule {loss.rule}, δ = {delta:g}, "
            f"{loss.adjacency}).{figures}"
        )
        effects = shown(question.name, made.model.effects)
        found.append(together(element("h3", short(line.words, 200)), element("p", cost), effects))
    return found


def asked_so_far(record: RunRecord, device: int | None = None) -> Markup:
    """The questions of a run as they come, the latest first; those of one device, where it has a number."""
    answered = list(read_questions(record.folder))
    listed = [
        element("li", f"{one.number}: {short(one.words, 120)} ({count(one.rows, 'row')})")
        for one in reversed(answered)
        if device is None or device in one.included
    ]
    if not listed:
        return element("p", "Nothing was asked yet.", class_="quiet")
    return element("ol", *listed[:MOST_DETAILED], reversed=True)


def check_questions(record: RunRecord) -> list[str]:
    """What is wrong with the register: an l2, a factor or a noise that the question does not have, or no charge."""
    about = record.about
    terms = terms_of(about)
    answered = list(read_questions(record.folder))
    wrong = [line for one in answered for line in _question(terms, one)]
    numbers = [one.number for one in answered]
    if len(set(numbers)) != len(numbers) or len({(one.question, one.state) for one in answered}) != len(answered):
        wrong.append("a question stands twice in the register")
    wrong += _models(record, terms)
    return wrong if about.traits.deployed else wrong + _unpaid(record, terms, answered)


def _question(terms: AskTerms, one: AnsweredQuestion) -> list[str]:
    checked, name = terms.read(one.question.encode()), f"question {one.number}"
    said = (one.l2, one.factor, one.scale)
    needed = (checked.summand.l2, checked.noise.factor, checked.noise.scale)
    wrong = [] if said == needed else [f"{name}: sensitivity, factor and noise are not those of the question"]
    if one.words != checked.question.words():
        wrong.append(f"{name}: its words do not say what was asked")
    if len(one.total) != checked.summand.length or len(one.included) < terms.secure.smallest_sum:
        wrong.append(f"{name}: its sum has another length, or too few devices")
    return wrong


def _models(record: RunRecord, terms: AskTerms) -> list[str]:
    """What is wrong with the models on sums: each is computed again from the register, state by state."""
    register, wrong = AnswerRegister(record.folder), list[str]()
    for line in read_sum_models(record.folder):
        question = Question.read(line.question.encode())
        made = from_register(read_model(question, terms.columns), terms, register)
        numbers = () if made is None else tuple(one.number for one in made.sums)
        if made is None or list(line.state) != made.model.state.tolist() or line.numbers != numbers:
            wrong.append(f"the model of {count(len(line.numbers), 'sum')} does not follow from the register")
    return wrong


def _unpaid(record: RunRecord, terms: AskTerms, answered: list[AnsweredQuestion]) -> list[str]:
    wrong = []
    for number, device in enumerate(record.about.devices):
        charges = [charge for charge in ledger_of(record, number).balance.charges if charge.plan == terms.plan]
        paid = {charge.round for charge in charges}
        if missing := [one.number for one in answered if number in one.included and one.number not in paid]:
            wrong.append(f"{device.name}: question {missing[0]} was answered, but not charged")
        if any(charge != terms.charge(charge.round) for charge in charges):
            wrong.append(f"{device.name}: a charge is not what a question costs")
    return wrong


def has_questions(record: RunRecord) -> bool:
    """Whether anything was asked."""
    return (record.folder / QUESTIONS).exists()


def terms_of(about: About) -> AskTerms:
    """What the run may ask; CH103 where that is nothing."""
    job = config.parse(about.job, source="the job in run.json", recorded=True)
    return AskTerms.of(job, run=about.plan_digest, devices=len(about.devices))


def price_of(terms: AskTerms, delta: float, *, sums: int = 1) -> AnswerPrivacy:
    """What so many sums cost, and all that may be asked."""
    return answer_privacy(terms.price, delta=delta, colluders=terms.secure.colluders, asked=0, sums=sums)


def reserved(record: RunRecord) -> float:
    """ε of all questions, which every device has set aside once the first is asked; 0 before that."""
    if not has_questions(record):
        return 0.0
    about = read_run(record.folder).about  # a page's own record has long texts cut, and the job is one
    priced = price_of(terms_of(about), about.delta)
    return priced.epsilon_in_all if about.against == "everyone" else priced.epsilon_sum_in_all


MOST_ROWS = 24  # of an answer's table on a page
MOST_CHARTS = 12  # of a model's columns
Row = Mapping[str, object]
_NUMBERS = ("estimate", "low", "high")


def drawn(name: str, answer: Answer) -> list[Markup]:
    """The charts of an answer, by the name of its question; none where it has no curve.

    >>> rows = [{"time": 10.0, "estimate": 0.9, "low": 0.8, "high": 1.0, "sampling_low": 0.85, "sampling_high": 0.95}]
    >>> len(drawn("km", Answer(rows=rows))), drawn("count", Answer(rows=rows))
    (1, [])
    """
    if name == "km":
        return [_survival(answer.rows)]
    if name == "cdf":
        return [_curve(answer.rows, title="Share of rows at or below a value", y="share")]
    shapes = _grouped([row for row in answer.rows if name == "additive" and "value" in row], "column")
    return [
        _curve(rows, title=f"Effect of {short(label)} on the log-odds", y="log-odds", x=label)
        for label, rows in list(shapes.items())[:MOST_CHARTS]
    ]


def plot(name: str, answer: Answer, path: str | Path) -> Path:
    """The first chart of an answer as an SVG file; of an additive model one file per column, numbered from 2 on."""
    charts_of = drawn(name, answer)
    if not charts_of:
        raise ConfigError(
            "CH104", f'"{name}" has no curve to plot.', fix="Use .frame or .rows; km, cdf and additive have curves."
        )
    path = Path(path)
    for number, chart in enumerate(charts_of, start=1):
        to = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        write_whole(to, charts.alone(chart).encode())
    return path


def shown(name: str, answer: Answer) -> Markup:
    """The charts and the first rows of an answer, as a part of a page."""
    curves = drawn(name, answer)
    rows = [*([] if curves else answer.rows[:MOST_ROWS]), *answer.about]
    cells = [[_about(row), *(f"{row[key]:,.5g}" for key in _NUMBERS)] for row in rows]
    more = 0 if curves else len(answer.rows) - MOST_ROWS
    left = f"{more:,} more rows are" if more > 1 else "One more row is"
    said = [*answer.sentences, *([f"{left} in jsonl."] if more > 0 else [])]
    if answer.test is not None:
        said.insert(0, "Test: " + ", ".join(f"{key} {value:.4g}" for key, value in answer.test.items()) + ".")
    return together(
        *([element("div", *curves, class_="pair")] if curves else []),
        *([table(("of", "estimate", "95 % from", "to"), cells)] if cells else []),
        *([element("p", " ".join(said), class_="quiet")] if said else []),
    )


def _about(row: Row) -> str:
    """What a row is about, in words."""
    named = [value for value in row.values() if isinstance(value, str) and value]
    named += [f"{key} {row[key]:g}" for key in ("time", "value", "level") if key in row]
    return short(", ".join(named) or "rows", 60)


def _survival(rows: Sequence[Row]) -> Markup:
    arms = _grouped(rows, *(key for key in rows[0] if isinstance(rows[0][key], str)))
    series = [
        charts.Series(
            name=label or "all rows",
            points=[(0.0, 1.0), *_points(arm, "time")],
            spread=[(1.0, 1.0), *_ends(arm, "low", "high")],
            inner=[(1.0, 1.0), *_ends(arm, "sampling_low", "sampling_high")],
            marks=False,
        )
        for label, arm in arms.items()
    ]
    ends = "; ".join(f"{one.name} {one.points[-1][1]:.3f} at {one.points[-1][0]:g}" for one in series)
    return charts.line_chart(
        series,
        title="Share of rows without the event",
        summary=f"{ends}. The inner band is the error of sampling, the outer one has the noise as well.",
        x=charts.Axis(label="time"),
        y=charts.Axis(label="without the event", least=0.0),
    )


def _curve(rows: Sequence[Row], *, title: str, y: str, x: str = "value") -> Markup:
    points = _points(rows, "value")
    line = charts.Series(name="estimate, 95 %", points=points, spread=_ends(rows, "low", "high"), marks=False)
    low, high = min(points, key=lambda one: one[1]), max(points, key=lambda one: one[1])
    summary = f"lowest {low[1]:.3g} at {low[0]:g}, highest {high[1]:.3g} at {high[0]:g}"
    across, upward = charts.Axis(label=short(x)), charts.Axis(label=y)
    return charts.line_chart([line], title=title, summary=summary, x=across, y=upward)


def _points(rows: Sequence[Row], key: str) -> list[charts.Point]:
    return _ends(rows, key, "estimate")


def _ends(rows: Sequence[Row], first: str, second: str) -> list[charts.Point]:
    return [(float(row[first]), float(row[second])) for row in rows]  # type: ignore[arg-type]


def _grouped(rows: Sequence[Row], *keys: str) -> dict[str, list[Row]]:
    """The rows by what they say under these keys, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(", ".join(str(row[key]) for key in keys), []).append(row)
    return found
