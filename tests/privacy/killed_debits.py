"""Kills a process that charges a ledger, over and over, at every step: `killed_debits.py FOLDER TIMES SEED`.

Each child opens the ledger, charges it twice and says "sent" after each charge. It is ended by a real SIGKILL: before a
chosen line of sealed.py or ledger.py, in the middle of a write, or by a killer outside at a random moment.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from choral.core import ledger, sealed
from choral.core.errors import LedgerError
from choral.core.events import Gaussian
from choral.core.ledger import Charge, Ledger
from choral.core.plan import Budget

LIMIT = Budget(epsilon=1000.0, delta=1e-5)
FILES = {sealed.__file__, sealed.__file__, ledger.__file__}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def debit(path: Path, trial: int, sent: int) -> None:
    with Ledger.open(path, limit=LIMIT) as book:
        for step in range(2):
            book.charge(Charge(rule="S1", plan="p", round=trial, attempt=step, event=Gaussian(mu=0.1)))
            os.write(sent, f"{trial} {step}\n".encode())


def before_line(number: int) -> None:
    """Kill this process before the n-th line of the ledger's code that it runs."""
    left = number

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                die()
        return trace

    sys.settrace(trace)


def in_a_write(number: int, share: float) -> None:
    """Kill this process when the n-th write to a ledger has stored a part of its bytes."""
    left, real = number, os.write

    def write(descriptor, data):
        nonlocal left
        if data.endswith(b"}\n"):
            left -= 1
            if left == 0:
                real(descriptor, data[: int(share * len(data))])
                die()
        return real(descriptor, data)

    os.write = write


def child(path: Path, trial: int, sent: int, dice: random.Random) -> None:
    kind = trial % 4
    if kind in (0, 1):
        before_line(dice.randrange(1, 400))
    elif kind == 2:
        in_a_write(dice.randrange(1, 4), dice.random())
    else:
        while True:  # until the killer outside comes
            debit(path, trial, sent)
            trial += 1_000_000
    debit(path, trial, sent)


def counted(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {f"{entry.round} {entry.attempt}" for entry in Ledger.read(path).balance.charges}


def main(folder: Path, times: int, seed: int) -> None:
    dice = random.Random(seed)
    reported = {"kills": 0, "sent": 0, "charged": 0, "torn": 0, "missing": 0, "extra": 0}
    path, promised = folder / "0.ledger", set()
    trial = 0
    while reported["kills"] < times:
        trial += 1
        if dice.random() < 0.3:  # a new ledger, so that its making is interrupted too
            path, promised = folder / f"{trial}.ledger", set()
        before = counted(path)
        reading, sent = os.pipe()
        pid = os.fork()
        if pid == 0:
            child(path, trial, sent, dice)
            os._exit(0)
        os.close(sent)
        if trial % 4 == 3:
            time.sleep(dice.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(reading) as pipe:
            new = set(pipe.read().splitlines())
        reported["kills"] += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        dice.random()  # the child's dice are a copy: move on
        promised |= new
        after = counted(path)  # always readable, or this raises
        reported["torn"] += path.exists() and Ledger.read(path).torn > 0
        reported["sent"] += len(new)
        reported["charged"] += len(after - before)
        reported["missing"] += len(promised - after) + len(before - after)
        reported["extra"] += max(0, len(after - before - new) - 1)  # one charge may have been on its way
        if path.exists():
            try:
                Ledger.open(path, limit=LIMIT).close()  # always usable again
            except LedgerError as error:
                reported["missing"] += error.code != "CH404"
    print(json.dumps(reported))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
