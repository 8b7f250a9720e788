"""Follow a run on a live page in the browser, on this machine only.

The page shows the curve, each device's budget, who is in the round, and what
the server can and can't see; with --as, only what one side of the run knows:

    choral watch RUN --as server
    choral watch RUN --as "device:device 02"

The address contains a random token: do not share
it. Ctrl-C ends the page; the run goes on.
"""

import argparse
import json
from contextlib import suppress

from choral.report import serve


def configure(parser: argparse.ArgumentParser) -> None:
    """The run's folder, the port, and whether to open a browser."""
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument("--as", dest="side", metavar="SIDE", help="show only what the server or device:NAME knows")
    parser.add_argument("--port", type=int, default=0, help="a port of this machine; 0 takes any (default)")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    # Ctrl-C is the usual way to leave, not a failure.
    with (
        suppress(KeyboardInterrupt),
        serve(args.folder, port=args.port, open_browser=args.open, viewpoint=args.side) as live,
    ):
        print(json.dumps({"url": live.url}) if args.json else f"{live.url}  (Ctrl-C ends the page)", flush=True)
        live.wait()
    return 0
