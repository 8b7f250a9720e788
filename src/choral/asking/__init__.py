"""Questions as sums over rows: what each one adds up, how far one row can move it, and what the sum says.

Each kind of question is its own module, which is loaded where such a question is asked.
"""

from typing import NamedTuple


class UsualSums(NamedTuple):
    """The sums that a model takes which a study names as its own, where nobody says, and the settings it needs."""

    before: int  # the first round
    rounds: int
    rounds_against_everyone: int
    needs: tuple[str, ...] = ()


# The models that a study may have in place of one that is trained: [model] kind. Their numbers were chosen once.
IN_PLACE_OF_TRAINING = {
    "additive": UsualSums(1, 40, 20),  # where each device has the noise for its own answer, fewer rounds learn more
    "hazard": UsualSums(1 + 3, 8, 8, needs=("time",)),
}
