"""`python -m choral` is `choral`."""

import sys

from choral.cli import main

sys.exit(main())
