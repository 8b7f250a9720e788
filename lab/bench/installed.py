"""How large an installation is: files of a package and of all that it requires. Standard library only.

`python bench/installed.py NAME ...` prints one JSON object; it runs under the interpreter of any environment.
"""

import json
import re
import sys
from collections.abc import Iterable
from importlib import metadata


def closure(names: Iterable[str]) -> dict[str, metadata.Distribution]:
    """The packages and everything that they require without extras, as far as it is installed here."""
    waiting, found = list(names), {}
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # a requirement of another platform or Python
            continue
        for line in found[name].requires or ():
            if "extra ==" not in line:
                waiting.append(re.match(r"[\w.-]+", line).group())  # type: ignore[union-attr]
    return found


def size(package: metadata.Distribution) -> int:
    """Bytes of its files; compiled caches, which any run may write, are left out."""
    places = (package.locate_file(file) for file in package.files or () if "__pycache__" not in str(file))
    return sum(place.stat().st_size for place in places if place.is_file())  # type: ignore[attr-defined]


if __name__ == "__main__":
    sizes = {name: size(package) for name, package in closure(sys.argv[1:]).items()}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
    print(json.dumps({"packages": len(sizes), "bytes": sum(sizes.values()),
                      "largest": {name: sizes[name] for name in largest}}))  # fmt: skip
