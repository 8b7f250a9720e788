"""The form that every record shares: fields with types, written to JSON in their order."""

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from choral.core.plan import Plan, SecureSum

if TYPE_CHECKING:
    FlatPlan = Plan
else:  # whoever reads a file makes the plan of its numbers, which are flat there: `Plan.from_dict`
    FlatPlan = Any


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of what a run leaves behind. A field that has its default value is not written.

    So a new field with a default changes no file that does not need it, and older files are read as before.

    >>> class Note(Record, frozen=True, kw_only=True):
    ...     text: str
    ...     language: str = "en"
    >>> Note(text="a").to_dict(), Note(text="b", language="fr").to_dict()
    ({'text': 'a'}, {'text': 'b', 'language': 'fr'})
    """

    ALWAYS: ClassVar[frozenset[str]] = frozenset()  # fields that are written with their default value, too

    def to_dict(self) -> dict[str, object]:
        """The record as the plain values of its JSON, in the order of its fields."""
        held = {name: getattr(self, name) for name in self.__struct_fields__}
        usual = _defaults(type(self))
        return {
            name: _plain(value)
            for name, value in held.items()
            if name in self.ALWAYS or name not in usual or value != usual[name]
        }


@cache
def _defaults(kind: type[Record]) -> dict[str, object]:
    """The default value of each field that has one."""
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
    return found


def _plain(value: object) -> object:
    if isinstance(value, Record | Plan):
        return value.to_dict()
    if isinstance(value, SecureSum):
        return value.described
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
