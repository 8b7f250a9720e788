"""When the devices of a run agree on new keys: before the first round, and whenever one is there that has none."""

from collections import Counter

from choral.backends.wire import Wire
from choral.core.errors import NotReadyError
from choral.core.messages import Turn
from choral.server.findings import Findings

MOST_CALLS = 3  # for one agreement, while too few answer
MOST_AGREEMENTS = 2  # for the sake of one device that then does not agree


class KeyAgreements:
    """The agreements of a run over a wire, which knows who has agreed; `findings` are those of the last one."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.findings = wire, Findings(terms=wire.terms)
        self._left_out: Counter[int] = Counter()  # how often each was there and has not agreed
        self._calls = 0

    def needed(self, here: frozenset[int]) -> bool:
        """Whether somebody here has no keys; who has been left out twice is no reason any more, until a restart."""
        return any(self._left_out[number] < MOST_AGREEMENTS for number in here - self.wire.agreed)

    def make(self, here: frozenset[int], round_number: int) -> None:
        """Let all who are here agree on keys for the rounds from this one on, or CH503 after a few calls."""
        self.findings = Findings(terms=self.wire.terms)
        for call in range(MOST_CALLS):
            self._calls += 1
            try:
                self.wire.agree(Turn(round_number, self._calls), sorted(here))
                break
            except NotReadyError:
                if call == MOST_CALLS - 1:
                    raise
            finally:
                self.findings.add(self.wire.findings)
        self._left_out.update(here - self.wire.agreed)
