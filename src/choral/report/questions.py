"""The questions of a run on its page, and checked: each noise and charge is worked out again from the question."""

import math

from choral import config
from choral.asking.models import read_model
from choral.asking.question import Question
from choral.privacy.display import up
from choral.record import QUESTIONS, AnsweredQuestion, RunRecord, read_questions, read_run, read_sum_models
from choral.report import parts
from choral.report.markup import Markup, element, together
from choral.report.signed import ledger_of
from choral.run.inquiry import answer_privacy
from choral.run.modelling import from_register
from choral.run.questions import AskTerms
from choral.run.register import Register

MOST_SHOWN = 200  # questions on a page
QUESTIONS_HOLD = "every question was asked as the study allows, with the noise that it needs, and was paid for"


def has_questions(record: RunRecord) -> bool:
    """Whether anything was asked."""
    return (record.folder / QUESTIONS).exists()


def asked_questions(record: RunRecord) -> Markup:
    """Every question that was answered, with its noise and what it cost."""
    about = read_run(record.folder).about  # a page's own record has long texts cut, and the job is one
    delta = about.delta
    job = config.parse(about.job, source="the job in run.json")
    terms = AskTerms.of(job, run=about.plan_digest, devices=len(about.devices))
    told = answer_privacy(terms.price, delta=delta, colluders=terms.secure.colluders, asked=0)
    answered = list(read_questions(record.folder))
    rows = [
        [
            str(one.number),
            parts.short(one.words, 200),
            f"{len(one.included)} devices, {one.rows:,} rows",
            f"{one.scale * math.sqrt(len(one.included)) / one.factor:.4g}",
        ]
        for one in answered[:MOST_SHOWN]
    ]
    cost = (
        f"Each question costs ε ≤ {up(told.epsilon, 4)} against {told.adversary}, and ε ≤ {up(told.epsilon_sum, 4)} "
        f"against {told.adversary_sum}; all {told.most} that may be asked cost ε ≤ {up(told.epsilon_in_all)} and "
        f"ε ≤ {up(told.epsilon_sum_in_all)} (rule {told.rule}, δ = {delta:g}, {told.adjacency}). The statement above "
        f"contains them. {told.most - len(answered)} of {told.most} were not answered."
    )
    return together(parts.table(("number", "question", "asked of", "noise (sd)"), rows), element("p", cost))


def check_questions(record: RunRecord) -> list[str]:
    """What is wrong with the register: an l2, a factor or a noise that the question does not have, or no charge."""
    about = record.about
    job = config.parse(about.job, source="the job in run.json")
    terms = AskTerms.of(job, run=about.plan_digest, devices=len(about.devices))
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
    """What is wrong with the models on sums: each is worked out again from the register, state by state."""
    register, wrong = Register(record.folder), list[str]()
    for line in read_sum_models(record.folder):
        question = Question.read(line.question.encode())
        made = from_register(read_model(question, terms.columns), terms, register)
        numbers = () if made is None else tuple(one.number for one in made.sums)
        if made is None or list(line.state) != made.model.state.tolist() or line.numbers != numbers:
            wrong.append(f"the model of {len(line.numbers)} sums does not follow from the register")
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
