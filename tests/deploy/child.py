"""`choral` in its own process, which writes by its end which modules it has loaded: child.py OUT words…"""

import atexit
import sys
from pathlib import Path

from choral.cli import main


def written(out: Path) -> None:
    """Write the names of the modules of choral, one per line."""
    names = sorted(name for name in sys.modules if name.partition(".")[0] == "choral")
    out.write_text("\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":  # pytest imports this file, too
    atexit.register(written, Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
