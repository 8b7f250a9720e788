"""`python -m docs.drawings` draws every picture of the documentation again.

With `--screens` it takes the screenshots again, and with `--examples` it runs the examples of the gallery first.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.drawings import examples, figures, flows, screens

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
DRAWN: dict[str, Callable[[], str]] = {
    "system": flows.system,
    "round": flows.one_round,
    "deployment": flows.deployment,
    "rules": flows.rules,
    "sight": figures.sight,
    "ledger": figures.ledger,
    "accuracy": figures.accuracy,
    "guesses": figures.guesses,
    **{f"example-{name}": partial(examples.chart, name) for name in examples.NAMES},
}


def drawn() -> dict[Path, str]:
    """Every drawing by the file that holds it."""
    own = {PICTURES / f"{name}.svg": draw() for name, draw in DRAWN.items()}
    return own | {ROOT / "lab/paper" / name: text for name, text in figures.of_the_paper().items()}


if __name__ == "__main__":
    if "--examples" in sys.argv[1:]:
        examples.record()
    for path, text in drawn().items():
        path.write_text(text)
    if "--screens" in sys.argv[1:]:
        screens.take(PICTURES)
