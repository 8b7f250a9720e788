"""The log-rank test on noisy cells, whose variance includes the noise."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

Matrix = NDArray[np.float64]
CLEAR = 3.0  # deviations of the noise above which rows at risk are distinguished from 0


def logrank(arms: Sequence[tuple[Matrix, Matrix]], cells: Matrix, deviation: float) -> dict[str, float]:
    """The statistic, its degrees of freedom and its p: U'(V + σ²JJ')⁻¹U.

    An arm is two matrices: the rows at risk and the events of each bin, as functions of the cells. Both go into J.
    U = Σ (events − expected events) of all arms except the last one.
    """
    risk, event = np.stack([arm[0] for arm in arms]), np.stack([arm[1] for arm in arms])
    all_risk, all_event = risk.sum(axis=0), event.sum(axis=0)
    n, d = all_risk @ cells, all_event @ cells
    clear = (n > CLEAR * deviation * np.linalg.norm(all_risk, axis=1)) & (n >= 2)
    used = slice(0, int(np.argmin(clear)) if not clear.all() else len(clear))
    risk, event, all_risk, all_event = risk[:-1, used], event[:-1, used], all_risk[used], all_event[used]
    n, d = n[used], d[used]
    share = np.clip(risk @ cells / n, 0.0, 1.0)  # (arm, bin)
    score = (event @ cells - share * d).sum(axis=1)
    weight = np.clip(d, 0.0, n) * np.clip(n - d, 0.0, n) / np.maximum(n - 1, 1)
    variance = np.diag((share * weight).sum(axis=1)) - (share * weight) @ share.T
    jacobian = (
        event - (d / n)[:, None] * risk - share[..., None] * all_event + (share * d / n)[..., None] * all_risk
    ).sum(axis=1)
    whole = variance + deviation**2 * jacobian @ jacobian.T
    statistic = float(score @ np.linalg.pinv(whole, hermitian=True) @ score)
    degrees = len(score)
    return {"statistic": statistic, "degrees": float(degrees), "p": float(gammaincc(degrees / 2, statistic / 2))}
