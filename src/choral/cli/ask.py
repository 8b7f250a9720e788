"""Ask all devices of a study: a count, a table, a mean, a survival curve. Every number has an interval with its noise.

STUDY is a choral.toml, which begins a new run folder, a run folder that has begun, or the folder of a deployment. Each
question is charged to every device's ledger; the same question again is answered from the register and costs nothing.
`choral resume FOLDER` then trains from the same ledgers.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from choral.accounting.words import up
from choral.cli import terminal
from choral.core.errors import ConfigError
from choral.core.printable import count, escaped

if TYPE_CHECKING:
    from choral.asking.question import Question
    from choral.config import Job
    from choral.record import AnswerPrivacy
    from choral.run.inquiry import AskedAnswer, Inquiry, PlannedQuestion

EPILOG = """\
examples:
  choral ask choral.toml table smoker --by sex --where 'age>=60' --out study
  choral ask study count --where sex=female
  choral ask study km --time days --event died --by arm --plan
  choral ask study logistic age smoker --target sick --rounds 20"""
_TEXTS = {
    "time": "km, hazard: how long each row was observed",
    "event": "km, hazard: whether the event occurred",
    "occurred": "km, hazard: the level of --event that means yes",
    "target": "models and moments: what to predict",
}
_NUMBERS = {
    "until": "km, hazard: the last time that counts",
    "power": "km: bin k ends at until·(k/bins)^power",
    "bins": "how many bins a column or the time has",
    "rounds": "models: how many sums to take after the first",
    "clip": "models: the longest gradient of one row",
    "weight": "additive: the weight of cells",
    "radius": "hazard: the longest row",
}
_NAMED = ("time", "value", "level")  # numbers that say what a row is about; the others are in --json
_ONE_COLUMN = ("mean", "cdf", "quantiles", "percentiles")  # questions about one column; others take a list


def configure(parser: argparse.ArgumentParser) -> None:
    """The study, the question and its parameters."""
    parser.add_argument("study", metavar="STUDY", help="a choral.toml, or the folder of a run that has begun")
    parser.add_argument(
        "name", metavar="QUESTION", help="count, table, mean, km, …, or a model: logistic, linear, additive, hazard"
    )
    parser.add_argument("columns", metavar="COLUMN", nargs="*", help="the columns that the question is about")
    parser.add_argument("--by", action="append", metavar="COLUMN", help="one answer for each of its levels")
    parser.add_argument("--where", action="append", metavar="CONDITION", help="age>=60, age<80 or sex=female")
    for name, line in _TEXTS.items():
        parser.add_argument(f"--{name}", metavar="COLUMN" if name != "occurred" else "LEVEL", help=line)
    for name, line in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=float, metavar="NUMBER", help=line)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="any other parameter")
    parser.add_argument("--plan", action="store_true", help="show its cost and the width of its intervals; ask nothing")
    parser.add_argument("--rehearse", action="store_true", help="with keys, masks and every message (a new run only)")
    parser.add_argument("--seed", type=int, help="make a new run repeatable; its noise is then predictable")
    parser.add_argument("--out", type=Path, help="the folder of a new run (default runs/<time>-<name>)")


def run(args: argparse.Namespace) -> int:
    """Ask, or plan to, and show."""
    question = _question(args)
    if (Path(args.study) / "study.toml").exists():
        return _deployed(args, question)
    inquiry, assumed = _inquiry(args)
    folder = str(inquiry.folder)
    if args.plan:
        planned = inquiry.plan(question)
        plain = {"folder": folder, **planned.to_dict(), "assumed": assumed}
        print(json.dumps(plain) if args.json else shown_plan(planned, assumed))
        return 0
    asked = inquiry.ask(question, watch=terminal.progress)
    print(json.dumps({"folder": folder, **asked.to_dict()}) if args.json else shown(asked, folder))
    return 0


def _question(args: argparse.Namespace) -> "Question":
    from choral.asking.cells import condition
    from choral.asking.question import Question

    given = {name: getattr(args, name) for name in (*_TEXTS, *_NUMBERS, "by") if getattr(args, name) is not None}
    if args.columns:
        given |= {"column": args.columns[0]} if args.name in _ONE_COLUMN else {"columns": args.columns}
    if args.where:
        given["where"] = [condition(text) for text in args.where]
    for text in args.set:
        key, _, value = text.partition("=")
        try:
            given[key] = json.loads(value)
        except ValueError:
            raise ConfigError("CH102", f"--set {key} is not JSON.", fix='Write --set cuts={"age":[40,60]}.') from None
    return Question(name=args.name, parameters=given)


def _inquiry(args: argparse.Namespace) -> tuple["Inquiry", str]:
    """The questions of the study, and what a plan takes for granted where the study does not say it."""
    from choral import config
    from choral.run import inquiry
    from choral.run.folder import new_folder
    from choral.run.planning import settle

    if Path(args.study).is_dir():
        if args.rehearse or args.seed is not None or args.out is not None:
            raise ConfigError("CH104", "--rehearse, --seed or --out with a run that has begun.", fix="Leave it out.")
        return inquiry.gone_on(args.study), ""
    job = config.read(args.study)
    job = job if args.seed is None else job.seeded(args.seed)
    kind = "rehearsal" if args.rehearse else "simulation"
    out = args.out or new_folder(job.run.name)
    if args.plan:
        job, assumed = _allowing(job)
        study = settle(job, keep_tables=True, guess=not args.rehearse)
        return inquiry.Inquiry(kind, study, folder=out), assumed  # type: ignore[arg-type]
    return inquiry.begun(kind, job, {}, out=out), ""  # type: ignore[arg-type]


def _allowing(job: "Job") -> tuple["Job", str]:
    """The job; where it allows no question, with half of its ε for questions, and a sentence that says so."""
    if job.ask.allowed or job.privacy.epsilon is None:
        return job, ""
    ask = msgspec.structs.replace(job.ask, epsilon=job.privacy.epsilon / 2)
    return replace(job, ask=ask), (
        f"{job.source} has no [ask] epsilon, so nothing may be asked yet. This is a plan with [ask] epsilon = "
        f"{ask.epsilon:g} and most = {ask.most}."
    )


def _deployed(args: argparse.Namespace, question: "Question") -> int:
    from choral.deploy.asking import plan, put
    from choral.deploy.serving import run_folder
    from choral.run.agreement import Agreement

    if args.rehearse or args.seed is not None or args.out is not None:
        raise ConfigError("CH104", "--rehearse, --seed or --out with a deployment.", fix="Leave it out.")
    study = Agreement.read(Path(args.study) / "study.toml")
    folder = run_folder(Path(args.study), study).path
    if args.plan:
        would = plan(folder, study, question)
        print(json.dumps({"folder": str(folder), **would.to_dict()}) if args.json else shown_plan(would))
        return 0
    asked = put(folder, study, question)
    if asked is None:
        return terminal.answer(
            args,
            {"folder": str(folder), "waiting": True},
            f"WAITS   {question.words()}",
            f"        choral server run {args.study} asks it before its next round; the same command then shows it",
        )
    print(json.dumps({"folder": str(folder), **asked.to_dict()}) if args.json else shown(asked, str(folder)))
    return 0


def shown(asked: "AskedAnswer", folder: str) -> str:
    """An answer or a model, with what it cost, for people."""
    answer = asked.answer
    lines = [f"QUESTION {asked.number}   {asked.question.words()}", ""]
    if asked.privacy.from_register:
        lines.insert(1, "asked before: answered from the register, at no cost")
    lines += _rows(asked.question.name, (*answer.rows, *answer.about))
    if asked.figures:
        figures = ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in asked.figures.items())
        lines += ["", f"on rows that the model was not made from: {figures}"]
    if answer.test is not None:
        lines += ["", "test: " + ", ".join(f"{name} {value:.4g}" for name, value in answer.test.items())]
    if answer.block:
        lines += ["", answer.block]
    lines += ["", *answer.sentences]
    if answer.is_rough:
        lines.append("Some intervals are approximate: the noise is large for what is asked.")
    lines += [*_shown_privacy(asked.privacy), f"register and ledgers: {folder}"]
    return "\n".join(terminal.wrap(line) if line != answer.block else line for line in lines)


def in_one_line(asked: "AskedAnswer", folder: str) -> str:
    """A model's figures, its first ε with its terms, and where it is."""
    figures = [f"{name.replace('_', '-')} {value:.4f}" for name, value in asked.figures.items()]
    privacy = asked.privacy
    cost = (
        f"ε ≤ {up(privacy.epsilon, 4)} (δ = {privacy.delta:g}, {privacy.adjacency}, rule {privacy.rule}, against "
        f"{privacy.adversary})"
    )
    return escaped(" · ".join([*figures, cost, folder]))


def _rows(name: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each row; of an additive model one for each column, since each of its cells is a row."""
    curves = [row for row in rows if name == "additive" and "value" in row]
    lines = [_row(row) for row in rows if row not in curves]
    for column in dict.fromkeys(str(row["column"]) for row in curves):
        cells = sorted((row for row in curves if row["column"] == column), key=lambda row: row["estimate"])
        ends = " to ".join(f"{one['estimate']:+,.3g} at {one['value']:,.6g}" for one in (cells[0], cells[-1]))
        lines.append(f"  {column:<32}{ends}   ({len(cells)} cells)")
    return [*lines, *(["  --json has every cell, and the report draws them"] if curves else [])]


def _row(row: Mapping[str, object]) -> str:
    """What a row is about, then its estimate and interval."""
    about = [f"{name} {row[name]:,.6g}" for name in _NAMED if name in row]
    named = [value for value in row.values() if isinstance(value, str) and value] + about
    interval = f"{row['estimate']:>12,.6g}   95 %: {row['low']:,.6g} to {row['high']:,.6g}"
    return f"  {' · '.join(named):<32}{interval}"


def shown_plan(asked: "PlannedQuestion", assumed: str = "") -> str:
    """What a question would cost and how wide its interval would be, for people."""
    lines = [
        f"PLAN   {asked.question.words()}",
        f"       noise of deviation {asked.deviation:.4g} in each number. {asked.expected.sentence}",
        *_shown_privacy(asked.privacy),
        *([assumed] if assumed else []),
        "nothing was asked, and nothing is charged",
    ]
    return "\n".join(terminal.wrap(escaped(line)) for line in lines)


def _shown_privacy(privacy: "AnswerPrivacy") -> list[str]:
    figures = (
        (privacy.epsilon, privacy.epsilon_in_all, privacy.adversary),
        (privacy.epsilon_sum, privacy.epsilon_sum_in_all, privacy.adversary_sum),
    )
    head = f"PRIVACY   rule {privacy.rule}, δ = {privacy.delta:g}, {privacy.adjacency}"
    of = "this question" if privacy.sums == 1 else f"the {privacy.sums} sums of this model"
    lines = [
        f"          ε ≤ {up(one, 4)} of {of}, {up(whole, 4)} of all {privacy.most}, against {whom}"
        for one, whole, whom in figures
    ]
    verb = "is" if privacy.asked == 1 else "are"
    return [head, *lines, f"          {privacy.asked} of {count(privacy.most, 'question')} {verb} asked"]
