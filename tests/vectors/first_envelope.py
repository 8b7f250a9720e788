"""The heads of requests and answers, by choral itself: a function bears the name of a kind of vector."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from choral.core.errors import ChoralError
from choral.core.keys import Identity
from choral.core.signed import Listener, answered
from choral.server.speaker import Speaker


def public(secret):
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)).public_key().public_bytes_raw().hex()


def request(secret, study, device, counter, frame):
    key, data = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)), bytes.fromhex(frame)
    head = Speaker(key, study=bytes.fromhex(study), first=counter).head(device, data)
    return {"request": (head + data).hex()}


def opened(key, study, device, heard, request):
    kept = []
    listener = Listener(
        study=bytes.fromhex(study), server_key=bytes.fromhex(key), device=device, heard=lambda: heard, hear=kept.append
    )
    frame = bytes(listener.opened(bytes.fromhex(request)))
    return {"frame": frame.hex(), "heard": kept[0]}


def answer(secret, request, answer):
    card = Identity("device", bytes.fromhex(secret))
    return {"reply": answered(card, bytes.fromhex(request), bytes.fromhex(answer)).hex()}


def outcome(vector):
    try:
        return {"gives": globals()[vector["kind"]](**vector["given"])}
    except ChoralError as error:
        return {"refused": error.code}
