"""privacy.yaml: the registry's own field names and enumerations, valid YAML, nothing made up."""

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from choral.record import read_run
from choral.report.registry import entry_text, scalar
from tests.report.runs import NASTY, make_run

# Origin: schemas/deployments-schema.yaml of the registry (opendp/deployments-registry-data, commit 057e5d81):
# the fields of every object, all of which forbid others, and the enumerations.
FIELDS = {
    "": {"url_slug", "deployment"},
    "deployment": {"basic", "dp_variant", "privacy_loss", "deployment_model", "implementation", "administrative"},
    "basic": {
        "name", "data_curators", "description", "intended_use", "data_product_type", "data_product_region",
        "data_product_sector", "publication_date",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        "privacy_unit", "privacy_unit_details", "number_of_privacy_units", "privacy_parameters",
        "privacy_parameters_details",
    },
    "privacy_parameters": {"epsilon", "delta", "rho"},
    "deployment_model": {
        "model_name", "model_name_details", "trust_assumptions", "actors", "release_type", "release_type_details",
        "data_source_type", "data_source_type_details", "access_type", "access_type_details",
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning", "mechanisms", "composition", "post_processing", "justification",
        "utility", "additional_information",
    },
    "administrative": {"evidence_sources", "status", "registry_authors", "tier"},
}  # fmt: skip
ONE_OF = {
    "data_product_type": ("Machine learning model", "Summary statistics", "Dataset", "Synthetic data"),
    "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
    "model_name": ("Local", "Central", "Shuffle", "Federated", "Varies"),
    "release_type": ("One release", "Many releases"),
    "data_source_type": ("Static", "Dynamic"),
    "access_type": ("Interactive", "Non-interactive"),
    "status": ("Converted", "Draft", "Pending"),
    "tier": (1, 2, 3),
}


def read_strictly(text):
    """The one form of YAML that we write: two spaces a level, names without quotes, JSON's texts, plain numbers."""
    top, stack, blanks = {}, [], []
    stack.append(top)
    for line in text.splitlines():
        if blank := re.fullmatch(r" *# (\w+): FILL IN: .+", line):
            blanks.append(blank[1])
        if re.fullmatch(r" *#.*", line):
            continue
        indent, name, value = re.fullmatch(r"((?:  )*)(\w+):(?: (.+))?", line).groups()
        del stack[len(indent) // 2 + 1 :]
        assert len(stack) == len(indent) // 2 + 1
        if value is None:
            stack[-1][name] = {}
            stack.append(stack[-1][name])
        else:
            assert value.startswith('"') or re.fullmatch(r"-?\d+(\.\d+(e[+-]\d+)?)?", value)
            stack[-1][name] = json.loads(value)
    return top, blanks


@pytest.fixture
def text(tmp_path):
    return lambda **other: entry_text(read_run(make_run(tmp_path / "run", **other)))


@pytest.mark.parametrize("other", [{}, {"secure": False}, {"certificate": None}, {"nasty": NASTY}, {"seeded": True}])
def test_every_field_is_one_of_the_registrys_and_every_choice_one_of_its_choices(text, other):
    entry, blanks = read_strictly(text(**other))

    def check(name, value):
        for key, item in value.items():
            assert key in FIELDS[name], key
            assert item in ONE_OF.get(key, (item,))
            if isinstance(item, dict):
                check(key, item)

    check("", entry)
    assert set(entry["deployment"]) == FIELDS["deployment"]
    required = {"name", "description", "data_product_type", "publication_date"}
    assert required <= set(entry["deployment"]["basic"])
    # What only people know is left to them, each field by name.
    assert blanks == [
        "data_curators", "intended_use", "data_product_region", "data_product_sector", "justification",
        "registry_authors",
    ]  # fmt: skip
    assert set(blanks) <= set().union(*FIELDS.values())


def test_the_numbers_are_those_of_the_result_with_all_their_terms(text, tmp_path):
    loss = read_strictly(text())[0]["deployment"]["privacy_loss"]
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert loss["privacy_parameters"] == {"epsilon": result["privacy"]["against_everyone"]["epsilon"], "delta": 1e-5}
    assert loss["number_of_privacy_units"] == 39040
    details = loss["privacy_parameters_details"]
    assert "Against everyone: rule S5" in details
    assert "one record replaced; against the server and all other devices" in details
    assert "not a guarantee here" in details


def test_a_seeded_run_says_so_at_the_top_and_beside_its_numbers(text):
    written = text(seeded=True)
    assert written.startswith("# SIMULATION. Its noise came from a seed")
    entry, _ = read_strictly(written)
    assert "Simulation: the noise is predictable" in entry["deployment"]["privacy_loss"]["privacy_parameters_details"]


def test_hostile_names_stay_inside_their_quotes(text):
    assert read_strictly(text(nasty=NASTY))[0]["deployment"]["basic"]["name"] == NASTY


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
@example("\u2028\u2029\x85\ufeff\x7f\ud800\uffff")
def test_any_text_is_one_printable_line_that_reads_back(value):
    written = scalar(value)
    assert json.loads(written) == value
    # YAML 1.2, production [1] c-printable, and YAML 1.1's line breaks inside a text.
    assert not re.search("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029\ufeff]", written)


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_reads_back_and_has_the_point_without_which_yaml_takes_it_for_text(value):
    assert float(scalar(value)) == value
    assert "." in scalar(value)


@pytest.mark.parametrize("other", [{}, {"nasty": NASTY}])
def test_pyyaml_reads_the_same(text, other):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not a dependency; the strict reading above stands for it")
    written = text(**other)
    assert yaml.safe_load(written) == read_strictly(written)[0]
