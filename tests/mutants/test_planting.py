"""A planted bug follows its function through layout and place, and says clearly when the function is gone."""

import pytest

from tests.mutants.planting import CannotBePlanted, Change, planted

LAID_OUT = '''
"""A module."""

def other(x):
    return x > 1 and x > 2


class Ledger:
    def charge(self, amount):  # comments do not matter
        if (
            amount
            > self.limit   # nor do line breaks and brackets
        ):
            raise ValueError('over')
        def note(text):
            self.lines.append(text)
        note("charged"); self.spent += amount
'''


@pytest.fixture
def source(tmp_path):
    (tmp_path / "house" / "rooms").mkdir(parents=True)
    (tmp_path / "house" / "rooms" / "ledger.py").write_text(LAID_OUT)
    (tmp_path / "house" / "__init__.py").write_text("def door():\n    return 1\n")
    return tmp_path


def text_after(source, function, old, new):
    (text,) = planted(source, (Change(function, old, new),)).values()
    return text


def test_an_expression_is_found_whatever_its_layout(source):
    text = text_after(source, "house.rooms.ledger:Ledger.charge", "amount > self.limit", "False")
    assert "if False:" in text and "self.limit" not in text


def test_statements_are_found_among_others_and_an_emptied_body_passes(source):
    charged = 'note("charged")\nself.spent += amount'
    assert "self.spent" not in text_after(source, "house.rooms.ledger:Ledger.charge", charged, "")
    text = text_after(source, "house.rooms.ledger:Ledger.charge.note", "self.lines.append(text)", "")
    assert "def note(text):\n            pass" in text
    compile(text, "ledger.py", "exec")


def test_a_package_is_a_module_too(source):
    assert "return 2" in text_after(source, "house:door", "1", "2")


def test_changes_of_one_file_are_planted_together(source):
    changes = (
        Change("house.rooms.ledger:other", "x > 1", "x > 0"),
        Change("house.rooms.ledger:Ledger.charge", '"over"', '"beyond"'),
    )
    (text,) = planted(source, changes).values()
    assert "x > 0 and x > 2" in text and "'beyond'" in text


@pytest.mark.parametrize(("old", "times"), [("amount < 0", 0), ("x", 2)])
def test_what_stands_there_not_once_is_refused_with_its_number(source, old, times):
    with pytest.raises(CannotBePlanted, match=f"stands {times} times in house.rooms.ledger:other, not once"):
        planted(source, (Change("house.rooms.ledger:other", old, "None"),))


def test_a_bug_that_changes_nothing_is_refused(source):
    with pytest.raises(AssertionError, match="is replaced by nothing else"):
        planted(source, (Change("house.rooms.ledger:other", "x > 1", "(x > 1)"),))


def test_a_function_that_moved_is_named_with_where_it_is_now(source):
    for function in ("house.old.ledger:Ledger.charge", "house.rooms.ledger:Balance.charge"):
        with pytest.raises(CannotBePlanted) as caught:
            planted(source, (Change(function, "amount", "0"),))
        assert str(caught.value) == (
            f"{function} is gone or ambiguous; found with that name: house.rooms.ledger:Ledger.charge. "
            "Name the function that does this step now."
        )


def test_a_function_that_nothing_is_named_like_is_said_to_be_gone(source):
    with pytest.raises(CannotBePlanted, match="refund is gone or ambiguous; nothing has that name"):
        planted(source, (Change("house.rooms.ledger:refund", "amount", "0"),))
