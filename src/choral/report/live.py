"""The live page of a run: on this machine only, behind a token, following the run's folder as it grows.

Nobody else may read it: it listens on loopback, every address starts with a random token, a Host header that is not
its own is refused (another site's name could be pointed at this machine), and the page loads nothing but its own files.
"""

import asyncio
import json
import math
import secrets
import socket
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from choral.accounting.words import up
from choral.core.errors import ConfigError, StorageError
from choral.record import About, Baselines, DeviceLimit, RunRecord, of_right_form, read_run
from choral.report import charts, report_page, words
from choral.report.markup import Markup, element, short, table, together
from choral.report.questions import asked_so_far
from choral.report.report_page import static
from choral.report.words import by_colluders

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

Viewpoint = Literal["server"] | int | None  # a device by its number; None for who ran it all in one process
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


class LivePage(AbstractContextManager["LivePage"]):
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


MOST_NAMES = 60  # devices of a cohort shown by name; more are counted
MOST_EVENTS = 40


def live_page(record: RunRecord, viewpoint: Viewpoint = None) -> dict[str, Markup]:
    """Every place of the page with what belongs there now: all of the run, or only what one side of it has."""
    if isinstance(viewpoint, int):
        return _device(taken(record, viewpoint), viewpoint)
    server = viewpoint == "server"
    record = served(record) if server else record
    return {
        "title": _seen_by(record, "the server") if server else together(record.about.name),
        "banner": report_page.banner(record),
        "progress": _progress(record),
        "status": _status(record),
        "curve-h": together("How good the model is"),
        "curve": report_page.merit_chart(record),
        "budgets-h": together("How often each device was asked" if server else "Budget of each device"),
        "budgets": asked(record) if server else report_page.budgets(record),
        "cohort": _cohort(record),
        "sees-h": together("What the server can and can't see"),
        "sees": together(
            _sees("The server", *words.server_sees(record.about.secure_sum, record.about.plan)),
            received(record),
        ),
        "colluder-table": _colluders(record),
        "claims": report_page.claims_table(record),
        "questions": asked_so_far(record),
        "events": _events(record),
    }


def _device(record: RunRecord, number: int) -> dict[str, Markup]:
    """The page of one device, of the record that it could have kept."""
    name = short(record.about.devices[number].name)
    said = own_progress(record, number)
    return {
        "title": _seen_by(record, name),
        "banner": report_page.banner(record),
        "progress": said,
        "status": said,
        "curve-h": together("What this device has spent"),
        "curve": own_curve(record, number),
        "budgets-h": together("Budget of this device"),
        "budgets": report_page.budgets(record, number),
        "cohort": _cohort(record),
        "sees-h": together("What this device can and can't see"),
        "sees": _sees("This device", *OWN_SIGHT),
        "colluder-table": _colluders(record),
        "claims": element(
            "p", "The run's report has these; a device by itself has its own ledger only.", class_="quiet"
        ),
        "questions": asked_so_far(record, number),
        "events": element(
            "ol",
            *(
                element("li", f"Round {line.round:,}: {'in the sum' if number in line.included else 'left out'}.")
                for line in reversed(record.rounds[-MOST_EVENTS:])
            ),
            reversed=True,
        ),
    }


def _seen_by(record: RunRecord, who: str) -> Markup:
    return together(f"{record.about.name}, as {who} sees it")


def _progress(record: RunRecord) -> Markup:
    done, planned = len(record.rounds), record.about.plan.rounds
    ended = record.result.stopped if record.result else ""
    good = [words.goodness(line.test) for line in record.rounds[-1:] if line.test]
    words_ = " · ".join([f"round {done:,} of {planned:,}", *good, *([f"ended: {ended}"] if record.result else [])])
    return together(element("progress", max=planned, value=done, aria_label="rounds done"), element("span", words_))


def _status(record: RunRecord) -> Markup:
    """The sentence that a screen reader speaks: at every tenth of the run and at its end, not at every round."""
    done, planned = len(record.rounds), record.about.plan.rounds
    if record.result:
        good = f"; {words.goodness(record.result.test)}" if record.result.test else ""
        return together(f"The run has ended after {words.count(done, 'round')}{good}.")
    tenth = max(planned // 10, 1)
    if done < tenth:
        return together("The run has begun.")
    line = record.rounds[done - done % tenth - 1]
    included = words.count(len(line.included), "device")
    return together(f"Round {line.round} of {planned}: {included} in the sum.")


def _cohort(record: RunRecord) -> Markup:
    if not record.rounds:
        return element("p", "No round is over yet.", class_="quiet")
    line = record.rounds[-1]
    asked, included = set(line.cohort), set(line.included)
    lead = element(
        "p",
        f"Round {line.round:,}: {words.count(len(asked), 'device')} asked, {len(included):,} in the sum, "
        f"{len(asked - included):,} dropped out.",
    )
    devices = record.about.devices
    if len(devices) > MOST_NAMES:
        return lead
    chips = []
    for number, device in enumerate(devices):
        state = "in" if number in included else "dropped" if number in asked else "not asked"
        sign = {"in": "●", "dropped": "✕", "not asked": "·"}[state]
        name = element("span", short(device.name, 20))
        chips.append(
            element(
                "li",
                element("span", f"{sign} ", aria_hidden="true"),
                name,
                element("small", f" {state}"),
                class_=state.split()[0],
            )
        )
    return together(lead, element("ul", *chips, class_="chips"))


def _sees(who: str, can: Sequence[str], cannot: Sequence[str]) -> Markup:
    return element(
        "div",
        element("div", element("h3", f"{who} can see"), element("ul", *(element("li", item) for item in can))),
        element("div", element("h3", "It can't see"), element("ul", *(element("li", item) for item in cannot))),
        class_="pair",
    )


def _colluders(record: RunRecord) -> Markup:
    """A row for every place of the slider; the page shows one of them at a time."""
    rows, secure = by_colluders(record), record.about.secure_sum
    if secure is None:
        return element("p", "There is no secure sum: colluders change nothing.")
    now = words.spent_so_far(record)
    body = [element("tr", element("th", f"{c}", scope="row"), element("td", text + now)) for c, _, text in rows]
    head = element("tr", element("th", "colluders", scope="col"), element("th", "what holds", scope="col"))
    return element("table", element("thead", head), element("tbody", *body), data_planned=secure.colluders)


def _events(record: RunRecord) -> Markup:
    events = [f"Started {words.when(record.about.started)}."]
    events += [f"Round {line.round:,}: {line.note}." for line in record.rounds if line.note]
    if record.result:
        events.append(f"Ended {words.when(record.result.finished)}: {record.result.stopped}.")
    return element("ol", *(element("li", sentence) for sentence in reversed(events[-MOST_EVENTS:])), reversed=True)


_SHOWN = 6  # words of a masked upload


def viewpoint_of(text: str | None, about: About) -> Viewpoint:
    """The viewpoint that `--as` names."""
    if text is None or text == "server":
        return "server" if text else None
    name = text.removeprefix("device:")
    names = [device.name for device in about.devices]
    if name == text or name not in names:
        known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise ConfigError("CH102", f'"{text}" is no side of this run.', where="--as",
                          fix=f'Use "server", or "device:NAME" with one of: {known}.')  # fmt: skip
    return names.index(name)


def served(record: RunRecord) -> RunRecord:
    """The record as the server could have kept it: no ledger, no update before its masks, no model but its own."""
    about = replace(record.about, devices=tuple(replace(one, limit=math.inf) for one in record.about.devices))
    lines = [replace(line, spent=()) for line in record.rounds]
    result = record.result
    if result is not None:
        result = replace(
            result,
            privacy=replace(result.privacy, devices=None),
            sight=result.sight and replace(result.sight, computed=()),
            baselines=Baselines(without_privacy=None, alone=None),
            verdict=None,
        )
    return RunRecord(folder=record.folder, about=about, rounds=lines, result=result)


def asked(record: RunRecord) -> Markup:
    """How often the server asked each device, and in how many sums it is: all that a server has of their budgets."""
    kept = "Each device's ledger stays on the device: the server knows only whom it asked and who answered."
    devices = record.about.devices
    if len(devices) > report_page.MOST_BARS:
        return element("p", kept, class_="quiet")
    rows = [
        (short(device.name), f"{_asked(record, number):,}", f"{_included(record, number):,}")
        for number, device in enumerate(devices)
    ]
    return together(table(("device", "asked", "in the sum"), rows), element("p", kept, class_="quiet"))


def _asked(record: RunRecord, number: int) -> int:
    return sum(number in line.cohort for line in record.rounds)


def _included(record: RunRecord, number: int) -> int:
    return sum(number in line.included for line in record.rounds)


def received(record: RunRecord) -> Markup:
    """The beginning of a masked upload, as the server got it."""
    sight = record.result and record.result.sight
    if not sight or sight.received is None:
        return Markup()
    begins = " ".join(f"{word % 2**32:08x}" for word in sight.received[:_SHOWN])
    sentence = f"Of {short(sight.device)} in round {sight.round} it received "
    return element("p", sentence, element("code", f"{begins} …"))


def taken(record: RunRecord, number: int) -> RunRecord:
    """The record as one device could have kept it: its own rounds, what it spent itself, no test figure, no result."""
    about, own = record.about, record.about.devices[number]
    # The others' rows are not known to it. Its own stand for them, so that only its own ledger's rule is named.
    devices = [DeviceLimit(name=device.name, rows=own.rows, limit=math.inf) for device in about.devices]
    devices[number] = own
    lines = []
    for line in record.rounds:
        if number in line.cohort:
            spent = tuple(epsilon * (place == number) for place, epsilon in enumerate(line.spent))
            lines.append(replace(line, test={}, spent=spent, note=""))
    about = replace(about, devices=tuple(devices))
    return RunRecord(folder=record.folder, about=about, rounds=lines, result=None)


def own_progress(record: RunRecord, number: int) -> Markup:
    """In how many rounds the device was asked, and in how many sums it is."""
    asked, included = len(record.rounds), _included(record, number)
    return element("span", f"asked in {words.count(asked, 'round')}, in the sum of {included:,}")


def own_curve(record: RunRecord, number: int) -> Markup:
    """The device's ε after each of its rounds, below its limit."""
    points = [(float(line.round), line.spent[number]) for line in record.rounds if line.spent]
    if not points:
        return report_page.not_yet(record)
    limit, last = record.about.devices[number].limit, float(record.about.plan.rounds)
    series = [charts.Series(name=f"spent: ε ≤ {up(points[-1][1])}", points=points)]
    if limit < 1e4:  # the largest that [privacy] takes; beyond, the ledger counts and refuses nothing
        across = [(points[0][0], limit), (last, limit)]
        series.append(charts.Series(name=f"limit: {up(limit)}", points=across, marks=False))
    return together(
        charts.line_chart(
            series,
            title="ε of this device",
            summary="; ".join(line.name for line in series),
            x=charts.Axis(label="round", whole=True, least=last),
            y=charts.Axis(label="ε", least=0.0),
            height=300,
        ),
        report_page.ledger_terms(record),
    )


OWN_SIGHT = (
    ("its own rows, its own update before masks, its own ledger", "the plan, and the model of every round it is in",
     "which devices are in its rounds, and who dropped out"),
    ("another device's rows, update or ledger", "the sum, before it is in the next model", "rounds that it is not in"),
)  # fmt: skip
