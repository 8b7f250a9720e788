"""What a run costs one device, by every rule: proved first, then with the secure sum, then as published."""

from typing import Unpack

from choral.accounting import published
from choral.accounting.groups import EXAMPLE, at_two_sites, of_rows
from choral.accounting.proofs import Exposed, against_everyone, exposed, with_secure_sum
from choral.core.errors import PlanError
from choral.core.events import Gaussian, Zcdp
from choral.core.exposure import Exposure, adjacency_of
from choral.core.zcdp import require_delta
from choral.record import Account, ClaimOfSums, DpSgd, EveryoneClaim, FormulaValue, Proved


def account(*, delta: float, **numbers: Unpack[Exposed]) -> Account:
    """ε of one device's part in a run by every rule, published and proved; `rounds` is the device's own C.

    Needed are rounds, local_steps, cohort, devices, rows, batch, noise, clip and delta. sampling, passes, law, unit,
    rows_per_person, secure_sum, colluders, dropouts, step_size, smoothness and convex have the usual values of a run
    where left out.

    >>> made = account(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.004902, clip=1.0,
    ...                delta=1e-4)
    >>> made.proved.against_everyone.rule, round(made.proved.against_everyone.epsilon, 2)
    ('S5', 8.42)
    >>> made.paper.valid, made.paper.because
    (False, 'the theorem partitions the records into batches; here they are drawn by Poisson sampling')
    """
    delta = require_delta(delta)
    return account_of(exposed(**numbers), delta)


def account_of(part: Exposure, delta: float) -> Account:
    """The value of `account` for an exposure that is already checked."""
    if not 1e-60 < part.noise_multiplier < 1e60:
        raise PlanError(
            "CH200",
            f"noise = {part.noise:g} with clip = {part.clip:g} is out of any useful range.",
            fix="Noise is the standard deviation on the averaged gradient, of the order of clip/batch.",
        )
    everyone, summed = against_everyone(part), with_secure_sum(part)
    event = everyone.event
    mu = event.mu if isinstance(event, Gaussian) else None
    return Account(
        paper=_published(published.theorem_1(part), delta),
        paper_without_secure_sum=_published(published.without_secure_sum(part), delta),
        dp_sgd=DpSgd(
            as_printed=_published(published.dp_sgd_as_printed(part), delta),
            corrected=_published(published.dp_sgd_corrected(part), delta),
        ),
        proved=Proved(
            against_everyone=EveryoneClaim(
                rule=everyone.rule,
                mu=mu,
                rho=event.rho if isinstance(event, Zcdp) else None if mu is None else 0.5 * mu * mu,
                epsilon=everyone.epsilon(delta),
                adversary=everyone.adversary,
                because=everyone.certificate,
            ),
            with_secure_sum=None
            if isinstance(summed, str)
            else ClaimOfSums(
                rule=summed.rule,
                epsilon=summed.epsilon(delta),
                certificate=summed.certificate,
                adversary=summed.adversary,
            ),
            no_certificate=summed if isinstance(summed, str) else None,
        ),
        delta=delta,
        adjacency=adjacency_of(part),
    )


def several_rows(part: Exposure, delta: float, rows: int = EXAMPLE) -> tuple[float, float]:
    """ε for so many rows of one person, and for one row at each of two sites with this exposure, against everyone.

    >>> part = exposed(rounds=4, local_steps=1, cohort=10, devices=16, rows=100, batch=100, noise=0.4, clip=1.0)
    >>> [round(epsilon, 2) for epsilon in (against_everyone(part).epsilon(1e-5), *several_rows(part, 1e-5))]
    [0.34, 1.99, 0.5]
    """
    events = [against_everyone(part).event]
    return of_rows(events, rows, delta), at_two_sites(events, delta)


def _published(figure: published.Published, delta: float) -> FormulaValue:
    return FormulaValue(rho=figure.rho, epsilon=figure.epsilon(delta), valid=figure.valid, because=figure.because)
