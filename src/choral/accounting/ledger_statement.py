"""The statement of a ledger as a record: what was spent of which limit, by which rules and against whom."""

from choral.core.balance import Balance, shared
from choral.core.exposure import EVERYONE, SUMS
from choral.core.ledger import Ledger
from choral.record import LastEntry, LedgerLimit, LedgerOfSums, LedgerStatement, Reserved, Spent, SpentOnSums

RULE = (
    "every study reserves its uploads before the first of them; what was reserved before the first charge is composed "
    "exactly, every later study as one Gaussian or one ρ"
)
RULE_1 = "the rule of version 1, which is not proved for studies that were chosen after seeing earlier results"


def statement_of(ledger: Ledger) -> LedgerStatement:
    """What was spent of the limit, by which rules and against whom, with every entry and the receipt.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from choral.core.plan import Budget
    >>> with Ledger.open(Path(tempfile.mkdtemp()) / "site-a", limit=Budget(epsilon=1.0, delta=1e-5)) as ledger:
    ...     statement_of(ledger).spent.epsilon
    0.0
    """
    balance, delta = ledger.balance, ledger.limit.delta
    uploads = sum(len(study.uploads) for study in balance.against(EVERYONE).studies)
    return LedgerStatement(
        device=ledger.device,
        limit=LedgerLimit(epsilon=ledger.limit.epsilon, delta=delta),
        by_version_1=balance.by_version_1,
        composed_by=RULE_1 if balance.by_version_1 else RULE,
        reserved=Reserved(epsilon=balance.reserved, uploads=uploads),
        spent=Spent(
            epsilon=balance.epsilon,
            delta=delta,
            rules=rules_of(balance),
            adjacency=adjacency_of_all(balance),
            adversaries=adversaries_of(balance),
        ),
        with_secure_sum=_of_sums(ledger),
        charges=len(balance.charges),
        torn_bytes=ledger.torn,
        receipt=LastEntry(entries=ledger.receipt.entries, seal=ledger.receipt.seal),
        entries=tuple(ledger.entries),
    )


def _of_sums(ledger: Ledger) -> LedgerOfSums | None:
    """What was spent against a server that sees only sums, where that is less, or has a limit."""
    if ledger.sum_epsilon is None and not any(charge.summed for charge in ledger.balance.charges):
        return None
    sums = ledger.balance.against(SUMS)
    spent = SpentOnSums(
        epsilon=sums.spent(), delta=ledger.limit.delta, adjacency=adjacency_of_all(ledger.balance), adversary=SUMS
    )
    return LedgerOfSums(limit=ledger.sum_epsilon, reserved=sums.reserved, spent=spent)


def adversaries_of(balance: Balance) -> tuple[str, ...]:
    """Against whom the charges were computed; ε holds against the one that all of them name."""
    return tuple(dict.fromkeys(charge.adversary for charge in balance.charges)) or (EVERYONE,)


def adjacency_of_all(balance: Balance) -> str:
    """What neighbours differ in for the ε of all charges together."""
    return shared(charge.adjacency for charge in balance.charges)


def rules_of(balance: Balance) -> tuple[str, ...]:
    """The rules of the charges, in the order of their first use."""
    return tuple(dict.fromkeys(charge.rule for charge in balance.charges))


def terms_of(balance: Balance) -> str:
    """What all charges cover together, by which rules and against whom; empty without any.

    >>> from choral.core.plan import Budget
    >>> terms_of(Balance(device="site-a", limit=Budget(epsilon=1.0, delta=1e-5)))
    ''
    """
    if not balance.charges:
        return ""
    rules = rules_of(balance)
    against = " and ".join(adversaries_of(balance))
    return f"{adjacency_of_all(balance)}, rule{'s' * (len(rules) > 1)} {', '.join(rules)}, against {against}"
