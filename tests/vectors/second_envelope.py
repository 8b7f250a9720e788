"""The heads of docs/secure-sum.md a second time, from the document alone, on top of tests/vectors/second.py."""

from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests.vectors.second import framed, little, unhex


def request(secret, study, device, counter, frame):
    numbers = b"".join(number.to_bytes(size, "little") for number, size in ((1, 2), (0, 2)))
    fields = b"chrs" + numbers + unhex(study) + device.to_bytes(8, "little") + counter.to_bytes(8, "little")
    signed = framed("server frame", fields, sha256(unhex(frame)).digest())
    return {"request": (fields + Ed25519PrivateKey.from_private_bytes(unhex(secret)).sign(signed)).hex() + frame}


def opened(key, study, device, heard, request):
    fields, signature, frame = unhex(request)[:56], unhex(request)[56:120], unhex(request)[120:]
    assert len(signature) == 64 and fields[:4] == b"chrs", "CH622"
    assert little(fields[4:6]) == 1, "CH602"
    signed = framed("server frame", fields, sha256(frame).digest())
    Ed25519PublicKey.from_public_bytes(unhex(key)).verify(signature, signed)
    assert (fields[8:40], little(fields[40:48])) == (unhex(study), device), "CH622"
    assert little(fields[48:]) > heard, "CH623"
    return {"frame": frame.hex(), "heard": little(fields[48:])}


def answer(secret, request, answer):
    fields = b"chra" + (1).to_bytes(4, "little")
    signed = framed("device answer", fields, unhex(request)[:120], sha256(unhex(answer)).digest())
    signature = Ed25519PrivateKey.from_private_bytes(unhex(secret)[:32]).sign(signed)
    return {"reply": (fields + signature).hex() + answer}


def outcome(vector):
    try:
        return {"gives": globals()[vector["kind"]](**vector["given"])}
    except InvalidSignature:
        return {"refused": "CH622"}
    except AssertionError as error:
        return {"refused": str(error).split()[0]}
