"""The server's half, next to its SuperLink: runs the study that it was started for, for whatever run is asked for.

What a run's app bundle names as its server is not looked at: whoever could ask for a run could else name its code.
"""

import argparse
import contextlib
import json
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import httpx
from flwr.app import Message
from flwr.common.serde import run_from_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PullObjectResponse
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    AcquireTaskResponse,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PullTaskInputResponse,
    PushTaskOutputRequest,
    PushTaskOutputResponse,
    SendTaskHeartbeatRequest,
    SendTaskHeartbeatResponse,
)
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from choral.backends.flower.api import COMPLETED, FAILED, HEARTBEAT, SERVER_APP, WAKE_UP, Api, wake_up
from choral.backends.flower.enclosed import NOWHERE, speak_through
from choral.backends.flower.grid import GridTransport, conductor_named
from choral.core.errors import ChoralError

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


class SocketGrid(HttpGrid):
    """Flower's grid, through the SuperLink's socket; the gate hears at once that there are messages for the nodes."""

    def __init__(self, link: Path, token: str) -> None:
        super().__init__(NOWHERE, insecure=True, token=token)
        self._link = link
        self._arriving: dict[str, Arriving] = {}  # replies that have begun to arrive, by the message that they answer

    def _connect(self) -> None:
        super()._connect()
        speak_through(self._runtime_client, self._link)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push the messages, and wake up the gate."""
        ids = super().push_messages(messages)
        wake_up(self._link.with_name(WAKE_UP))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies to these messages that have arrived whole.

        Flower's own way waits for the pieces of a reply that has begun to arrive, a whole second at the least, and the
        other replies wait with it.
        """
        client, run, wanted = self._runtime_client, self.run.run_id, set(message_ids)
        self._arriving = {asked: reply for asked, reply in self._arriving.items() if asked in wanted}
        if unheard := wanted - self._arriving.keys():  # a reply is announced once
            found = client.PullMessages(PullAppMessagesRequest(message_ids=unheard))
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                self._arriving[message.metadata.reply_to_message_id] = Arriving(tree)

        def pull(piece: str) -> bytes | None:
            found: PullObjectResponse = client.PullObject(
                PullObjectRequest(node=self.node, run_id=run, object_id=piece)
            )
            return found.object_content if found.object_found and found.object_available else None

        whole = {asked: made for asked, reply in self._arriving.items() if (made := reply.whole(pull))}
        for asked, made in whole.items():
            message = self._arriving.pop(asked).tree.object_id
            client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=message)
            )
            yield made


class Arriving:
    """A reply whose pieces come one after the other."""

    def __init__(self, tree: ObjectTree) -> None:
        self.tree, self._pieces, self._broken = tree, dict[str, bytes](), False

    def whole(self, pull: Callable[[str], bytes | None]) -> Message | None:
        """The reply, or None while `pull` has no content for a piece; what was there is not asked for again."""
        if self._broken:
            return None
        for piece in iterate_object_tree(self.tree):
            if piece.object_id not in self._pieces:
                if (content := pull(piece.object_id)) is None:
                    return None
                self._pieces[piece.object_id] = content
        return self._made()

    def _made(self) -> Message | None:
        try:
            made = inflate_object_from_contents(self.tree.object_id, self._pieces)
        except Exception:  # whatever the pieces are: a node that sends nonsense has only lost its own answer
            made = None
        self._broken = not isinstance(made, Message)
        if not isinstance(made, Message):
            return None
        made.metadata.__dict__["_message_id"] = self.tree.object_id
        return made


def conduct(link: Path, conductor: str, study: str, nodes: Mapping[int, str] | None, token: str) -> None:
    """Run a study over the grid of one task, and tell the SuperLink how it ended."""
    with Api(link, token=token) as api, heartbeats(api):
        task = api.ask("/v1/runtime/pull-task-input", PullTaskInputRequest(), PullTaskInputResponse)
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        grid = SocketGrid(link, token)
        grid.set_run(run_from_proto(task.run))
        status, details = FAILED, "it ended without a reason."
        try:
            conductor_named(conductor)(study, GridTransport(grid, nodes=nodes))
            status, details = COMPLETED, ""
        except ChoralError as error:
            details = str(error)
            print(details, file=sys.stderr, flush=True)
        except Exception as error:
            details = f"the conductor failed ({type(error).__name__})."
            traceback.print_exc()
        finally:
            ended = PushTaskOutputRequest(sub_status=status, details=details)
            api.ask("/v1/runtime/push-task-output", ended, PushTaskOutputResponse)
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
    work(args.link, SERVER_APP, do, poll=args.poll)
    return 0


if __name__ == "__main__":
    sys.exit(main())
