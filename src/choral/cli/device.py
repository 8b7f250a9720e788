"""Take part in a study with a table that never leaves this machine.

Keys are made here; the site's own limit always wins over what a server asks for;
connections go out only. Everything of a site lies in its home, a folder that
only its owner can read.
"""

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from choral.cli import approval, personal, service, terminal
from choral.cli import ledger as ledger_verb
from choral.cli.phases import phases
from choral.errors import CODES
from choral.printable import escaped
from choral.privacy.display import up

HOME = Path("~/.choral")
EPILOG = """\
in this order:
  choral device join invitation.toml --name hospital-a
  send hospital-a.card to the coordinator; get study.toml back
  choral device approve study.toml --max-epsilon 2 --data hospital-a.csv
  choral device approve study.toml --max-epsilon 2 --data hospital-a.csv --yes
  choral device run
  choral device personal --validation later-rows.csv"""


FORMAT = {
    "delimiter": "what separates its cells",
    "decimal": '"." or ","',
    "encoding": "utf-8, utf-16, cp1252, latin-1, …",
    "dates": '"day first" or "month first"',
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the phases of a site."""
    phase = phases(parser)
    join = phase("join", _join, "make this site's keys and its card")
    join.add_argument("invitation", type=Path, help="the coordinator's invitation.toml")
    join.add_argument("--name", required=True, help="this site's name in the study")
    join.add_argument("--card", type=Path, metavar="FILE", help="where to write the card (NAME.card)")
    join.add_argument("--again", action="store_true", help="keep this home's keys and ledger, follow a new invitation")
    approve = phase("approve", _approve, "show what a study would cost and send; with --yes, approve it")
    approve.add_argument("study", type=Path, help="the coordinator's study.toml")
    approve.add_argument(
        "--max-epsilon", type=float, required=True, metavar="X", help="ε that this data may lose in all"
    )
    approve.add_argument(
        "--max-epsilon-sum", type=float, metavar="X", help="ε that a server which sees only sums may learn in all"
    )
    approve.add_argument("--data", type=Path, required=True, metavar="FILE", help="this site's table, CSV or Parquet")
    for name, what in FORMAT.items():
        approve.add_argument(f"--{name}", metavar="X", help=f"of the table's file: {what} (as the file shows)")
    approve.add_argument("--outcome", metavar="COLUMN", help="the table's own column in the place of the study's label")
    approve.add_argument("--delta", type=float, metavar="X", help="δ (1e-5)")
    approve.add_argument("--smallest-crowd", type=int, metavar="N", help="honest devices that any sum must hold (2)")
    approve.add_argument(
        "--colluders", type=int, metavar="N", help="devices that the study must count as colluding (0)"
    )
    approve.add_argument(
        "--strike", action="append", metavar="NAME", help="a question or a column that this site does not answer about"
    )
    approve.add_argument(
        "--allow-probes", action="store_true", help="let the server ask about this device's own noisy updates"
    )
    approve.add_argument("--allow-curious", action="store_true", help="trust the server to follow the protocol")
    approve.add_argument(
        "--trust-model",
        action="append",
        metavar="NAME=FILE",
        help="run module:function of FILE, or of what is installed",
    )
    approve.add_argument("--second-home", action="store_true", help="a table that another home here has approved")
    approve.add_argument("--label", default="", help="what you call this data; shown here only")
    approve.add_argument("--yes", action="store_true", help="record the approval")
    run = phase("run", _run, "answer for this site until stopped")
    run.add_argument("--agent-only", action="store_true", help="without Flower's node, which then runs elsewhere")
    service.configure(run)
    status = phase("status", _status, "what is approved, what is spent, whether it runs")
    questions = phase("questions", _questions, "every question that this site was asked, in words")
    ledger = phase("ledger", _ledger, "every charge of this site, every line checked")
    ledger.add_argument("--last", type=int, default=20, metavar="N", help="entries to list (20); 0 for all of them")
    own = phase("personal", _personal, "make a model of this site, near the shared one; it stays here")
    personal.configure_own(own)
    predict = phase("predict", _predict, "predict for new rows, by the shared model or the personal one")
    personal.configure_predict(predict)
    for one in (join, approve, run, status, questions, ledger, own, predict):
        one.add_argument("--home", type=Path, default=HOME, metavar="DIR", help=f"this site's folder ({HOME})")
    for one in (join, approve, run, ledger, own, predict):
        one.add_argument("--passphrase-file", type=Path, metavar="FILE", help="holds the passphrase of the vault")


def run(args: argparse.Namespace) -> int:
    """Do the phase that was named."""
    args.home = args.home.expanduser()
    done: int = args.phase(args)
    return done


def _join(args: argparse.Namespace) -> int:
    from choral.deploy.enrolment import Invitation, card_text
    from choral.deploy.site import Home
    from choral.run.folder import write_whole

    invitation, secret = Invitation.read(args.invitation), _passphrase(args)
    home = Home.join(args.home, invitation, args.name, passphrase=secret, again=args.again)
    card, path = home.card(secret), args.card or Path(f"{args.name}.card")
    write_whole(path, card_text(card).encode(), fix="Join again with --again and another --card.")
    told = {"name": args.name, "home": str(args.home), "card": str(path), "server": invitation.address}
    told |= {"fingerprint": invitation.fingerprint, "safety_number": card.bundle.safety_number}
    if args.json:
        print(json.dumps(told))
        return 0
    terminal.say(
        f"HOME      {args.home} (keys were made here; they stay here)",
        f"SERVER    {invitation.address}, of the study {invitation.name}",
        f"          certificate SHA-256 {invitation.fingerprint[:47]}",
        f"                              {invitation.fingerprint[48:]}",
        f"SEND      {path} to the coordinator, and read your number by phone:",
        *terminal.digits(card.bundle.safety_number),
        "NEXT      choral device approve study.toml --max-epsilon … --data …",
    )
    return 0


def _approve(args: argparse.Namespace) -> int:
    from choral.deploy.policy import Policy
    from choral.deploy.register import Register
    from choral.deploy.site import Home
    from choral.learning.reading import Format

    given = {"delta": args.delta, "crowd": args.smallest_crowd, "colluders": args.colluders, "models": args.trust_model}
    given["struck"] = args.strike
    policy = Policy(
        epsilon=args.max_epsilon,
        epsilon_sum=args.max_epsilon_sum,
        curious=args.allow_curious,
        probes=args.allow_probes,
        label=args.label,
        **{name: value for name, value in given.items() if value is not None},
    )
    home = Home(args.home)
    with terminal.stages("TRYING", 1, show=not args.json):
        told = home.approve(
            args.study,
            policy,
            args.data,
            passphrase=_passphrase(args),
            record=args.yes,
            register=Register(second_home=args.second_home),
            written=Format(**{name: getattr(args, name) for name in (*FORMAT, "outcome")}),
        )
    if args.json:
        print(json.dumps({**told.to_dict(), "approved": args.yes}))
        return 0
    terminal.say(*approval.screen(told, recorded=args.yes))
    return 0


def _run(args: argparse.Namespace) -> int:
    from choral.deploy import services
    from choral.deploy.site import Home

    home = Home(args.home)
    if service.asked(args):
        from choral.deploy.enrolment import host_of
        from choral.deploy.systemd import Service

        words = ("device", "run", *["--agent-only"] * args.agent_only)
        made = Service(
            name=f"choral-device-{home.joined.name}",
            description=f"choral device {home.joined.name}",
            command=service.command(*words, home=args.home, passphrase_file=args.passphrase_file),
            folder=args.home,
            only_peer=host_of(home.joined.server.address),
        )
        return service.show(args, made)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    told = {"name": home.joined.name, "server": home.joined.server.address, "log": str(args.home / "log.jsonl")}
    line = (
        json.dumps(told) if args.json else escaped(f"{told['name']} answers for {told['server']}; log in {told['log']}")
    )
    services.attend(
        home,
        _passphrase(args),
        agent_only=args.agent_only,
        stop=stop,
        tell=_warn,
        begun=lambda: print(line, flush=True),
    )
    return 0


def _status(args: argparse.Namespace) -> int:
    from choral.deploy.agent import status
    from choral.deploy.site import Home

    told = status(Home(args.home))
    if args.json:
        print(json.dumps(told))
        return 0
    terminal.say(*_told(told))
    return 0


def _told(told: dict[str, Any]) -> list[str]:
    lines = [f"DEVICE    {told['name']} · server {told['server']} · {'running' if told['running'] else 'not running'}"]
    if told["cut_off"]:
        code, since = told["cut_off"]["code"], told["cut_off"]["at"]
        lines.append(f"CUT OFF   {code} {CODES[code]}, since {since}; choral device run says more")
    if told["approved"] is None:
        return [*lines, "APPROVED  nothing: choral device approve STUDY …"]
    lines.append(
        f"APPROVED  study {told['approved']['study'][:16]}… for {told['approved']['data']}, {told['approved']['at']}"
    )
    if "ledger" not in told:
        return [*lines, "LEDGER    is missing: put it back; without it this device takes part in nothing"]
    spent, limit = told["ledger"]["spent"], told["ledger"]["limit"]
    lines += [
        f"SPENT     {terminal.bar(spent['epsilon'] / limit['epsilon'])} ε = {up(spent['epsilon'])} of "
        f"{limit['epsilon']:g} in {told['ledger']['charges']} rounds",
        f"          (δ = {limit['delta']:g}, {spent['adjacency']}, rules {', '.join(spent['rules']) or 'none yet'}, "
        f"against {' and '.join(spent['adversaries'])})",
    ]
    if told["last"]:
        lines.append(f"LAST      {told['last']['event']}, round {told['last']['round']}, at {told['last']['at']}")
    if told["last_refusal"]:
        lines.append(f"REFUSED   {told['last_refusal']['code']} in round {told['last_refusal']['round']}")
    receipt = told["ledger"]["receipt"]
    return [*lines, f"RECEIPT   {receipt['entries']}:{receipt['seal']}"]


def _questions(args: argparse.Namespace) -> int:
    from choral.deploy.site import Home
    from choral.record import read_site_questions

    asked = list(read_site_questions(Home(args.home).path))
    if args.json:
        print(json.dumps({"questions": [one.to_dict() for one in asked]}))
        return 0
    lines = [f"{one.number:>5}  {one.at}  {one.words}" for one in asked] or ["nothing was asked here"]
    terminal.say(*map(escaped, lines))
    return 0


def _ledger(args: argparse.Namespace) -> int:
    from choral.deploy.site import Home, receipt_of

    home = Home(args.home)
    known = receipt_of(home.vault(_passphrase(args)))
    receipt = None if known is None else f"{known.entries}:{known.seal}"
    shown = argparse.Namespace(
        file=home.ledger_path, receipt=receipt, limit=None, sum_limit=None, delta=None, last=args.last, json=args.json
    )
    return ledger_verb.run(shown)


def _personal(args: argparse.Namespace) -> int:
    return personal.make(args, _passphrase(args))


def _predict(args: argparse.Namespace) -> int:
    return personal.predict(args, _passphrase(args))


def _passphrase(args: argparse.Namespace) -> str | None:
    from choral.config import read_text

    return None if args.passphrase_file is None else read_text(args.passphrase_file).rstrip("\r\n")


def _warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
