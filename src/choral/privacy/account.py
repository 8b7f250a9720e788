"""What a run costs one device, by every rule: proved first, then with the secure sum, then as published."""

from choral.errors import PlanError
from choral.plan import Law, Passes, Sampling
from choral.privacy import published, rules
from choral.privacy.events import Gaussian, Zcdp
from choral.privacy.exposure import Exposure
from choral.privacy.zcdp import require_delta
from choral.record import Account, ClaimOfSums, DpSgd, EveryoneClaim, FormulaValue, Proved


def account(
    *,
    rounds: int,
    local_steps: int,
    cohort: int,
    devices: int,
    rows: int,
    batch: int,
    noise: float,
    clip: float,
    delta: float,
    sampling: Sampling = "poisson",
    passes: Passes = "continue",
    secure_sum: bool = True,
    colluders: int = 0,
    dropouts: int = 0,
    step_size: float | None = None,
    smoothness: float | None = None,
    convex: bool = False,
    law: Law = "gaussian",
) -> Account:
    """ε of one device's part in a run by every rule, published and proved; `rounds` is the device's own C.

    >>> told = account(rounds=13, local_steps=10, cohort=10, devices=16, rows=2440, batch=244, noise=0.004902, clip=1.0,
    ...                delta=1e-4)
    >>> told.proved.against_everyone.rule, round(told.proved.against_everyone.epsilon, 2)
    ('S5', 8.42)
    >>> told.paper.valid, told.paper.because
    (False, 'the theorem partitions the records into batches; here they are drawn by Poisson sampling')
    """
    delta = require_delta(delta)
    part = Exposure(
        rounds=rounds,
        local_steps=local_steps,
        cohort=cohort,
        devices=devices,
        rows=rows,
        batch=batch,
        noise=noise,
        clip=clip,
        sampling=sampling,
        passes=passes,
        secure_sum=secure_sum,
        colluders=colluders,
        dropouts=dropouts,
        step_size=step_size,
        smoothness=smoothness,
        convex=convex,
        law=law,
    )
    return account_of(part, delta)


def account_of(part: Exposure, delta: float) -> Account:
    """The value of `account` for an exposure that is already checked."""
    if not 1e-60 < part.noise_multiplier < 1e60:
        raise PlanError(
            "CH200",
            f"noise = {part.noise:g} with clip = {part.clip:g} is out of any useful range.",
            fix="Noise is the standard deviation on the averaged gradient, of the order of clip/batch.",
        )
    everyone, summed = rules.against_everyone(part), rules.with_secure_sum(part)
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
            if summed is None
            else ClaimOfSums(
                rule=summed.rule,
                epsilon=summed.epsilon(delta),
                certificate=summed.certificate,
                adversary=summed.adversary,
            ),
            no_certificate=rules.why_no_certificate(part) or None,
        ),
        delta=delta,
        adjacency=rules.ADJACENCY,
    )


def _published(figure: published.Published, delta: float) -> FormulaValue:
    return FormulaValue(rho=figure.rho, epsilon=figure.epsilon(delta), valid=figure.valid, because=figure.because)
