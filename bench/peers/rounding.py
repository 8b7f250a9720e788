"""The codec's rounding for machines without `cryptography`, which the codec needs; a test holds the two equal."""

import sys
from types import ModuleType
from typing import Any


def quantise(update: Any, dither: Any, grid: float) -> Any:  # noqa: ANN401
    """The update in steps of the grid, rounded up where the dither lies below the fraction."""
    xp = update.__array_namespace__()
    scaled = update * xp.asarray(1.0 / grid, dtype=update.dtype)
    whole = xp.floor(scaled)
    return whole.astype(xp.int32) + (dither < scaled - whole).astype(xp.int32)


try:
    import choral.secagg.codec  # noqa: F401
except ImportError:
    stand_in = ModuleType("choral.secagg.codec")
    stand_in.quantise = quantise  # type: ignore[attr-defined]
    sys.modules["choral.secagg.codec"] = stand_in
