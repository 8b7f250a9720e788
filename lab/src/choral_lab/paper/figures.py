"""The figures by their names, and what a reader must know of all of them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from choral.core.errors import ConfigError
from choral_lab import research
from choral_lab.paper.adult import HIDDEN, NAMES, NARROW
from choral_lab.paper.convergence import bounds, convergence
from choral_lab.paper.utility import tradeoff, utility

BY_MODEL = {"convergence": convergence, "utility": utility, "tradeoff": tradeoff}
FIGURES: dict[str, Callable[..., research.Found]] = {
    **{f"{name}-{kind}": partial(one, kind) for name, one in BY_MODEL.items() for kind in NAMES},
    "bounds": bounds,
}
SET_UP = (
    "UCI Adult on 16 devices, 10 of them per round, in balance. Lines are means over the repeats, bands one standard "
    "deviation to either side; on logarithmic axes they go from the lowest repeat to the highest."
)
ABOUT_EPSILON = (
    "Every ε is for one record replaced. “As published”, at δ = 1e-4, is the paper's own formula (Theorem 1) against "
    "a server that sees only sums, or, without the secure sum, every update; for several local steps under a secure "
    "sum it is not a guarantee. PROVED against everyone is Rule S5, against the server and all other devices together, "
    "at δ = 1e-5, in accuracy against ε at 1e-4; PROVED with the secure sum, at the same δ, is Rule S7 (noise once) or "
    "Rules S2 and S3, against a server that sees only sums, helped by 2 of the 10 devices. Rule S7 is for convex "
    "losses, so the network has no such line. DP-FedAvg alone, Rule S4, is for one device replaced, against whoever "
    "sees the models."
)


def reproduce(
    name: str, out: Path, *, repeats: int = 5, quick: bool = False, tell: Callable[[str], object] = lambda _: None
) -> research.ResultsFile:
    """Measure one figure, or go on with it; NAME.json, charts and index.html lie in `out` then."""
    if name not in FIGURES:
        raise ConfigError("CH101", f'unknown figure "{name}".', fix=f"Known: {', '.join(FIGURES)}, all.")
    if not 1 <= repeats <= 100:
        raise ConfigError("CH102", f"repeats = {repeats}.", where="choral reproduce", fix="Use 1 to 100.")
    figure, some = partial(FIGURES[name], quick=quick), min(repeats, 2) if quick else repeats
    features = {"hidden": HIDDEN, "bounds": NARROW}
    result = research.measure(name, figure, out, repeats=some, tell=tell, quick=quick, features=features)
    research.write_page(out, list(FIGURES), title="The paper, figure by figure", about=f"{SET_UP} {ABOUT_EPSILON}")
    return result
