"""What colluding devices change, in plain words: for every number of them what stays hidden, and the ε that is left."""

from choral.core.display import up
from choral.core.plan import SecureSum
from choral.record import RunRecord, Statement
from choral.report.words import claims_of, count, small


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
