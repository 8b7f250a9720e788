"""The live page of a run: on this machine only, behind a token, following the run's folder as it grows.

Nobody else may read it: it listens on loopback, every address starts with a random token, a Host header that is not
its own is refused (another site's name could be pointed at this machine), and the page loads nothing but its own files.
"""

import asyncio
import json
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from choral.core.errors import ConfigError, StorageError
from choral.record import of_right_form, read_run
from choral.report import charts
from choral.report.live_page import live_page
from choral.report.report_page import static
from choral.report.viewpoints import Viewpoint, viewpoint_of

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_LOOPBACK = "127.0.0.1"
_PAUSE = 0.25  # seconds between two looks at the folder
_BEAT = 60  # looks between two signs of life, by which a closed page is noticed
_WATCHED = ("run.json", "rounds.jsonl", "questions.jsonl", "result.json")
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def serve(folder: str | Path, *, port: int = 0, open_browser: bool = False, viewpoint: str | None = None) -> "LivePage":
    """The live page of a run folder, served from its own thread until it is closed.

    `viewpoint` is "server" or "device:NAME": the page then gets only what that party truly has.
    """
    about = read_run(folder).about  # what is no run folder is refused here, not in the browser
    page = LivePage(Path(folder), port, viewpoint_of(viewpoint, about))
    if open_browser:
        webbrowser.open(page.url)
    return page


class LivePage:
    """A page that is being served: its address, and the way to end it; a context manager."""

    def __init__(self, folder: Path, port: int, viewpoint: Viewpoint = None) -> None:
        try:
            import starlette.applications  # noqa: F401 - asked for before anything listens
            import uvicorn
        except ImportError:
            raise ConfigError(
                "CH106",
                "the live page needs starlette and uvicorn.",
                where="choral watch",
                fix='Use: pip install "choral[live]"',
            ) from None
        self._socket = _listen(port)
        self._stopping, self._ended = threading.Event(), False
        token = secrets.token_urlsafe(24)
        number = self._socket.getsockname()[1]
        hosts = (f"{_LOOPBACK}:{number}", f"localhost:{number}")
        self.url = f"http://{hosts[0]}/{token}/"
        self._server = uvicorn.Server(
            uvicorn.Config(
                _application(partial(_follow, folder, viewpoint, self._stopping), token, hosts),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=2,
            )
        )
        self._thread = threading.Thread(target=self._run, name="choral-live", daemon=True)
        self._thread.start()
        while not self._server.started and not self._ended:
            time.sleep(0.01)

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended = True

    def __repr__(self) -> str:
        """Without the address: its token is a secret."""
        return "LivePage(…)"

    def wait(self) -> None:
        """Return when the page has been closed."""
        # Not by join alone: in Python 3.11 a thread whose join is interrupted by Ctrl-C counts as ended. Nor by an
        # event: Ctrl-C at a bad moment leaves its lock taken, and the thread would wait for it forever.
        while not self._ended:  # in short steps, so that Ctrl-C comes through everywhere
            time.sleep(_PAUSE)
        self._thread.join()

    def close(self) -> None:
        """End the page; open browsers are notified."""
        self._stopping.set()
        self._server.should_exit = True
        self.wait()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_LOOPBACK, port))
    except (OSError, OverflowError):
        listener.close()
        raise ConfigError(
            "CH102",
            f"port {port} can't be used on this machine.",
            where="--port",
            fix="Use --port 0 for any that is free.",
        ) from None
    return listener


def _application(follow: Callable[[], AsyncIterator[str]], token: str, hosts: tuple[str, ...]) -> "Starlette":
    from starlette.applications import Starlette
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    pages = {"": "live.html", "live.js": "live.js", "live.css": "live.css", "theme.css": "theme.css"}
    content = {name: static(file) for name, file in pages.items()}
    content["theme.css"] += charts.STYLE
    expected = token.encode()

    async def answer(request: "Request") -> "Response":
        given, slash, name = request.path_params["path"].partition("/")
        # Compared in constant time, so that the token can't be found digit by digit.
        if request.headers.get("host") not in hosts or not secrets.compare_digest(given.encode(), expected):
            return Response("403: the address is printed by choral watch\n", 403, HEADERS, "text/plain")
        if slash and name == "events":
            return StreamingResponse(follow(), 200, HEADERS, "text/event-stream")
        if slash and name in content:
            kind = _KINDS[pages[name].rpartition(".")[2]]
            return Response(content[name], 200, HEADERS, kind)
        return Response("404: no such page\n", 404, HEADERS, "text/plain")

    return Starlette(routes=[Route("/{path:path}", answer)])


async def _follow(folder: Path, viewpoint: Viewpoint, stopping: threading.Event) -> AsyncIterator[str]:
    """Server-sent events: the places of the page whose content has changed, until the run has ended."""
    shown: dict[str, str] = {}
    seen: object = None
    looks = 0
    while True:
        closing = stopping.is_set()  # read before the last look, which then misses nothing
        state = [_state(folder / name) for name in _WATCHED]
        if state != seen:
            seen = state
            try:
                record = await asyncio.to_thread(read_run, folder)
                with of_right_form(folder):
                    places = live_page(record, viewpoint)
            except StorageError as error:
                yield _event("fault", str(error))
                return
            for place, markup in places.items():
                if shown.get(place) != markup:
                    shown[place] = markup
                    yield _event("place", {"place": place, "markup": markup})
            if record.result is not None:
                yield _event("end", "the run has ended")
                return
        if closing:
            yield _event("fault", "this page's server was closed")
            return
        looks += 1
        if looks % _BEAT == 0:
            yield ": still here\n\n"
        await asyncio.sleep(_PAUSE)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"  # ASCII and one line, whatever the data holds
