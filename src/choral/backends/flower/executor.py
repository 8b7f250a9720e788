"""A device's relay, next to its SuperNode: takes every message to the device's own process, and the answer back.

It never installs or runs anything of the server's: a message is bytes to hand on.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from flwr.common.constant import SubStatus
from flwr.supercore.constant import TaskType
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from choral.backends.flower import tasks
from choral.backends.flower.parcels import relayed


def carry(node: Path, door: Path, token: str) -> None:
    """Take one message to the device's process, and its answer back to the SuperNode."""
    with tasks.client(node, token) as client, tasks.heartbeats(client):
        message, context, _, _ = pull_task_input(client)  # the app bundle that comes along is not looked at
        push_message(client, relayed(message, door), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")


def main() -> int:
    """Read the command line and work until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True, type=Path, help="socket of the SuperNode")
    parser.add_argument("--door", required=True, type=Path, help="socket of the device's own process")
    parser.add_argument("--poll", type=float, default=0.3, help="seconds between looks for a message")
    args = parser.parse_args()
    tasks.work(args.node, TaskType.CLIENT_APP, partial(carry, args.node, args.door), poll=args.poll)
    return 0


if __name__ == "__main__":
    sys.exit(main())
