"""The server's half of an agreement on keys: it carries offers and ciphertexts, and learns nothing from them."""

from collections.abc import Iterable

from choral.core.errors import ChoralError, NotReadyError
from choral.core.keys import KEY_SIZE, SEED_SIZE, WRAPPED_SIZE, HybridKey, require_available
from choral.core.messages import (
    Agreed,
    Gather,
    Message,
    Offer,
    Offers,
    Refusal,
    Turn,
    Vector,
    Wrapped,
    Wraps,
    encode,
    pack,
    unpack_for,
)
from choral.core.signed import offer_fields
from choral.core.terms import Terms
from choral.server.findings import Findings
from choral.server.round import read, where


class KeyRound:
    """Three exchanges after which those in `agreed` share chains of keys; who is silent in one is not in the next.

    A later turn's cohort must be among them.
    """

    def __init__(self, terms: Terms, turn: Turn, called: Iterable[int]) -> None:
        require_available()  # here, and not by blaming the devices for keys that this machine can't check
        self.terms, self.turn = terms, turn
        self.findings = Findings(terms=terms)
        self.agreed: frozenset[int] | None = None
        self._asked: type[Offer | Wrapped | Agreed] = Offer
        self._answers: dict[int, Offer | Wrapped | Agreed] = {}
        self._outbox = {number: encode(Gather(turn=turn, terms=terms.digest)) for number in sorted(set(called))}
        self._offers: dict[int, bytes] = {}

    def outbox(self) -> dict[int, bytes]:
        """Give what the next exchange sends to whom."""
        return self._outbox

    def receive(self, sender: int, frame: Vector) -> None:
        """Note one answer; what is no answer to this exchange counts as silence."""
        try:
            message = read(self.terms, sender, frame)[0]
            self._note(sender, message)
        except ChoralError as error:
            self.findings.fault(sender, error.code)

    def _note(self, sender: int, message: Message) -> None:
        if message.turn != self.turn or sender not in self._outbox:
            return
        if isinstance(message, Refusal):
            self.findings.refuse(sender, message)
        elif isinstance(message, self._asked):
            if isinstance(message, Offer):
                fields = offer_fields(self.terms.digest, self.turn, message.key)
                self.terms.whole.bundles[sender].check(message.signature, *fields)
                check_public(message.key)  # or every other device would refuse the agreement for its sake
            elif isinstance(message, Wrapped):
                unpack_for(message.ciphertexts, WRAPPED_SIZE, {one for one in self._offers if one > sender})
            self._answers.setdefault(sender, message)

    def advance(self) -> None:
        """Go on with those who have answered, or CH503 if they are too few; nobody is charged for an agreement."""
        answers, self._answers = self._answers, {}
        needed = self.terms.secure.smallest_sum
        if len(answers) < needed:
            raise NotReadyError(
                "CH503",
                f"{len(answers)} of {len(self._outbox)} devices agree on keys, {needed} needed;"
                f" nothing was sent and nobody is charged{self.findings}.",
                where=where(self.turn),
                fix="Wait for more devices, or call others.",
            )
        if self._asked is Agreed:
            self.agreed, self._outbox = frozenset(answers), {}
        elif self._asked is Offer:
            self._show_offers(answers)
        else:
            self._hand_over(answers)

    def _show_offers(self, answers: dict[int, Offer | Wrapped | Agreed]) -> None:
        self._offers = {
            number: answer.key + answer.signature for number, answer in answers.items() if isinstance(answer, Offer)
        }
        shown = encode(Offers(turn=self.turn, offers=pack(self._offers)))
        self._asked, self._outbox = Wrapped, dict.fromkeys(sorted(self._offers), shown)

    def _hand_over(self, answers: dict[int, Offer | Wrapped | Agreed]) -> None:
        made = {
            number: unpack_for(answer.ciphertexts, WRAPPED_SIZE, {one for one in self._offers if one > number})
            for number, answer in answers.items()
            if isinstance(answer, Wrapped)
        }
        self._asked = Agreed
        self._outbox = {
            number: encode(
                Wraps(turn=self.turn, ciphertexts=pack({one: made[one][number] for one in made if one < number}))
            )
            for number in sorted(made)
        }


def check_public(key: bytes) -> None:
    """Raise CH613 for what no honest device offers.

    >>> check_public(HybridKey.fresh().public)
    """
    tried = HybridKey(bytes(KEY_SIZE + SEED_SIZE))  # nothing secret: only whether the key can be used
    tried.wrap(key)
    tried.shared(key)
