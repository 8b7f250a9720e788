"""Names that people compare: what looks like another name is refused, and never repeated in the refusal."""

import pytest

from choral.core.errors import ConfigError
from choral.run.agreement import LONGEST_NAME, require_device_name, require_name


@pytest.mark.parametrize("name", ["hearts", "St. Mary's, ward 3", "Krankenhaus Süd", "医院"])
def test_a_name_in_one_script_is_taken(name):
    assert require_name("the study's name", name) is None


@pytest.mark.parametrize("name", ["", " ", "a\x1b[2J", "he\u200barts", "\u0430bc", "x" * (LONGEST_NAME + 1), "a\nb"])
def test_a_name_that_is_empty_hidden_mixed_or_too_long_is_refused_without_repeating_it(name):
    with pytest.raises(ConfigError, match=f"CH102 the study's name .*Use 1 to {LONGEST_NAME} printable") as raised:
        require_name("the study's name", name)
    assert str(raised.value).isprintable() and not (name.strip() and name in str(raised.value))


def test_a_comma_would_make_one_device_look_like_two():
    with pytest.raises(ConfigError, match="CH102 a device's name has a comma"):
        require_device_name("hill, lake")
    assert require_device_name("hill") is None
