"""`choral` in its own process, which writes by its end which modules it has loaded: child.py OUT words…"""

import atexit
import sys
from pathlib import Path

from choral.cli import main

OUT = Path(sys.argv[1])


@atexit.register
def written() -> None:
    """Write the names of the modules of choral, one per line."""
    names = sorted(name for name in sys.modules if name.partition(".")[0] == "choral")
    OUT.write_text("\n".join(names) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
