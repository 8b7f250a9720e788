"""choral's own answers to the vectors of probes."""

from dataclasses import replace

import numpy as np

from choral.core.messages import decode
from choral.probes.device import Probed
from choral.probes.projections import answers_of, probe_seed, upload_digest
from choral.probes.round import ProbedRound, ProbeInquiry
from choral.server.round import Readiness
from tests.vectors.first_transcript import frame, step, terms_of

__all__ = ["frame", "probe", "probed"]


def probe(ctx, uploads, watched, probes, integers):
    ctx = bytes.fromhex(ctx)
    digests = {number: upload_digest(ctx, id, bytes.fromhex(text)) for number, id, text in uploads}
    rows = np.array(watched, np.int8).reshape(-1, len(integers))
    seed = probe_seed(ctx, digests, rows.tobytes())
    answers = answers_of(seed, probes, np.array(integers), rows).tolist()
    return {"digests": {str(n): digest.hex() for n, digest in digests.items()}, "seed": seed.hex(), "answers": answers}


def probed(terms, devices, exchanges):
    probed = Probed(probes=terms["probes"], opened_turns=terms["opened_turns"])
    agreed = replace(terms_of(terms, devices), extension=probed)
    call = decode(bytes.fromhex(exchanges[0][0][1]), vector_bytes=0, records_bytes=0)[0]
    readiness = Readiness(agreed, call.turn, [number for number, _, _ in exchanges[0]])
    step(readiness, exchanges[0])
    caps = {"vector_bytes": agreed.model_bytes, "records_bytes": agreed.records_bytes}
    omega, asked = (decode(bytes.fromhex(exchanges[at][0][1]), **caps)[1] for at in (1, 2))
    round = ProbedRound(readiness, omega, inquiry=ProbeInquiry(watched=bytes(asked)))
    for exchange in exchanges[1:]:
        step(round, exchange)
        round.advance()
    found = {"integers": round.sum.integers.tolist(), "included": list(round.sum.included)}
    return found | {"seed": round.asked.seed.hex()}
