"""lab/paper/expected.json and the claims of docs/paper.md, from results: `python -m lab.tests.paper.expected`.

After `choral reproduce all --out lab/paper`, whose results they are.
"""

import json
import math
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "lab/paper"
MEASURES = ("test_accuracy", "train_loss", "measured")  # the network's ‖∇f‖² is too wild for a band
LEAST = 0.002  # below that two accuracies are the same
RELATIVE = 0.05  # of the losses on raw columns, which are large and far from a minimum
CLEAR = 0.003  # what every repeat must show of a difference, if another machine is to find it again


def dictionaries(value, path=""):
    """Every dictionary inside, with its path."""
    if isinstance(value, dict):
        yield path, value
        for name, inner in value.items():
            yield from dictionaries(inner, f"{path}/{name}" if path else name)


def expected(result):
    """A band for each mean, three standard errors to either side, and the verdicts that are clear in every repeat."""
    bands, verdicts = {}, {}
    for path, found in dictionaries(result):
        if "verdict" in found:
            if found["verdict"].endswith("every repeat") and min(map(abs, found["each"])) >= CLEAR:
                verdicts[path] = found["verdict"]
        elif "each" in found and path.split("/")[-1] in MEASURES:
            mean, error = found["mean"], found["std"] / math.sqrt(len(found["each"]))
            width = max(LEAST, 3 * error, RELATIVE * mean if mean > 1 else 0.0)
            bands[f"{path}/mean"] = [round(mean, 4), math.ceil(round(1e4 * width, 6)) / 1e4]
    return {"bands": bands, "verdicts": verdicts}


def committed(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def with_claims(page, claims):
    """The page with this table of claims instead of the one that it has."""
    table = re.compile(r"^\| claim \| verdict \| measured \|\n(\|.*\n)*", re.M)
    return table.sub(lambda _: claims, page, count=1)


if __name__ == "__main__":
    from choral_lab.paper.figures import FIGURES

    reported = {name: expected(committed(name)) for name in FIGURES}
    (RESULTS / "expected.json").write_text(json.dumps(reported, indent=1, ensure_ascii=False) + "\n")
    page, claims = ROOT / "docs" / "paper.md", (RESULTS / "claims.md").read_text()
    page.write_text(with_claims(page.read_text(), claims))
