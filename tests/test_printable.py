"""What may be shown, and which names people can tell apart."""

import math
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.core.errors import ChoralError, ConfigError, TrustError
from choral.core.printable import escaped, figures_up, is_shown
from choral.deploy.approving import approve
from choral.deploy.enrolment import prepare, read_card
from choral.deploy.home import Home, Invitation, Policy
from choral.run.agreement import fault_of_name, fault_of_word, require_device_name
from tests.run.consortium import JOB, Consortium

CYRILLIC_O = "\u043e"


def test_no_control_format_or_separator_of_unicode_is_shown_and_every_letter_digit_and_space_is():
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category in hidden:
            assert not is_shown(character)
        elif category in ("Lu", "Ll", "Nd"):
            assert is_shown(character)
    assert is_shown(" ")


@pytest.mark.parametrize("unseen", "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe0f\uffa0\U000e0100")
def test_letters_and_marks_that_nobody_sees_are_not_shown(unseen):
    assert unseen.isprintable() or unicodedata.category(unseen) == "Mn"
    assert escaped(f"a{unseen}b") == f"a{unseen.encode('unicode_escape').decode()}b"


def test_text_that_is_shown_stays_as_it_is_and_no_break_spaces_do_too():
    for text in ("Zürich", "東京の病院", "ε ≤ 2, δ = 1e-5", "1\u00a0%", "שלום", "C:\\new"):
        assert escaped(text) == text


def test_an_error_carries_nothing_hidden_in_any_of_its_parts():
    error = ConfigError("CH102", "what\x1b[8m", where="a\nb", why="\u202e", fix="\x9b")
    assert str(error) == "CH102 a\\nb what\\x1b[8m \\u202e \\x9b"
    assert all(map(is_shown, error.as_dict().values())) and all(map(is_shown, error.args))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("hospital-a", ""),
        ("Krankenhaus Süd 2", ""),
        ("Больница № 1".replace("№", "No"), "mixes"),
        ("Больница 1", ""),
        ("東京Hospitalカルテ", ""),  # a mixture that Unicode's report allows
        ("서울 Clinic", ""),
        ("a" * 64, ""),
        ("a" * 65, "65 characters"),
        ("", "0 characters"),
        (" a", "a space"),
        (f"h{CYRILLIC_O}spital", "mixes CYRILLIC and LATIN"),
        ("\u03bfmega-clinic", "mixes GREEK and LATIN"),
        ("ｈospital", "stand for others"),
        ("hospita\u200bl", "can't be printed"),
        ("hospital\u00a0a", "can't be printed"),
        ("e\u0301", "stand for others"),  # é in two characters
        ("z\u0336\u0337\u0338", "accents"),
    ],
)
def test_a_name_is_short_printable_and_of_one_script(name, fault):
    assert fault in fault_of_name(name)
    assert bool(fault) == bool(fault_of_name(name))


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("β-blocker", ""),
        ("CO₂ [µg/m³]", ""),
        (f"{CYRILLIC_O}ne", "mixes"),
        ("a\tb", "can't be printed"),
        ("x" * 65, "65"),
    ],
)
def test_each_part_of_a_word_of_a_table_is_of_one_script(word, fault):
    assert fault in fault_of_word(word)
    assert bool(fault) == bool(fault_of_word(word))


def test_a_comma_in_a_devices_name_is_refused():
    with pytest.raises(ConfigError, match=r"CH102 a device's name has a comma"):
        require_device_name("hill, lake")


@pytest.mark.parametrize("name", ["hill, lake", f"h{CYRILLIC_O}spital", "hill\u200b"])
def test_no_home_and_no_card_has_such_a_name(name, tmp_path):
    made = Consortium(tmp_path)
    with pytest.raises(ChoralError, match=r"CH102|CH600"):
        Home.join(tmp_path / "new", made.invitation, name)
    assert not (tmp_path / "new").exists()


def test_a_card_that_an_older_choral_made_with_a_comma_in_its_name_is_not_enrolled(tmp_path, monkeypatch):
    made = Consortium(tmp_path)
    with monkeypatch.context() as older:
        older.setattr("choral.deploy.home.require_device_name", lambda _: None)
        home = Home.join(tmp_path / "new", made.invitation, "hill, lake")

    (tmp_path / "new.card").write_text(home.card().text)
    with pytest.raises(ConfigError, match=r"CH102 .*comma"):
        read_card(tmp_path / "new.card")


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ('name = "hearts"', f'name = "heart{CYRILLIC_O}"', "the study's name mixes"),
        ('name = "hearts"', f'name = "{"h" * 65}"', "the study's name has 65"),
        ("127.0.0.1:9092", f"h{CYRILLIC_O}st.example:9092", "address mixes"),
        ('label = "sick"', f'label = "s{CYRILLIC_O}ck"', "label's name mixes"),
        ("[data.columns.age]", f'[data.columns."{CYRILLIC_O}ge"]', "a column's name mixes"),
        ('["no", "yes"]', f'["n{CYRILLIC_O}", "yes"]', "a class mixes"),
    ],
)
def test_a_new_study_with_such_a_name_is_neither_made_nor_approved(tmp_path, old, new, reported):
    made = Consortium(tmp_path)
    text = (made.study / "study.toml").read_text()
    assert old in text
    (tmp_path / "study.toml").write_text(text.replace(old, new))
    with pytest.raises((ConfigError, TrustError), match=f"CH102 .*{reported}"):
        approve(made.homes["hill"], tmp_path / "study.toml", Policy(epsilon=4.0, delta=1e-4), made.tables["hill"])
    if old in JOB and "name" in old:
        (tmp_path / "choral.toml").write_text(JOB.replace(old, new))
        with pytest.raises(ConfigError, match=f"CH102 .*{reported}"):
            prepare(tmp_path / "other", tmp_path / "choral.toml", "127.0.0.1:9092")
    invitation = (made.study / "invitation.toml").read_text()
    if old in invitation:
        (tmp_path / "invitation.toml").write_text(invitation.replace(old, new))
        with pytest.raises(ConfigError, match=f"CH102 .*{reported}"):
            Invitation.read(tmp_path / "invitation.toml")


def test_a_study_that_was_approved_with_a_long_name_goes_on(tmp_path, monkeypatch):
    from choral.deploy.agent import Agent

    with monkeypatch.context() as older:
        for place in ("run.agreement", "deploy.enrolment", "deploy.home"):
            older.setattr(f"choral.{place}.require_name", lambda *_: None)
        made = Consortium(tmp_path, job=JOB.replace("hearts", "h" * 80))
        made.approve("hill")
    with Agent(made.homes["hill"]) as agent:
        assert agent.study.file.name == "h" * 80


# A figure is never less than it is, and no further above than its last place.


@given(value=st.floats(min_value=1e-300, max_value=1e300), figures=st.integers(1, 6))
def test_what_is_printed_is_never_smaller_and_at_most_one_last_figure_larger(value, figures):
    printed = float(figures_up(value, figures))
    assert printed >= value
    assert printed <= value * (1 + 10.0 ** (1 - figures)) * (1 + 1e-12)


@given(whole=st.integers(1, 999), power=st.integers(-20, 20))
def test_a_number_that_has_no_more_figures_is_printed_as_it_is(whole, power):
    value = float(f"{whole}e{power}")
    assert float(figures_up(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [(39.82, "39.9"), (0.9999, "1"), (999.5, "1e+03"), (1.0004e-7, "1.01e-07"), (0.0, "0"), (math.inf, "inf")],
)
def test_figures_by_hand(value, text):
    assert figures_up(value) == text
