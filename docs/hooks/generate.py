"""Pages that are made from the code when the site is built: error codes, the reference, the verbs' help.

A page that a person wrote can show a file of the repository: `<!-- file: examples/one_round.py -->` becomes its text.
It can also show the charts in lab/paper/, which lie outside the pages.
A hook of mkdocs. Nothing here is written down twice: an error's line is in `choral.core.errors`, its story in
src/choral/errors.toml, a function's in its docstring, a flag's in its parser.
"""

import ast
import os
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from check import SOURCES, codes, front_door, sources  # next to this file, where mkdocs looks for imports

ABOUT_ERRORS = """\
Each error is one line: code, place, what is wrong, why, and the way out. It never shows a data value. Exit status 2
means that the input can't be used and nothing was started; 1 means that a run that was started has ended."""
FILE = re.compile(r"^<!-- file: (\S+) -->$", re.M)
ROOMS_LEFT_OUT = ("cli", "verbs", "__main__", "__init__")  # the verbs have their own page


def families(root: Path) -> dict[str, tuple[str, int, str]]:
    """First digit of a code -> class, exit status, what it is about: the tree in the docstring of the errors."""
    module = ast.parse((root / "src/choral/core/errors.py").read_text())
    bases = {
        node.name: ast.unparse(node.bases[0]) for node in module.body if isinstance(node, ast.ClassDef) and node.bases
    }
    tree = re.findall(r"(\w+Error) +CH(\d)xx +(.+)", ast.get_docstring(module) or "")
    return {digit: (name, 2 if bases[name] == "InputError" else 1, about) for name, digit, about in tree}


def error_index(root: Path) -> str:
    """All codes, by family."""
    lines = ["# Error codes", "", ABOUT_ERRORS]
    family = ""
    for code, line in codes(root).items():
        if code[2] != family:
            family = code[2]
            name, _, about = families(root)[family]
            lines += ["", f"## CH{family}xx: {about}", "", f"`choral.core.errors.{name}`", ""]
        lines.append(f"- [{code}]({code}.md): {line}")
    return "\n".join(lines) + "\n"


def error_page(code: str, line: str, story: dict[str, str], family: tuple[str, int, str], raisers: list[str]) -> str:
    """One code: what it looks like, where it comes from, and the way out."""
    name, status, _ = family
    rooms = ", ".join(f"`{module}`" for module in raisers) or "nothing yet"
    shown = ["```text", *textwrap.wrap(story.get("message", ""), 80, break_long_words=False), "```", ""]
    return "\n".join([
        f"# {code}: {line}", "",
        *(shown if "message" in story else ()),
        story["cause"], "",
        "## The way out", "",
        story["way_out"], "",
        f"It is a `choral.core.errors.{name}`, exit status {status}, raised by {rooms}. [All codes](index.md)", "",
    ])  # fmt: skip


def modules(root: Path) -> dict[str, list[str]]:
    """Room -> its public modules, the room itself first."""
    found: dict[str, list[str]] = {}
    for parts, _ in sources(root):
        inner = parts[:-1] if parts[-1] == "__init__" else parts
        if len(inner) > 1 and inner[1] not in ROOMS_LEFT_OUT and not inner[-1].startswith("_"):
            found.setdefault(inner[1], []).append(".".join(inner))
    return {room: sorted(names, key=lambda name: (name.count("."), name)) for room, names in found.items()}


def raised_by(root: Path) -> dict[str, list[str]]:
    """Code -> the modules that raise it."""
    found: dict[str, list[str]] = {}
    for parts, path in sources(root):
        module = ".".join(parts).removesuffix(".__init__")
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        for code in texts & codes(root).keys() if module != "choral.core.errors" else ():
            found.setdefault(code, []).append(module)
    return found


def front_page(root: Path) -> str:
    """The front door: every name that `import choral` offers."""
    lines = [
        "# The Python interface",
        "",
        "This page lists what `import choral` offers. [`choral_lab.research`](rooms/research.md) of choral-lab is for",
        "experiments. All other packages ([rooms](rooms.md)) are for those who build on choral.",
        "",
    ]
    options = ["    options:", "      heading_level: 3", "      show_root_toc_entry: false", ""]
    for name, place in sorted(front_door(root / "src").items(), key=lambda pair: pair[0].lower()):
        lines += [f"## choral.{name}", "", f"::: {place}", *options]
    return "\n".join(lines)


def room_index(root: Path) -> str:
    """The rooms, each with its first sentence."""
    lines = [
        "# The rooms",
        "",
        "A room is a package. ARCHITECTURE.md in the repository shows which of them may import which.",
        "",
    ]
    texts = {".".join(parts).removesuffix(".__init__"): path.read_text() for parts, path in sources(root)}
    for room, (name, *_) in modules(root).items():
        first = (ast.get_docstring(ast.parse(texts[name])) or "").splitlines()[0]
        lines.append(f"- [`{name}`](rooms/{room}.md): {first}")
    return "\n".join(lines) + "\n"


def room_page(names: list[str]) -> str:
    """All public modules of a room."""
    lines = [f"# {names[0]}", ""]
    for name in names:
        lines += [f"::: {name}", ""]
    return "\n".join(lines)


def verbs_page() -> str:
    """`choral --help` and every verb's own, as the terminal shows them."""
    from choral import cli

    lines = ["# Verbs", "", "This page shows what `choral VERB --help` prints. Every verb also accepts `--json`.", ""]
    for verb, line in cli.VERBS.items():
        lines += [
            f"## choral {verb}",
            "",
            f"{line[0].upper()}{line[1:]}.",
            "",
            "```text",
            cli.verb_parser(verb).format_help().rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """(place in the site, Markdown) of every page that is made here."""
    explained = tomllib.loads((root / "src/choral/errors.toml").read_text())
    raisers = raised_by(root)
    yield "errors/index.md", error_index(root)
    for code, line in codes(root).items():
        if code in explained:  # the check next to this hook stops the build for one that is not
            yield (
                f"errors/{code}.md",
                error_page(code, line, explained[code], families(root)[code[2]], raisers.get(code, [])),
            )
    yield "reference/index.md", front_page(root)
    yield "reference/verbs.md", verbs_page()
    yield "reference/rooms.md", room_index(root)
    for room, names in modules(root).items():
        yield f"reference/rooms/{room}.md", room_page(names)


def decisions(docs: Path) -> list[str]:
    """The pages about decisions in the order of their numbers, after their index."""
    return [
        str(page.relative_to(docs))
        for page in [docs / "decisions/README.md", *sorted((docs / "decisions").glob("0*.md"))]
    ]


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs' own type, which a test need not have
    """Name the version of choral at the foot of every page, and list the decisions in the navigation."""
    source = (Path(config.config_file_path).parent / "src/choral/__init__.py").read_text()
    version = re.findall(r'^__version__ = "(.+)"$', source, flags=re.M)
    config.copyright = f"choral {version[0]} · Apache-2.0"
    sections = [inner for tab in config.nav for inner in next(iter(tab.values())) if isinstance(inner, dict)]
    next(section for section in sections if "Decisions" in section)["Decisions"] = decisions(Path(config.docs_dir))
    return config


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 - mkdocs' own types, which a test need not have
    """Add the pages to what mkdocs found."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    sys.path[:0] = [str(root / folder) for folder in SOURCES]
    os.environ["COLUMNS"] = "80"  # the width of a help text
    charts = ((f"paper/{path.name}", path.read_text()) for path in sorted((root / "lab/paper").glob("*.svg")))
    for place, text in (*pages(root), *charts):
        files.append(File.generated(config, place, content=text))
    return files


def shown_files(text: str, root: Path) -> str:
    """The page with every file that it names in place of the line that names it."""
    return FILE.sub(lambda match: f"```python\n{(root / match.group(1)).read_text().rstrip()}\n```", text)


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:  # noqa: ANN401 - as above
    """Put the files in, and let links to charts lead to where the site has them."""
    return shown_files(markdown, Path(config.config_file_path).parent).replace("](../lab/paper/", "](paper/")
