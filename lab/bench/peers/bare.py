"""Lets the codec load on a machine without `cryptography`: the engine uses its rounding, and masks cancel in a sum."""

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

if find_spec("cryptography") is None:
    masks: Any = ModuleType("choral.core.masks")
    masks.Stream = masks.Words = masks.ring = object
    sys.modules[masks.__name__] = masks
