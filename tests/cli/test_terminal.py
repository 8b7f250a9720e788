"""What a person sees while a run goes: on a terminal, wide or narrow, without colours, and when quiet.

The terminal is a real one: a pseudo-terminal of so many columns, and a process of its own on it.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from choral.cli import terminal

SRC = Path(__file__).parent.parent.parent / "src"
COLOUR = re.compile(rb"\x1b\[[\d;]*(3[0-7]|38;5;\d+|38;2;[\d;]+|9[0-7])[\d;]*m")
ANY_CODE = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
JOB = """\
[privacy]
epsilon = 8.0
delta = 1e-4
[federation]
devices = 4
cohort = 4
rounds = 3
[local]
steps = 2
batch = 8
step_size = 0.5
clip = 1.0
[data]
csv = "rows.csv"
classes = ["0", "1"]
[data.columns.x]
bounds = [0, 1]
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    rows = "".join(f"{i % 97 / 97:.3f},{int(i % 97 > 48)}\n" for i in range(400))
    (folder / "rows.csv").write_text("x,label\n" + rows)
    (folder / "choral.toml").write_text(JOB)
    return folder


@pytest.fixture(scope="module")
def quiet(job):
    """A run in the folder "quiet", and what it printed."""
    printed, status = on_a_terminal(job, 80, "simulate", "choral.toml", "--quiet", "--out", "quiet")
    assert status == 0, printed.decode()
    return printed


def on_a_terminal(folder, columns, *words, **variables):
    """Everything that a choral prints on a terminal of so many columns, and its exit status."""
    screen, keyboard = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    # One after the other, these processes compile the same programs: here, and not in the home folder.
    kept |= {"TERM": "xterm-256color", "PYTHONPATH": str(SRC), "CHORAL_CACHE": str(folder / "compiled"), **variables}
    command = [sys.executable, "-m", "choral", *words]
    child = subprocess.Popen(command, cwd=folder, env=kept, stdin=keyboard, stdout=keyboard, stderr=keyboard)
    os.close(keyboard)
    printed = b""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:  # how Linux tells that the other end is closed
            break
        if not part:
            break
        printed += part
    os.close(screen)
    return printed, child.wait()


def what_stays(printed):
    """The lines that are left on the screen, by the few codes that are used: up, erase the line, return."""
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", printed.decode()):
        if part == "\n":
            at += 1
            lines += [""] * (at == len(lines))
        elif part == "\x1b[1A":
            at -= 1
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part[0] not in "\x1b\r":
            lines[at] += part
    return lines


def test_a_run_shows_its_bars_with_the_time_left_and_fits_a_narrow_terminal(job):
    printed, status = on_a_terminal(job, 40, "simulate", "choral.toml", "--compare", "--out", "run")
    assert status == 0, printed.decode()
    text = ANY_CODE.sub("", printed.decode())
    for label in ("PLAN ━", "ROUND 0/3 ━", "NO NOISE 0/1 ━", "EACH ALONE 0/4 ━"):
        assert label in text
    assert re.search(r"ROUND 3/3 ━+ \d\d:\d\d left", text)
    assert re.search(r"PLAN [━╸╺]+ \d:\d\d:\d\d \d\d:\d\d left", text), "planning, too, says how long it will take"
    assert COLOUR.search(printed)
    stays = what_stays(printed)
    assert not any("━" in line for line in stays), "bars go when they are done"
    assert max(map(len, stays)) <= 40
    assert any(re.fullmatch(r"  device 1  [█▏▎▍▌▋▊▉░]{5} \d\.\d\d / 8\.00     3/3(  full)?", line) for line in stays)


def long(verb):
    return pytest.param(verb, marks=pytest.mark.long)


LONG_VERBS = {
    "verify": (["verify", "quiet"], r"CHECK [3-6]/\d [━╸╺]+ \d\d:\d\d left"),
    "plan": (["plan", "--epsilon", "1", "--devices", "9", "--rows", "500", "--features", "9"], r"PLAN .* left"),
    "a case": (["audit", "--case", "theorem-1-convex", "--trainings", "50000"], r"WORLD 2 OF 2 +7/7 [━╸╺]+ .* left"),
    "an audit": (
        ["audit", "choral.toml", "--trainings", "2000"],
        r"(?s)PLAN .* left.*WORST CASE .* left.*ONE RUN .* left",
    ),
}


@pytest.mark.parametrize(
    "verb", ["verify", "plan", *(pytest.param(one, marks=pytest.mark.long) for one in ("a case", "an audit"))]
)
def test_every_verb_that_takes_seconds_shows_how_long_it_will_take(verb, job, request):
    words, bars = LONG_VERBS[verb]
    if verb == "verify":
        request.getfixturevalue("quiet")
    printed, status = on_a_terminal(job, 80, *words)
    assert status == 0, printed.decode()
    assert re.search(bars, ANY_CODE.sub("", printed.decode()))
    assert not any("━" in line for line in what_stays(printed)), "bars go when they are done"


@pytest.mark.long
def test_the_attack_shows_how_long_it_will_take(job):
    printed, status = on_a_terminal(job, 80, "attack")
    assert status == 0
    assert re.search(
        r"(?s)PLAN .* left.*ON UPDATES 256/256 .* left.*ON MODELS 20/20", ANY_CODE.sub("", printed.decode())
    )


def test_no_color_means_none(job):
    printed, status = on_a_terminal(job, 80, "simulate", "choral.toml", "--out", "plain", NO_COLOR="1")
    assert status == 0
    assert b"ROUND" in printed
    assert not COLOUR.search(printed)


def test_quiet_means_one_line(quiet):
    assert quiet.startswith(b"accuracy ")
    assert quiet.count(b"\n") == 1
    assert b"\x1b" not in quiet


def test_lines_are_wrapped_to_the_terminal_and_never_beyond_80_columns(monkeypatch):
    for reported, width in (("40", 40), ("200", 80)):
        monkeypatch.setenv("COLUMNS", reported)
        assert terminal.width() == width
        assert max(map(len, terminal.wrap("NOTE  " + "word " * 50).split("\n"))) in range(width - 5, width + 1)


def test_whatever_a_verb_prints_is_text_on_either_stream_and_lines_still_end(capsys):
    with terminal.filtered():
        print("a\x1b[2Jb\u202ec\nd")
        print("e\x9b1A\rf", file=sys.stderr)
    printed = capsys.readouterr()
    assert printed.out == "a\\x1b[2Jb\\u202ec\nd\n" and printed.err == "e\\x9b1A\\rf\n"
