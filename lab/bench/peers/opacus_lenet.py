"""Opacus on a LeNet-like network of 28 × 28 images, a loop over the cohort, as lean as `opacus`: `hooks` or `ghost`."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

from bench.peers.nets import lenet
from bench.peers.opacus import prepare_lean
from bench.worker import serve


def prepare(values: dict[str, Any]) -> Callable[[int], Any]:
    warnings.simplefilter("ignore")  # Opacus warns that its noise is not cryptographic; here it is timed, not used
    ghost = len(sys.argv) > 1 and sys.argv[1] == "ghost"
    return prepare_lean(values, ghost=ghost, make=lambda _: lenet(), shape=(1, 28, 28))


if __name__ == "__main__":
    serve(prepare)
