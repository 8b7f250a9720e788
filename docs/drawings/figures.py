"""Pictures of what was measured: one recorded run in docs/pictures/run, and the reproduction in lab/paper/."""

import json
import math
from pathlib import Path

from choral.report.charts import Axis, Series, alone, line_chart
from choral.report.markup import Markup, element
from choral_lab.research.panels import chart_of
from docs.drawings.shapes import bars, paragraph, sheet, words

ROOT = Path(__file__).parents[2]
RUN = ROOT / "docs/pictures/run"
_SHOWN = 10  # numbers of an update


def sight() -> str:
    """What a device computed, and what the server received of it, in the recorded run."""
    seen = json.loads((RUN / "result.json").read_text())["sight"]
    computed, received = seen["computed"][:_SHOWN], seen["received"][:_SHOWN]
    signed = [float(word if word < 2**31 else word - 2**32) for word in received]
    head = f"{seen['device']}, round {seen['round']}"
    return sheet(
        330,
        "What a device computed, and what the server received",
        f"The noisy update of {head}: numbers such as {computed[0]:+.3f}. The server received words such as "
        f"{received[0]:08x}, which look like random bits.",
        words(14, 24, f"What {seen['device']} computed in round {seen['round']}", kind="bold"),
        bars(14, 34, 392, 74, computed, style=0),
        words(14, 128, "  ".join(f"{value:+.3f}" for value in computed[:5]) + " …", kind="mono"),
        words(14, 146, "its update, clipped, with its own noise in it", kind="small quiet"),
        words(14, 184, "What the server received", kind="bold"),
        bars(14, 194, 392, 74, signed, style=1),
        words(14, 288, "  ".join(f"{word:08x}" for word in received[:5]) + " …", kind="mono"),
        words(14, 306, "the same update behind masks: evenly distributed words.", kind="small quiet"),
        words(14, 321, "They cancel only in the sum of the included devices.", kind="small quiet"),
    )


def ledger() -> str:
    """The lines of a recorded ledger: what was reserved, each charge, and the next one, which is refused."""
    lines = [line.split(" ", 1) for line in (RUN / "ledgers/device-0001.ledger").read_text().splitlines()]
    entries = [(seal, json.loads(body)) for seal, body in lines]
    first = entries[0][1]
    charges = [(seal, entry) for seal, entry in entries if entry.get("kind") == "charge"]
    reserved = next((seal, entry) for seal, entry in entries if entry.get("kind") == "reserve")
    times = sum(one["times"] for one in reserved[1]["uploads"])
    rows = [
        (entries[0][0], f"limit ε = {first['epsilon']:g}, δ = {first['delta']:g}", "the owner's, for all studies"),
        (reserved[0], f"reserve {times} uploads", f"rule {reserved[1]['rule']}; before the first one"),
        *((seal, f"charge, round {entry['round']}", f"rule {entry['rule']}; then the upload leaves")
          for seal, entry in charges),
    ]  # fmt: skip
    pieces = [words(14, 24, f"The ledger of {first['device']}, line by line", kind="bold")]
    for row, (seal, what, about) in enumerate(rows):
        y = 38 + 34 * row
        pieces += [
            element("rect", x=14, y=y, width=392, height=28, rx=4, class_="tint"),
            words(22, y + 18, f"{seal[:6]}…", kind="mono quiet"),
            words(82, y + 18, what, kind="bold"),
            words(398, y + 18, about, anchor="end", kind="small"),
        ]
    y = 38 + 34 * len(rows)
    pieces += [
        element("rect", x=14, y=y, width=392, height=28, rx=4, class_="fence"),
        words(82, y + 18, "one more round: refused", kind="bold"),
        words(398, y + 18, "CH401; nothing is sent", anchor="end", kind="small"),
        paragraph(14, y + 48, f"ε is for one record replaced, against {reserved[1]['adversary']}. Each line begins "
                  "with the hash of itself and of the line before: a line that is changed or removed no longer fits.",
                  columns=66, kind="small"),
    ]  # fmt: skip
    said = f"A limit, a reservation of {times} uploads, {len(charges)} charges, and a refusal."
    return sheet(y + 92, "The ledger", said, *pieces)


def accuracy() -> str:
    """Accuracy against a proved ε, with each device alone and without privacy, as the reproduction measured it."""
    found = json.loads((ROOT / "lab/paper/tradeoff-network.json").read_text())
    points = [(float(epsilon), one["test_accuracy"]) for epsilon, one in found["proved"].items()]
    said = next(iter(found["proved"].values()))["privacy"]
    claim = said["proved_against_everyone"]
    about = f"rule {claim['rule']}, δ = {said['delta']:g}, {said['adjacency']}, against {claim['adversary']}"
    ends = [points[0][0], points[-1][0]]
    anchors = {"without privacy": found["non_private"], "each device alone": found["each_alone"]}
    series = [
        Series(name="with choral, mean and range of 5 repeats",
               points=[(epsilon, one["mean"]) for epsilon, one in points],
               spread=[(min(one["each"]), max(one["each"])) for _, one in points]),
        *(Series(name=f"{name}: {one['test_accuracy']['mean']:.3f}", anchor=True,
                 points=[(end, one["test_accuracy"]["mean"]) for end in ends]) for name, one in anchors.items()),
    ]  # fmt: skip
    chart = line_chart(
        series,
        title="Test accuracy against ε",
        summary="",
        x=Axis(label="proved ε (smaller is more private)", log=True),
        y=Axis(label="test accuracy"),
        height=270,
    )
    return sheet(
        330,
        f"Accuracy against ε: {about}",
        "; ".join(f"{one['mean']:.3f} at ε = {epsilon:g}" for epsilon, one in points),
        Markup(chart.replace("<svg ", '<svg width="420" height="270" ', 1)),
        paragraph(14, 288, f"ε by {about}. A network on UCI Adult, 16 devices.", columns=66, kind="small"),
    )


def guesses(epsilon: float = 2.0) -> str:
    """What ε means: of 100 guesses about one record, how many can be right at most."""
    most = math.ceil(100 * math.exp(epsilon) / (1 + math.exp(epsilon)))
    dots = []
    for place in range(100):
        kind = "f0" if place < 50 else ("f1" if place < most else "rest")
        dots.append(element("circle", cx=24 + 19 * (place % 20), cy=54 + 20 * (place // 20), r=7, class_=kind))
    return sheet(
        244,
        f"What ε = {epsilon:g} means",
        "Of 100 guesses which of two given rows is in the table, 50 are right by chance, and at most "
        f"{most} with everything that left the site.",
        words(14, 26, "“Which of two rows is in the table?” asked 100 times", kind="bold"),
        *dots,
        element("circle", cx=24, cy=166, r=6, class_="f0"),
        words(38, 170, "50 are right by chance", kind="small"),
        element("circle", cx=24, cy=188, r=6, class_="f1"),
        words(38, 192, f"at most {most - 50} more with all that ever left the site, at ε = {epsilon:g}", kind="small"),
        element("circle", cx=24, cy=210, r=6, class_="rest"),
        words(38, 214, f"{100 - most} stay wrong, whoever guesses (apart from a chance of δ)", kind="small"),
        words(14, 234, "for one record replaced; the report names rule, δ and adversary", kind="small quiet"),
    )  # fmt: skip


def of_the_paper() -> dict[str, str]:
    """Every chart of the reproduction by its file's name, drawn from the results that were measured."""
    drawn = {}
    for path in [*sorted((ROOT / "lab/paper").glob("*-*.json")), ROOT / "lab/paper/bounds.json"]:
        for number, panel in enumerate(json.loads(path.read_text())["panels"], start=1):
            drawn[f"{path.stem}-{number}.svg"] = alone(chart_of(panel))
    return drawn
