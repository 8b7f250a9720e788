"""Markup can't be injected into."""

from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core.printable import escaped
from choral.report.markup import Markup, element, together


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.attributes = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def read(markup):
    reader = Reader()
    reader.feed(markup)
    reader.close()
    return reader


anything = st.text(st.characters(codec=None))


@settings(deadline=None)
@given(anything, anything)
def test_any_text_comes_out_as_text_and_any_attribute_as_that_attribute(text, value):
    seen = read(element("p", text, title=value))
    assert (seen.tags, seen.text, seen.attributes) == (["p"], escaped(text), [("title", escaped(value))])


@settings(deadline=None)
@given(anything)
def test_text_beside_markup_is_escaped_and_the_markup_is_not(text):
    seen = read(together(text, element("b", text), Markup("<i></i>")))
    assert (seen.tags, seen.text) == (["b", "i"], 2 * escaped(text))


def test_true_is_a_bare_attribute_and_none_and_false_are_left_out():
    assert element("input_", disabled=True, checked=False, value=None) == "<input_ disabled></input_>"


def test_numbers_are_written_short():
    assert element("rect", x=1.50, y=2) == '<rect x="1.5" y="2"></rect>'
