"""The questions that NIST SP 800-226 has for any claim of differential privacy, answered for one run."""

from choral.accounting.words import words_of
from choral.core.exposure import EVERYONE, adjacency_of
from choral.core.plan import Plan
from choral.core.private_sums import RULE
from choral.record import About, Data, RunRecord
from choral.report.words import claims, count, leading_claim, limited_against, small, unprotected


def questions(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """The questions of NIST SP 800-226 to any claim of differential privacy, answered for this run."""
    about, plan, result = record.about, record.about.plan, record.result
    noise = "a seed (predictable: simulation only)" if about.predictable else "a cryptographic source"
    full = sum(device.full and device.planned is not None for device in result.privacy.devices or ()) if result else 0
    much = ""
    if claims(record):
        first = leading_claim(record)
        much = f"{first.figure} at δ = {small(first.delta)}, rule {first.rule}."
    reached = f" One more round would pass the limit of {count(full, 'device')}." if full else ""
    measured = "R²" if about.data.label_bounds else "accuracy"
    return (
        (f"Whose {plan.unit}? (unit of privacy)", _whose(plan)),
        ("How much? (ε, δ)", much or unprotected(record) or "Open until the run has ended."),
        (
            "Against whom? (trust model)",
            f"{EVERYONE[0].upper()}{EVERYONE[1:]}, and whoever holds the model. No trust in the server is needed."
            if about.against == "everyone"
            else f"The limits hold against {limited_against(about)}; the figure against {EVERYONE} is larger.",
        ),
        (
            "By what? (mechanism)",
            f"{_mechanism(about)}. The noise comes from {noise}.",
        ),
        (
            "For how long? (composition)",
            f"Forever: the loss of {_counted(record)} is counted together. "
            f"A device's ledger outlives the run and refuses at its limit.{reached}",
        ),
        (
            "What does it cost? (utility, bias)",
            (
                f"This page shows the {measured} on a hold-out. "
                if result is None or result.test
                else "It was not measured. "
            )
            + "Clipping and noise weigh more on small groups; how good the model is for each group was not measured.",
        ),
        (
            "What else must hold? (security)",
            _masking(about) + " The devices and their keys must be kept safe.",
        ),
        ("What came before? (data)", _collection(about.data)),
    )


def _whose(plan: Plan) -> str:
    return plan.protects.whose.format(adjacency=adjacency_of(plan))


def _masking(about: About) -> str:
    if about.secure_sum is None:
        return "There was no secure sum."
    if not about.secure_sum.self_masked:
        return "The paper's own protocol (Fig. 1): no self masks, a drop-out ends the round, no colluder is counted on."
    if not about.traits.masked:
        return "A deployment masks updates and opens sums only; this simulation left the masks out."
    return "Updates are masked on the device; the server opens sums only."


def _collection(data: Data) -> str:
    declared = f"Origin of the columns: {data.columns_from}. " if data.columns_from else ""
    hold_out = f"Hold-out: {data.hold_out}. " if data.hold_out else ""
    return f"{declared}{hold_out}How the records were collected is outside this report."


def _mechanism(about: About) -> str:
    """What protects a record: in training, or in the sums of a model that is not trained."""
    if about.sums is None:
        return words_of(about.plan).described(about.plan)
    return (
        f"Sums over records of vectors that are cut to a length, with whole-number noise on each device (rule {RULE})"
    )


def _counted(record: RunRecord) -> str:
    sums = record.about.sums
    number, thing = (len(record.rounds), "round") if sums is None else (sums, "sum")
    return f"the one {thing}" if number == 1 else f"all {count(number, thing)}"
