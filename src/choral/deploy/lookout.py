"""A site's lookout: tells why its node can't connect to the server, when that begins and when it is over."""

import threading
import time
from collections.abc import Callable

from choral.backends.connecting import Pauses
from choral.core.errors import ChoralError
from choral.deploy.agent import CUT_OFF, FINISHED, REACHED, Journal

EVERY = 30.0  # seconds between two looks
SOON = 3.0  # the same once the study is over, since the server is about to end, and first while something is in the way
RECENT = 60.0  # seconds for which a node that gave up counts as one that is not let in

Tell = Callable[[str], None]


class Lookout:
    """Looks by `check`, which raises what is in the way; `refused` is in the way if the node gives up nevertheless."""

    def __init__(
        self,
        check: Callable[[], None],
        refused: Callable[[], ChoralError],
        *,
        journal: Journal,
        tell: Tell,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._check, self._refused, self._journal, self._tell, self._over = check, refused, journal, tell, over
        self.finished = threading.Event()  # the site has signed the end of its study, and the server is gone
        self._pauses = Pauses(SOON, EVERY)
        self._gave_up: float | None = None
        self._now: tuple[str, str] | None = None  # the kind of what is in the way, and an empty one if nothing is

    def gave_up(self) -> None:
        """Note that the node has ended by itself a moment ago."""
        self._gave_up = time.monotonic()

    def watch(self, stop: threading.Event) -> None:
        """Look at once and then repeatedly; this needs its own thread, since an address may take long to be found."""
        while not stop.is_set():
            self.look()
            if self.finished.is_set():
                return
            if not self._is_cut_off:
                self._pauses.begin()
            stop.wait(SOON if self._over() else self._pauses.next() if self._is_cut_off else EVERY)

    def look(self) -> None:
        """Look once, and tell what has changed: to people in words, to the log by its code."""
        error = self._found()
        if error is not None and self._over():  # whoever has signed the end misses nothing when the server ends
            self._journal.note(FINISHED)
            self.finished.set()
            return
        # What to do about it identifies a kind: how much a clock is wrong, for example, changes all the time.
        kind = ("", "") if error is None else (error.code, error.fix)
        if kind == self._now:
            return
        before, self._now = self._now, kind
        if error is not None:
            self._journal.note(CUT_OFF, code=error.code)
            self._tell(str(error))
        else:
            self._journal.note(REACHED)
            if before is not None:
                self._tell("the server can be reached again.")

    @property
    def _is_cut_off(self) -> bool:
        return self._now is not None and self._now != ("", "")

    def _found(self) -> ChoralError | None:
        try:
            self._check()
        except ChoralError as error:
            return error
        recent = self._gave_up is not None and time.monotonic() - self._gave_up < RECENT
        return self._refused() if recent else None
