"""choral's own answers to the vectors of hybrid keys."""

from choral.core.keys import Bundle, Chains, HybridKey, Identity, digest, pair_of_turn, pair_roots
from choral.core.messages import decode, pack
from choral.server.key_round import check_public

unhex = bytes.fromhex


def hybrid_key(secret):
    return {"public": HybridKey(unhex(secret)).public.hex()}


def public(key):
    check_public(unhex(key))
    return {"good": True}


def unwrapped(secret, wrapped):
    return {"inner": HybridKey(unhex(secret)).unwrap(unhex(wrapped)).hex()}


def combined(shared, inner, low, high, wrapped, session):
    roots = pair_roots(
        unhex(shared),
        unhex(inner),
        low=(low[0], unhex(low[1])),
        high=(high[0], unhex(high[1])),
        wrapped=unhex(wrapped),
        session=unhex(session),
    )
    return {"rounds": roots[0].hex(), "asking": roots[1].hex()}


def agreement(terms, offers, low, high, secret, wrapped):
    """The roots of a pair from the higher device's secret, the offers of all, and the lower one's ciphertext."""
    session = digest("agreement", unhex(terms), pack({number: unhex(offer) for number, _, offer in offers}))
    named = {number: (id, offer[:2432]) for number, id, offer in offers}
    key = HybridKey(unhex(secret))
    shared, inner = key.shared(unhex(named[low][1])), key.unwrap(unhex(wrapped))
    roots = combined(shared.hex(), inner.hex(), named[low], named[high], wrapped, session.hex())
    return {"session": session.hex()} | roots


def chain(root, following, turns):
    chains, keys = Chains.begun({"peer": unhex(root)}, following=following), []
    for turn in turns:
        found, chains = chains.taken(*turn)
        keys.append(found["peer"].hex())
    return {"keys": keys, "kept": chains.keys["peer"].hex()}


def seeds(key, own, peer):
    pair = pair_of_turn(own, peer, unhex(key))
    return {name: getattr(pair, name).hex() for name in ("rising", "falling", "seals", "opens")}


def offered(id, secret, offers):
    bundle = Identity(id, unhex(secret), tuple(offers)).bundle
    return {"signature": bundle.signature.hex(), "safety_number": bundle.safety_number}


def card(id, identity, agreement, signature, offers):
    keys = {"identity": unhex(identity), "agreement": unhex(agreement), "signature": unhex(signature)}
    Bundle(id=id, **keys, offers=tuple(offers)).verify()
    return {"good": True}


def frame(frame, records_bytes):
    message, _ = decode(unhex(frame), vector_bytes=0, records_bytes=records_bytes)
    fields = [getattr(message, name) for name in message.__struct_fields__]
    fields[0] = [message.turn.round, message.turn.attempt]
    shown = [value.hex() if isinstance(value, bytes) else value for value in fields]
    return {"header": [message.__struct_config__.tag, *shown]}
