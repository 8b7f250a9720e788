"""The questions of a run, checked: each sensitivity, noise and charge is worked out again from the question itself."""

from choral import config
from choral.record import QUESTIONS, AnsweredQuestion, RunRecord, read_questions
from choral.report.signed import ledger_of
from choral.run.questions import AskTerms

QUESTIONS_HOLD = "every question was asked as the study allows, with the noise that it needs, and was paid for"


def has_questions(record: RunRecord) -> bool:
    """Whether anything was asked."""
    return (record.folder / QUESTIONS).exists()


def check_questions(record: RunRecord) -> list[str]:
    """What is wrong with the register: an l2, a factor or a noise that the question does not have, or no charge."""
    about = record.about
    job = config.parse(about.job, source="the job in run.json")
    terms = AskTerms.of(job, run=about.plan_digest, devices=len(about.devices))
    answered = list(read_questions(record.folder))
    wrong = [line for one in answered for line in _question(terms, one)]
    numbers = [one.number for one in answered]
    if len(set(numbers)) != len(numbers) or len({one.question for one in answered}) != len(answered):
        wrong.append("a question stands twice in the register")
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
