"""The questions of a run on its page, and checked: each noise and charge is computed again from the question."""

import math

from choral.asking.catalogue import ROUNDS, estimate, read_model
from choral.asking.question import Question
from choral.core.display import up
from choral.core.errors import TableError
from choral.core.printable import number_of
from choral.record import About, AnsweredQuestion, RunRecord, read_questions, read_run, read_sum_models
from choral.report import answers, parts
from choral.report.asked_terms import price_of, terms_of
from choral.report.markup import Markup, element, together
from choral.report.signed import ledger_of
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
            parts.short(one.words, 200),
            f"{number_of(len(one.included), 'device')}, {number_of(one.rows, 'row')}",
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
    listed = (
        [parts.table(("number", "question", "asked of", "noise (sd)", "sampling (sd), at most"), rows)] if rows else []
    )
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
    heading = element("h3", f"{one.number}. {parts.short(one.words, 200)}")
    try:
        answer = estimate(question, terms.columns, opened.total, rows=opened.rows, deviation=opened.deviation)  # type: ignore[arg-type]
    except TableError as error:
        return together(heading, element("p", str(error)))
    return together(heading, answers.shown(question.name, answer))


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
            f"{number_of(loss.sums, 'sum')}, ε ≤ {up(loss.epsilon, 4)} against {loss.adversary}, and "
            f"ε ≤ {up(loss.epsilon_sum, 4)} against {loss.adversary_sum} (rule {loss.rule}, δ = {delta:g}, "
            f"{loss.adjacency}).{figures}"
        )
        effects = answers.shown(question.name, made.model.effects)
        found.append(together(element("h3", parts.short(line.words, 200)), element("p", cost), effects))
    return found


def asked_so_far(record: RunRecord, device: int | None = None) -> Markup:
    """The questions of a run as they come, the latest first; those of one device, where it has a number."""
    answered = list(read_questions(record.folder))
    listed = [
        element("li", f"{one.number}: {parts.short(one.words, 120)} ({number_of(one.rows, 'row')})")
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
            wrong.append(f"the model of {number_of(len(line.numbers), 'sum')} does not follow from the register")
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
