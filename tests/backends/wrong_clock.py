"""Python processes on a machine whose clock is wrong, without a machine: they load this first, by its other name."""

import contextlib
import os
from pathlib import Path

_SHIFT = """
import datetime, time, types

apart, right = {seconds!r}, time.time
time.time = lambda: right() + apart


class Wrong(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.now(tz) + datetime.timedelta(seconds=apart)


from flwr.supercore import date  # every time that Flower tells or compares comes from here

date.datetime = types.SimpleNamespace(datetime=Wrong, UTC=datetime.UTC)
"""


@contextlib.contextmanager
def wrong_clock(folder: Path, seconds: float):
    """Whatever Python is started in this block has a clock that is wrong by so many seconds."""
    (folder / "sitecustomize.py").write_text(_SHIFT.format(seconds=seconds))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [before])])
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
