"""A device that answers questions: each has its own terms, so that no mask of one question fits another."""

from collections.abc import Callable
from dataclasses import dataclass

from choral.core.codec import Codec
from choral.core.device import Charger, Check, Device, Encode, Payable, Train
from choral.core.errors import ChoralError
from choral.core.keys import Identity
from choral.core.messages import Call, Inquire, Turn, Vector, decode, encode
from choral.core.plan import SecureSum
from choral.core.signed import signed_refusal
from choral.core.terms import Terms, refused
from choral.core.vault import Vault


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """How a device will answer a question that it has checked: nothing is charged and no row is read before OMEGA."""

    secure: SecureSum
    codec: Codec
    length: int
    train: Train  # reads the table
    encode: Encode  # adds the noise
    charge: Charger
    payable: Payable
    state: int = 0  # the numbers of the public state that the question is asked at
    check: Check | None = None  # of that state, before anything is charged


# Checks a question, given as its canonical JSON; raises what a device has against it.
Prepare = Callable[[bytes], Prepared]


class Respondent:
    """One enrolled device for questions: `answer` takes the frames of their turns, as a Device takes those of rounds.

    A question that `prepare` refuses is refused when the device is called, so that nobody has paid for the turn.
    """

    def __init__(self, terms: Terms, vault: Vault, prepare: Prepare) -> None:
        self.terms, self.vault, self._prepare = terms, vault, prepare
        self._identity = Identity(vault.memory.id, vault.memory.secret)
        self.number = terms.number_of(self._identity)
        self.refusal: ChoralError | None = None
        self._device: Device | None = None

    def __repr__(self) -> str:
        return f"Respondent({self._identity.id!r}, last question {self.vault.memory.asked})"

    @property
    def upload_bytes(self) -> int:
        """The size of the masked answer to the question under way."""
        return 0 if self._device is None else self._device.terms.upload_bytes

    def answer(self, frame: Vector) -> Vector:
        """The reply to a frame, or a signed Refusal; `refusal` keeps the reason here."""
        turn = Turn(0, 0)
        try:
            size = 0 if self._device is None else self._device.terms.model_bytes
            message, _ = decode(frame, vector_bytes=size, records_bytes=self.terms.records_bytes)
            turn = message.turn
            if isinstance(message, Inquire):
                self._device = None  # whatever was under way has failed
                self._device = self._prepared(message.question)
                frame = encode(Call(turn=turn))
            if self._device is None or not turn.asks:
                raise refused("this device was not asked anything, or was restarted since.")
        except ChoralError as error:
            self.refusal = error
            return encode(signed_refusal(self._identity, self.number, turn, error.code))
        reply = self._device.answer(frame)
        self.refusal = self._device.refusal or self.refusal
        return reply

    def _prepared(self, question: bytes) -> Device:
        way = self._prepare(question)
        terms = self.terms.asked(question, secure=way.secure, codec=way.codec, length=way.length, state=way.state)
        return Device(
            terms,
            self.vault,
            train=way.train,
            charge=way.charge,
            encode=way.encode,
            payable=way.payable,
            check=way.check,
        )
