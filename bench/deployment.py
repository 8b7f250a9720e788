"""A round between processes: choral over Flower next to plain Flower FedAvg, on the same loopback deployment.

    python -m bench.deployment [--quick] [--json]
    python -m bench.deployment --memory 10000000 --json

Both sides run a SuperLink with TLS and SuperNode authentication and the same number of SuperNodes, one after the other.
choral's sites train one noisy step, charge a ledger on disk, mask and open; Flower's clients send the model back as it
came, without privacy or masks. choral's nodes are as `choral device run` starts them, Flower's as `flower-supernode`
does, with a new process for each message. A SuperNode asks for messages every 3 s when it has none: that is most of
both figures, and a choral round takes two exchanges, FedAvg one. Seconds are medians over rounds without the first.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from choral.backends.flower import processes
from choral.backends.flower.children import QUIET
from choral.deploy.certificates import new_authority, node_key, server_certificate
from choral.deploy.local import LocalDeployment

ROOT = Path(__file__).resolve().parent.parent
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
serverapp = "bench.deployment_peer:server"
clientapp = "bench.deployment_peer:client"
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
    kinds = {"device run": "agent", "flower-supernode": "supernode", "flower.executor": "relay", "flower.gate": "gate",
             "flower-superlink": "superlink", "flower.conducting": "conductor"}  # fmt: skip
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


def flower_seconds(nodes: int, parameters: int, rounds: int) -> list[float]:
    """The seconds of each round of plain FedAvg."""
    with tempfile.TemporaryDirectory(prefix="bench") as made, processes.Children() as children:
        folder, address = Path(made), processes.free_address()
        authority = new_authority("bench")
        server = server_certificate(authority, "127.0.0.1")
        for name, text in (("ca.pem", authority.certificate), ("s.pem", server.certificate), ("s.key", server.key)):
            (folder / name).write_text(text)
        keys = [node_key() for _ in range(nodes)]
        host, _, port = address.rpartition(":")
        words = ["--host", host, "--port", port, "--ssl-certfile", str(folder / "s.pem"), "--ssl-keyfile",
                 str(folder / "s.key"), "--ssl-ca-certfile", str(folder / "ca.pem"), "--enable-supernode-auth",
                 "--database", str(folder / "superlink.db")]  # fmt: skip
        children.start("superlink", [processes.command("flower-superlink"), *words], folder / "server")
        children.await_listener("the SuperLink", address)
        with processes.Control(address, authority=folder / "ca.pem") as control:
            control.admit([public for _, public in keys])
            for number, (secret, _) in enumerate(keys):
                home = folder / f"n{number}"
                home.mkdir()
                (home / "node.key").write_bytes(secret)
                host, _, port = processes.free_address().rpartition(":")
                words = ["--superlink", address, "--root-certificates", str(folder / "ca.pem"), "--host", host,
                         "--port", port, "--auth-supernode-private-key", str(home / "node.key")]  # fmt: skip
                children.start(f"node{number}", [processes.command("flower-supernode"), *words], home)
            app = folder / "app"
            app.mkdir()
            out = folder / "out.json"
            (app / "pyproject.toml").write_text(APP.format(nodes=nodes, parameters=parameters, rounds=rounds, out=out))
            home = folder / "flwr"
            home.mkdir()
            (home / "config.toml").write_text(
                f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "{address}"\n'
                f'root-certificates = "{folder / "ca.pem"}"\n'
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


def compare(nodes: int, parameters: int, rounds: int) -> dict[str, Any]:
    """Both sides with one number of parameters."""
    ours, size, memory = choral_seconds(nodes, parameters, rounds)
    peer = flower_seconds(nodes, size, rounds)
    return {
        "parameters": size,
        "choral_s": round(statistics.median(ours), 2),
        "choral_spread_s": [round(min(ours), 2), round(max(ours), 2)],
        "flower_fedavg_s": round(statistics.median(peer), 2),
        "flower_fedavg_spread_s": [round(min(peer), 2), round(max(peer), 2)],
        "choral_over_fedavg": round(statistics.median(ours) / statistics.median(peer), 2),
        "most_memory_mib": memory,
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 rounds of the small model in place of 8 of both")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--memory", type=int, metavar="PARAMETERS", help="only choral, for its memory")
    args = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    rounds = 3 if args.memory or args.quick else 8
    if args.memory:
        seconds, size, memory = choral_seconds(args.nodes, args.memory, rounds)
        reported: dict[str, Any] = {"parameters": size, "seconds": seconds, "most_memory_mib": memory}
    else:
        sizes = (1000,) if args.quick else (1000, 1_000_000)
        reported = {f"{size:.0e}": compare(args.nodes, size, rounds) for size in sizes}
    reported = {"nodes": args.nodes, "rounds": rounds, "cores": os.cpu_count(), **reported}
    print(json.dumps(reported, indent=None if args.json else 1), file=sys.stdout)


if __name__ == "__main__":
    main()
