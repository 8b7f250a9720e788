"""What this machine can do at most: `python -m bench.limits [--quick] [--json]`; others are compared with it.

Matrix products (float32, the two cores of every contender), copies of memory (read and written bytes both counted), and
AES-256 on one core, in the mode of the protocol and in the one with the widest instructions. The best of the repeats.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bench.harness import CORES


def best(task: Callable[[], object], repeats: int) -> float:
    """Least wall-clock seconds of so many calls, after one that is not counted."""
    task()
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        task()
        spent.append(time.perf_counter() - start)
    return min(spent)


def products(repeats: int, size: int = 2048) -> float:
    """Floating-point operations per second of large matrix products."""
    left, right = (np.random.default_rng(seed).random((size, size), dtype=np.float32) for seed in (0, 1))
    return 2 * size**3 / best(lambda: left @ right, repeats)


def copies(repeats: int, size: int = 2**28) -> float:
    """Bytes per second that a copy reads and writes, far beyond any cache."""
    source = np.ones(size // 4, np.float32)
    target = np.empty_like(source)
    return 2 * size / best(lambda: np.copyto(target, source), repeats)


def aes(mode: modes.CTR | modes.GCM, repeats: int, size: int = 2**24) -> float:
    """Bytes of keystream a second on one core."""
    zeros, buffer = memoryview(bytes(2**20)), bytearray(2**20 + 16)

    def stream() -> None:
        one = Cipher(algorithms.AES(bytes(32)), mode).encryptor()
        for _ in range(size // len(zeros)):
            one.update_into(zeros, buffer)

    return size / best(stream, repeats)


def measure(repeats: int) -> dict[str, float]:
    """Every limit, by name."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    found = {
        "flops": products(repeats),
        "bytes_a_second": copies(repeats),
        "aes_256_ctr_bytes_a_second": aes(modes.CTR(bytes(16)), repeats),
        "aes_256_gcm_bytes_a_second": aes(modes.GCM(bytes(12)), repeats),
    }
    return {name: float(f"{value:.4g}") for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    found = measure(3 if args.quick else 10)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<28} {value:.3g}")


if __name__ == "__main__":
    main()
