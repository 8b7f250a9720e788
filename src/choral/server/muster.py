"""Who is ready for a turn: the server's half of CALL and READY."""

from collections.abc import Iterable

from choral.core.errors import ChoralError, NotReadyError, PlanError
from choral.core.messages import Call, Inquire, Message, Ready, Refusal, Turn, Vector, decode, encode, malformed
from choral.core.terms import Terms
from choral.server.findings import Findings


class Muster:
    """Who is ready for a turn, and with which ν."""

    def __init__(self, terms: Terms, turn: Turn, called: Iterable[int]) -> None:
        self.terms, self.turn, self.called = terms, turn, tuple(sorted(set(called)))
        outside = self.called and not 0 <= self.called[0] <= self.called[-1] < terms.enrolled
        if len(self.called) > terms.secure.cohort or outside:
            raise PlanError(
                "CH204",
                f"{len(self.called)} devices were called, by numbers up to {max(self.called)}.",
                fix=f"The plan has cohorts of at most {terms.secure.cohort}, of devices 0 to {terms.enrolled - 1}.",
            )
        self.nonces: dict[int, bytes] = {}
        self.findings = Findings(terms=terms)

    def outbox(self) -> dict[int, bytes]:
        """A call for everybody who has not answered yet."""
        asked = self.terms.question
        call = encode(Inquire(turn=self.turn, question=asked) if asked else Call(turn=self.turn))
        return {number: call for number in self.called if number not in self.nonces}

    def receive(self, sender: int, frame: Vector) -> None:
        """Note one answer; what is not an answer to this call counts as silence."""
        try:
            message = read(self.terms, sender, frame)[0]
        except ChoralError as error:
            self.findings.fault(sender, error.code)
            return
        self.note(sender, message)

    def note(self, sender: int, message: Message) -> None:
        """The same for a message already read."""
        if message.turn != self.turn or sender not in self.called:
            return
        if isinstance(message, Ready) and self.findings.proves(sender, message):
            self.nonces.setdefault(sender, message.nonce)
        elif isinstance(message, Refusal):
            self.findings.refuse(sender, message)

    def close(self) -> None:
        """Nothing, or CH503 if too few are ready; nobody has been asked for an update yet."""
        needed = self.terms.secure.smallest_sum
        if len(self.nonces) >= needed:
            return
        nothing = f"nothing was sent and nobody is charged{self.findings}."
        if len(self.called) < needed:  # somebody was named before and is left out, or has nothing left to spend
            raise NotReadyError(
                "CH503",
                f"only {len(self.called)} devices can be called, {needed} are needed; {nothing}",
                where=where(self.turn),
                fix="Enrol another device, or plan for those that are left: a smaller cohort, or fewer colluders.",
            )
        raise NotReadyError(
            "CH503",
            f"{len(self.nonces)} of {len(self.called)} devices are ready, {needed} needed; {nothing}",
            where=where(self.turn),
            fix="Wait for more devices, or call others.",
        )


def read(terms: Terms, sender: int, frame: Vector) -> tuple[Message, memoryview]:
    """A device's message and its vector, or CH600 if it names another device than the one that sent it."""
    message, vector = decode(frame, vector_bytes=terms.upload_bytes, records_bytes=terms.records_bytes)
    if getattr(message, "device", None) != sender:
        raise malformed("it names another device than the one that sent it")
    return message, vector


def where(turn: Turn) -> str:
    """The turn, as errors say it."""
    return f"round {turn.round}, attempt {turn.attempt}:"
