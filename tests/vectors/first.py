"""choral's own answers to the vectors: a function bears the name of a kind, and returns what the vector must give."""

import numpy as np

from choral.core import shares
from choral.core.codec import Codec
from choral.core.keys import Bundle, Identity, PairSecret, Roster, envelope_key, fingerprint
from choral.core.masks import Graph, Mask, Stream, add_masks, pair_mask, ring, round_context, self_mask
from choral.server.secrets import join as joined
from choral.server.secrets import unseal

unhex = bytes.fromhex


def bundle(id, secret):
    shown = Identity(id, unhex(secret)).bundle
    return _shown(shown) | {"safety_number": shown.safety_number}


def _shown(bundle):
    keys = {name: getattr(bundle, name).hex() for name in ("identity", "agreement", "signature")}
    return {"id": bundle.id} | keys


def _bundle(shown):
    keys = {name: unhex(shown[name]) for name in ("identity", "agreement", "signature")}
    return Bundle(id=shown["id"], **keys)


def roster(bundles):
    whole = Roster.of(map(_bundle, bundles))
    return {"digest": whole.digest.hex(), "safety_number": whole.safety_number}


def pair(id, secret, peer_id, peer_agreement, session):
    peer = Bundle(id=peer_id, identity=bytes(32), agreement=unhex(peer_agreement), signature=bytes(64))
    found = Identity(id, unhex(secret)).pair(peer, unhex(session))
    return {name: getattr(found, name).hex() for name in ("rising", "falling", "seals", "opens")}


def _secret(own, peer, **known):
    return PairSecret(own=own, peer=peer, **{"rising": b"", "falling": b"", "seals": b"", "opens": b""} | known)


def envelope(key, ctx, sender, receiver, sealed):
    return {"share": unseal(unhex(key), unhex(ctx), sender, receiver, unhex(sealed)).hex()}


def context(config, roster, round, attempt, model, cohort):
    found = round_context(
        config=unhex(config),
        roster=unhex(roster),
        round_number=round,
        attempt=attempt,
        model=unhex(model),
        cohort=[(id, unhex(nonce)) for id, nonce in cohort],
    )
    return {"ctx": found.hex()}


def round_keys(seed, ctx, id):
    return {
        "pair_key": pair_mask(_secret("a", "b", rising=unhex(seed)), unhex(ctx)).key.hex(),
        "self_key": self_mask(unhex(seed), unhex(ctx), id).key.hex(),
        "envelope_key": envelope_key(unhex(seed), unhex(ctx)).hex(),
        "fingerprint": fingerprint(unhex(seed), unhex(ctx)).hex(),
        "commitment": shares.commitment(unhex(seed), unhex(ctx), id).hex(),
    }


def stream(key, bits, count):
    return {"words": Stream(unhex(key)).words(count, bits).tolist()}


def masked(vector, bits, id, peers, self_key, directed):
    words = np.array(vector, ring(bits))
    masks = [Mask(unhex(self_key), adds=True)]
    for peer, rising, falling in peers:
        masks.append(Mask(unhex(rising), adds=id < peer))
        if directed:
            masks.append(Mask(unhex(falling), adds=id > peer))
    add_masks(words, masks)
    return {"words": words.tolist()}


def graph(ids, ctx, degree):
    found = Graph(tuple(ids), unhex(ctx), degree)
    return {"neighbours": {id: list(found.neighbours(id)) for id in ids}}


def split(secret, coefficients, points):
    # split() draws the highest coefficient first.
    drawn = iter(reversed(coefficients))
    given = shares.split(unhex(secret), 1 + len(coefficients), points, lambda _: unhex(next(drawn)))
    return {"shares": [share.hex() for share in given]}


def join(values, threshold):
    return {"secret": joined({int(at): unhex(share) for at, share in values.items()}, threshold).hex()}


def encode(update, dither, grid, largest, bits, lanes):  # noqa: ARG001 - one lane: others are of choral 0.2
    codec = Codec(grid=grid, largest=largest, cohort=1, word_bits=bits)
    return {
        "words": codec.encode(np.array([float(x) for x in update], np.float32), np.array(dither, np.float32)).tolist()
    }


def decode(words, dimensions, count, largest, bits, lanes):  # noqa: ARG001 - as above
    codec = Codec(grid=1.0, largest=largest, cohort=count, word_bits=bits)
    return {"integers": codec.decode(np.array(words, ring(bits)), dimensions, count=count).tolist()}
