"""Why a site's node can't connect to its server, found by a request: the address, who answers, the two clocks.

A SuperNode that is not admitted ends or tries again without a message that a site's owner could use. So the site sends
its own request to the gate, which answers it with 404 and, as every HTTP server does, with the time.
"""

import http.client
import ssl
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path

from choral.backends.connecting import connection, proxy_for
from choral.backends.flower.api import AHEAD, BEHIND
from choral.core.errors import DeploymentError

# OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name: everything is verified but the dates. With a wrong
# clock a right certificate seems outdated, and the server's time is the one thing that tells the two apart.
_WITHOUT_DATES = ssl.VerifyFlags(0x200000)
_PATIENCE = 5.0  # seconds that a knock may take
_COARSE = 2.0  # seconds that the time in an answer may be old: the edge of what is taken counts as outside


class NobodyListensError(DeploymentError):
    """CH904 where the server's machine was reached and says that nobody listens at the port, as before the start."""


def check_reach(address: str, *, authority: Path, clock: Callable[[], float] = time.time) -> str:
    """The server's certificate, its dates unchecked; or why no node of this machine can connect: CH904, CH905."""
    ahead, shown = _knock(address, authority, clock)
    if not _COARSE - BEHIND < ahead < AHEAD:
        apart = f"{_span(ahead)} ahead of" if ahead > 0 else f"{_span(-ahead)} behind"
        raise DeploymentError(
            "CH905",
            f"this machine's clock is {apart} the server's ({address}).",
            why=f"Node authentication allows {AHEAD} s ahead and {BEHIND} s behind.",
            fix="Set the one that is wrong and use NTP: timedatectl shows it. The node goes on trying by itself.",
        )
    return shown


def _knock(address: str, authority: Path, clock: Callable[[], float]) -> tuple[float, str]:
    """How far this clock is ahead of the server's, and the certificate behind it, verified except for its dates."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority)
    context.verify_flags |= _WITHOUT_DATES
    line = connection(host.strip("[]"), int(port), timeout=_PATIENCE, context=context)
    try:
        line.connect()
        shown = ssl.DER_cert_to_PEM_cert(line.sock.getpeercert(binary_form=True) or b"")
        asked = clock()
        line.request("GET", "/")
        answer = line.getresponse()
        halfway = (asked + clock()) / 2
        return halfway - parsedate_to_datetime(answer.headers["date"]).timestamp(), shown
    except ssl.SSLCertVerificationError as error:
        raise _cut_off(
            f"whoever answers at {address} is not the server of the invitation: {error.verify_message}.",
            "Something in between may have taken its place; ask the coordinator by phone.",
        ) from None
    except (ssl.SSLError, http.client.HTTPException, TypeError, ValueError):
        raise _cut_off(f"what answers at {address} is no study's gate.", "Compare the address.") from None
    except ConnectionRefusedError as error:
        refused = _unanswered(address, error)
        if proxy_for(host.strip("[]")) is not None:  # then it is the proxy that could not be reached
            raise refused from None
        raise NobodyListensError(refused.code, refused.what, fix=refused.fix) from None
    except OSError as error:
        raise _unanswered(address, error) from None
    finally:
        line.close()


def _unanswered(address: str, error: OSError) -> DeploymentError:
    reason = str(error.strerror or error).rstrip(".")
    return _cut_off(f"nobody answers at {address}: {reason}.", "Is the server up, and this way out open?")


def not_let_in(address: str) -> DeploymentError:
    """Why a node gives up though its server can be reached."""
    return _cut_off(
        f"the server at {address} does not let this node in.",
        "After a power cut it does so again within two minutes. If not, the study has another node key than this home: "
        "send the card again.",
    )


def _cut_off(what: str, fix: str) -> DeploymentError:
    return DeploymentError("CH904", what, fix=f"{fix} The node goes on trying by itself.")


def _span(seconds: float) -> str:
    """How long, in the unit that people would use.

    >>> _span(20.4), _span(7200), _span(3e7)
    ('20 s', '2.0 h', '347 days')
    """
    for unit, size, digits in (("days", 86400, 0), ("h", 3600, 1), ("min", 60, 0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"
