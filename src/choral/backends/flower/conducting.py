"""The server's half, next to its SuperLink: runs the study that it was started for, for whatever run is asked for.

What a run's app bundle names as its server is not looked at: whoever could ask for a run could else name its code.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from choral.backends.flower import conductor_named, tasks
from choral.backends.flower.enclosed import NOWHERE, over
from choral.backends.flower.grid import GridTransport
from choral.errors import ChoralError


class SocketGrid(HttpGrid):
    """Flower's grid, through the SuperLink's socket."""

    def __init__(self, link: Path, token: str) -> None:
        super().__init__(NOWHERE, insecure=True, token=token)
        self._link = link

    def _connect(self) -> None:
        super()._connect()
        over(self._runtime_client, self._link)


def conduct(link: Path, conductor: str, study: str, nodes: Mapping[int, str] | None, token: str) -> None:
    """Run a study over the grid of one task, and tell the SuperLink how it ended."""
    with tasks.client(link, token) as client, tasks.heartbeats(client):
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid = SocketGrid(link, token)
        grid.set_run(run_from_proto(task.run))
        status, details = SubStatus.FAILED, "it ended without a reason."
        try:
            conductor_named(conductor)(study, GridTransport(grid, nodes=nodes))
            status, details = SubStatus.COMPLETED, ""
        except ChoralError as error:
            details = str(error)
            print(details, file=sys.stderr, flush=True)
        except Exception as error:
            details = f"the conductor failed ({type(error).__name__})."
            traceback.print_exc()
        finally:
            client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
            grid.close()


def main() -> int:
    """Read the command line and work until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--link", required=True, type=Path, help="socket of the SuperLink")
    parser.add_argument("--study", required=True, help="the study's folder")
    parser.add_argument("--conductor", required=True, help="module:function that runs a study over a transport")
    parser.add_argument("--nodes", type=Path, help="a file that says which device each node is, by its key")
    parser.add_argument("--poll", type=float, default=0.5, help="seconds between looks for a run")
    args = parser.parse_args()
    nodes = None if args.nodes is None else {int(node): id for node, id in json.loads(args.nodes.read_text()).items()}
    do = partial(conduct, args.link, args.conductor, args.study, nodes)
    tasks.work(args.link, TaskType.SERVER_APP, do, poll=args.poll)
    return 0


if __name__ == "__main__":
    sys.exit(main())
