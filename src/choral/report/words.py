"""What may be said of a run, in plain words: the label, the statement, the three ε, and what is not covered.

Every ε leaves this module rounded up, and together with its rule, its adjacency and its adversary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from choral import __version__
from choral.accounting.proofs import rules_charged
from choral.accounting.words import in_plain_words, rule_in_words, seen_by, up
from choral.core.exposure import EVERYONE, adjacency_of
from choral.core.plan import Against, Plan, SecureSum
from choral.core.printable import count as count
from choral.planner.prospect import in_words
from choral.record import PAGES, About, Outcome, RunRecord, SpentByDevice, Statement, merit

WRITER = f"{__version__}, form {PAGES}"  # its pages are compared in every character
ALWAYS = (
    "A device's own computer: its operating system, its memory, its data file.",
    "Who takes part and when, and the sizes that the plan makes public.",
    "Declared column ranges, category lists and labels: they are public by design.",
    "What is true of many people alike: the model may teach facts about a group to which a person belongs.",
    "Poisoned updates: masks hide them as they hide honest ones; range checks bound them.",
)
_MOST_NAMED, _LONGEST_CLASS = 6, 24  # devices or classes in one sentence, and the letters of a class there
_LOW_BITS = "Low bits of floating-point noise, a leak in theory, unless the plan asks for whole-number noise."


@dataclass(frozen=True, kw_only=True)
class ShownClaim:
    """One of the three ε, with all that must be shown with it; `epsilon` is None where nothing can be claimed."""

    title: str
    epsilon: float | None
    delta: float
    standing: str
    guarantee: bool
    rule: str
    adjacency: str
    adversary: str

    @property
    def figure(self) -> str:
        """The number: a bound where it is a guarantee, an equation where it is a formula's value."""
        if self.epsilon is None:
            return "none"
        return f"ε\xa0{'≤' if self.guarantee else '='}\xa0{up(self.epsilon)}"

    @property
    def terms(self) -> str:
        """Everything without which the number means nothing."""
        return f"δ = {small(self.delta)}, {self.adjacency}, against {self.adversary}, rule {self.rule}"


def small(value: float) -> str:
    """A δ as people write it.

    >>> small(1e-5), small(0.00025)
    ('1e-5', '2.5e-4')
    """
    return f"{value:.2g}" if value >= 0.001 else f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")


def percent(share: float) -> str:
    """A share as a percentage with one decimal, which reaches 100 only when it is.

    >>> percent(0.8808), percent(0.99999)
    ('88.1 %', '99.9 %')
    """
    return f"{min(round(100 * share, 1), 100.0 if share >= 1 else 99.9):g} %"


def guess(epsilon: float, delta: float) -> float:
    """How often the best guess between two equally likely records can be right: (e^ε + δ)/(1 + e^ε).

    >>> round(guess(0.0, 0.0), 3), round(guess(2.0, 1e-5), 3)
    (0.5, 0.881)
    """
    return 1 - (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))


def label(record: RunRecord) -> tuple[str, str]:
    """What kind of run this is, and what that means for its ε."""
    if record.about.predictable:
        return "SIMULATION", (
            "Its noise came from a seed and can be computed again. Every ε here describes the mechanism, not this run: "
            "nobody's data is protected by it, and the model must not be released on its strength."
        )
    if record.about.traits.deployed:
        return "DEPLOYMENT", (
            "Every device ran at its own site, with its own keys, noise and ledger, and no row left it. This page is "
            "the view of the server: ε is the most that a device can have lost by what the server was sent. What a "
            "device has spent in all is in its own ledger, which stays with it."
        )
    return "REHEARSAL", (
        "Real keys, real masks and unpredictable noise, but every device ran in one process on one machine: "
        "whoever ran it held all the data."
    )


def ledger_rules(about: About) -> str:
    """The rules by which the devices' ledgers charge for a round, each with what it counts."""
    rules = rules_charged(about.plan, (device.rows for device in about.devices))
    return ", and ".join(map(rule_in_words, rules))


def limited_against(about: About) -> str:
    """Whom the devices' limits hold against."""
    return EVERYONE if about.secure_sum is None else seen_by(about.plan, about.secure_sum, about.against)


def not_covered(plan: Plan) -> tuple[str, ...]:
    """What no ε of a run speaks of."""
    return (*ALWAYS, _LOW_BITS) if plan.gaussian else ALWAYS


def claims(record: RunRecord) -> tuple[ShownClaim, ...]:
    """The three ε in their fixed order; none before the run has ended, and none without noise."""
    if record.result is None or unprotected(record):
        return ()
    return claims_of(record.result.privacy)


def leading_claim(record: RunRecord) -> ShownClaim:
    """The ε that has to stay within the limits, of a run that has ended with some protection."""
    return leading_of(claims(record), record.about.against)


def leading_of(claims: Sequence[ShownClaim], against: Against) -> ShownClaim:
    """Of the three ε the one that has to stay within the limits."""
    everyone, summed, _ = claims
    return everyone if against == "everyone" or not summed.guarantee else summed


def claims_of(privacy: Statement) -> tuple[ShownClaim, ...]:
    """The three ε of a privacy statement, of what was spent or of what is planned."""
    adjacency, delta = privacy.adjacency, privacy.delta
    everyone, summed, published = privacy.against_everyone, privacy.with_secure_sum, privacy.published
    first = ShownClaim(
        title="Against everyone",
        epsilon=everyone.epsilon,
        delta=delta,
        standing="proved; the largest of all devices",
        guarantee=True,
        rule=rule_in_words(everyone.rule),
        adjacency=adjacency,
        adversary=everyone.adversary,
    )
    second = ShownClaim(
        title="With the secure sum",
        epsilon=summed.epsilon if summed else None,
        delta=delta,
        standing=f"proved; certificate: {in_plain_words(summed.certificate)}"
        if summed
        else _no_extra(privacy.no_certificate),
        guarantee=summed is not None,
        rule=rule_in_words(summed.rule) if summed else "none applies",
        adjacency=adjacency,
        adversary=f"{summed.adversary}, {count(summed.colluders, 'colluder')}" if summed else EVERYONE,
    )
    third = ShownClaim(
        title="Published, Theorem 1",
        epsilon=published.epsilon,
        delta=delta,
        standing="valid here: " + in_plain_words(published.because)
        if published.valid
        else "published formula, not a guarantee here: " + in_plain_words(published.because),
        guarantee=published.valid,
        rule=published.rule,
        adjacency=adjacency,
        adversary="a curious server, nobody colluding",
    )
    return first, second, third


def _no_extra(reason: str | None) -> str:
    return "no provable extra protection here" + (f": {in_plain_words(reason)}" if reason else "")


def unprotected(record: RunRecord) -> str:
    """Why nothing at all is protected, where that is so: a run without noise."""
    return (record.result.privacy.none or "") if record.result else ""


def when(time: str) -> str:
    """A point in time as people write it.

    >>> when("2026-11-15T10:00:00+00:00")
    '2026-11-15 10:00:00 UTC'
    """
    return time.replace("T", " ").removesuffix("Z").removesuffix("+00:00") + " UTC"


def goodness(test: dict[str, float], digits: int = 3) -> str:
    """How good a model is on the hold-out, in one figure; of numbers the root mean squared error in their unit too.

    >>> goodness({"accuracy": 0.84, "loss": 0.3}), goodness({"r2": 0.5, "rmse": 4321.6, "loss": 0.1})
    ('accuracy 0.840', 'R² 0.500, RMSE 4,322')
    """
    if not test:
        return "not measured"
    name, value = merit(test)
    return f"{name} {value:.{digits}f}" + (f", RMSE {test['rmse']:,.4g}" if "rmse" in test else "")


def measured(result: Outcome) -> str:
    """The test figures with what says how sure they are, and what each class gets of the model."""
    test, found = result.test, result.measured
    if not test or found is None:
        return ""
    figures = [goodness(test) + (f" ± {found.error:.3f} (one standard error)" if found.error is not None else "")]
    figures += [f"AUC {test['auc']:.3f}"] if "auc" in test else []
    recalls = [f"{name[:_LONGEST_CLASS]} {value:.2f}" for name, value in found.recall.items()]
    more = ["…"] * (len(recalls) > _MOST_NAMED)
    figures += [f"recall {', '.join(recalls[:_MOST_NAMED] + more)}"] if recalls else []
    joined = f" {in_words(result.verdict)}" if result.verdict else ""
    return f"On {count(found.rows, 'row')} that nobody trained on: {'; '.join(figures)}.{joined}"


def statement(record: RunRecord) -> tuple[str, ...]:
    """The statement that an officer signs: whose record, against whom, how much, for how long."""
    about, plan = record.about, record.about.plan
    done = len(record.rounds)
    least = "at least " if about.traits.deployed else ""  # how many exactly, only the sites know
    counted = count(about.records, plan.protects.counted)
    what = (
        f"{label(record)[0].capitalize()}: a {about.model.kind} model was trained on {least}"
        f"{counted} that stayed on {count(plan.devices, 'device')}, "
        f"in {count(done, 'round')} of {plan.rounds:,} planned."
    )
    if about.sums is not None:
        what = (
            f"{label(record)[0].capitalize()}: the model, of the kind {about.model.kind}, is made from "
            f"{count(about.sums, 'sum')} over {counted} that stayed on {count(plan.devices, 'device')}; nothing was "
            "trained."
        )
    if record.result is None:
        return what, (
            "The run has not ended. No ε may be quoted for it yet; what each device has spent so far stands in its "
            "ledger, and below."
        )
    if nothing := unprotected(record):
        return what, f"{nothing[0].upper()}{nothing[1:]}. Whoever sees what left the devices may learn any record."
    first = leading_claim(record)
    promise = promised(plan, first, claims(record)[0], predictable=about.predictable)
    meaning = in_guesses(plan, first, predictable=about.predictable)
    if (running := record.result.privacy.running) is not None:
        meaning += (
            f" The run was stopped by choice, so this is the figure of all rounds that plan and limits allow. For the "
            f"rounds that were done it would be ε\xa0≤\xa0{up(running.epsilon)}, which holds {running.holds}."
        )
    if above := len(_above(record)):
        meaning += (
            f" This bound of the server also counts attempts that failed, so it is above the limit of "
            f"{count(above, 'device')}; no ledger passes its own limit (see \u201cBudget of each device\u201d)."
        )
    return what, promise, meaning


def promised(plan: Plan, first: ShownClaim, everyone: ShownClaim, *, predictable: bool) -> str:
    """Whose record is protected against whom, and by how much; `first` is the claim that the limits hold for."""
    rule, _, _ = first.rule.partition(":")  # its words stand with the figure above
    protected = "would be protected, if its noise were unpredictable," if predictable else "is protected"
    promise = (
        f"Each {plan.unit} {protected} against {first.adversary}, whatever else they know, by (ε,\xa0δ)\xa0=\xa0"
        f"({up(first.epsilon or 0.0)},\xa0{small(first.delta)}) for {first.adjacency} (rule {rule})."
    )
    if first != everyone:
        promise += (
            f" This trusts the secure sum: against {everyone.adversary}, ε\xa0≤\xa0{up(everyone.epsilon or 0.0)} "
            f"(rule {everyone.rule})."
        )
    return promise


def in_guesses(plan: Plan, claim: ShownClaim, *, predictable: bool) -> str:
    """What the figure of a claim means for somebody who guesses."""
    verb = "would be" if predictable else "is"
    chance = percent(guess(claim.epsilon or 0.0, claim.delta))
    return (
        f"In plain words: whoever must say which of two equally likely {plan.protects.guessed}, and sees "
        f"everything that left the devices, {verb} right at most {chance} of the time, instead of 50\xa0%."
    )


def guessed_right(plan: Plan, right: int, *, predictable: bool) -> str:
    """The caption of the picture: of a hundred guesses, those right by chance and the most that can be right."""
    verb = "would be" if predictable else "are"
    return (
        f"Somebody guesses 100 times which of two equally likely {plan.protects.guessed}. 50 guesses are "
        "right by chance (circles). With everything that left the devices, "
        f"at most {right} {verb} right (squares added)."
    )


def can_be_signed(record: RunRecord) -> bool:
    """Whether there is anything for an officer to accept: a run that has ended, with noise that nobody can predict."""
    return record.result is not None and not record.about.predictable


def signed_before(record: RunRecord) -> str:
    """What the privacy officer confirms by signing, and by when."""
    if record.result is None:
        return "There is nothing to sign before the run has ended."
    if record.about.predictable:
        return "There is nothing to sign: a simulation protects nobody, and its model is not to be released."
    return (
        "The privacy officer signs before the model is released or used, and confirms: \u201cI have read the statement "
        "and what it does not cover, and choral verify RUN ended with 0.\u201d"
    )


def of_several(privacy: Statement) -> tuple[str, ...]:
    """What several rows of one person cost, as a sentence; none where the unit is larger than a record."""
    if (several := privacy.several) is None:
        return ()
    terms = f"δ = {small(privacy.delta)}, rule {privacy.against_everyone.rule}, {privacy.against_everyone.adversary}"

    def at_most(epsilon: float | None) -> str:
        return "nothing is proved" if epsilon is None else f"at most ε\xa0=\xa0{up(epsilon)} is lost"

    return (
        f"Rows are counted, not persons. For a person with {count(several.rows, 'row')} at one site, all of them "
        f"replaced, {at_most(several.epsilon)}; for one row at each of two such sites, both replaced, "
        f"{at_most(several.at_two_sites)} ({terms}).",
    )


def _above(record: RunRecord) -> list[SpentByDevice]:
    """The devices whose figure, as the server bounds it, is above their limit."""
    return [device for device in (record.result.privacy.devices or ()) if device.above] if record.result else []


def above_limits(record: RunRecord) -> str:
    """Why a server shows a figure above a device's limit, where it does: what it counts is a bound, not a ledger."""
    if not (above := _above(record)):
        return ""
    retried = sum(device.retried for device in above)
    return (
        f"A figure above a limit, here of {count(len(above), 'device')}, is an upper bound of the server, and not what "
        "a site has spent: the server counts every upload that it was sent or may have been sent, at the number of "
        f"rows that the plan names; {count(retried, 'upload')} of them went into attempts that failed. A site with "
        "more rows spends less, and its own ledger refuses every upload that would pass the limit that the site has "
        "set."
    )


def budget_terms(record: RunRecord) -> str:
    """What the words in the table of budgets mean, and why a figure in it is above a limit, where one is."""
    devices = (record.result.privacy.devices or ()) if record.result else ()
    meant = ["Retried: paid for in an attempt that failed."] * any(device.retried for device in devices)
    if any(device.full and device.planned is not None for device in devices):
        known = ", by its own ledger" if record.about.traits.deployed else ""
        meant.append(f"Full: one more round would pass the limit{known}.")
    return " ".join([*meant, above_limits(record)]).rstrip()


def server_sees(secure: SecureSum | None, plan: Plan | None = None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the server can see of a round, and what it can't.

    >>> server_sees(SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2))[0][-1]
    'the noisy sum of at least 8 devices'
    """
    always = ("which devices are asked and which answer", "the plan, and the size of a message")
    if secure is None:
        return (*always, "each device's noisy update by itself"), ("any record, or an update without its noise",)
    can = (*always, f"the noisy sum of at least {count(secure.smallest_sum, 'device')}")
    if plan is not None and plan.probes:
        shown = (
            f"{count(plan.probes, 'random projection')} of each device's noisy update, and up to four along the common "
            "direction and single devices' earlier updates"
        )
        opened = f"each device's whole noisy update in at most {plan.opened_turns} opened turns"
        return (*can, shown, opened), ("any record, or an update without its noise",)
    return can, (
        "any single device's update",
        "any record, or a sum without its noise",
        "the masks of a pair of devices",
    )


def who_signed(record: RunRecord) -> str:
    """Who signed the end of the run, what the signatures cover, and who has not signed."""
    if record.signatures is None:
        return "Nobody signed this run."
    entries = record.signatures.devices
    signed = [entry.device for entry in entries if entry.signature]
    covers = "the whole record" if record.signatures.version > 1 else "the plan, the model and its ledger, no more"
    said = f"{len(signed):,} of {count(len(entries), 'device')} signed {covers}"
    missing = [f"{entry.device} ({entry.why})" for entry in entries if not entry.signature]
    if not missing:
        return f"{said}."
    more = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
    return (
        f"{said}: {', '.join(signed[:_MOST_NAMED]) or 'nobody'}. Not signed: {', '.join(missing[:_MOST_NAMED])}{more}."
    )


def spent_so_far(record: RunRecord) -> str:
    """The largest ε of a device in a run under way, with its terms, as a sentence to add."""
    last = record.rounds[-1].spent if record.rounds and record.result is None else None
    if not last:
        return ""
    terms = f"δ = {small(record.about.delta)}, {adjacency_of(record.about.plan)}, rule {ledger_rules(record.about)}"
    against = limited_against(record.about)
    return f" Spent so far: ε\xa0≤\xa0{up(max(last))} against {against} ({terms}; holds if nobody stops by results)."


def honest_devices(secure: SecureSum, colluders: int) -> int:
    """The honest devices that are certainly in any sum that the plan's adversary can open, with so many colluding.

    >>> secure = SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2)
    >>> honest_devices(secure, 2), honest_devices(secure, 3)
    (4, 3)
    """
    planned = secure.honest_noises(secure.adversary)
    return max(planned + secure.colluders - colluders, 0)  # every colluder takes one noise away


def by_colluders(record: RunRecord) -> tuple[tuple[int, float | None, str], ...]:
    """For every number of colluders: the proved ε, or the planned one before the end, and a sentence with its terms."""
    secure, privacy = record.about.secure_sum, _statement_of(record)
    if secure is None:
        return ()
    known = dict(privacy.by_colluders) if privacy else {}
    return tuple(
        (c, known.get(c), _with_colluders(record, secure, c, known.get(c)))
        for c in sorted(known) or range(secure.cohort)
    )


def _statement_of(record: RunRecord) -> Statement | None:
    """What was spent, or before the end what is planned at most; nothing where there is no noise."""
    privacy = record.result.privacy if record.result else record.about.planned
    return None if privacy is None or privacy.none is not None else privacy


def _with_colluders(record: RunRecord, secure: SecureSum, colluders: int, epsilon: float | None) -> str:
    honest = honest_devices(secure, colluders)
    server = f"a {secure.adversary} server"
    opened = (
        f"every sum that {server} can open holds at least {count(honest, 'honest device')}"
        if honest > 1
        else f"the secure sum no longer hides a single device from {server}"
    )
    privacy = _statement_of(record)
    if privacy is None:
        return f"With {count(colluders, 'colluder')} {opened}."
    everyone, summed = claims_of(privacy)[:2]
    if epsilon is None or summed.epsilon is None:
        held = f"{everyone.figure} holds" if record.result else f"The plan ends at {everyone.figure}"
        return f"With {count(colluders, 'colluder')} {opened}: no provable extra protection. {held} ({everyone.terms})."
    terms = f"δ = {small(summed.delta)}, {summed.adjacency}, rule {summed.rule}"
    planned = "" if record.result else "the plan ends at "
    return f"With {count(colluders, 'colluder')} {opened}: {planned}ε\xa0≤\xa0{up(epsilon)} ({terms})."
