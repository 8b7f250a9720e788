"""Run folders as docs/run-folder.md describes them, for pages to be made of.

The figures are made up but of realistic size: no test of a page may lean on them as facts about privacy.
"""

import hashlib
import json
import math
import random

from choral.core.exposure import ADJACENCY, EVERYONE
from choral.core.plan import Plan, SecureSum
from choral.record import ATTACK, FORMAT
from choral.run.folder import write_json

NASTY = "<img src=x onerror=alert(1)>\"'&</title><script>alert(2)</script>"


def make_run(
    folder,
    *,
    devices=16,
    rounds=20,
    done=None,
    kind="rehearsal",
    seeded=False,
    secure=True,
    finished=True,
    name="adult-demo",
    certificate="convex",
    nasty="",
    attacked=False,
):
    """A run folder under `folder`; `nasty` stands in every text that a stranger could choose."""
    folder.mkdir(parents=True, exist_ok=True)
    cohort = min(max(2, round(devices * 0.625)), 100)
    done = rounds if done is None else done
    plan = Plan(
        devices=devices, cohort=cohort, rounds=rounds, rows=2440, batch=244, local_steps=10,
        step_size=0.5, clip=1.0, noise=0.0213,
    )  # fmt: skip
    smallest = max(2, math.ceil(cohort * 0.8))
    colluders = max(0, cohort // 5)
    sum_ = SecureSum(cohort=cohort, smallest_sum=smallest, threshold=smallest - 1, colluders=colluders)
    names = [f"device {number + 1:02}" for number in range(devices)]
    text = "Adult income (UCI), bundled"
    if nasty:
        names, name, text = [f"{nasty}{number}" for number in range(devices)], nasty, nasty
    about = {
        "format": FORMAT, "choral": "0.1.0", "kind": kind, "seeded": seeded, "name": name,
        "started": "2026-11-15T10:00:00Z", "job": "",
        "data": {
            "source": text, "devices": devices, "rows": 2440 * devices, "features": 104,
            "classes": ["<=50K", ">50K"], "label_bounds": None,
            "columns_from": nasty or "the bundled columns.toml", "notes": [text] if nasty else [],
            "hold_out": nasty or "9,769 public records",
        },
        "plan": plan.to_dict(), "plan_digest": plan.digest,
        "secure_sum": vars(sum_) if secure else None,
        "model": {"kind": nasty or "logistic", "hidden": [], "parameters": 210}, "delta": 1e-5,
        "devices": [{"name": each, "rows": 2440, "limit": 2.0} for each in names],
        "versions": {"jax": "0.10.2", "numpy": "2.4.6", "python": "3.11.9", "choral": nasty or "0.1.0"},
        "made_with": nasty or "CPython 3.11.9 on Linux x86_64",
    }  # fmt: skip
    planned = result(about, [], [rounds] * devices, certificate=certificate, nasty=nasty)["privacy"]
    about["planned"] = {name: value for name, value in planned.items() if name != "devices"}
    write_json(folder / "run.json", about)
    lines, counts = [], [0] * devices
    for number in range(1, done + 1):
        line = round_line(number, counts, cohort, smallest)
        lines.append(line)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if finished:
        write_json(folder / "result.json", result(about, lines, counts, certificate=certificate, nasty=nasty))
    if attacked:
        write_json(folder / ATTACK, attack(nasty))
    return folder


def attack(nasty=""):
    """What `choral attack` writes; with `nasty`, as a stranger might: longer, and hostile in every text."""
    columns = [nasty + name for name in ("age", "occupation", "education", "status", "hours", "country")]
    cells = dict.fromkeys(columns, nasty or "Married-civ-spouse")

    def reading(matched):
        return {"cells": cells, "matched": matched, "of": 14}

    def target(name, bound):
        return {"target": nasty or name, "measured": 0.0161, "error": 0.0072, "bound": bound}

    return {
        "data": nasty or "UCI Adult, public, bundled with choral",
        "row": cells, "shown": columns * (50 if nasty else 1),
        "label": "<=50K", "label_read": "<=50K", "ordinary": {"network": reading(14)}, "masked": reading(1),
        "opened": reading(5), "guess": reading(8), "false_alarms": 0.01, "epsilon": 1.998, "delta": 1e-5,
        "membership": [target("one ordinary update", None), target("one update of choral", 0.0143),
                       target("an ordinary final model", None), target("choral's final model", 0.0341),
                       *([target("more", 0.5)] * 500 if nasty else [])],
        "rule": nasty or "S5", "adjacency": ADJACENCY, "adversary": EVERYONE,
    }  # fmt: skip


def round_line(number, counts, cohort, smallest):
    rng = random.Random(number)
    chosen = sorted(rng.sample(range(len(counts)), cohort))
    dropped = rng.sample(chosen, rng.randint(0, cohort - smallest))
    included = [device for device in chosen if device not in dropped]
    for device in chosen:
        counts[device] += 1
    accuracy = 0.845 - 0.09 * math.exp(-number / 4) + 0.003 * math.sin(3 * number)
    line = {
        "round": number, "seconds": 0.4, "cohort": chosen, "included": included,
        "test": {"accuracy": round(accuracy, 4), "loss": 0.36, "auc": 0.89},
        "note": f"{len(dropped)} of {cohort} devices dropped out" if dropped else "",
    }  # fmt: skip
    if len(counts) <= 200:
        line["spent"] = [epsilon(count) for count in counts]
    return line


def epsilon(count):
    return round(min(0.55 * math.sqrt(count), 2.0), 6)


def result(about, lines, counts, *, certificate="convex", nasty=""):
    text = nasty or "the loss is convex and the steps do not expand"
    cohort = about["plan"]["cohort"]
    worst = max(map(epsilon, counts))
    devices = [
        {
            "name": device["name"],
            "rounds": count,
            "epsilon": epsilon(count),
            "limit": 2.0,
            "full": epsilon(count) >= 2.0,
            "planned": about["plan"]["rounds"],
            "retried": count % 3,
        }
        for device, count in zip(about["devices"], counts, strict=True)
    ]
    secure = about["secure_sum"]
    proved = secure is not None and certificate is not None

    def summed(colluders):
        return worst * min(1.0, 0.5 + 0.08 * colluders)

    sum_ = {"rule": "S3", "adversary": "a curious server", "colluders": secure["colluders"],
            "epsilon": summed(secure["colluders"]), "certificate": text} if proved else None  # fmt: skip
    rng = random.Random(1)
    return {
        "finished": "2026-11-15T10:00:12Z", "seconds": 12.3, "rounds_done": len(lines), "stopped": "all rounds done",
        "wasted": [],
        "test": {"accuracy": 0.8441, "loss": 0.36, "auc": 0.89},
        "measured": {"rows": 9769, "error": 0.0037, "recall": {nasty or "<=50K": 0.93, f"{nasty}>50K": 0.58}},
        "baselines": {"without_privacy": 0.852, "alone": 0.809, "alone_devices": 16, "most_common": 0.761},
        "privacy": {
            "delta": 1e-5, "adjacency": ADJACENCY,
            "against_everyone": {"rule": "S5", "adversary": EVERYONE, "epsilon": worst},
            "with_secure_sum": sum_, "no_certificate": None,
            "published": {"rule": "Theorem 1 as published", "epsilon": worst * 0.31, "valid": False,
                          "because": nasty or "10 local steps, and no condition of its validity is met"},
            "by_delta": [[10.0**-power, worst * (0.55 + 0.09 * power)] for power in range(3, 11)],
            "by_colluders": [[c, summed(c) if proved and c < cohort - 3 else None]
                             for c in range(cohort)] if secure else [],
            "devices": devices,
        },
        "sight": {"device": about["devices"][1]["name"], "round": len(lines),
                  "computed": [round(rng.gauss(0, 0.05), 5) for _ in range(24)],
                  "received": [rng.randrange(2**32) if secure else rng.randrange(-900, 900) for _ in range(24)]},
        "releases": [
            {"what": text if nasty else "noisy clipped update, masked", "to": "the server",
             "times": len(lines) * cohort, "protected_by": "noise on the device; masks until summed"},
            {"what": "the model after each round", "to": "all devices", "times": len(lines),
             "protected_by": "the same noise"},
            {"what": "that a device takes part", "to": "the server", "times": len(lines), "protected_by": "nothing"},
        ],
        "files": {name: hashlib.sha256(name.encode()).hexdigest() for name in
                  ("run.json", "rounds.jsonl", "model.safetensors", "model.json")},
    }  # fmt: skip
