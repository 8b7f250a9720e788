"""A device's relay beside its SuperNode: takes every message to the device's own process, and the answer back.

Flower's own way is to start a new process for each message and to run in it whatever code the server has sent. This
one is there from the start, and it never installs or runs anything of the server's: a message is bytes to hand on.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from choral.backends.flower.parcels import relayed

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_REST = 1.0  # seconds before the SuperNode is tried again after it did not answer


def work(runtime: str, secret: bytes, door: Path, *, poll: float) -> None:
    """Carry messages between the SuperNode at `runtime` and the device's process, for ever."""
    signing = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods={_ACQUIRE})
    with _client(runtime, signing) as client:
        while True:
            try:
                task = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP]))
                if task.token:
                    _carry(runtime, task.token, door)
                else:
                    time.sleep(poll)
            except httpx.HTTPError:  # the SuperNode is starting, or the run has ended meanwhile
                time.sleep(_REST)


def _carry(runtime: str, token: str, door: Path) -> None:
    with _client(runtime, RuntimeTokenHttpInterceptor(token)) as client, _heartbeats(client):
        message, context, _, _ = pull_task_input(client)  # the app bundle that comes along is not looked at
        push_message(client, relayed(message, door), context)
        push_task_output(client, context, SubStatus.COMPLETED, "")


@contextlib.contextmanager
def _client(runtime: str, interceptor: ProtobufClientInterceptor) -> Iterator[RuntimeHttpClient]:
    """A connection to the SuperNode's side door, which is on this machine only."""
    client = RuntimeHttpClient.from_server_address(
        server_address=runtime,
        insecure=True,
        root_certificates=None,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), interceptor],
    )
    try:
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def _heartbeats(client: RuntimeHttpClient) -> Iterator[None]:
    """Signs of life while the device trains; without them the SuperNode gives the task up."""
    sender = HeartbeatSender(make_task_heartbeat_fn_http(client))
    sender.start()
    try:
        yield
    finally:
        if sender.is_running:
            sender.stop()


def main() -> int:
    """Read the command line and work until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", required=True, help="host:port of the SuperNode's Runtime API")
    parser.add_argument(
        "--secret", required=True, type=Path, help="file that the SuperNode's --superexec-auth-secret-file names"
    )
    parser.add_argument("--door", required=True, type=Path, help="socket of the device's own process")
    parser.add_argument("--poll", type=float, default=0.3, help="seconds between looks for a message")
    args = parser.parse_args()
    # Flower's heartbeat interrupts its process when a run has ended; this one goes on with the next.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work(args.runtime, args.secret.read_bytes(), args.door, poll=args.poll)
    return 0


if __name__ == "__main__":
    sys.exit(main())
