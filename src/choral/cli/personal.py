"""Personal models in words: a table of all sites after a simulation, and a site's own, made and used at the site."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from choral.cli import terminal
from choral.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from choral.config import Job
    from choral.deploy.personal import OwnModel
    from choral.run.personal import AllSites
    from choral.run.result import Result
    from choral.run.runs import Run

MOST_SITES = 20
NAMES = ("shared", "alone", "personal")


def check(job: "Job", args: argparse.Namespace) -> None:
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


def asked(run: "Run", result: "Result", args: argparse.Namespace) -> "AllSites | None":
    """Every site's figures after a simulation with --personal; they are printed, and no file of the run holds them."""
    if not getattr(args, "personal", False):  # only `choral simulate` has the flag
        return None
    from choral.learning.personal import KAPPA
    from choral.run.personal import all_sites

    return all_sites(run.study, result.parameters, KAPPA if args.kappa is None else args.kappa)


def table(sites: "AllSites") -> "Iterator[str]":
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


def configure_own(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral device personal`."""
    parser.add_argument("--validation", type=Path, metavar="FILE", help="rows of this site that the run never saw")
    parser.add_argument("--kappa", type=float, metavar="X", help="the proposed distance from the shared model (0.1)")
    parser.add_argument("--onnx", type=Path, metavar="FILE", help="also write the personal model as ONNX; an extra")
    configure_model(parser)


def configure_predict(parser: argparse.ArgumentParser) -> None:
    """The flags of `choral device predict`."""
    parser.add_argument("rows", type=Path, help="rows as the study declares them; no label is needed")
    parser.add_argument("--personal", action="store_true", help="use the personal model instead of the shared one")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a CSV file instead of printing it")
    configure_model(parser)


def configure_model(parser: argparse.ArgumentParser) -> None:
    """Where the shared model is, if this site was not there when the run ended."""
    parser.add_argument(
        "--model", type=Path, metavar="FILE", help="the run's model.safetensors, if it is not kept here"
    )


def make(args: argparse.Namespace, passphrase: str | None) -> int:
    """Make the site's personal model and its page, and say what it is."""
    from choral.deploy.home import Home
    from choral.deploy.ownership import keep
    from choral.deploy.personal import PAGE, make_personal
    from choral.learning.personal import KAPPA
    from choral.report.personal_page import personal_page

    kappa = KAPPA if args.kappa is None else args.kappa
    made = make_personal(
        Home(args.home), validation=args.validation, model=args.model, kappa=kappa, passphrase=passphrase
    )
    page = args.home / PAGE
    summary = made.to_dict() | {"page": str(page)}
    keep(page, personal_page(summary))
    if args.onnx is not None:
        summary["onnx"] = str(_exported(made, args.onnx))
    if args.json:
        print(json.dumps(summary))
        return 0
    terminal.say(*_own_lines(made), f"PAGE      {page}", f"          {summary['not_private']}")
    return 0


def _exported(made: "OwnModel", path: Path) -> Path:
    from choral.deploy.personal import NOT_PRIVATE
    from choral.output.onnx import onnx_of
    from choral.run.folder import write_whole

    graph = onnx_of(made.trained.model, made.card, made.trained.parameters, run=made.plan_digest, privacy=NOT_PRIVATE)
    write_whole(path, graph.SerializeToString(), mode=0o600, fix="Choose another --onnx.")
    return path


def _own_lines(made: "OwnModel") -> "Iterator[str]":
    yield f"PERSONAL  {made.path}"
    yield f"          {made.words}: κ = {made.own.kappa:g}; {made.own.because}"
    for name, standing in made.standings.items():
        figures = " · ".join(f"{figure} {value:.4f}" for figure, value in standing.to_dict().items())
        yield f"  {name:<10}{figures}"
    if made.repeated:
        yield f"          {made.repeated:,} validation rows are rows that the run was trained on: they judge nothing"


def predict(args: argparse.Namespace, passphrase: str | None) -> int:
    """Predict for new rows, as CSV: the number, or the class and the probability of each class."""
    from choral.cli import predictions
    from choral.deploy.home import Home
    from choral.deploy.personal import predictor

    trained, study = predictor(Home(args.home), personal=args.personal, model=args.model, passphrase=passphrase)
    rows = study.table_in(args.rows)
    return predictions.show(trained, study.target.name, rows, out=args.out, as_json=args.json)
