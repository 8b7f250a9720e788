"""A command at a terminal, as a person sees it: what it shows, and what is typed there."""

import os
import pty
import subprocess
import time
from typing import Self


class Terminal:
    """A process whose input and output are a terminal; whoever waits in vain for a text sees what came instead."""

    def __init__(self, words: list[str]) -> None:
        self._own, theirs = pty.openpty()
        environment = os.environ | {"TERM": "dumb", "COLUMNS": "80"}
        self.process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        os.set_blocking(self._own, False)
        self.shown = ""

    def until(self, text: str, seconds: float = 120.0) -> str:
        """Everything shown so far, once this text is part of it."""
        end = time.monotonic() + seconds
        while text not in self._read():
            assert time.monotonic() < end and self.process.poll() is None, (text, self.shown)
            time.sleep(0.05)
        return self.shown

    def type(self, line: str) -> None:
        """A line, and the key that ends it."""
        os.write(self._own, f"{line}\n".encode())

    def ended(self, seconds: float = 120.0) -> int:
        """The exit status of the command, which must end by itself."""
        status = self.process.wait(seconds)
        self._read()
        return status

    def _read(self) -> str:
        try:
            while data := os.read(self._own, 1 << 16):
                self.shown += data.decode().replace("\r\n", "\n")
        except OSError:  # nothing more is there now, or nobody writes any more
            pass
        return self.shown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)
