"""Installs each peer into its own environment under .bench, so that no peer bends another's versions.

A peer is a file `bench/peers/<name>.txt` of pip requirements; its environment is `.bench/<name>`. A peer that can't be
installed here does not stop the others: the figures compared with it become null, with that reason.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".bench"


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment."""
    return ENVIRONMENTS / peer / "bin" / "python"


def install(requirements: Path) -> None:
    """Make the peer's environment, unless it is there and made from the same requirements."""
    place = ENVIRONMENTS / requirements.stem
    stamp = place / "requirements.txt"
    if stamp.exists() and stamp.read_text() == requirements.read_text():
        return
    print(f"installing {requirements.stem} ...", file=sys.stderr)
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    alone = ["--no-deps"] if requirements.read_text().startswith("# alone") else []  # the file lists all that is needed
    command = [python_of(requirements.stem), "-m", "pip", "install", "-q", *alone, "-r", requirements]
    if subprocess.run(command).returncode:
        print(f"{requirements.stem} can't be installed here", file=sys.stderr)
        shutil.rmtree(place)
    else:
        shutil.copy(requirements, stamp)


if __name__ == "__main__":
    for requirements in sorted((HERE / "peers").glob("*.txt")):
        install(requirements)
