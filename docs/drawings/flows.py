"""Pictures of who does what: the system, one round, the processes of a deployment, and which rule applies."""

from choral.accounting.words import WORDS, rule_in_words
from choral.core.mechanisms import MECHANISMS
from choral.core.private_sums import RULE as QUESTIONS
from choral.report.markup import Markup, element, together
from docs.drawings.shapes import LINE, WIDTH, arrow, box, paragraph, sheet, words

# What decides between the mechanisms, in the order in which a plan is asked; the words of a rule are its mechanism's.
_ASKED = {
    "ClippedUpdate": ("Is a whole device", "the unit?"),
    "NoiseOnce": ("Is the noise added once,", "to the upload?"),
    "PoissonBatches": ("Gaussian noise in every", "step, random batches?"),
    "Partition": ("Gaussian noise, rows", "split into batches?"),
    "IntegerNoise": ("Whole-number noise,", "one step per round?"),
}


def system() -> str:
    """Sites with data and ledgers, the server, and what crosses the line between them."""
    sites = []
    for place, name in enumerate(("Site A", "Site B", "Site C")):
        x = 14 + place * 134
        sites += [
            element("rect", x=x, y=42, width=124, height=156, rx=8, class_="tint"),
            words(x + 62, 62, name, anchor="middle", kind="bold"),
            box(x + 10, 72, 104, 40, "table", "rows stay here"),
            box(x + 10, 118, 104, 34, "training", "clip, then noise"),
            box(x + 10, 158, 104, 34, "ledger", "pays or refuses"),
            arrow(x + 48, 200, x + 48, 272, style=0),
            arrow(x + 76, 272, x + 76, 200, style=2, dashed=True),
        ]
    return sheet(
        408,
        "The system",
        "Three sites keep their tables, train with a clip and noise, and pay from their own ledgers. Only masked "
        "updates cross to the server, which opens their sum, moves the model and sends it back.",
        words(14, 26, "What crosses the line, and what does not", kind="bold"),
        *sites,
        element("path", d=f"M8 236H{WIDTH - 8}", class_="fence"),
        box(14, 274, 392, 56, "Server", "opens the sum of all uploads, moves the model",
            "needs no trust; sees no single update", kind="tint"),
        arrow(14, 352, 42, 352, style=0),
        words(52, 356, "masked update: words that look like random bits", kind="small"),
        arrow(14, 374, 42, 374, style=2, dashed=True),
        words(52, 378, "the model of the round, which is public", kind="small"),
        element("path", d="M14 396H42", class_="fence"),
        words(52, 400, "no row and no readable update of one site crosses this line", kind="small"),
    )  # fmt: skip


def one_round() -> str:
    """The messages of one round, with the moment at which a device pays."""
    left, right, bottom = 118, 352, 424
    steps = [
        (64, "CALL", True, "who takes part?"),
        (98, "READY", False, "signed with the device's key"),
        (132, "OMEGA", True, "the terms and the model"),
    ]
    later = [
        (310, "UPLOAD", False, "masked words"),
        (344, "FINAL", True, "who is in the sum"),
        (378, "OPENING", False, "keys to remove the masks"),
    ]
    messages = [
        together(
            arrow(right, y, left, y) if to_device else arrow(left, y, right, y, style=0),
            words((left + right) / 2, y - 5, f"{name}: {what}", anchor="middle", kind="small"),
        )
        for y, name, to_device, what in steps + later
    ]
    own = [
        (152, "1", "checks the terms, or refuses"),
        (178, "2", "CHARGES ITS LEDGER: on the disk"),
        (204, "3", "looks at its rows, trains, clips"),
        (230, "4", "adds noise from the system's source"),
        (256, "5", "encodes and masks"),
    ]
    inside = [
        together(
            element("rect", x=left - 96, y=y, width=250, height=22, rx=4, class_="tint" if number != "2" else "f1"),
            words(left - 88, y + 15, f"{number}  {what}", kind="small bold paper" if number == "2" else "small"),
        )
        for y, number, what in own
    ]
    return sheet(
        468,
        "One round",
        "The server calls; a device answers READY and gets the model. It checks the terms, charges its ledger on the "
        "disk, and only then looks at its rows, trains, adds noise and masks. The server opens the sum only.",
        box(left - 60, 10, 120, 26, "Device"),
        box(right - 54, 10, 108, 26, "Server"),
        element("path", d=f"M{left} 36V{bottom}M{right} 36V{bottom}", class_="fence"),
        *messages,
        *inside,
        words(14, 446, "A crash after step 2 leaves a charge without an upload:", kind="small"),
        words(14, 461, "the ledger counts too much, never too little.", kind="small"),
        box(right - 62, 398, 124, 26, "opens the sum", kind="tint"),
    )  # fmt: skip


def deployment() -> str:
    """The processes of a server and a site, and the one port between them."""
    socket = "Unix socket, mode 0600"
    return sheet(
        476,
        "Processes and ports of a deployment",
        "The server listens at one HTTPS port, where a gate lets in enrolled nodes only; behind it SuperLink and "
        "conductor talk over Unix sockets. A site opens no port: its node calls the server, and hands frames to the "
        "agent.",
        element("rect", x=14, y=30, width=392, height=176, rx=8, class_="tint"),
        words(24, 22, "Server machine: choral server run", kind="bold"),
        box(34, 44, 170, 40, "conductor", "runs the study"),
        box(226, 44, 160, 40, "SuperLink", "Flower: queues frames"),
        arrow(204, 64, 226, 64),
        arrow(306, 104, 306, 84),
        words(34, 102, socket, kind="small quiet"),
        box(226, 104, 160, 56, "gate", "TLS; enrolled keys only", "decides before it reads"),
        words(34, 150, "one port for HTTPS,", "that of --address", kind="small bold"),
        arrow(306, 348, 306, 162, style=0),
        words(24, 234, "the site calls the server,", "never the other way round", kind="small"),
        element("path", d=f"M8 216H{WIDTH - 8}M8 258H{WIDTH - 8}", class_="fence"),
        element("rect", x=14, y=284, width=392, height=150, rx=8, class_="tint"),
        words(24, 276, "Site: choral device run", kind="bold"),
        box(226, 348, 160, 72, "node", "calls out, HTTPS;", "runs no server code"),
        box(34, 348, 170, 72, "agent", "keys, ledger, rows,", "training, noise"),
        arrow(226, 384, 204, 384),
        words(34, 318, "no port is opened", kind="small bold"),
        words(34, 336, socket, kind="small quiet"),
        words(14, 454, "Linux or macOS at both ends; a site's clock is at most 5 s ahead.", kind="small"),
    )  # fmt: skip


def _leaf(y: float, rules: list[str]) -> tuple[Markup, float]:
    """The rules of a mechanism in their own words, as a box of this height."""
    pieces, at = [], y + 18.0
    for rule in rules:
        name, _, counted = rule_in_words(rule).partition(": ")
        text = paragraph(WIDTH - 182, at, counted, columns=26, kind="small")
        pieces += [words(WIDTH - 206, at, name, kind="bold"), text]
        at += 15 * text.count("<text") + 10
    return together(
        element("rect", x=WIDTH - 214, y=y, width=204, height=at - y - 12, rx=6, class_="tint"), *pieces
    ), at - y


def rules() -> str:
    """Which rule applies to a plan: a decision tree in the order in which the code asks."""
    kinds: dict[str, list[str]] = {}
    for mechanism in MECHANISMS:
        known = kinds.setdefault(type(mechanism).__name__, [])
        known += [rule for rule in WORDS[type(mechanism)].rules if rule not in known]
    pieces, y = [words(14, 24, "Which rule counts what a device loses?", kind="bold")], 42.0
    for number, (kind, names) in enumerate(kinds.items()):
        leaf, height = _leaf(y, names)
        pieces += [
            element("rect", x=10, y=y, width=164, height=2 * LINE + 10, rx=18, class_="box"),
            words(92, y + 17, *_ASKED[kind], anchor="middle", kind="small"),
            arrow(174, y + 20, WIDTH - 214, y + 20, style=2),
            words(178, y + 14, "yes", kind="small"),
            leaf,
        ]
        height = max(height, 62)
        if number < len(kinds) - 1:
            pieces += [arrow(92, y + 42, 92, y + height), words(98, y + 58, "no", kind="small")]
        y += height
    leaf, height = _leaf(y + 18, [QUESTIONS])
    pieces += [words(14, y + 10, "A question in place of training:", kind="bold"), leaf]
    return sheet(y + height + 18, "Which rule applies",
                 "A whole device as the unit gives rule S4; noise once S7; Poisson batches S5; rows split into batches "
                 "S1, with S2 and S3 for the secure sum; whole-number noise S6; a question S8.", *pieces)  # fmt: skip
