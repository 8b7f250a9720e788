"""How long it takes until devices share keys: `python -m bench.enrolment [--devices N] [--json]`.

`cards` are the X25519 keys of the cards, which pairs agree on in their first turn; `hybrid` is an agreement in the run,
with X25519 and ML-KEM-768. All devices are in one process, so seconds are the processor's: of all devices and the
server together, and of the slowest device. Bytes are those of one device's messages for the agreement.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from choral.backends.wire import Wire
from choral.core.codec import Codec
from choral.core.device import Device
from choral.core.keys import HYBRID, Identity, Roster
from choral.core.messages import Turn, Vector
from choral.core.plan import SecureSum
from choral.core.terms import Terms
from choral.core.vault import Memory, Vault
from choral.deploy.certificates import node_key
from choral.deploy.enrolment import enrol, prepare
from choral.run.agreement import Agreement, Enrolled
from choral.run.folder import MemoryStore

PARAMETERS = 100
JOB = """
[privacy]
epsilon = 4.0
delta = 1e-5
[federation]
cohort = {devices}
rounds = 3
rows = 60
[local]
steps = 1
batch = 12
step_size = 0.5
clip = 1.0
[data]
label = "sick"
classes = ["no", "yes"]
[data.columns.age]
bounds = [0, 100]
"""


class Receipt:
    """What a ledger would return: nothing is charged here."""

    entries, seal = 1, "0" * 64


class Timed:
    """Every device in this process, with the time and the bytes of each."""

    def __init__(self, devices: list[Device]) -> None:
        self.devices = devices
        self.seconds = [0.0] * len(devices)
        self.sent, self.got = [0] * len(devices), [0] * len(devices)

    def exchange(self, outbox: Mapping[int, Vector]) -> Iterator[tuple[int, Vector]]:
        """The replies in the order of the outbox."""
        for number, frame in outbox.items():
            begin = time.process_time()
            reply = self.devices[number].answer(frame)
            self.seconds[number] += time.process_time() - begin
            self.sent[number] += len(reply)
            self.got[number] += len(frame)
            yield number, reply


def shared_keys(devices: int, *, hybrid: bool) -> dict[str, float]:
    """Seconds and bytes until all devices share keys and have uploaded once, and of the turn after it."""
    identities = [Identity.fresh(f"device-{number:04}") for number in range(devices)]
    secure = SecureSum.for_cohort(devices)
    codec = Codec(grid=1.0, largest=1000, cohort=devices, word_bits=secure.modulus_bits)
    terms = Terms(
        roster=Roster.of(identity.bundle for identity in identities), secure=secure, codec=codec,
        parameters=PARAMETERS, plan="bench", hybrid=hybrid,
    )  # fmt: skip
    model = np.zeros(PARAMETERS, np.float32)
    made = [
        Device(
            terms,
            Vault.create(MemoryStore(), Memory(id=identity.id, secret=identity.to_bytes())),
            train=lambda start, _round, _attempt: start,
            charge=lambda _round, _attempt: Receipt(),
        )
        for identity in identities
    ]
    timed = Timed(made)
    wire, reported = Wire(terms, timed), {}
    begin = time.process_time()
    if hybrid:
        wire.agree(Turn(1, 0), range(devices))
        reported = {"agreement": time.process_time() - begin, "agreement of one": max(timed.seconds)}
        reported |= {"kB sent by one": max(timed.sent) / 1000, "kB received by one": max(timed.got) / 1000}
    for turn in (1, 2):
        begin = time.process_time()
        wire.attempt(Turn(turn, 0), range(devices), model)
        reported[f"turn {turn}"] = time.process_time() - begin
    return reported | {"vault kB": len(made[0].vault.store.read()) / 1000}


def enrolled(devices: int, offers: tuple[str, ...]) -> dict[str, float]:
    """Seconds of `choral server enrol` and of reading the study at a site, and the study's size."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "choral.toml").write_text(JOB.format(devices=devices))
        prepare(folder / "study", folder / "choral.toml", "127.0.0.1:9092")
        cards = []
        for number in range(devices):
            identity = Identity(f"site-{number:04}", Identity.fresh("x").to_bytes(), offers)
            cards.append(folder / f"{number}.card")
            cards[-1].write_text(Enrolled.of(identity, node_key()[1]).text)
        begin = time.process_time()
        enrol(folder / "study", cards)
        middle = time.process_time()
        study = folder / "study" / "study.toml"
        _ = Agreement.read(study).terms
        end = time.process_time()
        return {"enrol": middle - begin, "read at a site": end - middle, "study kB": study.stat().st_size / 1000}


def measured(devices: int, repeats: int = 3) -> dict[str, dict[str, float]]:
    """Medians over the repeats, of both ways."""
    found: dict[str, list[dict[str, float]]] = {"cards": [], "hybrid": []}
    for _ in range(repeats):
        found["cards"].append(enrolled(devices, ()) | shared_keys(devices, hybrid=False))
        found["hybrid"].append(enrolled(devices, (HYBRID,)) | shared_keys(devices, hybrid=True))
    return {
        way: {name: round(statistics.median(one[name] for one in runs), 3) for name in runs[0]}
        for way, runs in found.items()
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measured(args.devices)
    if args.json:
        print(
            json.dumps(
                {keys: {name.replace(" ", "_"): value for name, value in row.items()} for keys, row in found.items()}
            )
        )
        return
    for name in found["hybrid"]:
        print(f"{name:<20} {found['cards'].get(name, 0):>10.3f} {found['hybrid'][name]:>10.3f}")


if __name__ == "__main__":
    main()
