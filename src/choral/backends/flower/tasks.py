"""Tasks of a SuperLink or a SuperNode, taken through its socket by a process that was there before them.

Flower's own way is to start a new process for each task, with its token on the command line, and to run in it whatever
code a run has brought along. Here a task is a token in memory, and what is done with it was decided beforehand.
"""

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from choral.backends.flower.enclosed import NOWHERE, over

_REST = 1.0  # seconds before the other side is tried again after it did not answer


def work(path: Path, kind: TaskType, do: Callable[[str], None], *, poll: float) -> None:
    """Do every task of a kind, one after the other, for ever; each is known by its token."""
    # Flower's heartbeat interrupts its process when a run has ended; this one goes on with the next.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with client(path) as asking:
        while True:
            try:
                task = asking.AcquireTask(AcquireTaskRequest(supported_task_types=[kind]))
                if task.token:
                    do(task.token)
                else:
                    time.sleep(poll)
            except httpx.HTTPError:  # the other side is starting, or the run has ended meanwhile
                time.sleep(_REST)
            except (
                Exception
            ) as error:  # what one message brings must not end the work on the next; its text may be data
                print(f"a task failed: {type(error).__name__}", file=sys.stderr, flush=True)
                time.sleep(_REST)


@contextlib.contextmanager
def client(path: Path, token: str | None = None) -> Iterator[RuntimeHttpClient]:
    """A connection to the Runtime API at a socket, as the holder of a task's token or as nobody yet."""
    interceptors: list[ProtobufClientInterceptor] = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    if token is not None:
        interceptors.append(RuntimeTokenHttpInterceptor(token))
    made = RuntimeHttpClient.from_server_address(
        server_address=NOWHERE, insecure=True, root_certificates=None, interceptors=interceptors
    )
    with over(made, path):
        yield made


@contextlib.contextmanager
def heartbeats(client: RuntimeHttpClient) -> Iterator[None]:
    """Signs of life while a task is done; without them the other side gives it up."""
    sender = HeartbeatSender(make_task_heartbeat_fn_http(client))
    sender.start()
    try:
        yield
    finally:
        if sender.is_running:
            sender.stop()
