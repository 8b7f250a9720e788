"""choral's own answers to the transcripts: its decoder, and its Round fed with what the devices sent."""

from choral.core.codec import Codec
from choral.core.keys import Identity, Roster
from choral.core.messages import Turn, decode
from choral.core.plan import SecureSum
from choral.core.terms import Terms
from choral.server.round import Readiness, Round


def shown(value):
    if isinstance(value, bytes):
        return value.hex()
    return [value.round, value.attempt] if isinstance(value, Turn) else value


def frame(frame, vector_bytes, records_bytes):
    message, vector = decode(bytes.fromhex(frame), vector_bytes=vector_bytes, records_bytes=records_bytes)
    header = [getattr(message, name) for name in message.__struct_fields__]
    tag = type(message).__struct_config__.tag
    return {"header": [tag, *map(shown, header)], "vector": vector.hex()}


def terms_of(terms, devices):
    roster = Roster.of(Identity(device["id"], bytes.fromhex(device["secret"])).bundle for device in devices)
    return Terms(
        roster=roster,
        secure=SecureSum.read(terms["secure"]),
        codec=Codec(**{name: value for name, value in terms["codec"].items() if name != "lanes"}),
        parameters=terms["parameters"],
        plan=terms["plan"],
    )


def turn(terms, devices, exchanges):
    agreed = terms_of(terms, devices)
    call = decode(bytes.fromhex(exchanges[0][0][1]), vector_bytes=0, records_bytes=0)[0]
    readiness = Readiness(agreed, call.turn, [number for number, _, _ in exchanges[0]])
    step(readiness, exchanges[0])
    omega = bytes.fromhex(exchanges[1][0][1])
    round = Round(readiness, decode(omega, vector_bytes=agreed.model_bytes, records_bytes=agreed.records_bytes)[1])
    for exchange in exchanges[1:]:
        step(round, exchange)
        round.advance()
    return {"integers": round.sum.integers.tolist(), "included": list(round.sum.included)}


def step(half, exchange):
    # The server is deterministic: it must send the very bytes of the transcript.
    assert {number: frame.hex() for number, frame in half.outbox().items()} == {n: sent for n, sent, _ in exchange}
    for number, _, reply in exchange:
        if reply is not None:
            half.receive(number, bytes.fromhex(reply))
