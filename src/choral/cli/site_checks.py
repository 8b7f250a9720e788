"""What a site looks at: whether it can take part, what it has at the end, and its numbers for monitoring."""

import argparse
import json

from choral.cli import terminal
from choral.core.display import up
from choral.core.printable import escaped

_MARKS = {"ok": "ok", "look": "LOOK", "later": "LATER", "wrong": "WRONG"}


def passphrase(args: argparse.Namespace) -> str | None:
    """The passphrase of the vault, if the owner has named a file that holds it."""
    from choral.config import read_text
    from choral.deploy.ownership import check_secret

    if args.passphrase_file is None:
        return None
    check_secret(args.passphrase_file)
    return read_text(args.passphrase_file).rstrip("\r\n")


def examine_site(args: argparse.Namespace) -> int:
    """Every check of a site with its result; 1 if something keeps the site from taking part."""
    from choral.deploy.doctor import examine
    from choral.deploy.home import Home

    found = []
    for one in examine(Home(args.home), passphrase(args)):
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


def show_result(args: argparse.Namespace) -> int:
    """Write the page of a study that is over, or compare such a page with the home."""
    from choral.config import read_text
    from choral.deploy.home import Home
    from choral.deploy.ownership import keep
    from choral.deploy.status import PAGE, site_end
    from choral.report.signed import Note
    from choral.report.site_page import differences, site_page
    from choral.report.words import claims_of, leading_of

    end = site_end(Home(args.home), passphrase(args))
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
    if args.json:
        print(json.dumps({**end.to_dict(), "model_file": str(model), "page": str(page)}))
        return 0
    run = None if end.privacy.none else leading_of(claims_of(end.privacy), end.against)
    terminal.say(
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
    return 0


def show_metrics(args: argparse.Namespace) -> int:
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


def show_roots(args: argparse.Namespace) -> int:
    """Write the roots that this site was shown, signed, and compare them with those of others; 1 if any differ."""
    from choral.deploy.home import Home
    from choral.deploy.ownership import keep_json
    from choral.deploy.root_log import FILE, read_root_log, root_log_of

    own, path = root_log_of(Home(args.home), passphrase(args)), args.out or args.home / FILE
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
