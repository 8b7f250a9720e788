"""privacy.yaml: the run as an entry of the public registry of differential privacy deployments (OpenDP, NIST).

The names are those of the registry's own schema. What only people know is left as a comment that says FILL IN: an
entry that nobody has read must not pass for a complete one.
"""

import json
import math
import re
from dataclasses import dataclass

from choral.accounting.words import up, words_of
from choral.core.exposure import EVERYONE, adjacency_of
from choral.core.plan import Plan
from choral.core.printable import is_shown
from choral.core.private_sums import RULE
from choral.record import About, Data, RunRecord, read_sum_models
from choral.report import words
from choral.report.words import claims, count, leading_claim, limited_against, small, unprotected


@dataclass(frozen=True)
class Blank:
    """A field that only people can fill in, with a hint for them."""

    hint: str


Entry = dict[str, "str | int | float | Blank | Entry | None"]


def entry_text(record: RunRecord) -> str:
    """The registry entry of a finished run as YAML."""
    kind, meaning = words.label(record)
    head = f"# {kind}. {meaning}\n# Not a deployment until a person has filled in the lines that say FILL IN.\n"
    head += f"# Written by choral {words.WRITER}.\n"
    return head + "\n".join(_lines(entry(record), 0)) + "\n"


def entry(record: RunRecord) -> Entry:
    """The fields of the registry's schema, in its order."""
    about = record.about
    slug = re.sub(r"[^a-z0-9]+", "-", about.name.lower()).strip("-") or "run"
    return {
        "url_slug": slug,
        "deployment": {
            "basic": _basic(record),
            "dp_variant": {
                "variant_name": "Approximate DP" if words.claims(record) else Blank("none: no noise was added"),
                "data_domain": f"{words.count(about.data.devices, 'table')}, one on each device, "
                f"with {about.data.features} declared features; the sizes of the tables are public.",
                "unprotected_quantities": " ".join(words.not_covered(about.plan)),
            },
            "privacy_loss": _loss(record),
            "deployment_model": _model(record),
            "implementation": _implementation(record),
            "administrative": {
                "status": "Draft",
                "registry_authors": Blank("a list of the names of those who fill in this entry"),
                "tier": 3,
            },
        },
    }


def _basic(record: RunRecord) -> Entry:
    about = record.about
    return {
        "name": about.name,
        "data_curators": Blank("a list of data_curator_name and data_curator_type (Government, Industry or Nonprofit)"),
        "description": words.statement(record)[0],
        "intended_use": Blank("what the model is for"),
        "data_product_type": "Machine learning model",
        "data_product_region": Blank("the region that the data describe or whose law applies"),
        "data_product_sector": Blank("Technology, Healthcare, Education, Government, Energy or Finance"),
        "publication_date": record.finished.finished[:10],
    }


def _loss(record: RunRecord) -> Entry:
    if nothing := words.unprotected(record):
        return {"privacy_unit": "none", "privacy_parameters_details": nothing}
    first, *others = words.claims(record)
    leading = words.leading_claim(record)
    details = [f"{first.title}: rule {first.rule}; {first.adjacency}; against {first.adversary}; {first.standing}."]
    for claim in others:
        number = (
            "no figure" if claim.epsilon is None else f"epsilon {up(claim.epsilon)}, delta {words.small(claim.delta)}"
        )
        details.append(
            f"{claim.title}: {number}; {claim.standing}; "
            f"rule {claim.rule}; {claim.adjacency}; against {claim.adversary}."
        )
    if record.about.predictable:
        details.append(
            "Simulation: the noise is predictable, so the parameters describe the mechanism and not this run."
        )
    return {
        "privacy_unit": record.about.plan.protects.level,
        "privacy_unit_details": record.about.plan.protects.adjacent_tables,
        "number_of_privacy_units": record.about.records,
        "privacy_parameters": {"epsilon": leading.epsilon, "delta": leading.delta},
        "privacy_parameters_details": " ".join(details),
    }


def _model(record: RunRecord) -> Entry:
    can, cannot = words.server_sees(record.about.secure_sum, record.about.plan)
    return {
        "model_name": "Federated",
        "model_name_details": "Every device adds its own noise before anything leaves it; the server is not trusted.",
        "trust_assumptions": f"The parameters above hold against {words.limited_against(record.about)}. "
        "Each device, its keys and its data file are trusted by their holder only.",
        "actors": f"Devices hold the records. The server sees {', '.join(can)}; it does not see {', '.join(cannot)}. "
        "Whoever holds the model sees the model.",
        "release_type": "Many releases",
        "release_type_details": f"{words.count(len(record.rounds), 'round')}; each device's ledger counts every upload "
        "before it leaves, outlives the run, never resets by itself and refuses at the limit.",
        "data_source_type": "Static",
        "access_type": "Non-interactive",
    }


def _implementation(record: RunRecord) -> Entry:
    about, result = record.about, record.finished
    answers = dict(nist_answers(record))
    return {
        "preprocessing_and_hyperparameter_tuning": answers["What came before? (data)"]
        + " Tuning on the records outside this run is not counted here.",
        "mechanisms": f"{answers['By what? (mechanism)']} {answers['What else must hold? (security)']} "
        f"choral {about.choral}.",
        "composition": answers["For how long? (composition)"],
        "post_processing": "The server averages the opened sums and applies them to the model.",
        "justification": Blank("why these parameters were chosen, and by whom"),
        "utility": words.goodness(result.test, 4) + (" on the hold-out" if result.test else "") + _on_sums(record),
        "additional_information": f"plan {about.plan_digest}; check with: choral verify",
    }


def _on_sums(record: RunRecord) -> str:
    """What the models on sums of the run reach, as further sentences."""
    sentences = []
    for line in read_sum_models(record.folder):
        figures = ", ".join(f"{name.replace('_', '-')} {value:.4f}" for name, value in line.figures.items())
        sentences.append(f"; on sums ({line.words}): {figures or 'not measured'}")
    return "".join(sentences)


def _lines(value: object, depth: int) -> list[str]:
    """The value as lines of YAML in block style, every text in double quotes."""
    assert isinstance(value, dict)  # noqa: S101 - the registry's schema is objects all the way down
    lines = []
    for name, item in value.items():
        if isinstance(item, dict):
            lines += [f"{'  ' * depth}{name}:", *_lines(item, depth + 1)]
        elif isinstance(item, Blank):
            lines.append(f"{'  ' * depth}# {name}: FILL IN: {item.hint}")
        else:
            lines.append(f"{'  ' * depth}{name}: {scalar(item)}")
    return lines


def scalar(value: str | float | int) -> str:
    r"""One value as YAML writes it; a number keeps its point, without which some readers take it for text.

    >>> print(scalar("a: \u2028 b"), scalar(1e-5), scalar(20))
    "a: \u2028 b" 1.0e-05 20
    """
    if isinstance(value, str):
        # JSON's quoting is YAML's. What is not seen is written out as both read it, which they do up to U+FFFF.
        quoted = json.dumps(value, ensure_ascii=False)
        return "".join(one if is_shown(one) or ord(one) > 0xFFFF else f"\\u{ord(one):04x}" for one in quoted)
    if isinstance(value, float):
        if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf"
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return str(value)


def nist_answers(record: RunRecord) -> tuple[tuple[str, str], ...]:
    """The questions of NIST SP 800-226 to any claim of differential privacy, answered for this run."""
    about, plan, result = record.about, record.about.plan, record.result
    noise = "a seed (predictable: simulation only)" if about.predictable else "a cryptographic source"
    full = sum(device.full and device.planned is not None for device in result.privacy.devices or ()) if result else 0
    much = ""
    if claims(record):
        first = leading_claim(record)
        much = f"{first.figure} at δ = {small(first.delta)}, rule {first.rule}."
    reached = f" One more round would pass the limit of {count(full, 'device')}." if full else ""
    measured = "R²" if about.data.label_bounds else "accuracy"
    return (
        (f"Whose {plan.unit}? (unit of privacy)", _whose(plan)),
        ("How much? (ε, δ)", much or unprotected(record) or "Open until the run has ended."),
        (
            "Against whom? (trust model)",
            f"{EVERYONE[0].upper()}{EVERYONE[1:]}, and whoever holds the model. No trust in the server is needed."
            if about.against == "everyone"
            else f"The limits hold against {limited_against(about)}; the figure against {EVERYONE} is larger.",
        ),
        (
            "By what? (mechanism)",
            f"{_mechanism(about)}. The noise comes from {noise}.",
        ),
        (
            "For how long? (composition)",
            f"Forever: the loss of {_counted(record)} is counted together. "
            f"A device's ledger outlives the run and refuses at its limit.{reached}",
        ),
        (
            "What does it cost? (utility, bias)",
            (
                f"This page shows the {measured} on a hold-out. "
                if result is None or result.test
                else "It was not measured. "
            )
            + "Clipping and noise weigh more on small groups; how good the model is for each group was not measured.",
        ),
        (
            "What else must hold? (security)",
            _masking(about) + " The devices and their keys must be kept safe.",
        ),
        ("What came before? (data)", _collection(about.data)),
    )


def _whose(plan: Plan) -> str:
    return plan.protects.whose.format(adjacency=adjacency_of(plan))


def _masking(about: About) -> str:
    if about.secure_sum is None:
        return "There was no secure sum."
    if ("mode", "paper") in about.secure_sum.retired:  # a run of choral 0.2 or before
        return "The paper's own protocol (Fig. 1): no self masks, a drop-out ends the round, no colluder is counted on."
    if not about.traits.masked:
        return "A deployment masks updates and opens sums only; this simulation left the masks out."
    return "Updates are masked on the device; the server opens sums only."


def _collection(data: Data) -> str:
    declared = f"Origin of the columns: {data.columns_from}. " if data.columns_from else ""
    hold_out = f"Hold-out: {data.hold_out}. " if data.hold_out else ""
    return f"{declared}{hold_out}How the records were collected is outside this report."


def _mechanism(about: About) -> str:
    """What protects a record: in training, or in the sums of a model that is not trained."""
    if about.sums is None:
        return words_of(about.plan).described(about.plan)
    return (
        f"Sums over records of vectors that are cut to a length, with whole-number noise on each device (rule {RULE})"
    )


def _counted(record: RunRecord) -> str:
    sums = record.about.sums
    number, thing = (len(record.rounds), "round") if sums is None else (sums, "sum")
    return f"the one {thing}" if number == 1 else f"all {count(number, thing)}"
