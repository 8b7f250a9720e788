"""The word list of CONTRIBUTING.md: words of a private dialect, and what to write in their place.

Plain functions for the tests. Output that a program printed is quoted as it is, so console blocks are not looked at.
A line of code that ends with `# in records` writes words that files of released versions contain, so it keeps them.
"""

import re

_GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*)"  # between two words of a paragraph
_COUNTED = (
    r"devices?|steps?|bytes|batch(?:es)?|exchanges?|charges?|times|files?|lines?|columns?|rows?|scores?|numbers?|entry"
    r"|gradients?|passes|once|twice|tables?|seconds|norms?|noises?|words?|objects?|ideas?|questions?|keys?|coins?"
    r"|updates?|uploads?|programs?|verbs?|\d+|MB|MiB|GiB|ns|ms|µs|hours|s"
)
_EACH = (
    r"round|device|site|row|parameter|pass|hospital|class|level|line|room|file|hour|week|second|step|entry|cell|person"
    r"|record|upload|cohort|message|core|minute|day|month|year|bin|column|batch|process|neighbour|image"
)
# A pattern -> what to write in its place.
WORDS = {
    r"\b(?:re)?told\b": '"reported", "shown", "given" or "known"',
    r"\banew\b": '"again"',
    r"\bmend(?:s|ed|ing)?\b": '"fix"',
    r"\bmanners\b": '"interface" or "behaviour"',
    r"\bbesides?\b": '"next to" for a place, "in addition to" for more',
    rf"\bbut{_GAP}for\b": '"except for"',
    rf"\bof{_GAP}(?:one's|your|its|their|our|my|his|her){_GAP}own\b": '"your own model", "its own file"',
    r"\bone's own\b": '"your own"',
    rf"\b(?:{_COUNTED}){_GAP}an?{_GAP}(?:{_EACH})\b": '"per round", "per device"',
    r"\bwhence\b|\bthereof\b|\bwherein\b|\bhitherto\b": "a plain word",
    r"\blest\b|\bsave for\b": '"except", "so that ... not"',
    r"\bforeseen?\b|\bforesees\b": '"predict", "predictable"',
    rf"\bnoise{_GAP}and{_GAP}all\b": '"with its noise"',
}
_CONSOLE = re.compile(r"^( *)(`{3,})(?:console|text)[^\n]*\n.*?^\1\2 *$", re.M | re.S)
_RECORDED = re.compile(r"^.*# in records$", re.M)


def faults(text: str) -> list[str]:
    r"""Every word of the list in a text, with its line and what to write in its place.

    >>> faults("25 devices a round.\nNothing is told anew.")[0]
    '1 "devices a round": write "per round", "per device"'
    >>> len(faults("25 devices a round.\nNothing is told anew."))
    3
    """
    looked_at = _CONSOLE.sub(lambda match: "\n" * match.group().count("\n"), _RECORDED.sub("", text))
    found = []
    for pattern, instead in WORDS.items():
        for match in re.finditer(pattern, looked_at, re.I):
            line = looked_at[: match.start()].count("\n") + 1
            found.append((line, f'{line} "{" ".join(match.group().split())}": write {instead}'))
    return [fault for _, fault in sorted(found)]
