"""What a device is willing to lose."""

from dataclasses import dataclass

from choral.core.plan.checks import hold_plain_numbers, require_number


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a device is willing to lose in all: (ε, δ) for the replacement of one record.

    >>> Budget(epsilon=2.0, delta=1e-5).epsilon
    2.0
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_number("epsilon", self.epsilon)
        require_number("delta", self.delta, below=1.0)
