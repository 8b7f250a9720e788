"""Rule S3: how little of a record's signal must show in a round's sum, by shifted iterates.

A record's effect may be taken back step by step, each part against its own step's noise; what remains meets the
noise of all honest devices in the last. Costs are in units of (2G/γσ)², so that μ² of a round is cost × (2G/γσ)².
"""

import math
from collections.abc import Collection

from choral.core.errors import PlanError
from choral.core.plan import require_number, require_whole


def least_cost(used: Collection[int], *, steps: int, honest_noises: float, lipschitz: float = 1.0) -> float:
    """min Σ a_t²/v_t over the shifts of Rule S3, for a record used at these steps (1 to τ).

    In the variables S_t = Σ uses·c^(τ−t) over x_t = Σ v_t·c^(2(τ−t)) the best B ≤ S with B_τ = S_τ is the greatest
    convex minorant: adjacent steps whose slopes fall are pooled.

    >>> least_cost([5, 10], steps=10, honest_noises=10)  # k = 2, E = 5: k²/((k−1)E + r)
    0.26666666666666666
    """
    require_whole("steps", steps)
    require_number("lipschitz", lipschitz)
    if steps * abs(math.log(lipschitz)) > 300:
        raise PlanError(
            "CH204",
            f"{steps} steps that each stretch by {lipschitz:g} leave the range of numbers.",
            fix="Use a smaller step size, or fewer local steps.",
        )
    pools: list[tuple[float, float]] = []  # (signal, width), slopes increasing
    for step in range(1, steps + 1):
        scale = lipschitz ** (steps - step)
        signal = scale if step in used else 0.0
        width = scale * scale * (honest_noises if step == steps else 1.0)
        while pools and pools[-1][0] * width >= signal * pools[-1][1]:
            before = pools.pop()
            signal, width = signal + before[0], width + before[1]
        pools.append((signal, width))
    return math.fsum(signal * signal / width for signal, width in pools)


def worst_cost(*, steps: int, batches_per_pass: int, honest_noises: int, lipschitz: float) -> float:
    """The cost of the worst place that a record can have in each pass of a round that starts with a fresh pass.

    >>> worst_cost(steps=10, batches_per_pass=5, honest_noises=10, lipschitz=1.0)
    0.26666666666666666
    """
    passes, rest = divmod(steps, batches_per_pass)
    uses = passes + (rest > 0)
    if lipschitz <= 1:
        if rest == 0:
            return closed_form(passes, batches_per_pass, honest_noises)
        # The later a use, the fewer steps are left to hide it: the worst record comes last in every pass.
        last = {batches_per_pass * (turn + 1) for turn in range(passes)} | {steps}
        return least_cost(last, steps=steps, honest_noises=honest_noises)
    # An early signal may be amplified: all uses but the last are paid at once, the last one over the steps that follow.
    stretched = lipschitz * lipschitz
    return uses - 1 + 1 / min(honest_noises, stretched / (stretched - 1))


def closed_form(passes: int, batches_per_pass: int, honest_noises: float) -> float:
    """The worst cost of whole passes of non-expansive steps (Rule S3, c ≤ 1).

    >>> closed_form(1, 10, 8), closed_form(2, 4, 8)
    (0.125, 0.3333333333333333)
    """
    if honest_noises >= batches_per_pass:
        return passes * passes / ((passes - 1) * batches_per_pass + honest_noises)
    return (passes - 1) / batches_per_pass + 1 / honest_noises
