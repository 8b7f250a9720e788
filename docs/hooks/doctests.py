"""Docstrings for the reference: their doctests become blocks of Python, which Markdown would take for quotations."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n).*)*", re.M)


def fenced(text: str) -> str:
    r"""The text with a fence around each doctest.

    >>> print(fenced("One.\n\n>>> 1 + 1\n2"))
    One.
    <BLANKLINE>
    ```python
    >>> 1 + 1
    2
    ```
    """
    return EXAMPLE.sub(lambda match: f"```python\n{match.group()}\n```", text)


class Doctests(Extension):
    """Fences the doctests of everything that the reference shows."""

    def on_object(self, *, obj: Object, **_: Any) -> None:  # noqa: ANN401
        """Called for every object that was read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
