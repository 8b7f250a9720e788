"""Take part in a study with a table that never leaves this machine.

Keys are made here. The site's own limit always takes precedence over what a server
asks for. All connections are outgoing. All files of a site are in its home, a
folder that only its owner can read.
"""

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from choral.accounting.words import up
from choral.cli import predict, terminal
from choral.cli.phases import configure_service, is_service, phases, service_command, show_service
from choral.core.errors import CODES
from choral.core.printable import count, escaped

if TYPE_CHECKING:
    from choral.deploy.status import SiteStatus

HOME = Path("~/.choral")
_MARKS = {"ok": "ok", "look": "LOOK", "later": "LATER", "wrong": "WRONG"}
EPILOG = """\
in this order:
  choral device join invitation.toml --name hospital-a
  send hospital-a.card to the coordinator; get study.toml back
  choral device doctor
  choral device approve study.toml --max-epsilon 2 --data hospital-a.csv --run
  call all other sites, type their six digits, say yes if all checks agree
  choral device result
  choral device personal --validation later-rows.csv"""


FORMAT = {
    "delimiter": "what separates the table's cells (default: by its header line)",
    "decimal": 'its decimal point, "." or "," (default: "," where the delimiter is not a comma)',
    "encoding": "its encoding: utf-16, cp1252, latin-1, … (default: utf-8)",
    "dates": 'its dates: "day first" or "month first" (default: 2024-01-31)',
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the phases of a site."""
    phase = phases(parser)
    join = phase("join", _join, "make this site's keys and its card")
    join.add_argument("invitation", type=Path, help="the coordinator's invitation.toml")
    join.add_argument("--name", required=True, help="this site's name in the study")
    join.add_argument("--card", type=Path, metavar="FILE", help="where to write the card (NAME.card)")
    join.add_argument(
        "--again", action="store_true", help="keep this home's keys and ledger, and follow a new invitation"
    )
    approve = phase("approve", _approve, "show what a study would cost and send; with --yes, approve it")
    approve.add_argument("study", type=Path, help="the coordinator's study.toml")
    approve.add_argument(
        "--max-epsilon", type=float, required=True, metavar="X", help="ε that this data may lose in all studies"
    )
    approve.add_argument(
        "--max-epsilon-sum", type=float, metavar="X", help="the same against a server that sees only sums"
    )
    approve.add_argument(
        "--data", type=Path, required=True, metavar="PATH",
        help="this site's rows: a CSV, Parquet or .npz file, or a folder of images",
    )  # fmt: skip
    for name, what in FORMAT.items():
        approve.add_argument(f"--{name}", metavar="X", help=what)
    approve.add_argument("--outcome", metavar="COLUMN", help="a column of this table that replaces the study's label")
    approve.add_argument(
        "--encoder", type=Path, metavar="FILE", help="the study's encoder, if it has one: an ONNX file"
    )
    approve.add_argument("--delta", type=float, metavar="X", help="δ (1e-5)")
    approve.add_argument("--smallest-crowd", type=int, metavar="N", help="honest devices that any sum must contain (2)")
    approve.add_argument(
        "--colluders", type=int, metavar="N", help="devices that the study must count as colluding (0)"
    )
    approve.add_argument(
        "--strike", action="append", metavar="NAME", help="a question or column that this site does not answer"
    )
    approve.add_argument(
        "--allow-probes", action="store_true", help="let the server ask about this device's own noisy updates"
    )
    approve.add_argument("--allow-curious", action="store_true", help="trust the server to follow the protocol")
    approve.add_argument(
        "--trust-model",
        action="append",
        metavar="NAME=FILE",
        help="run module:function from FILE, or from an installed package",
    )
    approve.add_argument(
        "--allow-card-keys", action="store_true", help="accept the older keys of the cards, if a site has no others"
    )
    approve.add_argument(
        "--second-home", action="store_true", help="approve a table that another home on this machine has approved"
    )
    approve.add_argument(
        "--no-spare", action="store_true", help="approve although the limit has no room for attempts that fail"
    )
    approve.add_argument("--label", default="", help="a name for this data, which is shown only here")
    approve.add_argument("--yes", action="store_true", help="record the approval without asking")
    approve.add_argument(
        "--run", action="store_true", dest="then_run", help="once approved, take part until the study is over"
    )
    compare = phase("compare", _compare, "compare the study with the other sites, in one call")
    compare.add_argument("numbers", nargs="*", metavar="NAME=NUMBER", help="the six digits of each other site")
    roots = phase("roots", _roots, "in studies of thousands: did others see the same cohorts?")
    roots.add_argument("--out", type=Path, metavar="FILE", help="where to write this site's roots (HOME/roots.json)")
    roots.add_argument("--compare", type=Path, nargs="+", default=[], metavar="FILE", help="roots of other sites")
    run = phase("run", _run, "take part for this site, until the study is over")
    run.add_argument("--agent-only", action="store_true", help="do not start Flower's node, which runs elsewhere")
    configure_service(run)
    status = phase("status", _status, "show what is approved and spent, and whether it runs")
    doctor = phase("doctor", _doctor, "check address, proxy, certificate, clock, table and disk")
    result = phase("result", _result, "show the model of a finished study, and write the page to sign")
    result.add_argument("--check", type=Path, metavar="PAGE", help="check such a page against this home")
    metrics = phase("metrics", _metrics, "print figures of the log and the ledger as Prometheus text")
    metrics.add_argument("--out", type=Path, metavar="FILE", help="write a file for a collector instead of printing")
    questions = phase("questions", _questions, "list every question that this site was asked")
    ledger = phase("ledger", _ledger, "show every charge of this site, and check every line")
    ledger.add_argument("--last", type=int, default=20, metavar="N", help="entries to list (20); 0 for all of them")
    rotate = phase("rotate", _rotate, "make new keys for this site, between studies; the ledger stays")
    rotate.add_argument("--card", type=Path, metavar="FILE", help="where to write the card (NAME.card)")
    own = phase("personal", _personal, "make a personal model near the shared one; it stays here")
    predict.configure_own(own)
    rows = phase("predict", _predict, "predict for new rows, by the shared model or the personal one")
    predict.configure_predict(rows)
    all_phases = (join, approve, compare, roots, run, status, doctor, result, metrics, questions, ledger, rotate, own)
    for one in (*all_phases, rows):
        one.add_argument("--home", type=Path, default=HOME, metavar="DIR", help=f"this site's folder ({HOME})")
    for one in (join, approve, roots, run, doctor, result, ledger, rotate, own, rows):
        one.add_argument("--passphrase-file", type=Path, metavar="FILE", help="a file with the passphrase of the vault")


def run(args: argparse.Namespace) -> int:
    """Do the phase that was named."""
    args.home = args.home.expanduser()
    done: int = args.phase(args)
    return done


def _join(args: argparse.Namespace) -> int:
    from choral.deploy.home import Home, Invitation
    from choral.run.folder import write_whole

    invitation, secret = Invitation.read(args.invitation), _passphrase(args)
    home = Home.join(args.home, invitation, args.name, passphrase=secret, again=args.again)
    card, path = home.card(secret), args.card or Path(f"{args.name}.card")
    write_whole(path, card.text.encode(), fix="Join again with --again and another --card.")
    joined = {"name": args.name, "home": str(args.home), "card": str(path), "server": invitation.address}
    joined |= {"fingerprint": invitation.fingerprint, "safety_number": card.bundle.safety_number}
    return terminal.answer(
        args,
        joined,
        f"HOME      {args.home} (keys were made here; they stay here)",
        f"SERVER    {invitation.address}, of the study {invitation.name}",
        f"          certificate SHA-256 {invitation.fingerprint[:47]}",
        f"                              {invitation.fingerprint[48:]}",
        f"SEND      {path} to the coordinator",
        "NEXT      choral device approve study.toml --max-epsilon … --data … --run",
    )


def _approve(args: argparse.Namespace) -> int:
    from choral.cli import approval
    from choral.deploy.approving import Register, accept, propose
    from choral.deploy.home import Home, Policy
    from choral.tables.cells import Format

    given = {"delta": args.delta, "crowd": args.smallest_crowd, "colluders": args.colluders, "models": args.trust_model}
    given["struck"] = args.strike
    policy = Policy(
        epsilon=args.max_epsilon,
        epsilon_sum=args.max_epsilon_sum,
        curious=args.allow_curious,
        probes=args.allow_probes,
        card_keys=args.allow_card_keys,
        label=args.label,
        encoder="" if args.encoder is None else str(args.encoder.resolve()),
        **{name: value for name, value in given.items() if value is not None},
    )

    home, secret = Home(args.home), _passphrase(args)
    with terminal.stages("TRYING", 1, show=not args.json):
        shown = propose(
            home,
            args.study,
            policy,
            args.data,
            passphrase=secret,
            register=Register(second_home=args.second_home),
            written=Format(**{name: getattr(args, name) for name in (*FORMAT, "outcome")}),
            compared=args.yes,
            spare=not args.no_spare,
        )
    if args.json:
        if args.yes:
            accept(home, shown, passphrase=secret)
        print(json.dumps({**vars(shown.preview), "approved": args.yes}))
        return _run(args) if args.then_run and args.yes else 0
    recorded, asks = args.yes, not args.yes and approval.can_ask()
    terminal.say(*approval.screen(shown.preview, asks=asks))
    if asks:
        recorded = _asked(args.home)
    elif args.yes:
        terminal.say(*approval.compared_so_far(args.home))
    if recorded:
        accept(home, shown, passphrase=secret)
    terminal.say(*approval.outcome(recorded=recorded, runs=args.then_run, asked=asks))
    return _run(args) if args.then_run and recorded else int(asks and not recorded)


def _asked(home: Path) -> bool:
    """Whether the owner, who compares with the other sites now, approves; who says no types all numbers again."""
    from choral.cli import approval
    from choral.deploy.approving import keep_typed, last_drawn

    for line in approval.compare(home):
        terminal.say(line)
    said = approval.agreed()
    if said is False:
        keep_typed(home, last_drawn(home).forgotten)
    return said is True


def _compare(args: argparse.Namespace) -> int:
    from choral.cli import approval
    from choral.deploy.approving import keep_typed, last_drawn

    drawn = last_drawn(args.home).with_typed(args.numbers)
    if args.numbers:
        keep_typed(args.home, drawn)
    shown = {"device": drawn.device, "number": drawn.number, "checks": drawn.checks, "missing": drawn.missing}
    own = f"NUMBER    {approval.spaced(drawn.number)}, of {drawn.device}: read it to all other sites, and type theirs"
    lines = (own, *approval.check_lines(drawn), *approval.missing_line(drawn))
    return terminal.answer(args, {**shown, "study_number": drawn.study_number}, *lines)


def _rotate(args: argparse.Namespace) -> int:
    from choral.deploy.home import Home
    from choral.run.folder import write_whole

    home, secret = Home(args.home), _passphrase(args)
    home.rotate(secret)
    path = args.card or Path(f"{home.joined.name}.card")
    write_whole(path, home.card(secret).text.encode(), fix="Give another --card: the new keys are kept.")
    shown = {"name": home.joined.name, "home": str(args.home), "card": str(path)}
    lines = [
        f"KEYS      of {home.joined.name} are new; the old ones are gone, and the ledger goes on",
        f"SEND      {path} to the coordinator of the next study",
    ]
    return terminal.answer(args, shown, *lines)


def _run(args: argparse.Namespace) -> int:
    from choral.deploy.agent import attend
    from choral.deploy.home import Home
    from choral.record import STUDY
    from choral.run.agreement import Agreement

    home = Home(args.home)
    if hasattr(args, "systemd") and is_service(args):  # `approve --run` is no service
        from choral.deploy.certificates import host_of
        from choral.deploy.systemd import Service

        words = ("device", "run", *["--agent-only"] * args.agent_only)
        made = Service(
            name=f"choral-device-{home.joined.name}",
            description=f"choral device {home.joined.name}",
            command=service_command(*words, home=args.home, passphrase_file=args.passphrase_file),
            folder=args.home,
            only_peer=host_of(home.joined.server.address),
        )
        return show_service(args, made)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    about = {"name": home.joined.name, "server": home.joined.server.address, "log": str(args.home / "log.jsonl")}
    line = (
        json.dumps(about)
        if args.json
        else escaped(f"{about['name']} answers for {about['server']}; log in {about['log']}")
    )
    over = attend(
        home,
        _passphrase(args),
        agent_only=getattr(args, "agent_only", False),
        stop=stop,
        tell=_warn,
        begun=lambda: print(line, flush=True),
    )
    if over and not args.json:
        early = home.early_end(Agreement.read(home.path / STUDY))
        terminal.say(_over(early, "this site has signed its end"), "NEXT      choral device result")
    return 0


def _status(args: argparse.Namespace) -> int:
    from choral.deploy.home import Home
    from choral.deploy.status import status

    shown = status(Home(args.home))
    return terminal.answer(args, shown.to_dict(), *_status_lines(shown))


def _over(early: str, then: str) -> str:
    """How a study has ended here: after its last round, or early and why, as the server says."""
    if early:
        return f"ENDED     early, the server says: {escaped(early)}; {then}"
    return f"FINISHED  the study is over; {then}"


def _status_lines(shown: "SiteStatus") -> list[str]:
    lines = [f"DEVICE    {shown.name} · server {shown.server} · {'running' if shown.running else 'not running'}"]
    if shown.finished:
        lines.append(_over(shown.ended_early, "choral device result shows the model and the page to sign"))
    elif shown.waiting_since:
        lines += _waiting(shown)
    if shown.cut_off and not shown.finished:
        code = shown.cut_off["code"]
        lines.append(f"CUT OFF   {code} {CODES[code]}, since {shown.cut_off['at']}; choral device run says more")
    if shown.approved is None:
        return [*lines, "APPROVED  nothing: choral device approve STUDY …"]
    lines.append(f"APPROVED  study {shown.approved.study[:16]}… for {shown.approved.data}, {shown.approved.at}")
    if shown.ledger is None:
        return [*lines, "LEDGER    is missing: put it back; without it this device takes part in nothing"]
    spent, limit = shown.ledger.spent, shown.ledger.limit
    lines += [
        f"SPENT     {terminal.bar(spent.epsilon / limit.epsilon)} ε = {up(spent.epsilon)} of "
        f"{limit.epsilon:g} in {count(shown.ledger.charges, 'round')}",
        f"          (δ = {limit.delta:g}, {spent.adjacency}, rules {', '.join(spent.rules) or 'none yet'}, "
        f"against {' and '.join(spent.adversaries)})",
    ]
    if shown.last:
        lines.append(f"LAST      {shown.last['event']}, round {shown.last['round']}, at {shown.last['at']}")
    if shown.last_refusal:
        code = shown.last_refusal["code"]
        lines.append(f"REFUSED   {code} {CODES.get(code, '')}, in round {shown.last_refusal['round']}")
    receipt = shown.ledger.receipt
    return [*lines, f"RECEIPT   {receipt.entries}:{receipt.seal}"]


def _waiting(shown: "SiteStatus") -> list[str]:
    """Since when a site waits for the first round, until when the server waits, and until when it could begin."""
    from choral.deploy.serving import countdown

    until, end = shown.server_waits_until, shown.may_begin_until
    if until is None:
        server = "the server has not called this site yet"
    elif (left := countdown(until)) == "0 s":
        server = f"the server gave up waiting at {until}, unless it has begun; the coordinator can start it again"
    else:
        server = f"the server waits for other sites until {until}, and gives up in {left}"
    return [
        f"WAITING   for the first round since {shown.waiting_since}, the time of the approval",
        f"          {server}",
        f"          this site waits until it is stopped; the study can begin until {end} ({countdown(end)} left),",
        "          when the certificate of the invitation ends",
    ]


def _passphrase(args: argparse.Namespace) -> str | None:
    """The passphrase of the vault, if the owner has named a file that holds it."""
    from choral.config import read_text
    from choral.deploy.ownership import check_secret

    if args.passphrase_file is None:
        return None
    check_secret(args.passphrase_file)
    return read_text(args.passphrase_file).rstrip("\r\n")


def _doctor(args: argparse.Namespace) -> int:
    """Every check of a site with its result; 1 if something keeps the site from taking part."""
    from choral.deploy.doctor import examine
    from choral.deploy.home import Home

    found = []
    for one in examine(Home(args.home), _passphrase(args)):
        found.append(one)
        if not args.json:
            terminal.say(escaped(f"{_MARKS[one.state]:<6}{one.check:<9}{one.what}"))
            if one.fix:
                terminal.say(escaped(f"      {'':<9}{one.fix}"))
    ready = all(one.state != "wrong" for one in found)
    if args.json:
        print(json.dumps({"ready": ready, "checks": [one.to_dict() for one in found]}))
        return 0 if ready else 1
    if not ready:
        print("NOT READY: the lines marked WRONG say what to do and who can do it")
        return 1
    later = [one.check for one in found if one.state == "later"]
    print(f"READY, except for what can't be checked yet: {', '.join(later)}" if later else "READY")
    return 0


def _result(args: argparse.Namespace) -> int:
    """Write the page of a study that is over, or compare such a page with the home."""
    from choral.config import read_text
    from choral.deploy.home import Home
    from choral.deploy.ownership import keep
    from choral.deploy.status import PAGE, site_end
    from choral.report.signed import Note
    from choral.report.site_page import differences, site_page
    from choral.report.words import claims_of, leading_of

    end = site_end(Home(args.home), _passphrase(args))
    if args.check is not None:
        found = differences(read_text(args.check), end)
        notes = [one for one in found if isinstance(one, Note)]
        wrong = [one for one in found if one not in notes]
        if args.json:
            print(json.dumps({"agrees": not wrong, "differs_in": wrong, "notes": notes}))
        elif wrong:
            terminal.say(f"DIFFERS   in {', '.join(wrong)}")
        else:
            terminal.say(
                "AGREES    with the ledger, the receipt and the model here", *(f"NOTE      {n}" for n in notes)
            )
        return 1 if wrong else 0
    page = args.home / PAGE
    keep(page, site_page(end))
    model = args.home / "models" / f"{end.run}.safetensors"
    run = None if end.privacy.none else leading_of(claims_of(end.privacy), end.against)
    return terminal.answer(
        args,
        {**end.to_dict(), "model_file": str(model), "page": str(page)},
        f"STUDY     {end.study}: over, and signed by {end.device}",
        f"MODEL     {model}",
        f"PROVED    {end.privacy.none}" if run is None else f"PROVED    {run.figure} of this run ({run.terms})",
        f"LEDGER    ε ≤ {up(end.reserved)} of {end.limit.epsilon:g} is reserved by all studies "
        f"(δ = {end.limit.delta:g}, {end.spent.adjacency}, rules {', '.join(end.spent.rules) or 'none yet'}, against "
        f"{' and '.join(end.spent.adversaries)})",
        f"RECEIPT   {end.ledger}",
        f"PAGE      {page}: read it, print it, sign it",
        "NEXT      choral device predict new-rows.csv, or choral device personal for a model of this site",
    )


def _metrics(args: argparse.Namespace) -> int:
    """Print the site's numbers, or write them where a collector reads them, whole or not at all."""
    from choral.deploy.home import Home
    from choral.deploy.status import prometheus
    from choral.run.folder import write_whole

    text = prometheus(Home(args.home))
    if args.out is not None:
        # The collector runs as another user: this file holds names of events, counts and the ledger's figures only.
        write_whole(args.out, text.encode(), mode=0o644, fix="Choose another --out.")
        text = f"{args.out}\n"
    print(json.dumps({"metrics": text}) if args.json else text, end="\n" if args.json else "")
    return 0


def _roots(args: argparse.Namespace) -> int:
    """Write the roots that this site was shown, signed, and compare them with those of others; 1 if any differ."""
    from choral.deploy.home import Home
    from choral.deploy.ownership import keep_json
    from choral.deploy.root_log import FILE, read_root_log, root_log_of

    own, path = root_log_of(Home(args.home), _passphrase(args)), args.out or args.home / FILE
    others = [read_root_log(one) for one in args.compare]
    for other in others:
        other.check(own)
    keep_json(path, own)
    differ = {other.id: other.differs_from(own) for other in others}
    if args.json:
        turns = {id: [[turn.round, turn.attempt] for turn in found] for id, found in differ.items()}
        shown = {"device": own.id, "roster": own.roster, "safety_number": own.safety_number, "file": str(path)}
        print(json.dumps({**shown, "roots": len(own.roots), "differs": turns}))
        return 1 if any(differ.values()) else 0
    terminal.say(
        f"ROSTER    {own.safety_number}",
        f"ROOTS     of {len(own.roots):,} turns, signed, in {path}: send it to other sites, and compare theirs",
    )
    for other in others:
        common, found = len(other.by_turn.keys() & own.by_turn.keys()), differ[other.id]
        if found:
            terminal.say(
                escaped(f"DIFFERS   {other.id}: {len(found)} of {common} turns, the first is round {found[0].round}. ")
                + "The server had two cohorts there: stop, and keep both files (CH616)"
            )
        else:
            terminal.say(escaped(f"AGREES    {other.id}: {common} turns in which both took part"))
    return 1 if any(differ.values()) else 0


def _questions(args: argparse.Namespace) -> int:
    from choral.deploy.home import Home
    from choral.record import read_site_questions

    asked = list(read_site_questions(Home(args.home).path))
    lines = [f"{one.number:>5}  {one.at}  {one.words}" for one in asked] or ["nothing was asked here"]
    return terminal.answer(args, {"questions": [one.to_dict() for one in asked]}, *map(escaped, lines))


def _ledger(args: argparse.Namespace) -> int:
    from choral.cli import ledger
    from choral.deploy.home import Home, receipt_of

    home = Home(args.home)
    known = receipt_of(home.vault(_passphrase(args)))
    receipt = None if known is None else f"{known.entries}:{known.seal}"
    shown = argparse.Namespace(
        file=home.ledger_path, receipt=receipt, limit=None, sum_limit=None, delta=None, last=args.last, json=args.json
    )
    return ledger.run(shown)


def _personal(args: argparse.Namespace) -> int:
    return predict.make_personal_model(args, _passphrase(args))


def _predict(args: argparse.Namespace) -> int:
    return predict.predict_at_site(args, _passphrase(args))


def _warn(line: str) -> None:
    print(escaped(line), file=sys.stderr, flush=True)
