"""What a run may ask, by the job in its record, and what that has cost its devices before the first round."""

from choral import config
from choral.record import QUESTIONS, About, AnswerPrivacy, RunRecord, read_run
from choral.run.inquiry import answer_privacy
from choral.run.questions import AskTerms


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
