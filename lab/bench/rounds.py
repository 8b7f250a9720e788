"""A round between processes: choral over Flower next to plain Flower FedAvg, on the same loopback deployment.

    python -m bench.rounds [--quick] [--json]
    python -m bench.rounds --memory 10000000 --json

Both sides run a SuperLink with TLS and SuperNode authentication and the same number of nodes, one after the other.
choral's sites train one noisy step, charge a ledger on disk, mask and open, in two exchanges; Flower's clients send the
model back as it came, without privacy or masks, in one. choral's processes are as `choral server run` and
`choral device run` start them, Flower's as `flower-superlink` and `flower-supernode` do by themselves, with a new
process for each message; a SuperNode asks for messages every 3 s when it has none. Seconds are medians over rounds
without the first. Idle traffic is what passes between nodes and server while no run is under way, counted on the way.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.rounds_traffic import Counting
from choral.backends.flower import processes
from choral.backends.flower.children import QUIET
from choral.backends.flower.node import LET_IN
from choral.deploy.certificates import new_authority, node_key, server_certificate
from choral.deploy.local import LocalDeployment

ROOT = Path(__file__).resolve().parents[2]
FEATURES, ROWS = 4, 64
JOB = """
[run]
name = "bench"
[privacy]
epsilon = 8.0
delta = 1e-3
[federation]
rounds = {rounds}
rows = {rows}
deadline = 120
[local]
steps = 1
batch = 8
step_size = 0.1
clip = 1.0
[model]
kind = "mlp"
hidden = [{hidden}]
[data]
label = "y"
classes = ["a", "b"]
{columns}
"""
APP = """
[project]
name = "fedavg"
version = "1.0.0"
description = "plain Flower"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "bench"
[tool.flwr.app.components]
serverapp = "bench.rounds_peer:server"
clientapp = "bench.rounds_peer:client"
[tool.flwr.app.config]
nodes = {nodes}
parameters = {parameters}
rounds = {rounds}
out = "{out}"
"""


def hidden_for(parameters: int) -> int:
    """The width of the one hidden layer that gives about so many parameters."""
    return round((parameters - 2) / (FEATURES + 3))


def choral_seconds(nodes: int, parameters: int, rounds: int) -> tuple[list[float], int, dict[str, int]]:
    """The seconds of each round, the true number of parameters, and the most memory of each kind of process in MiB."""
    names = [f"x{number}" for number in range(FEATURES)]
    columns = "\n".join(f"[data.columns.{name}]\nbounds = [0, 1]" for name in names)
    with tempfile.TemporaryDirectory(prefix="bench") as made:
        folder, tables = Path(made), {}
        rng = np.random.default_rng(0)
        for number in range(nodes):
            rows = [",".join([*(f"{x:.3f}" for x in rng.random(FEATURES)), "ab"[i % 2]]) for i in range(ROWS)]
            tables[f"s{number}"] = folder / f"s{number}.csv"
            tables[f"s{number}"].write_text("\n".join([",".join([*names, "y"]), *rows]) + "\n")
        job = JOB.format(rounds=rounds, rows=ROWS, hidden=hidden_for(parameters), columns=columns)
        deployment = LocalDeployment(folder, job, tables)
        most: dict[str, int] = {}
        for _ in deployment.run():
            for kind, size in memory_of(folder).items():
                most[kind] = max(most.get(kind, 0), size)
        result = deployment.result()
    return result["seconds"][1:], result["parameters"], most


def memory_of(deployment: Path) -> dict[str, int]:
    """The most that any process of each kind has ever held, of those that name the deployment's folder, in MiB."""
    kinds = {"device run": "agent", "flower.node": "node", "flower.gate": "gate", "flower-superlink": "superlink",
             "flower.conducting": "conductor"}  # fmt: skip
    most: dict[str, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            status = (folder / "status").read_text()
        except OSError:
            continue
        kind = next((kind for word, kind in kinds.items() if word in words and str(deployment) in words), None)
        if kind and "VmHWM" in status:
            size = int(status.split("VmHWM:")[1].split()[0]) // 1024
            most[kind] = max(most.get(kind, 0), size)
    return most


class Certified:
    """A folder with a server's certificate and a key for each node, and a free address."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder, self.address = folder, processes.free_address()
        authority = new_authority("bench")
        server = server_certificate(authority, "127.0.0.1")
        self.authority, self.certificate, self.key = folder / "ca.pem", folder / "s.pem", folder / "s.key"
        for path, text in (
            (self.authority, authority.certificate),
            (self.certificate, server.certificate),
            (self.key, server.key),
        ):
            path.write_text(text)
        self.public = []
        for number in range(nodes):
            secret, public = node_key()
            self.home(number).mkdir()
            (self.home(number) / "node.key").write_bytes(secret)
            self.public.append(public)

    def home(self, number: int) -> Path:
        """The folder of a node."""
        return self.folder / f"n{number}"


@contextlib.contextmanager
def plain_flower(children: processes.Children, made: Certified, way_in: str = "") -> Iterator[processes.Control]:
    """A SuperLink and SuperNodes as Flower starts them; the nodes may go another way in."""
    host, _, port = made.address.rpartition(":")
    words = ["--host", host, "--port", port, "--ssl-certfile", str(made.certificate), "--ssl-keyfile", str(made.key),
             "--ssl-ca-certfile", str(made.authority), "--enable-supernode-auth"]  # fmt: skip
    children.start("superlink", [processes.command("flower-superlink"), *words], made.folder / "server")
    children.await_listener("the SuperLink", made.address)
    with processes.Control(made.address, authority=made.authority) as control:
        control.admit(made.public)
        for number in range(len(made.public)):
            host, _, port = processes.free_address().rpartition(":")
            words = ["--superlink", way_in or made.address, "--root-certificates", str(made.authority), "--host", host,
                     "--port", port, "--auth-supernode-private-key",
                     str(made.home(number) / "node.key")]  # fmt: skip
            children.start(f"node{number}", [processes.command("flower-supernode"), *words], made.home(number))
        yield control


def flower_seconds(nodes: int, parameters: int, rounds: int) -> list[float]:
    """The seconds of each round of plain FedAvg."""
    with tempfile.TemporaryDirectory(prefix="bench") as folder, processes.Children() as children:
        made = Certified(Path(folder), nodes)
        with plain_flower(children, made) as control:
            app, out, home = (made.folder / name for name in ("app", "out.json", "flwr"))
            for one in (app, home):
                one.mkdir()
            (app / "pyproject.toml").write_text(APP.format(nodes=nodes, parameters=parameters, rounds=rounds, out=out))
            (home / "config.toml").write_text(
                f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "{made.address}"\n'
                f'root-certificates = "{made.authority}"\n'
            )
            done = subprocess.run(
                [processes.command("flwr"), "run", str(app), "bench", "--format", "json"],
                env={**os.environ, "FLWR_HOME": str(home), **QUIET},
                check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            run = int(json.loads(done.stdout)["run-id"])
            while not (state := control.state(run)).over:
                children.check()
                time.sleep(0.5)
            if not state.completed:
                raise RuntimeError(state.details)
        seconds: list[float] = json.loads(out.read_text())
        return seconds


def _until_in_logs(made: Certified, words: str, log: str) -> None:
    end = time.monotonic() + 120
    while not all(words in made.home(n).joinpath(log.format(n)).read_text() for n in range(len(made.public))):
        if time.monotonic() > end:
            raise RuntimeError("the nodes are not let in")
        time.sleep(0.2)


def _counted(way: Counting, seconds: float, nodes: int) -> dict[str, float]:
    time.sleep(5)  # past what follows being let in
    before = way.counts
    time.sleep(seconds)
    size, connections, turns = (after - earlier for after, earlier in zip(way.counts, before, strict=True))
    scale = 60 / seconds / nodes
    return {
        "requests_a_minute": round((turns - connections) * scale, 1),
        "connections_a_minute": round(connections * scale, 1),
        "bytes_a_minute": round(size * scale),
    }


def idle_traffic(nodes: int, seconds: float) -> dict[str, Any]:
    """What one idle node and its server say to each other per minute, by both sides."""
    reported: dict[str, Any] = {"seconds": seconds}
    with tempfile.TemporaryDirectory(prefix="bench") as folder, processes.Children() as children:
        made = Certified(Path(folder), nodes)
        processes.serve(
            children, made.folder / "server", nodes=made.public, address=made.address, certificate=made.certificate,
            key=made.key, authority=made.authority, frame_bytes=10_000, patience=60.0,
        )  # fmt: skip
        with Counting(made.address) as way:
            for number in range(nodes):
                processes.connect(
                    children, made.home(number), superlink=way.address, authority=made.authority,
                    key=made.home(number) / "node.key", door=made.home(number) / "door",
                )  # fmt: skip
            _until_in_logs(made, LET_IN, "node.log")
            reported["choral"] = _counted(way, seconds, nodes)
    with tempfile.TemporaryDirectory(prefix="bench") as folder, processes.Children() as children:
        made = Certified(Path(folder), nodes)
        with Counting(made.address) as way, plain_flower(children, made, way.address):
            _until_in_logs(made, "SuperNode ID", "node{}.log")
            reported["flower"] = _counted(way, seconds, nodes)
    reported["bytes_over_flower"] = round(
        reported["choral"]["bytes_a_minute"] / reported["flower"]["bytes_a_minute"], 2
    )
    return reported


def compare(nodes: int, parameters: int, rounds: int) -> dict[str, Any]:
    """Both sides with one number of parameters."""
    loads = [os.getloadavg()[0]]
    ours, size, memory = choral_seconds(nodes, parameters, rounds)
    loads.append(os.getloadavg()[0])
    peer = flower_seconds(nodes, size, rounds)
    loads.append(os.getloadavg()[0])
    return {
        "parameters": size,
        "choral_s": round(statistics.median(ours), 2),
        "choral_spread_s": [round(min(ours), 2), round(max(ours), 2)],
        "flower_fedavg_s": round(statistics.median(peer), 2),
        "flower_fedavg_spread_s": [round(min(peer), 2), round(max(peer), 2)],
        "choral_over_fedavg": round(statistics.median(ours) / statistics.median(peer), 2),
        "most_memory_mib": memory,
        "choral_load": [round(load, 1) for load in loads[:2]],
        "flower_fedavg_load": [round(load, 1) for load in loads[1:]],
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="5 rounds of the small model, and a shorter look at idling"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--memory", type=int, metavar="PARAMETERS", help="only choral, for its memory")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "lab"), os.environ.get("PYTHONPATH", "")])
    rounds = 3 if args.memory else 5 if args.quick else 8
    if args.memory:
        seconds, size, memory = choral_seconds(args.nodes, args.memory, rounds)
        reported: dict[str, Any] = {"parameters": size, "seconds": seconds, "most_memory_mib": memory}
    else:
        sizes = {
            name: size for name, size in (("small", 1000), ("million", 1_000_000)) if size == 1000 or not args.quick
        }
        reported = {name: compare(args.nodes, size, rounds) for name, size in sizes.items()}
        reported = {
            "seconds_per_round": reported["small"]["choral_s"],
            "flower_fedavg_seconds_per_round": reported["small"]["flower_fedavg_s"],
            **reported,
            "idle": idle_traffic(args.nodes, 30.0 if args.quick else 60.0),
        }
    reported = {
        "nodes": args.nodes,
        "rounds": rounds,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        **reported,
    }
    print(json.dumps(reported, indent=None if args.json else 1), file=sys.stdout)


if __name__ == "__main__":
    main()
