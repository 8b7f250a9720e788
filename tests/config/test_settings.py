"""The tables of choral.toml: values at each edge of a setting, what people read of it, and defaults that fit."""

import math

import pytest

from choral.config.settings import (
    AskSettings,
    Bounds,
    Columns,
    Count,
    DataSettings,
    FederationSettings,
    LocalSettings,
    ModelSettings,
    Number,
    Positive,
    PrivacySettings,
    RunSettings,
    Setting,
    Share,
    Text,
    Whole,
    settings_of,
)
from choral.core.plan import MOST_WHOLE
from choral.server_step import STEPS, StepName

TABLES = [PrivacySettings, FederationSettings, LocalSettings, DataSettings, ModelSettings, RunSettings]
CLASSES = settings_of(DataSettings)["classes"].kind
BINS = settings_of(ModelSettings)["bins"].kind


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Positive, [1e-300, 1, 1.7e308], [0, -1.0, math.nan, math.inf, 10**400, True, "1", None]),
        (Share, [0, 0.0, 0.999], [1, 1.0, -1e-9, math.nan, False]),
        (settings_of(DataSettings)["embeddings"].kind, [1, 2**20], [0, 2**20 + 1, 2.0, True, "2", None]),
        (BINS, [2, MOST_WHOLE], [1, 0]),
        (Whole, [0, MOST_WHOLE], [-1, MOST_WHOLE + 1]),
        (bool, [True, False], [0, 1, "true", None]),
        (Text, ["a", " "], ["", 1, None, ["a"]]),
        (StepName, ["mean", "adam"], ["Mean", "", "mean "]),
        (list[Count], [[], [1, 2]], [[0], [1, "2"], 1, {}]),
        (Bounds, [[0, 1], [-1.5, 2]], [[1, 0], [1, 1], [0], [0, 1, 2], [0, math.inf], [0, math.nan], [0, "1"], 1]),
        (Columns, [{}, {"age": {}}], [{"age": 1}, [], None]),
        (dict[str, Positive], [{}, {"a": 1.0}], [{"a": 0}, {"a": 1, "b": "2"}, [1.0]]),
        (
            settings_of(DataSettings)["classes"].kind,
            [[], ["a"], [0, 1], [True]],
            [["a", 1], [True, 0], [""], [0.0], "a"],
        ),
        (settings_of(DataSettings)["encoder_sha256"].kind, ["a" * 64], ["a" * 63, "a" * 64 + "\n", "A" * 64, 1]),
    ],
)
def test_a_setting_takes_its_values_up_to_the_edge_and_no_others(kind, good, bad):
    assert [value for value in good if not Setting(kind).fits(value)] == []
    assert [value for value in bad if Setting(kind).fits(value)] == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Number, "a finite number"),
        (Positive, "a finite number above 0"),
        (Share, "a finite number at least 0 and below 1"),
        (Count, "a whole number, at least 1 and below 2^63"),
        (BINS, "a whole number, at least 2 and below 2^63"),
        (settings_of(FederationSettings)["deadline"].kind, "a finite number above 0 and below 86400"),
        (bool, "true or false"),
        (Text, "a text in quotes"),
        (list[Text], "a list, each item a text in quotes"),
        (dict[str, Positive], "a table with a finite number above 0 for each name"),
    ],
)
def test_people_read_what_a_value_must_be(kind, words):
    assert str(Setting(kind)) == words


def test_people_read_which_steps_of_the_server_there_are():
    assert str(settings_of(FederationSettings)["server"]) == " or ".join(f'"{name}"' for name in STEPS)


@pytest.mark.parametrize("table", [*TABLES, AskSettings])
def test_every_setting_has_words_and_its_default_and_its_example_fit(table):
    made = table()  # every setting has a default: a table may be left out
    for name, setting in settings_of(table).items():
        assert str(setting) and getattr(made, name) == setting.default
        assert setting.default is None or setting.fits(setting.default), name


def test_no_name_stands_in_two_tables_so_settings_by_name_have_one_owner():
    names = [name for table in TABLES for name in settings_of(table)]
    assert len(set(names)) == len(names)
