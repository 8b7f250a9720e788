"""Tasks of a SuperLink or a SuperNode, taken through its socket by a process that was there before them.

Flower's own way is to start a new process for each task, with its token on the command line, and to run in it whatever
code a run has brought along. Here a task is a token in memory, and what is done with it was decided beforehand.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    AcquireTaskResponse,
    SendTaskHeartbeatRequest,
    SendTaskHeartbeatResponse,
)

from choral.backends.flower.api import HEARTBEAT, Api

_REST = 1.0  # seconds before the other side is tried again after it did not answer


def work(path: Path, kind: str, do: Callable[[str], None], *, poll: float) -> None:
    """Do every task of a kind, one after the other, for ever; each is known by its token."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever has started it ends it
    request = AcquireTaskRequest(supported_task_types=[kind])
    with Api(path) as asking:
        while True:
            try:
                task = asking.ask("/v1/runtime/acquire-task", request, AcquireTaskResponse)
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
def heartbeats(api: Api) -> Iterator[None]:
    """Signs of life while a task is done; without them the other side gives it up after two that are missing."""
    over = threading.Event()

    def beat() -> None:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                api.ask("/v1/runtime/send-task-heartbeat", SendTaskHeartbeatRequest(), SendTaskHeartbeatResponse)
            if over.wait(0.8 * HEARTBEAT):
                return

    sender = threading.Thread(target=beat, name="heartbeats", daemon=True)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
