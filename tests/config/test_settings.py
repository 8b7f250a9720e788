"""The tables of choral.toml: every field says what it takes, and takes its own default."""

from dataclasses import fields

import pytest

from choral.config import settings
from choral.config.kinds import Kind

TABLES = [
    settings.PrivacySettings, settings.FederationSettings, settings.LocalSettings, settings.DataSettings,
    settings.ModelSettings, settings.RunSettings,
]  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
def test_every_field_has_a_kind_in_words_and_its_default_is_of_that_kind(table):
    made = table()  # every field has a default: a table may be left out
    for field in fields(table):
        kind, default = field.metadata["kind"], getattr(made, field.name)
        assert isinstance(kind, Kind) and str(kind)
        assert default is None or kind.fits(list(default) if isinstance(default, tuple) else default), field.name


def test_no_name_stands_in_two_tables_so_settings_by_name_have_one_owner():
    names = [field.name for table in TABLES for field in fields(table)]
    assert len(set(names)) == len(names)
