"""Pictures of charts: drawn with their words and colours, or not at all, and then it is said why."""

import struct
import zlib

import pytest

from choral.report.charts import Axis, Series, bar, line_chart
from choral_lab.research import pictures


@pytest.fixture(autouse=True)
def _asked_anew():
    pictures.why_not.cache_clear()
    yield
    pictures.why_not.cache_clear()


def pixels(picture):
    """Every (r, g, b) of an 8-bit PNG whose rows are not interlaced, by the PNG specification."""
    width, height, depth, colour = struct.unpack(">IIBB", picture[16:26])
    assert (depth, colour) == (8, 6)
    data, at = b"", 8
    while at < len(picture):
        (size,) = struct.unpack(">I", picture[at : at + 4])
        if picture[at + 4 : at + 8] == b"IDAT":
            data += picture[at + 8 : at + 8 + size]
        at += size + 12
    raw, stride, before, found = zlib.decompress(data), 4 * width, bytearray(4 * width), set()
    for row in range(height):
        kind, line = raw[row * (stride + 1)], bytearray(raw[row * (stride + 1) + 1 : (row + 1) * (stride + 1)])
        for i in range(stride):
            a, b, c = line[i - 4] if i > 3 else 0, before[i], before[i - 4] if i > 3 else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line[i] = (line[i] + (0, a, b, (a + b) // 2, paeth)[kind]) % 256
        found.update(zip(line[::4], line[1::4], line[2::4], strict=True))
        before = line
    return found


def test_a_picture_has_the_colours_of_white_paper(monkeypatch):
    monkeypatch.setattr(pictures, "WIDE", 120)
    if pictures.why_not():
        pytest.skip(pictures.why_not())
    picture = pictures.png_of(bar(0.5, title="half"))
    assert picture.startswith(b"\x89PNG")
    assert (0x00, 0x72, 0xB2) in pixels(picture)  # the first of Okabe and Ito's colours


def test_words_are_drawn():
    if pictures.why_not():
        pytest.skip(pictures.why_not())
    two = [(1, 0.5), (2, 0.75)]
    named, other = (
        pictures.png_of(
            line_chart([Series(name=name, points=two)], title="t", summary="", x=Axis(label="x"), y=Axis(label="y"))
        )
        for name in ("ε as published", "σ = 0.1")
    )
    assert named != other


def test_without_a_font_there_is_no_picture_and_it_is_said_why(monkeypatch):
    monkeypatch.setattr(pictures, "TEXT", pictures.TEXT.replace("DejaVu Sans", "No such font").replace(">ε<", "><"))
    assert "installed" in pictures.why_not()
    assert pictures.png_of(bar(0.5, title="half")) is None


def test_without_resvg_there_is_no_picture_and_it_is_said_why(monkeypatch):
    monkeypatch.setattr(pictures, "find_spec", lambda _: None)
    assert pictures.why_not() == "the extra png is not installed"
    assert pictures.png_of(bar(0.5, title="half")) is None
