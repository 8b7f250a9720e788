"""Models that are somebody's own code: at a site it comes from the file that the owner named, as it was approved."""

import hashlib
import site
import sys
from importlib.abc import SourceLoader
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Self

import msgspec

from choral.core.errors import ConfigError, TrustError
from choral.learning.models import Maker


class Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of Python that an owner trusts under the name that a study has for it; its imports are not pinned."""

    name: str  # module:function
    path: str
    sha256: str

    @classmethod
    def located(cls, name: str, path: Path | None) -> Self:
        """The code of a name in the file that is given, else in an installed module; none of it has run by then."""
        found = path or _installed(name.partition(":")[0])
        if found is None:
            raise TrustError(
                "CH603",
                f'the model "{name}" is of no installed module.',
                why="Code is not looked for in the current folder.",
                fix=f"Install it, or say which file it is, once you have read it: --trust-model {name}=FILE.",
            )
        return cls(name=name, path=str(found.resolve()), sha256=hashlib.sha256(_content(found)).hexdigest())

    def maker(self) -> Maker:
        """The function, run from the very bytes whose hash was compared; CH603 if the file has changed."""
        content = _content(Path(self.path))
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise TrustError(
                "CH603",
                f'the code of the model "{self.name}" has changed since it was approved.',
                where=self.path,
                fix="Put it back, or read it and approve it again: choral device approve STUDY …",
            )
        name, _, function = self.name.partition(":")

        def make(**shapes: int) -> object:
            loader = _Bytes(self.path, content)
            spec = spec_from_loader(name, loader, origin=self.path)
            assert spec is not None  # noqa: S101 - a loader was given
            module = module_from_spec(spec)
            sys.modules.setdefault(name, module)  # for what looks its own module up; never in place of another
            loader.exec_module(module)
            return getattr(module, function)(**shapes)

        return make


class _Bytes(SourceLoader):
    """A loader of one module from bytes in memory; it neither reads nor writes compiled files."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path, self.content = path, content

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - of this one module
        return self.path

    def get_data(self, path: str | bytes) -> bytes:  # noqa: ARG002 - as above
        return self.content


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            "CH105", f"can't be read: {error.strerror}.", where=str(path), fix="Give the path of a file of Python."
        ) from None


def _installed(module: str) -> Path | None:
    """The file of an installed module, found by looking at folders: to import a part runs its whole package."""
    places: list[str] = _installed_at()
    origin = None
    names = module.split(".")
    for end in range(1, len(names) + 1):
        spec = PathFinder.find_spec(".".join(names[:end]), places)
        if spec is None:
            return None
        places, origin = list(spec.submodule_search_locations or ()), spec.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _installed_at() -> list[str]:
    """Where packages are installed: neither the current folder nor what PYTHONPATH names."""
    return [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
