"""What other users of a machine can see and reach of some processes; tests run as root, and become nobody for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_BECOME = "import encodings.idna, json, os, socket, ssl, sys\n"
_BECOME += f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"


def as_nobody(script, *words):
    """What a script prints as JSON that runs as another user; everything that it imports is loaded before."""
    done = subprocess.run(
        [sys.executable, "-c", _BECOME + script, *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def words_of(pid):
    """The words of a process, as everybody sees them in `ps`."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]


def environment_of(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def peak(pid):
    """The most memory that a process has ever held, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def family(pid):
    """A process and all that it has started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def listeners(pids):
    """The TCP ports and the Unix sockets at which processes listen."""
    held = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(file)
            except OSError:
                continue
            if target.startswith("socket:["):
                held.add(target[8:-1])
    ports, paths = set(), set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in held:  # LISTEN
                ports.add(int(fields[1].rpartition(":")[2], 16))
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and int(fields[3], 16) & 0x10000 and fields[6] in held:  # accepts connections
            paths.add(fields[7])
    return ports, paths
