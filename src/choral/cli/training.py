"""The verbs that train: demo, simulate, rehearse and resume. Their flags, the bar, and the result for people."""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from choral import __version__
from choral.accounting.words import in_plain_words, up
from choral.cli import ask, terminal
from choral.cli.phases import Verb
from choral.core.errors import ConfigError
from choral.core.printable import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from choral.config import Job
    from choral.record import Measured, Sight, SpentByDevice, Statement
    from choral.run.breakdown import GroupFigures
    from choral.run.inquiry import Inquiry
    from choral.run.personal import AllSites
    from choral.run.result import Result
    from choral.run.runs import Kind, Run
    from choral.run.study import Study

    Found = dict[str, list[GroupFigures]]

JOB = {"name": "demo", "builtin": "adult", "epsilon": 2.0, "delta": 1e-5, "devices": 250, "cohort": 25, "rounds": 10}
IN_EVERY_STEP = {"local_steps": 10, "batch": 244, "step_size": 4.0, "clip": 1.0}
PAPER = JOB | {"devices": 16, "cohort": 10, "rounds": 20} | IN_EVERY_STEP
LABELS = {
    "rehearsal": "REHEARSAL: real keys, real masks, one machine",
    "simulation": "SIMULATION: masks left out, one machine",
}
MOST_BARS = 16
WIDE = 72  # columns that a device's line needs
OTHERS = 22  # columns of the names of what a run is compared with
MOST_CLASSES = 6  # whose recall stands on the screen; the report has more
WORTH_SAYING = 600  # seconds that a run will take, from which on it says so
MOST_GROUPS = MOST_SITES = 20  # lines of a table; --json has them all
NAMES = ("shared", "alone", "personal")
_OF_TRAINING = ("compare", "log", "personal")  # flags that a model on sums has no use for
LEAST_SPAN = 0.05  # of a curve: what moves by less must not look like a slope


def configure_file(parser: argparse.ArgumentParser) -> None:
    """The file and the flags of every verb that trains by a choral.toml."""
    parser.add_argument("job", metavar="choral.toml", help="what to train, on which data, for which budget")
    parser.add_argument("--compare", action="store_true", help="also train without privacy and each device alone")
    parser.add_argument(
        "--by", action="append", metavar="NAME", help='also print figures per "site", or per level of a column'
    )
    configure(parser)


def configure(parser: argparse.ArgumentParser) -> None:
    """The flags of every verb that trains."""
    parser.add_argument("--out", type=Path, help="the run folder (default runs/<time>-<name>)")
    parser.add_argument("--seed", type=int, help="make the run repeatable, with predictable noise")
    parser.add_argument(
        "--drop", type=float, default=0.0, metavar="SHARE", help="share of devices that drop out, 0 to 1"
    )
    parser.add_argument("--open", action="store_true", help="watch it live in a browser, on this machine only")
    configure_following(parser)


def configure_following(parser: argparse.ArgumentParser) -> None:
    """The flags of every verb that follows a run to its end."""
    parser.add_argument("--log", metavar="NAME", help="also log to mlflow or tensorboard, in the run folder; an extra")
    parser.add_argument("--quiet", action="store_true", help="print the result line only")


def start_file(kind: "Kind", args: argparse.Namespace) -> int:
    """Read the file, run, and show."""
    from choral import config

    return start(kind, config.read(args.job), args, compare=args.compare)


def start(kind: "Kind", job: "Job", args: argparse.Namespace, *, compare: bool) -> int:
    """Settle the job, make the run folder, run, and show."""
    job = proposed(job, show=shows(args))
    if job.on_sums:
        return _start_sums(kind, job, args)
    with terminal.stages("PLAN", 4, show=shows(args)) as done:  # imports, data, plan, limits
        from choral.output.logs import RunLog
        from choral.record import traits
        from choral.run.folder import RunFolder, new_folder
        from choral.run.planning import settle
        from choral.run.runs import Run

        log = None if args.log is None else RunLog(args.log)
        done()
        job = job if args.seed is None else job.seeded(args.seed)
        study = settle(job, guess=traits(kind).repeats, reached=done)
    _check_groups(study, args)
    out = args.out or new_folder(study.name)
    run = Run(kind, study, folder=RunFolder.create(out), drop=args.drop, compare=compare, log=log)
    if not args.open:
        return follow(run, args)
    from choral.report import serve

    run.begin()
    with serve(out, open_browser=True) as live:
        print(f"live page: {live.url}", file=sys.stderr)
        return follow(run, args)


def proposed(job: "Job", *, show: bool) -> "Job":
    """The job with the kind of model that the planner proposes where the file leaves it open, and why."""
    if job.leaves_kind_open:
        from choral.run.modelling import with_proposed_kind

        job, lines = with_proposed_kind(job)
        if show:
            terminal.say(*lines)
    return job


def shows(args: argparse.Namespace) -> bool:
    """Whether people want to see how it goes."""
    return not (args.quiet or args.json)


def follow(run: "Run", args: argparse.Namespace) -> int:
    """Run what is left of it, write the report, and show the result."""
    from choral.report import write_report
    from choral.report.words import goodness

    show = shows(args)
    run.watch = partial(terminal.progress, show=show)
    if show:
        print(head(run))
        if (seconds := run.seconds_ahead()) >= WORTH_SAYING:
            terminal.say(*ahead(run.rounds_left, seconds))
    for line in run.watch(run.rounds(), total=run.rounds_left, label="ROUND"):
        if show and line.note:
            print(terminal.wrap(f"       round {line.round}: {line.note}"))
    result = run.conclude()
    folder = run.folder.path if run.folder is not None else Path()
    write_report(folder)
    sites, groups = _personal_models(run, result, args), _groups(result, args)
    if args.json:
        more: dict[str, object] = {} if sites is None else {"personal": sites.to_dict()}
        more |= {"by": _groups_as_object(groups)} if groups else {}
        print(json.dumps(as_object(run, result) | more))
    elif args.quiet:
        print(escaped(f"{goodness(result.test, 4)} · {headline(result.privacy)} · {folder}"))
    else:
        print(body(run, result))
        terminal.say(*_group_lines(groups))
        if sites is not None:
            terminal.say(*_table_of_sites(sites))
        terminal.say(*_saved(result).split("\n"))
    return 0


def ahead(rounds: int, seconds: float) -> "Iterator[str]":
    """How long a run will take, for who may not want to wait for it."""
    long = f"{seconds / 3600:.1f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} minutes"
    yield (
        f"TIME   at least {long} here: {rounds:,} rounds of {seconds / rounds:.2g} seconds, as measured just now "
        "without masks, files and tests. Ctrl-C ends the run, and choral resume goes on with it"
    )


def as_object(run: "Run", result: "Result") -> dict[str, object]:
    """The result for machines."""
    from choral.run.planning import prospect_of

    measured = result.record.result.measured if result.record.result else None
    prospect = prospect_of(run.study)
    return {
        "kind": run.kind,
        "seeded": run.study.seeded,
        "folder": str(result.folder),
        "rounds": len(run.lines),
        "test": result.test,
        "measured": measured.to_dict() if measured else None,
        "baselines": result.baselines.to_dict(),
        "expected": None if prospect is None else prospect.to_dict(),
        "verdict": _verdict(result),
        "plan": run.study.plan.to_dict(),
        "privacy": result.privacy.to_dict(),
    }


def _verdict(result: "Result") -> dict[str, object] | None:
    """Whether joining was worth it, with the sentence that says so."""
    from choral.planner.prospect import in_words

    verdict = result.record.result.verdict if result.record.result else None
    return None if verdict is None else verdict.to_dict() | {"sentence": in_words(verdict)}


def headline(privacy: "Statement") -> str:
    """The first ε, with its rule, adjacency and adversary."""
    if privacy.none is not None:
        return privacy.none
    proved = privacy.against_everyone
    return (
        f"ε ≤ {up(proved.epsilon)} (δ = {privacy.delta:g}, {privacy.adjacency}, "
        f"rule {proved.rule}, against {proved.adversary})"
    )


def head(run: "Run") -> str:
    """What is about to run: the kind of run, the data and the plan."""
    study, plan = run.study, run.study.plan
    kind = LABELS[run.kind] + (", seeded: the noise can be predicted" if study.seeded else "")
    lines = [
        f"choral {__version__} · {study.name} · {study.source}, "
        f"{len(study.data.records.labels):,} rows on {plan.devices:,} devices",
        kind,
        *study.data.notes,
        "",
        *plan_lines(study),
    ]
    return "\n".join(map(terminal.wrap, lines))


def plan_lines(study: "Study") -> list[str]:
    """The plan of a study: the model, the rounds, how a device trains, and where its limit lies."""
    from choral.accounting.words import noise_of, seen_by, words_of
    from choral.core.exposure import adjacency_of
    from choral.run.planning import noise_drowns, noise_in_words, prospect_of

    plan = study.plan
    limits = sorted({limit.epsilon for limit in study.limits})
    ends = f"ε ≤ {limits[-1]:g}" if len(limits) == 1 else f"its own ε ({limits[0]:g} to {limits[-1]:g})"
    lines = [
        f"PLAN   {study.model.name} with {study.model.size:,} parameters · {plan.rounds} rounds · "
        f"{plan.cohort} of {plan.devices} devices per round",
        f"       {plan.local_steps} local step{'s' * (plan.local_steps > 1)} per round · {words_of(plan).sized(plan)}",
        f"       step size {plan.step_size:g} · clip {plan.clip:g} · {noise_of(plan)} {plan.noise:.4g}",
    ]
    if plan.weighed:
        lines.append(f"       devices count by their rows: the batch is that of a device with {plan.rows:,}")
    if plan.strict:
        codec = study.codec
        added = plan.noise * codec.noise_in_grid * codec.grid / plan.mechanism.update_noise(plan)
        lines.append(f"       whole numbers on a grid of {codec.grid:.3g}: with what rounding costs, {added:.4g}")
    if noise_drowns(study):
        lines.append(
            "       WARNING the noise is larger than all that these steps could learn; they are tried all the same"
        )
    if said := noise_in_words(study.job, study.model):
        lines.append(f"       {said}")
    if plan.noise > 0:
        lines.append(
            f"       every device ends at {ends} (δ = {study.limits[0].delta:g}, {adjacency_of(plan)}, against "
            f"{seen_by(plan, study.secure, study.costs.against)}); beyond it refuses"
        )
    prospect = prospect_of(study)
    return lines if prospect is None else [*lines, f"VERDICT  {prospect.sentence}"]


def body(run: "Run", result: "Result") -> str:
    """What came out: accuracy, budgets, what the server saw, and the three ε."""
    parts = [_curve(run, result)]
    if result.privacy.devices is not None:
        parts.append(_budgets(result.privacy.devices, run.study.costs.trusts_sum))
    if run.sight is not None:
        parts.append(_sight(run.sight, len(run.lines[-1].included), run.study.plan.probes))
    parts.append(claims(result.privacy))
    return "\n".join(terminal.wrap(line) for part in parts for line in part.split("\n"))


def _curve(run: "Run", result: "Result") -> str:
    from choral.planner.prospect import in_words
    from choral.record import merit

    stopped = "" if len(run.lines) == run.study.plan.rounds else f"\n{run.stopped}"
    if not result.test:
        return f"\nnot measured: every row is trained on{stopped}\n"
    curve = terminal.sparkline([merit(line.test)[1] for line in run.lines if line.test], 20, span=LEAST_SPAN)
    name, value = merit(result.test)
    error = f"\nRMSE {result.test['rmse']:,.4g}, in the label's own unit" if "rmse" in result.test else ""
    measured = result.record.result.measured if result.record.result else None
    sure = f" ± {measured.error:.3f}" if measured and measured.error is not None else ""
    auc = f"    AUC {result.test['auc']:.3f}" if "auc" in result.test else ""
    others = "".join(f"\n  {name:{OTHERS}} {value:.3f}" for name, value in result.baselines.named().items())
    verdict = result.record.result.verdict if result.record.result else None
    said = f"\n{in_words(verdict)}" if verdict else ""
    return f"\n{name} {curve} {value:.3f}{sure}{auc}{error}{others}{_recalls(measured)}{said}{stopped}\n"


def _recalls(measured: "Measured | None") -> str:
    """The share of each class that the model finds, on one line."""
    if not measured or not measured.recall:
        return ""
    recalls = [f"{escaped(name)} {value:.2f}" for name, value in measured.recall.items()]
    return f"\n  {'recall':{OTHERS}} {' · '.join(recalls[:MOST_CLASSES] + ['…'] * (len(recalls) > MOST_CLASSES))}"


def _budgets(devices: "Sequence[SpentByDevice]", of_sums: bool) -> str:
    names, bars = (12, 20) if terminal.width() >= WIDE else (9, 5)
    title = f"PRIVACY SPENT{', with the secure sum' * of_sums}"
    lines = [f"{title:{names + bars + 4}}used / limit paid/planned"]
    for device in devices[:MOST_BARS]:
        used = terminal.bar(device.epsilon / device.limit, bars)
        paid = f"{device.rounds}/{device.planned}"
        lines.append(
            f"  {escaped(device.name)[:names]:{names}} {used} {up(device.epsilon)} / {device.limit:.2f} "
            f"{paid:>7}{_state(device)}"
        )
    if len(devices) > MOST_BARS:
        lines.append(f"  … and {len(devices) - MOST_BARS} more in the report")
    if any(device.retried for device in devices):
        lines.append("  retried: uploads that were paid for in an attempt that failed")
    if any(device.full for device in devices):
        lines.append("  full: one more round would pass the limit, so the device refuses it")
    return "\n".join(lines) + "\n"


def _state(device: "SpentByDevice") -> str:
    """What else there is to say of a device's budget."""
    retried = f"  {device.retried} retried" if device.retried else ""
    if not device.full:
        return retried
    return f"{retried}  full" if device.rounds else "  below one round"


def _sight(sight: "Sight", included: int, probes: int) -> str:
    computed = "  ".join(f"{value:+.4f}" for value in sight.computed[:5]) + " …"
    received = "masked words; not kept, since real masks never repeat"
    if sight.received is not None:
        received = "  ".join(f"{word:08x}" for word in sight.received[:5]) + " …"
    more = f"and {probes} random projections of it with its noise" if probes else "nothing else"
    return (
        f"WHAT THE SERVER SAW of {escaped(sight.device)} in round {sight.round}\n"
        f"  it computed  {computed}\n  server got   {received}\n"
        f"  and learned the sum of {included} devices, {more}\n"
    )


def claims(privacy: "Statement") -> str:
    """The three ε of a privacy statement, each with its terms."""
    if privacy.none is not None:
        return f"PRIVACY    {privacy.none}"
    proved, summed, published = privacy.against_everyone, privacy.with_secure_sum, privacy.published
    terms = f"δ = {privacy.delta:g}, {privacy.adjacency}"
    lines = [
        f"PROVED     ε = {up(proved.epsilon)} against {proved.adversary}",
        f"           (rule {proved.rule}, {terms})",
    ]
    lines += [f"           {line}" for line in of_several(privacy)]
    if summed:
        lines += [
            f"           ε = {up(summed.epsilon)} with the secure sum, against {summed.adversary}",
            f"           (rule {summed.rule}, {terms}; {in_plain_words(summed.certificate)})",
        ]
    else:
        reason = in_plain_words(privacy.no_certificate)
        lines.append(f"           no provable extra protection by the secure sum here: {reason}")
    valid = "valid here" if published.valid else f"not a guarantee here: {in_plain_words(published.because)}"
    lines += [
        f"PUBLISHED  ε = {up(published.epsilon)} against a curious server, nobody colluding",
        f"           ({published.rule}, {terms}; {valid})",
    ]
    return "\n".join(lines)


def of_several(privacy: "Statement") -> list[str]:
    """What several rows of one person cost, where one record is the unit; the terms are those of the first ε."""
    if (several := privacy.several) is None:
        return []

    def at_most(epsilon: float | None) -> str:
        return "no bound" if epsilon is None else f"ε = {up(epsilon)}"

    return [
        f"{several.rows} rows of one person replaced: {at_most(several.epsilon)}; one row at each of",
        f"two such sites: {at_most(several.at_two_sites)} (same rule, δ and adversary)",
    ]


def _saved(result: "Result") -> str:
    folder = escaped(str(result.folder))
    return (
        f"SAVED      {folder}/\n           report.html · model.safetensors · ledgers/ · privacy.yaml\n"
        f"NEXT       choral verify {folder}\n           choral report {folder} --open"
    )


def _check_groups(study: "Study", args: argparse.Namespace) -> None:
    """Nothing, or what is wrong with --by, before anything is trained."""
    from choral.run.breakdown import check_groups

    for name in getattr(args, "by", None) or ():
        check_groups(name, study.data.columns, study.split.test)


def _groups(result: "Result", args: argparse.Namespace) -> "Found":
    """The figures that --by asks for."""
    from choral.run.breakdown import SITE, by_column, by_site

    names = getattr(args, "by", None) or ()
    return {name: by_site(result) if name == SITE else by_column(result, name) for name in names}


def _groups_as_object(found: "Found") -> dict[str, list[dict[str, object]]]:
    """The same for machines."""
    return {
        name: [{"name": one.name, "rows": one.rows, **one.figures} for one in groups] for name, groups in found.items()
    }


def _group_lines(found: "Found") -> "Iterator[str]":
    """A line for each site or group, with its test rows and its figures."""
    for name, groups in found.items():
        figures = list(dict.fromkeys(figure for one in groups for figure in one.figures))
        yield ""
        yield f"BY {escaped(name).upper()}   on test rows; not private, written nowhere"
        yield f"  {'':14}{'rows':>8}" + "".join(f"{figure:>10}" for figure in figures)
        for one in groups[:MOST_GROUPS]:
            shown = "".join(f"{one.figures[key]:10.3f}" if key in one.figures else f"{'–':>10}" for key in figures)
            yield f"  {escaped(one.name)[:14]:14}{one.rows:8,}{shown}"
        if len(groups) > MOST_GROUPS:
            yield f"  … and {len(groups) - MOST_GROUPS} more with --json"


def _check_personal(job: "Job", args: argparse.Namespace) -> None:
    """Nothing, or what is wrong with --personal and --kappa, before anything is trained."""
    from choral.core.plan import require_number

    if args.kappa is not None and not args.personal:
        raise ConfigError("CH104", "--kappa without --personal.", fix="Give both, or neither.")
    if args.kappa is not None:
        require_number("kappa", args.kappa)
    if args.personal and not job.data.test:
        raise ConfigError(
            "CH104",
            "--personal, but no rows are kept to judge by.",
            where=job.where("data", "test"),
            fix="Leave it out, or keep test above 0 in [data].",
        )


def _personal_models(run: "Run", result: "Result", args: argparse.Namespace) -> "AllSites | None":
    """Every site's figures after a simulation with --personal; they are printed, and no file of the run holds them."""
    if not getattr(args, "personal", False):  # only `choral simulate` has the flag
        return None
    from choral.learning.personal import KAPPA
    from choral.run.personal import all_sites

    return all_sites(run.study, result.parameters, KAPPA if args.kappa is None else args.kappa)


def _table_of_sites(sites: "AllSites") -> "Iterator[str]":
    """A line for every site, the means, and what they say."""
    from choral.learning.personal import in_words

    yield ""
    yield "PERSONAL   mean loss on each site's test rows; not private, written nowhere"
    yield f"  {'':14}" + "".join(f"{name:>10}" for name in NAMES) + "  κ"
    for site in sites.sites[:MOST_SITES]:
        shown = "".join(f"{site.standings[name].loss:10.3f}" for name in NAMES)
        yield f"  {site.name[:14]:14}{shown}  {in_words(site.kappa, sites.proposed)}"
    if len(sites.sites) > MOST_SITES:
        yield f"  … and {len(sites.sites) - MOST_SITES} more with --json"
    for figure in sites.mean("shared"):
        yield f"  {f'mean {figure}':14}" + "".join(f"{sites.mean(name)[figure]:10.3f}" for name in NAMES)
    yield f"  {sites.verdict}"


def _start_sums(kind: "Kind", job: "Job", args: argparse.Namespace) -> int:
    """Begin a run folder, make the model sum by sum, and show it."""
    _check_flags(job, args)
    from choral.run.folder import new_folder
    from choral.run.inquiry import begun

    job = job if args.seed is None else job.seeded(args.seed)
    inquiry = begun(kind, job, {}, out=args.out or new_folder(job.run.name), drop=args.drop)
    if not args.open:
        return _follow_sums(inquiry, args)
    from choral.report import serve

    with serve(inquiry.folder, open_browser=True) as live:
        print(f"live page: {live.url}", file=sys.stderr)
        return _follow_sums(inquiry, args)


def _go_on_with_sums(job: "Job", args: argparse.Namespace) -> int:
    """Make what is left of the model of a run that was interrupted; what the register has is not asked for again."""
    _check_flags(job, args)
    from choral.run.inquiry import gone_on

    return _follow_sums(gone_on(args.run_folder), args)


def plan_of_sums(job: "Job", args: argparse.Namespace) -> int:
    """What the model would cost and tell; nobody is asked, and nothing is written."""
    from choral.run.inquiry import Inquiry
    from choral.run.modelling import advice, question_of
    from choral.run.planning import settle

    inquiry = Inquiry("simulation", settle(job, keep_tables=True, guess=True), folder=Path(args.job).parent / "no run")
    planned = inquiry.plan(question_of(job))
    if args.json:
        print(json.dumps({"file": args.job, **planned.to_dict(), "advice": list(advice(inquiry.study))}))
    else:
        print(ask.shown_plan(planned))
        terminal.say(*advice(inquiry.study))
    return 0


def _check_flags(job: "Job", args: argparse.Namespace) -> None:
    if used := [flag for flag in _OF_TRAINING if getattr(args, flag, None)]:
        raise ConfigError(
            "CH104",
            f'--{used[0]} with [model] kind = "{job.model.kind}", which is made from sums and not trained.',
            where=job.where("model", "kind"),
            fix="Leave the flag out.",
        )


def _follow_sums(inquiry: "Inquiry", args: argparse.Namespace) -> int:
    from choral.report import write_report
    from choral.run.inquiry import made
    from choral.run.modelling import advice

    show, study = shows(args), inquiry.study
    if show:
        kind = LABELS[inquiry.kind] + (", seeded: the noise can be predicted" if study.seeded else "")
        terminal.say(
            f"choral {__version__} · {study.name} · {study.source}, {inquiry.rows:,} rows on {study.plan.devices:,} "
            "devices",
            kind,
            *study.data.notes,
            *advice(study),
        )
    answered = made(inquiry, watch=partial(terminal.progress, show=show))
    write_report(inquiry.folder)
    if args.json:
        print(
            json.dumps(
                {"kind": inquiry.kind, "seeded": study.seeded, "folder": str(inquiry.folder), **answered.to_dict()}
            )
        )
        return 0
    print("\n" + ask.shown(answered, str(inquiry.folder)) if show else ask.in_one_line(answered, str(inquiry.folder)))
    if show:
        terminal.say(f"NEXT      choral verify {inquiry.folder}", f"          choral report {inquiry.folder} --open")
    return 0


def _configure_demo(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral demo`."""
    parser.add_argument("--paper", action="store_true", help="the paper's setting: 16 devices, noise in every step")
    parser.add_argument("--rounds", type=int, help="how many rounds (default 10; 20 with --paper)")
    configure(parser)


def _run_demo(args: argparse.Namespace) -> int:
    """Rehearse the demo's job."""
    from choral.config import job_of

    job = PAPER if args.paper else JOB
    return start("rehearsal", job_of(**job | {"rounds": args.rounds or job["rounds"]}), args, compare=True)


def _configure_simulate(parser: argparse.ArgumentParser) -> None:
    """The flags of a run by a file, and personal models."""
    configure_file(parser)
    parser.add_argument("--personal", action="store_true", help="also make and compare a personal model for every site")
    parser.add_argument("--kappa", type=float, metavar="X", help="how far personal models may go from the shared one")


def _run_simulation(args: argparse.Namespace) -> int:
    """Read the file, run, and show."""
    from choral import config

    job = config.read(args.job)
    _check_personal(job, args)
    return start("simulation", job, args, compare=args.compare)


def _configure_resume(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral resume`."""
    parser.add_argument("run_folder", metavar="RUN", help="the run folder")
    configure_following(parser)


def _run_again(args: argparse.Namespace) -> int:
    """Take the run up and finish it."""
    from choral import config
    from choral.record import read_run

    job = config.parse(read_run(args.run_folder).about.job, source="run.json")
    if job.on_sums:
        return _go_on_with_sums(job, args)
    with terminal.stages("PLAN", 4, show=shows(args)) as done:
        from choral.output.logs import RunLog
        from choral.run.runs import resume

        done()
        taken_up = resume(args.run_folder, log=None if args.log is None else RunLog(args.log), reached=done)
    return follow(taken_up, args)


DEMO = Verb(
    about="""Train on UCI Adult over 250 small devices in one process, with real keys, masks and noise, and show what it
cost.

Each device has about 195 rows, too few to learn well alone. Nothing is downloaded. The run folder, with a report for
people, is written to runs/. --paper uses the setting of the paper: 16 devices, noise in every step.
""",
    epilog="Next: choral account --help · choral simulate my.toml · choral verify RUN",
    configure=_configure_demo,
    run=_run_demo,
)
SIMULATE = Verb(
    about="Train by a choral.toml on the fast engine: one compiled call per round, masks left out since they cancel.",
    configure=_configure_simulate,
    run=_run_simulation,
)
REHEARSE = Verb(
    about="Train by a choral.toml with the whole protocol in one process: real keys, real masks, every message, "
    "drop-outs.",
    configure=configure_file,
    run=partial(start_file, "rehearsal"),
)
RESUME = Verb(
    about="Go on with a run that was interrupted, after its last finished round; nothing that was spent is forgotten.",
    configure=_configure_resume,
    run=_run_again,
)
