"""Coordinate a study between organisations: invite sites, enrol them, run the rounds.

The server learns sums and, where devices are probed, a part of each noisy update.
From each site it needs only the public card. All files of a study are in one folder that only its owner can read.
"""

import argparse
import json
import os
import re
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from choral.accounting.words import up
from choral.cli import terminal
from choral.cli.phases import configure_service, is_service, phases, service_command, show_service
from choral.core.printable import count

if TYPE_CHECKING:
    from choral.deploy.serving import StudyStatus
    from choral.run.agreement import Agreement

MOST_MISSING = 8  # names in one line
EPILOG = """\
in this order:
  choral server init STUDY --config choral.toml --address fl.example.org:9092
  send STUDY/invitation.toml to every site; they send their cards back
  choral server enrol STUDY *.card
  send STUDY/study.toml to every site; they approve it
  choral server run STUDY"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the phases of a study."""
    phase = phases(parser)
    init = phase("init", _init, "make the study's folder, its certificate and the invitation")
    init.add_argument("study", type=Path, help="the folder to make")
    init.add_argument("--config", type=Path, required=True, metavar="FILE", help="the study's choral.toml")
    init.add_argument("--address", required=True, metavar="HOST:PORT", help="where sites reach this server")
    init.add_argument("--certificate", type=Path, metavar="PEM", help="the server's certificate, if there is one")
    init.add_argument("--key", type=Path, metavar="PEM", help="its private key")
    init.add_argument("--authority", type=Path, metavar="PEM", help="the certificate of its issuer")
    enrol = phase("enrol", _enrol, "make a study from these cards; only these sites can take part")
    enrol.add_argument("study", type=Path, help="the study's folder")
    enrol.add_argument("cards", type=Path, nargs="+", metavar="CARD", help="the cards that the sites sent")
    run = phase("run", _run, "run the rounds, and continue where a run stopped")
    run.add_argument("study", type=Path, help="the study's folder")
    run.add_argument("--listen", metavar="HOST:PORT", help="where to listen, if not at the study's address")
    run.add_argument("--test", type=Path, metavar="FILE", help="a public table to measure the model on")
    run.add_argument("--as-root", action="store_true", help="allow it to run as root")
    configure_service(run)
    status = phase("status", _status, "show how far the run is, who took part and who refused")
    status.add_argument("study", type=Path, help="the study's folder")
    suspects = phase("suspects", _suspects, "show what devices' answers to probes say about them")
    suspects.add_argument("folder", type=Path, metavar="RUN", help="the run's folder")
    for name, help_ in (("exclude", "leave a device out of later rounds"), ("readmit", "let it take part again")):
        decision = phase(name, _decide, help_)
        decision.add_argument("study", type=Path, help="the study's folder")
        decision.add_argument("device", help="the device's name")
        decision.add_argument("--because", type=Path, required=True, metavar="FILE", help="a file that says why")
        decision.set_defaults(excluded=name == "exclude")
    stop = phase("stop", _stop, "end after the present round, and keep the model")
    stop.add_argument("study", type=Path, help="the study's folder")


def run(args: argparse.Namespace) -> int:
    """Do the phase that was named."""
    done: int = args.phase(args)
    return done


def _init(args: argparse.Namespace) -> int:
    from choral.deploy.enrolment import prepare

    invitation = prepare(
        args.study, args.config, args.address, certificate=args.certificate, key=args.key, authority=args.authority
    )
    path = args.study / "invitation.toml"
    invited = {"study": invitation.name, "address": invitation.address, "fingerprint": invitation.fingerprint}
    return terminal.answer(
        args,
        {**invited, "invitation": str(path)},
        f"STUDY        {invitation.name}, at {invitation.address}",
        f"CERTIFICATE  SHA-256 {invitation.fingerprint[:47]}",
        f"                     {invitation.fingerprint[48:]}",
        f"SEND         {path} to every site",
        f"NEXT         choral server enrol {args.study} *.card, once their cards are here",
    )


def _enrol(args: argparse.Namespace) -> int:
    from choral.accounting.words import noise_of
    from choral.deploy.enrolment import enrol

    study = enrol(args.study, args.cards)
    plan, limit, secure, by = study.plan, study.settled.limits[0], study.secure, study.settled.costs.limited_by(0)
    return terminal.answer(
        args,
        {**_described(study), "file": str(args.study / "study.toml")},
        f"ENROLLED  {count(len(study.roster), 'device')}",
        *(f"  {one.id}" for one in study.roster),
        "KEYS      " + _keys(study),
        f"PLAN      {study.settled.model.name} with {count(study.settled.model.size, 'parameter')} · "
        f"{count(plan.rounds, 'round')} · "
        f"{plan.cohort} of {plan.devices} devices per round · {noise_of(plan)} {plan.noise:.4g}",
        f"          planned: ε ≤ {limit.epsilon:g} (δ = {limit.delta:g}, {by.adjacency}, "
        f"rule {by.rule}, against {by.adversary})",
        f"SUMS      of at least {secure.smallest_sum}, against a {secure.adversary} "
        f"server and {count(secure.colluders, 'colluding device')}",
        *_may_be_missing(plan.cohort, secure.smallest_sum),
        *_limits(study),
        f"SEND      {args.study / 'study.toml'} to every site. They compare it in one call before they approve it",
        f"NEXT      choral server run {args.study}",
    )


def _keys(study: "Agreement") -> str:
    if study.hybrid:
        return "X25519 with ML-KEM-768, erased after every turn"
    if study.trees:
        return "those of the cards, which every site must allow: there are too many devices for others"
    older = ", ".join(device.id for device in study.file.devices if not device.offers)
    return f"those of the cards, which every site must allow; no others are offered by {older}"


def _may_be_missing(cohort: int, needed: int) -> list[str]:
    """How many sites of a round may be absent or drop out; people must know it before they promise anything."""
    spare = cohort - needed
    if spare:
        return [f"MISSING   {spare} of the {count(cohort, 'site')} of a round may be missing or drop out"]
    return [
        f"MISSING   nobody: a round needs all of its {count(cohort, 'site')}, and waits while one is absent or down"
    ]


def _room(study: "Agreement") -> tuple[int, float]:
    """For how many attempts that fail a site needs room, and the ε that pays for them at the plan's smallest site."""
    from choral.accounting.costs import spare_uploads
    from choral.accounting.proofs import rounds_each

    planned, delta = rounds_each(study.plan), study.settled.limits[0].delta
    return (spare := spare_uploads(planned)), study.settled.costs.spent(0, planned + spare, delta)


def _limits(study: "Agreement") -> list[str]:
    """What limit a site needs, so that an attempt that fails does not cost the last round."""
    spare, epsilon = _room(study)
    flag = "--max-epsilon-sum" if study.settled.costs.trusts_sum else "--max-epsilon"
    attempts = count(spare, "attempt")
    return [
        f"LIMITS    {flag} {up(epsilon)} at a site of {count(study.plan.rows, 'row')} has room for {attempts} that "
        f"may fail; a site with more rows never needs more",
    ]


def _described(study: "Agreement") -> dict[str, object]:
    spare, epsilon = _room(study)
    rule = study.settled.costs.limited_by(0)  # all as the plan's smallest
    return {
        "study": study.file.name,
        "hybrid_keys": study.hybrid,
        "safety_number": study.safety_number,
        "devices": [{"id": one.id, "safety_number": one.safety_number} for one in study.roster],
        "plan": study.plan.to_dict(),
        "secure_sum": study.secure.described,
        "limit": asdict(study.settled.limits[0]),
        "failed_attempts": spare,
        "limit_with_failed_attempts": epsilon,
        "rule": rule.rule,
        "adjacency": rule.adjacency,
        "adversary": rule.adversary,
        "model": study.settled.model.name,
        "parameters": study.settled.model.size,
    }


def _run(args: argparse.Namespace) -> int:
    from choral.deploy import services, serving
    from choral.deploy.enrolment import keep_test

    if is_service(args):
        from choral.deploy.certificates import host_of
        from choral.deploy.systemd import Service
        from choral.record import STUDY
        from choral.run.agreement import Agreement

        study = Agreement.read(args.study / STUDY)
        address = args.listen or study.file.address
        host_of(address)  # refuses what is none
        services.check_user(os.geteuid() if args.user else args.study.stat().st_uid, as_root=args.as_root)
        made = Service(
            name=f"choral-server-{args.study.resolve().name}",
            description=f"choral server of {args.study.resolve().name}",
            command=(
                *service_command("server", "run", args.study, listen=args.listen, test=args.test),
                *["--as-root"] * args.as_root,
            ),
            folder=args.study,
            port=int(address.rpartition(":")[2]),
        )
        return show_service(args, made)
    if args.test is not None:
        keep_test(args.study, args.test)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended here too
    current: StudyStatus = {}
    shown, before = set[tuple[Any, ...]](), dict[str, str]()
    for current in services.serve_study(args.study, listen=args.listen, as_root=args.as_root):
        if not args.json and not shown:
            terminal.say(*_opened(args.study))
        step = tuple(current.get(key) for key in ("state", "round", "attempt"))
        if current["state"] == serving.WAITING:
            step = (*step, *current["connected"], *current["why"].items())
        if not args.json:
            before = tell_changes(before, current)
        if not args.json and step not in shown:
            shown.add(step)
            print(terminal.wrap(_line(current)), flush=True)
    if args.json:
        print(json.dumps(current))
    elif current["state"] == "finished":
        terminal.say(f"SAVED     {current['folder']}/", f"NEXT      choral report {current['folder']}")
    return 0 if current["state"] == "finished" else 1


def tell_changes(before: dict[str, str], current: "StudyStatus") -> dict[str, str]:
    """Print which sites are missing and why, or refuse, and which are back, since the last look; how each stands."""
    from choral.deploy.serving import Presence, standing

    if "connected" not in current or current["state"] in ("starting", "finished", "failed"):
        return before
    seen = Presence(connected=current["connected"], last_seen=current["last_seen"])
    gone, excluded, why = current["gone"], current["excluded"], current["why"]
    known = {*seen["last_seen"], *why, *gone}  # who was never here has not gone, and is not back when it comes
    now = {
        name: standing(name, seen, gone, excluded, why) if name in known else "connected" for name in current["devices"]
    }
    for name, stands in now.items():
        kind, old = (re.sub(r" since [^ ]*\b", "", one) for one in (stands, before.get(name, "connected")))
        if kind != old:
            print(terminal.wrap(f"{name}: {'is back' if stands == 'connected' else stands}"), flush=True)
    return now


def _opened(study: Path) -> list[str]:
    """What others can reach of the server, and what they can see."""
    return [
        "OPEN      one port, and there the enrolled nodes only; Flower's other interfaces are at a socket in",
        f"          {study / 'flower'}, which nobody can use but the user who runs this (and root)",
        "SEEN      by other users of this machine, in its list of processes: this folder and the study's address",
    ]


def _line(current: "StudyStatus") -> str:
    """One line about where a run stands."""
    from choral.record import merit

    state = current["state"]
    ended = {"finished": current.get("stopped"), "failed": current.get("reason")}
    now = ended.get(state) or state
    if state == "round":
        again = f", attempt {current['attempt'] + 1}" if current["attempt"] else ""
        now = f"round {current['round']} of {current['rounds_planned']}{again}"
    test = " · {} {:.3f}".format(*merit(current["test"])) if current.get("test") else ""
    seconds = current["seconds_left"]
    left = f" · about {seconds:.0f} s left" if seconds and state == "round" else ""
    return f"{current['study']}: {now}{_waiting(current)}{test}{left}"


def _waiting(current: "StudyStatus") -> str:
    """Whom a server waits for, and for how long."""
    from choral.deploy.serving import countdown

    if "until" not in current:
        return ""
    absent = [name for name in current["devices"] if name not in current["connected"]]
    named = [f"{name} ({current['why'][name]})" if name in current["why"] else name for name in absent[:MOST_MISSING]]
    missing = f"; missing: {', '.join(named)}{', …' * (len(absent) > MOST_MISSING)}" if absent else ""
    shown = f", {len(current['connected'])} of {len(current['devices'])} are connected{missing}"
    if "without_until" in current:
        on = f"{shown}; goes on without them in {countdown(current['without_until'])}"
        if not current["needed"]:
            return on
        shown = f"{on} if {current['needed']} are there, else"
    return f"{shown}{';' * ('without_until' not in current)} gives up in {countdown(current['until'])}"


def _status(args: argparse.Namespace) -> int:
    from choral.deploy.serving import Presence, standing, status

    current = status(args.study)
    refused, why = current.get("gone", {}), current.get("why", {})
    seen = Presence(connected=current.get("connected", []), last_seen=current.get("last_seen", {}))
    over = current["state"] in ("finished", "not started")
    return terminal.answer(
        args,
        current,
        f"RUN       {_line(current)}{' · stopping after this round' if current['stopping'] else ''}",
        f"DEVICES   rounds taken part in{'' if over else ', and who is connected'}",
        *(
            f"  {name:<20} {current['took_part'].get(name, 0):>4}"
            + ("" if over and name not in refused else f"  {standing(name, seen, refused, current['excluded'], why)}")
            for name in current["devices"]
        ),
        f"FOLDER    {current['folder']}",
    )


def _suspects(args: argparse.Namespace) -> int:
    from choral.report.probes import suspects

    found = suspects(args.folder)
    return terminal.answer(
        args,
        found.as_dict(),
        f"PROBES    answered in {count(found.rounds, 'round')}",
        *(
            f"  {device:<20} left out: " + ", ".join(f"{count} × {rule}" for rule, count in rules.items())
            for device, rules in found.refused.items()
        ),
        "EVIDENCE  " + ("" if found.evidence else "nobody"),
        *(
            f"  {one.device:<20} {one.rule}: {one.value:.1f} of {one.limit:g} after {count(one.rounds, 'round')}, "
            + (f"named in round {one.named_in}" if one.named_in else "suspected")
            for one in found.evidence
        ),
        "A name is evidence, and unlike data looks like it too; only an opened turn is proof.",
    )


def _decide(args: argparse.Namespace) -> int:
    from choral.deploy.enrolment import decide

    made = decide(args.study, args.device, excluded=args.excluded, because=args.because)
    word = "is left out of the rounds to come" if made.excluded else "may take part again"
    print(json.dumps(made.to_dict()) if args.json else f"{made.device} {word}; signed {made.at}.")
    return 0


def _stop(args: argparse.Namespace) -> int:
    from choral.deploy.serving import stop

    stop(args.study)
    print(json.dumps({"stopping": True}) if args.json else "The run ends after the round under way.")
    return 0
