"""Fed-BioMed's LOM, as its nodes and its researcher call it: a JSON line in, a JSON line of CPU seconds out.

A node's time is from its list of floats to its list of masked integers; the researcher's from those lists to the mean.
Pair secrets are agreed before, as choral's are; messages are not counted.
"""

import json
import logging
import os
import sys
import time
from importlib.metadata import version

from fedbiomed.common.secagg import SecaggLomCrypter


def round_of(devices: int, dimensions: int) -> dict[str, object]:
    """One round of equal updates: seconds of a node and of the researcher, and how far the mean is off."""
    names = [f"node-{number:03}" for number in range(devices)]
    secrets = {frozenset((a, b)): os.urandom(32) for a in names for b in names if a < b}
    update = [(number % 2001 - 1000) / 1000 for number in range(dimensions)]
    crypter, uploads, spent = SecaggLomCrypter(nonce="bench"), [], []
    for name in names[:2]:  # two are timed, and stand for all
        pairs = {peer: secrets[frozenset((name, peer))] for peer in names if peer != name}
        start = time.perf_counter()
        uploads.append(crypter.encrypt(1, name, update, pairs, names, clipping_range=3, weight=1))
        spent.append(time.perf_counter() - start)
    for name in names[2:]:
        pairs = {peer: secrets[frozenset((name, peer))] for peer in names if peer != name}
        uploads.append(crypter.encrypt(1, name, update, pairs, names, clipping_range=3, weight=1))
    start = time.perf_counter()
    mean = crypter.aggregate(uploads, devices, clipping_range=3)
    server = time.perf_counter() - start
    error = max(abs(a - b) for a, b in zip(mean, update, strict=True))
    return {"device": min(spent), "server": server, "error": error, "version": version("fedbiomed")}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        answer = round_of(**json.loads(line))
        print(json.dumps(answer), flush=True)
