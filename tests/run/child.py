"""A run in a process of its own that ends itself by SIGKILL at its n-th durable step; used by test_crash.

python child.py KIND FOLDER STEP LOG LAW: starts the run, or resumes it if the folder holds one; STEP 0 never kills.
Every mask key that is put on an update is noted in LOG before the update can leave.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

from choral.core import device
from choral.run.folder import RunFolder
from choral.run.runs import Run, resume
from tests.run.small import rows, study

# Far above what the noise is made for: a crash costs a rehearsal budget, and must not be why a run ends early here.
LIMITS = {f"device {number}": 100.0 for number in range(1, 7)}


def die_at(step: int) -> None:
    count = 0

    def counted(real):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in ("fsync", "replace", "write", "link", "ftruncate"):
        setattr(os, name, counted(getattr(os, name)))


def note_masks(log: Path) -> None:
    real = device.add_masks

    def noted(words, masks):
        with log.open("a") as file:
            file.writelines(hashlib.sha256(mask.key).hexdigest() + "\n" for mask in masks)
        return real(words, masks)

    device.add_masks = noted


if __name__ == "__main__":
    kind, folder, step, log, law = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]
    strict = {} if law == "gaussian" else {"law": law, "local_steps": 1}
    note_masks(log)
    die_at(step)
    if (folder / "run.json").exists():
        run = resume(folder, rows())
    else:
        made = RunFolder(folder) if folder.exists() else RunFolder.create(folder)
        run = Run(kind, study(limits=LIMITS, **strict), folder=made)
    run.finish()
