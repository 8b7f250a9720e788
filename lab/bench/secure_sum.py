"""The secure sum next to Flower's SecAgg+ and the speed of AES, in one run.

    python -m bench.secure_sum [--quick] [--json]

Both sides do a whole round on the same vectors without a network: the model goes out, masked updates come back, and the
server ends with their mean. `device` is all that one device computes from the bytes that it is sent and the finished
update to the bytes that it sends, shares and answers included; `server` is all from the model to the mean.
- choral's devices enrolled before and keep their pair secrets, as they do for a whole run; Flower's agree every round.
- choral's devices hash the model into every key, its server checks commitments, lanes and range; Flower has none of it.
- choral's server makes one frame with the model for everybody, Flower's a protobuf message for each device.
- `..._vs_flower` counts the bytes on the wire for both; `..._vs_flower_without_protobuf` forgives Flower its protobuf,
  the model's included, and leaves choral its frames.
- The mask kernel is what one peer's mask costs among the nine of a cohort of ten: Flower agrees, draws and adds; choral
  derives, draws and adds. `mask_stream_vs_flower` forgives Flower the agreement. choral draws several masks at a time,
  one a core; `mask_kernel_one_core_...` is one mask by itself.
Wall-clock seconds on two cores, the best of interleaved repeats; `spread` is the slowest repeat over the best. Flower's
code uses one core; `..._cpu_ms` is what choral's takes on all cores together.
"""

import argparse
import json
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from bench.setup import python_of
from choral.core.codec import Codec
from choral.core.device import Device
from choral.core.keys import Identity, Roster
from choral.core.masks import add_masks, pair_mask
from choral.core.messages import Turn
from choral.core.plan import SecureSum
from choral.core.terms import Terms
from choral.core.vault import Memory, Vault
from choral.run.folder import MemoryStore
from choral.run.planning import sparse
from choral.server.round import Readiness, Round
from choral.server_step import mean

clock = time.perf_counter
# 30 neighbours are what Flower's own figures use; the threshold is the design's for 22 of 100.
HUNDRED = SecureSum(
    cohort=100, smallest_sum=90, threshold=15, colluders=10, adversary="curious", graph="harary", neighbours=30
)


PEERS = 9  # of a device in a cohort of ten


class Flower:
    """Flower's worker process: one JSON line asks, one answers."""

    def __init__(self) -> None:
        worker = Path(__file__).with_name("flower_worker.py")
        command = [str(python_of("flower")), str(worker)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, task: str, **numbers: object) -> dict[str, float]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"task": task, **numbers}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


@dataclass(frozen=True)
class Case:
    """One round's shape, for both sides."""

    secure: SecureSum
    dimensions: int
    dropped: int = 0

    @property
    def flower(self) -> dict[str, int]:
        secure = self.secure
        shares = secure.cohort if secure.neighbours is None else secure.neighbours + 1
        return {
            "devices": secure.cohort,
            "shares": shares,
            "threshold": secure.threshold,
            "dimensions": self.dimensions,
            "dropped": self.dropped,
        }


@dataclass(frozen=True)
class Receipt:
    entries: int = 0
    seal: str = ""


class Cohort:
    """Enrolled devices and their server; `round` runs one turn and says what each side spent."""

    def __init__(self, case: Case) -> None:
        self.case, self.turn_number, self.fresh_updates = case, 0, False
        secure, size = case.secure, case.dimensions
        self.update = np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)
        identities = [Identity.fresh(f"device-{number:05}") for number in range(secure.cohort)]
        largest = 2 ** min(secure.value_bits - 1, 21) - 1
        codec = Codec(
            grid=2.0 ** -((largest - 1).bit_length() - 1),
            largest=largest,
            cohort=secure.cohort,
            word_bits=secure.modulus_bits,
        )
        roster = Roster.of(identity.bundle for identity in identities)
        self.terms = Terms(roster=roster, secure=secure, codec=codec, parameters=size, plan="bench")
        self.model = bytes(4 * size)
        self.mean = np.empty(size, np.float32)  # kept from round to round, as choral.federation does
        self.identities, self.devices = identities, list[Device]()

    def enrol(self) -> None:
        """Let every pair agree, which happens once for all rounds, and write it into the vaults."""
        self.devices = [self._device(identity, agreed=True) for identity in self.identities]

    def begin(self) -> None:
        """Start the devices; pairs agree in the rounds in which they are neighbours."""
        self.devices = [self._device(identity, agreed=False) for identity in self.identities]

    def _device(self, identity: Identity, *, agreed: bool) -> Device:
        peers = [bundle for bundle in self.terms.whole if agreed and bundle.id != identity.id]
        pairs = {peer.id: identity.pair(peer, self.terms.roster_digest).data for peer in peers}
        vault = Vault.create(MemoryStore(), Memory(id=identity.id, secret=identity.to_bytes(), pairs=pairs))
        return Device(self.terms, vault, train=self._train, charge=lambda *_: Receipt())

    def _train(self, *_: object) -> NDArray[np.float32]:
        return self.update.copy() if self.fresh_updates else self.update

    def round(self) -> dict[str, float]:
        """Seconds of a device that stays to the end (the mean) and of the server, and the bytes of an upload."""
        self.turn_number += 1
        silent = set(range(self.case.dropped))
        server, device = Clock(), Clock()
        with server:
            readiness = Readiness(self.terms, Turn(self.turn_number, 0), range(len(self.devices)))
            outbox = readiness.outbox()
        with device:
            frames = self._answers(outbox)
        with server:
            for number, frame in frames.items():
                readiness.receive(number, frame)
            turn = Round(readiness, self.model)
        carried = []  # a transport owns its buffers: they are freed on nobody's time
        while turn.sum is None:
            asked = {number: frame for number, frame in turn.outbox().items() if number not in silent}
            with device:
                frames = self._answers(asked)
            carried.append(frames)
            with server:
                for number, frame in frames.items():
                    turn.receive(number, frame)
                turn.advance()
        with server:
            average = mean(turn.sum.integers, turn.sum.count, self.terms.codec.grid, out=self.mean)
        if np.abs(average - self.update).max() > self.terms.codec.grid:
            raise AssertionError("the sum is wrong")
        upload = max(len(frame) for frame in carried[0].values())
        staying = len(self.devices) - len(silent)
        return {
            "device": device.spent / staying,
            "device_cpu": device.cpu / staying,
            "server": server.spent,
            "server_cpu": server.cpu,
            "bytes": upload,
        }

    def _answers(self, outbox: Mapping[int, bytes]) -> dict[int, bytes]:
        return {number: self.devices[number].answer(frame) for number, frame in outbox.items()}

    def peak(self) -> float:
        """The most memory that one device needs to make its upload, its update included, in vectors of its words."""
        self.turn_number += 1
        readiness = Readiness(self.terms, Turn(self.turn_number, 0), range(len(self.devices)))
        for number, frame in self._answers(readiness.outbox()).items():
            readiness.receive(number, frame)
        frame = Round(readiness, self.model).outbox()[0]
        self.fresh_updates = True
        tracemalloc.start()
        self.devices[0].answer(frame)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        self.fresh_updates = False
        return most / self.terms.upload_bytes


class Clock:
    """Adds up the seconds of its `with` blocks, and those of all cores."""

    spent = cpu = 0.0

    def __enter__(self) -> None:
        self._start = clock(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.spent += clock() - self._start[0]
        self.cpu += time.process_time() - self._start[1]


def best(repeats: int, work: Callable[[], Any]) -> float:
    """The least seconds of so many runs."""
    spent = []
    for _ in range(repeats):
        start = clock()
        work()
        spent.append(clock() - start)
    return min(spent)


def kernel(flower: Flower, dimensions: int, repeats: int) -> dict[str, float]:
    """One peer's mask: ours next to Flower's and to AES alone."""
    vector = np.zeros(dimensions, "<u4")
    own = Identity.fresh("a")
    pairs = [own.pair(Identity.fresh(f"b{number}").bundle, b"bench") for number in range(PEERS)]
    zeros, buffer = memoryview(bytes(1 << 20)), bytearray((1 << 20) + 16)

    def aes() -> None:
        stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
        for start in range(0, vector.nbytes, len(zeros)):
            stream.update_into(zeros[: vector.nbytes - start], buffer)

    def masked(count: int) -> float:
        def work() -> None:
            add_masks(vector, [pair_mask(pair, b"bench") for pair in pairs[:count]])

        return best(repeats, work) / count

    ours, one, limit, turns, streams = [], [], [], [], []
    for _ in range(5):
        ours.append(masked(PEERS))
        one.append(masked(1))
        limit.append(best(repeats, aes))
        answer = flower.ask("mask", dimensions=dimensions, repeats=repeats)
        turns.append(answer["turn"])
        streams.append(answer["stream"])
    return {
        "mask_kernel_vs_flower": min(turns) / min(ours),
        "mask_stream_vs_flower": min(streams) / min(ours),
        "mask_kernel_one_core_vs_flower": min(turns) / min(one),
        "mask_kernel_one_core_of_aes_256_ctr": min(limit) / min(one),
        "mask_kernel_one_core_ns_a_parameter": min(one) / dimensions * 1e9,
        "mask_kernel_ns_a_parameter": min(ours) / dimensions * 1e9,
        "mask_kernel_spread": max(max(times) / min(times) for times in (ours, turns)),
    }


def rounds(name: str, flower: Flower, case: Case, repeats: int) -> dict[str, float]:
    """One case on both sides: ratios, milliseconds, and how far repeats lay apart."""
    cohort = Cohort(case)
    cohort.enrol()
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(cohort.round())
        theirs.append(flower.ask("round", **case.flower))
    found: dict[str, float] = {}
    for side in ("device", "server"):
        mine = min(run[side] for run in ours)
        bare = min(run[side] for run in theirs)
        full = min(run[side] + run[f"{side}_wire"] for run in theirs)
        found |= {
            f"{side}_{name}_vs_flower": full / mine,
            f"{side}_{name}_vs_flower_without_protobuf": bare / mine,
            f"{side}_{name}_ms": mine * 1e3,
            f"{side}_{name}_cpu_ms": min(run[f"{side}_cpu"] for run in ours) * 1e3,
            f"{side}_{name}_flower_ms": full * 1e3,
            f"{side}_{name}_spread": max(
                max(run[side] for run in runs) / min(run[side] for run in runs) for runs in (ours, theirs)
            ),
        }
    return found


def alone(name: str, case: Case) -> dict[str, float]:
    """One case of choral alone: milliseconds, bytes and memory."""
    cohort = Cohort(case)
    cohort.begin()
    cohort.round()
    run = cohort.round()
    return {
        f"device_{name}_ms": run["device"] * 1e3,
        f"server_{name}_ms": run["server"] * 1e3,
        f"bytes_per_parameter_{name}": run["bytes"] / case.dimensions,
        f"device_memory_{name}_vectors": cohort.peak(),
    }


def beside_flower(quick: bool) -> dict[str, Any]:
    """The figures that need Flower, or null in the place of the main ones, and why."""
    if not python_of("flower").exists():
        names = ("mask_kernel_vs_flower", "device_r10_vs_flower", "server_r10_vs_flower")
        return dict.fromkeys(names, None) | {"flower": "not installed here; see make bench-setup"}
    ten, million = SecureSum.for_cohort(10), 10**6
    flower = Flower()
    found: dict[str, Any] = {"flower": flower.ask("version")["version"]}
    found |= kernel(flower, million, 10 if quick else 30)
    found |= rounds("r10", flower, Case(ten, million), 8 if quick else 15)
    if not quick:
        found |= rounds("r10_2_dropped", flower, Case(ten, million, dropped=2), 5)
        found |= rounds("r100_30_neighbours", flower, Case(HUNDRED, million), 2)
        found |= rounds("r100_30_neighbours_5_dropped", flower, Case(HUNDRED, million, dropped=5), 2)
    flower.close()
    return found


def measure(quick: bool) -> dict[str, Any]:
    """Every figure, by name."""
    million = 10**6
    found = beside_flower(quick)
    found |= alone("b32", Case(SecureSum.for_cohort(10), million))
    found["bytes_per_parameter"] = found["bytes_per_parameter_b32"]
    if not quick:
        found |= alone("r1000", Case(sparse(1000), 10**5))
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the cohort of ten only, in under a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object, on the last line")
    args = parser.parse_args()
    found = measure(args.quick)
    if args.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<55}{value}")


if __name__ == "__main__":
    main()
