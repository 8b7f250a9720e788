"""It is what a site checks before its first round, and what to say to whoever can change it: IT or the coordinator."""

import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from choral.backends.connecting import proxy_for
from choral.config import read_text
from choral.core.errors import ChoralError, DeploymentError
from choral.core.printable import count
from choral.core.vault import Vault
from choral.deploy.agent import answers
from choral.deploy.certificates import check_dates, host_of
from choral.deploy.home import AUTHORITY, Home
from choral.deploy.ownership import is_open_to_others

# "later": what can only be found out once somebody has taken the next step; "look": what to know; "wrong": an obstacle.
State = Literal["ok", "look", "later", "wrong"]
LEAST_FREE = 200 * 2**20  # bytes: the ledger, the log, Flower's own files and the compiled step fit in a tenth of it


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of one check; `fix` says what to do, and who can do it, where something is not as it should be."""

    check: str
    state: State
    what: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """The same for machines."""
        return asdict(self)


Found = tuple[State, str, str]  # how it stands, what was found, and what to do
Check = Callable[[Home, str | None], Found]


def examine(home: Home, passphrase: str | None = None) -> Iterator[Checked]:
    """Each check in turn; nothing is sent that a stranger could not send, and nothing is charged or changed."""
    _ = home.joined  # nobody has joined: there is nothing to check
    for check in CHECKS:
        try:
            state, what, fix = check(home, passphrase)
        except ChoralError as error:
            state, what, fix = "wrong", _said(error), error.fix
        yield Checked(check=check.__name__.strip("_"), state=state, what=what, fix=fix)


def _said(error: ChoralError) -> str:
    """The error without its way out, which stands on a line below it."""
    return str(error).removesuffix(error.fix).strip()


def _keys(home: Home, passphrase: str | None) -> Found:
    home.vault(passphrase)
    if is_open_to_others(home.path):
        return "wrong", f"other users of this machine can open {home.path}.", f"chmod 700 {home.path}"
    return "ok", f"the vault opens, and only its owner can read {home.path}.", ""


def _disk(home: Home, passphrase: str | None) -> Found:  # noqa: ARG001 - every check has the same form
    free = shutil.disk_usage(home.path).free
    what = f"{free / 2**20:,.0f} MiB are free where the home is."
    if free < LEAST_FREE:
        fix = f"Free some space: {LEAST_FREE // 2**20} MiB are enough. A site refuses a round that it can't write down."
        return "wrong", what, fix
    return "ok", what, ""


def _address(home: Home, passphrase: str | None) -> Found:  # noqa: ARG001
    address = home.joined.server.address
    host = host_of(address)
    if proxy_for(host):
        return "ok", f"{host} is looked up by the proxy.", ""
    try:
        found = sorted({str(one[4][0]) for one in socket.getaddrinfo(host, None)})
    except OSError:
        return (
            "wrong",
            f"no DNS server that this machine asks knows {host}.",
            f"Ask the IT department for a DNS entry of {host}, or the coordinator whether the name is right.",
        )
    return "ok", f"{host} is {', '.join(found)}.", ""


def _proxy(home: Home, passphrase: str | None) -> Found:  # noqa: ARG001
    host = host_of(home.joined.server.address)
    proxy = proxy_for(host)
    if proxy is None:
        return "ok", "none is set for this address: the node calls out directly.", ""
    return (
        "look",
        f"calls to {host} go through {proxy}, as the environment says.",
        f"The proxy must pass CONNECT to {home.joined.server.address} and must not open its TLS.",
    )


def _server(home: Home, passphrase: str | None) -> Found:  # noqa: ARG001
    """The certificate, the clock and the way out: one connection distinguishes them."""
    from choral.backends.flower import reach  # Flower is an extra

    address, authority = home.joined.server.address, home.path / AUTHORITY
    way_out = (
        f"For the IT department: this machine opens TCP connections to {address}, TLS 1.3, HTTP over it, no inspection "
        "of the TLS. No port is opened here."
    )
    try:
        check_dates(reach.check_reach(address, authority=authority), read_text(authority))
    except reach.NobodyListensError:
        return (
            "later",
            f"the machine at {address} was reached, and nobody listens there: the server is not up yet. "
            "Nothing is wrong at this site.",
            "Check again when the coordinator says that the server runs. If it runs already, a firewall refuses "
            f"the connection. {way_out}",
        )
    except DeploymentError as error:
        if error.code != "CH904":
            raise
        return "wrong", _said(error), f"{error.fix} {way_out}"
    return "ok", f"{address} answers with the invitation's certificate, and the clocks agree.", ""


def _study(home: Home, passphrase: str | None) -> Found:
    if not home.has_approved:
        fix = "choral device approve STUDY …, when the coordinator has sent study.toml."
        return "later", "none is approved here yet.", fix
    study, approval = home.approved(home.vault(passphrase))
    return "ok", f"{study.file.name} is approved, since {approval.at}.", ""


def _table(home: Home, passphrase: str | None) -> Found:
    if not home.has_approved:
        return "later", "is compared with the one that is approved with a study.", ""
    vault: Vault = home.vault(passphrase)
    study, approval = home.approved(vault)
    held = home.approved_holdings(study, approval, vault)
    data = Path(approval.data).name
    return "ok", f"{data} is the approved table, with {count(held.trainer.rows, 'row')}.", ""


def _ledger(home: Home, passphrase: str | None) -> Found:
    if not home.has_approved and not home.ledger_path.exists():
        return "later", "begins with the first approval.", ""
    vault = home.vault(passphrase)
    if answers(home):
        return "ok", "the agent runs and holds it.", ""
    with home.open_ledger(vault) as ledger:
        spent = ledger.balance
        what = f"every line fits its seal; {count(len(spent.charges), 'charge')}."
    return "ok", what, ""


CHECKS: tuple[Check, ...] = (_keys, _disk, _address, _proxy, _server, _study, _table, _ledger)
