"""The live page's server: loopback, token, host, policy; and a stream that follows the folder."""

import http.client
import json
import re
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

import pytest

from choral.core.errors import ConfigError, StorageError
from choral.report import serve
from tests.report.runs import make_run, result, round_line


@pytest.fixture
def live(tmp_path):
    with serve(make_run(tmp_path / "run", finished=False, done=2)) as page:
        yield page


def get(page, path=None, *, host=None, method="GET"):
    address = urlsplit(page.url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    try:
        connection.request(method, address.path if path is None else path, headers={"Host": host or address.netloc})
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


class Stream:
    """The events of a page, one after the other."""

    def __init__(self, page):
        address = urlsplit(page.url)
        self.connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
        self.connection.request("GET", address.path + "events")
        self.response = self.connection.getresponse()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.response.close()
        self.connection.close()

    def until(self, wanted):
        """The places sent so far, up to the first event that `wanted` takes."""
        places = {}
        while line := self.response.readline().decode():
            if line.startswith("event: "):
                name = line[7:].strip()
                data = json.loads(self.response.readline().decode()[6:])
                if name == "place":
                    places[data["place"]] = data["markup"]
                if wanted(name, data):
                    return places, data
        raise AssertionError("the stream ended early")


def test_with_the_token_the_page_and_its_files_are_there(live):
    path = urlsplit(live.url).path
    for name, kind in (("", "html"), ("live.js", "javascript"), ("live.css", "css"), ("theme.css", "css")):
        status, headers, _ = get(live, path + name)
        assert (status, headers["Content-Type"]) == (200, f"text/{kind}; charset=utf-8")
    assert get(live, path + "nothing")[0] == 404
    assert get(live, path + "../../../run.json")[0] == 404


@pytest.mark.parametrize("path", ["/", "/live.js", "/events", "/x/", "//", "/%C3%A9/events", "/" + "A" * 32 + "/"])
def test_without_the_token_nothing_is_there(live, path):
    status, _, text = get(live, path)
    assert status == 403
    assert urlsplit(live.url).path.strip("/") not in text


def test_a_token_that_differs_in_one_letter_or_in_length_is_refused(live):
    token = urlsplit(live.url).path.strip("/")
    other = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert [get(live, f"/{wrong}/")[0] for wrong in (other, token[:-1], token + "A", token.swapcase())] == [403] * 4


def test_another_sites_name_pointed_at_this_machine_is_refused(live):
    number = urlsplit(live.url).port
    assert get(live, host=f"localhost:{number}")[0] == 200
    for host in (f"evil.example:{number}", "127.0.0.1", f"127.0.0.1.evil.example:{number}", f"[::1]:{number}"):
        assert get(live, host=host)[0] == 403


def test_every_answer_carries_the_policy(live):
    path = urlsplit(live.url).path
    for address in (path, path + "live.js", path + "nothing", "/"):
        _, headers, _ = get(live, address)
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy == {
            "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
            "img-src": "data:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
        }  # fmt: skip
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Server" not in headers
        assert "Access-Control-Allow-Origin" not in headers


def test_the_page_can_only_be_read(live):
    assert [get(live, method=method)[0] for method in ("POST", "PUT", "DELETE")] == [405] * 3


def test_it_listens_on_loopback_only_and_each_page_has_its_own_token(live, tmp_path):
    assert urlsplit(live.url).hostname == "127.0.0.1"
    with serve(tmp_path / "run") as other:
        tokens = {urlsplit(page.url).path.strip("/") for page in (live, other)}
        assert len(tokens) == 2
        assert all(len(token) == 32 for token in tokens)  # 24 random bytes in base64
        # Another of this machine's own addresses: Linux answers for the whole of 127/8 where a socket listens on all.
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", urlsplit(other.url).port), timeout=5).close()
    assert "…" in repr(live)
    assert not any(token in repr(live) for token in tokens)


def append(folder, line):
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(line)


def test_the_stream_follows_the_rounds_and_ends_with_the_run(live, tmp_path):
    folder = tmp_path / "run"
    about = json.loads((folder / "run.json").read_text())
    with Stream(live) as stream:
        places, _ = stream.until(lambda _, data: data["place"] == "events")
        assert "round 2 of 20" in places["progress"]
        assert set(places) >= {"title", "banner", "curve", "budgets", "cohort", "sees", "colluder-table", "claims"}
        line = json.dumps(round_line(3, [2] * 16, 10, 8))
        append(folder, line[:20])  # a round that is being written is neither shown nor a fault
        time.sleep(0.6)  # two looks of the server
        append(folder, line[20:] + "\n")
        places, _ = stream.until(lambda _, data: "round 3 of 20" in str(data))
        assert "banner" not in places  # only what has changed is sent again
        lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
        (folder / "result.json.new").write_text(json.dumps(result(about, lines, [2] * 16)))
        (folder / "result.json.new").rename(folder / "result.json")
        places, _ = stream.until(lambda name, _: name == "end")
        assert "all rounds done" in places["progress"]
        assert "ε\xa0≤" in places["colluder-table"]
        assert stream.response.read().strip() == b""


def test_a_damaged_line_is_reported_and_not_shown(live, tmp_path):
    append(tmp_path / "run", "not json <b>\n")
    with Stream(live) as stream:
        _, fault = stream.until(lambda name, _: name == "fault")
        assert re.match(r"CH802 .*line 3 is not JSON", fault)


def test_a_number_that_no_run_could_have_is_reported_and_ends_the_page_without_a_traceback(live, tmp_path, caplog):
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"rows": 2440,\n   "limit"', '"rows": 0,\n   "limit"'))
    with Stream(live) as stream:
        _, fault = stream.until(lambda name, _: name == "fault")
        assert re.match(r"CH802 .* has CH200 rows = 0\.", fault)
    assert "Traceback" not in caplog.text


def test_closing_ends_open_streams_and_the_thread(tmp_path):
    page = serve(make_run(tmp_path / "run", finished=False, done=1))
    with Stream(page) as stream:
        stream.until(lambda _, data: data["place"] == "events")
        page.close()
        assert stream.until(lambda name, _: name == "fault")[1] == "this page's server was closed"
    assert "choral-live" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(OSError, match="refused"):
        get(page)


def test_a_page_that_is_closed_right_after_the_end_still_shows_the_end(tmp_path):
    folder = tmp_path / "run"
    page = serve(make_run(folder, finished=False, done=20))
    with Stream(page) as stream:
        stream.until(lambda _, data: data["place"] == "events")
        make_run(folder)
        page.close()
        places, _ = stream.until(lambda name, _: name == "end")
        assert "Against everyone" in places["claims"]


def test_a_port_that_is_taken_or_is_none_is_refused_with_a_way_out(live, tmp_path):
    for port in (urlsplit(live.url).port, 65536, -1):
        with pytest.raises(ConfigError, match="CH102 --port") as caught:
            serve(tmp_path / "run", port=port)
        assert "--port 0" in str(caught.value)


@pytest.mark.parametrize("package", ["starlette.applications", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(package, tmp_path, monkeypatch):
    folder = make_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        serve(folder)
    assert str(caught.value) == (
        'CH106 choral watch the live page needs starlette and uvicorn. Use: pip install "choral[live]"'
    )


def test_what_is_no_run_folder_is_refused_before_anything_listens(tmp_path):
    with pytest.raises(StorageError, match="CH802"):
        serve(tmp_path)
