"""Results as Markdown tables, one function a table; what was not measured says so in the place of its figure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bench import scale
from bench.engine import MANY
from bench.harness import CORES
from bench.work import ADULT_LOGISTIC, ADULT_MLP, CROSS_DEVICE, Work

Results = dict[str, Any]
WORKS: dict[str, tuple[str, Work]] = {
    "adult_mlp": ("Adult, network 104-64-32-2, γ = 64", ADULT_MLP),
    "adult_mlp_244": ("Adult, network 104-64-32-2, γ = 244", ADULT_MLP.but(batch=244)),
    "adult_logistic": ("Adult, logistic regression, γ = 64", ADULT_LOGISTIC),
    "adult_logistic_244": ("Adult, logistic regression, γ = 244", ADULT_LOGISTIC.but(batch=244)),
    "cross_device_r100": ("cross-device, network 784-200-200-10, n = 10,000, r = 100", CROSS_DEVICE),
    "cross_device_r1000": ("the same, n = 10,000, r = 1000", CROSS_DEVICE.but(cohort=1000)),
    "cross_device_1e5_r100": ("the same, n = 100,000, r = 100", MANY),
    "cross_device_1e5_r1000": ("the same, n = 100,000, r = 1000", MANY.but(cohort=1000)),
}
PEERS = {
    "opacus_loop": "Opacus, loop over devices",
    "opacus_ghost": "Opacus, ghost clipping",
    "opacus_engine": "Opacus, PrivacyEngine for each device",
    "flower_opacus": "Flower simulation, Opacus clients",
    "flower_opacus_lean": "Flower simulation, lean Opacus clients",
    "fedjax": "fedjax with a clipped, noised gradient",
    "pfl_opacus": "pfl with Opacus",
    "jax_privacy": "jax-privacy, loop over devices",
}
NOTHING = "not measured"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table.

    >>> print(table(["a", "b"], [[1, None]]))
    | a | b |
    |---|---|
    | 1 | not measured |
    """
    lines = [head, ["---"] * len(head), *rows]
    text = ["| " + " | ".join(NOTHING if cell is None else str(cell) for cell in line) + " |" for line in lines]
    return "\n".join(text).replace("| --- " + "| --- " * (len(head) - 1) + "|", "|---" * len(head) + "|")


def number(value: float | None, digits: int = 3) -> str | None:
    """So many significant digits, with commas and without an exponent.

    >>> number(0.012345), number(1234567.8), number(None)
    ('0.0123', '1,230,000', None)
    """
    if value is None:
        return None
    short = float(f"{value:.{digits}g}")
    return f"{short:,.0f}" if abs(short) >= 10 ** (digits - 1) else f"{short:.12f}".rstrip("0").rstrip(".")


def machine(found: Results) -> str:
    """Where the figures come from, and when each benchmark was measured."""
    about = found["about"]["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    hurry = " with `--quick`" if found["about"]["quick"] else ""
    where = f"{about['processor']}, {about['cores']} cores, {about['memory_gib']} GiB, {about['system']}"
    rows = [
        (f"`{name}`", one["at"], f"`{one['commit']}`", one.get("load"))
        for name, one in sorted(found["about"]["measured"].items())
    ]
    head = ["benchmark", "measured on", "commit", "load of the machine at the start"]
    return f"Measured{hurry} on: {where}; {versions}.\n\n{table(head, rows)}"


def limits(found: Results) -> str:
    """What the machine can do."""
    reported = found["limits"]
    rows = [
        ("matrix products, float32", f"{number(reported['flops'] / 1e9)} GFLOP/s"),
        ("copies of memory, read and written", f"{number(reported['bytes_a_second'] / 1e9)} GB/s"),
        ("AES-256-CTR, one core", f"{number(reported['aes_256_ctr_bytes_a_second'] / 1e9)} GB/s"),
        ("AES-256 as GCM draws it, one core", f"{number(reported['aes_256_gcm_bytes_a_second'] / 1e9)} GB/s"),
    ]
    return table(["limit", "this machine"], rows)


def floor_ms(work: Work, reported: Mapping[str, float]) -> float:
    """The least milliseconds of a round, by products or by memory, whichever takes longer.

    Products: its floating-point operations at full speed. Memory: each parameter read and written once per step.
    """
    moved = 8 * work.cohort * work.steps * work.parameters
    return 1e3 * max(work.flops / reported["flops"], moved / reported["bytes_a_second"])


def engine(found: Results) -> str:
    """Local training next to every peer."""
    rows = []
    for name, (words, work) in WORKS.items():
        for peer, one in found["engine"]["details"].get(name, {}).items():
            if one.get("times") is None:
                rows.append((words, PEERS.get(peer, peer), None, None, one.get("reason", NOTHING), None, None))
                continue
            least = floor_ms(work, found["limits"])
            scaled = f" (timed on 1/{one['scaled_by']})" if one.get("scaled_by", 1) > 1 else ""
            rows.append((
                words, PEERS.get(peer, peer), number(one["ours"]["ms"]), number(one["peer"]["ms"]) + scaled,
                f"**{number(one['times'])}** ({number(one['least'])} to {number(one['most'])})",
                number(one["cpu_times"]), f"{number(least)} ({100 * least / one['ours']['ms']:.0f} %)",
            ))  # fmt: skip
    head = [
        "work",
        "peer",
        "ours, ms per round",
        "peer, ms per round",
        "times (spread)",
        "times, CPU",
        "limit, ms (reached)",
    ]
    return table(head, rows)


def noise(found: Results) -> str:
    """What the noise costs."""
    rows = [(WORKS[name][0], number(one["times"]), f"{number(one['least'])} to {number(one['most'])}")
            for name, one in found["engine"]["details"].get("noise", {}).items()]  # fmt: skip
    return table(["work", "with noise over without", "spread"], rows)


def first(found: Results) -> str:
    """From the start of a process to the first finished round; and the front door."""
    reported = found["engine"]["details"].get("first_round", {"ours": {"cold_s": None}})
    rows = [("choral" if name == "ours" else PEERS.get(name, name), number(one["cold_s"]), number(one.get("warm_s")))
            for name, one in reported.items()]  # fmt: skip
    door = {name.removesuffix("_seconds"): value for name, value in found["front_door"].items() if "_seconds" in name}
    more = [(f"`{name.replace('_', ' ')}`", number(value)) for name, value in door.items()]
    head = ["first round of the Adult network", "cold, s", "with its cache, s"]
    return table(head, rows) + "\n\n" + table(["command, from start to end", "s"], more)


def rounds_of(found: Results) -> str:
    """Scale: time and memory against n, r and d."""
    rows = [(f"{row['n']:,}", f"{row['r']:,}", f"{row['d']:,}", row["rounds"], number(row["s_a_round"]),
             number(row["cpu_s_a_round"]), number(row["ns_a_parameter_step"]), f"{row['mib_besides_data']:,}")
            for row in found["engine_scale"]["rows"]]  # fmt: skip
    head = ["devices n", "cohort r", "parameters d", "rounds", "s per round", "CPU s per round",
            "ns per parameter and step", "MiB without the data"]  # fmt: skip
    return table(head, rows)


def growth(found: Results) -> str:
    """Fitted exponents: 0 is flat, 1 linear."""
    rows = [(f"engine, {name}", ", ".join(f"{size:,}" for size in one["sizes"]), number(one["exponent"]))
            for name, one in found["engine"]["details"].get("growth", {}).items()]  # fmt: skip
    reported = found.get("scale", {})
    for side in ("device", "server"):
        if side in reported:
            sizes = ", ".join(f"{size:,}" for size in reported["cohorts"])
            rows.append(
                (f"secure sum on the sparse graph, {side}, r", sizes, number(reported[side]["parameter_exponent"]))
            )
    return table(["what, against", "sizes", "exponent of CPU time"], rows)


def aes_floor_ms(name: str, reported: Mapping[str, float], length: int = 10**6) -> float | None:
    """The least milliseconds for a case's masks of 32-bit words, drawn by AES on two cores; None for other names.

    A device draws its neighbours' masks and its own; the server every included device's own and, for each one that
    dropped out, those it shares with the included.

    >>> reported = {"aes_256_gcm_bytes_a_second": 4e9, "aes_256_ctr_bytes_a_second": 2e9}
    >>> [aes_floor_ms(work, reported) for work in ("device_r10", "server_r10_2_dropped", "mask_kernel")]
    [5.0, 12.0, None]
    """
    case = re.match(r"(device|server)_r(\d+)", name)
    if case is None:
        return None
    cohort = int(case[2])
    dropped, neighbours = (re.search(rf"(\d+)_{word}", name) for word in ("dropped", "neighbours"))
    gone, near = int(dropped[1]) if dropped else 0, int(neighbours[1]) if neighbours else cohort - 1
    masks = near + 1 if case[1] == "device" else cohort - gone + gone * min(near, cohort - gone)
    speed = max(reported["aes_256_gcm_bytes_a_second"], reported["aes_256_ctr_bytes_a_second"])
    return 1e3 * 4 * length * masks / (CORES * speed)


def secure_sum(found: Results) -> str:
    """A round of the secure sum next to Flower's SecAgg+."""
    reported, rows = found["secure_sum"], []
    for key in (key for key in reported if key.endswith("_vs_flower")):
        name = key.removesuffix("_vs_flower")
        ours, least = reported.get(f"{name}_ms"), aes_floor_ms(name, found["limits"])
        others = [reported.get(f"{name}_{word}") for word in ("flower_ms", "vs_flower_without_protobuf", "spread")]
        peer, bare, spread = (number(value) or "" for value in others)
        reached = f"{number(least)} ({100 * least / ours:.0f} %)" if least and ours else ""
        times = None if reported[key] is None else f"**{number(reported[key])}**"
        rows.append((name.replace("_", " "), number(ours) or "", peer, times, bare, spread, reached))
    head = ["work", "ours, ms", "Flower, ms", "times", "times, its protobuf forgiven", "slowest repeat over best",
            "AES alone on two cores, ms (reached)"]  # fmt: skip
    return table(head, rows)


def lom(found: Results) -> str:
    """A round next to Fed-BioMed's LOM."""
    reported = found["lom"]
    figures = ("{}_ms", "{}_lom_ms", "{}_vs_lom")
    rows = [(side, *(number(reported.get(figure.format(side))) for figure in figures)) for side in ("device", "server")]
    about = f"Fed-BioMed {reported['lom']}; r = 10, {reported.get('dimensions', 10**6):,} parameters.\n\n"
    return about + table(["work", "ours, ms", "LOM, ms", "times"], rows)


def secure_sum_alone(found: Results) -> str:
    """What else was measured of the secure sum."""
    reported = found["secure_sum"]
    compared = {key.removesuffix("_vs_flower") for key in reported if key.endswith("_vs_flower")}
    above = {f"{one}_{word}" for one in compared for word in ("ms", "flower_ms", "spread")} | {"took_s"}
    rows = [(name.replace("_", " ").replace("a parameter", "per parameter"), number(value))
            for name, value in reported.items()
            if isinstance(value, int | float) and name not in above and "vs_flower" not in name]  # fmt: skip
    return table(["what", "figure"], rows)


def footprint(found: Results) -> str:
    """Disk and memory."""
    reported = found["footprint"]
    rows = []
    for name, one in reported["disk"].items():
        largest = ", ".join(f"{part} {mib}" for part, mib in one.get("largest_mib", {}).items())
        rows.append((name, one.get("packages"), number(one["mib"], 4), largest or one.get("reason", "")))
    memory = [(PEERS.get(name, name), number(one["peak_mib"], 4)) for name, one in reported["memory"].items()]
    disk = table(["environment", "packages", "MiB on disk", "the largest"], rows)
    return disk + "\n\n" + table(["contender", "most MiB in memory"], memory)


def accuracy(found: Results) -> str:
    """Test accuracy at equal proved ε."""
    rows = []
    for one in found["accuracy"].values():
        if not isinstance(one, dict):
            continue
        cells: list[object] = [f"{one['data']}, {one['model']}", f"{one['epsilon']:.2f}", _spread(one["choral"])]
        for name in ("opacus_same_guarantee", "opacus_own_accountant"):
            peer = one[name]
            cells += [_spread(peer), _spread(peer.get("difference"), sign=True)]
        rows.append([*cells, one["seeds"]])
    head = ["data, model", "proved ε", "choral", "Opacus, same guarantee", "difference", "Opacus, its own accountant",
            "difference", "seeds"]  # fmt: skip
    return table(head, rows)


def _spread(one: Mapping[str, Any] | None, *, sign: bool = False) -> str | None:
    if one is None or one.get("mean") is None:
        return None
    form = "+.4f" if sign else ".4f"
    return f"{one['mean']:{form}} ({one['least']:{form}} to {one['most']:{form}})"


def accounting(found: Results) -> str:
    """The accountant and the planner: from the start of a process, and next to dp-accounting's own."""
    runs = {f"`choral account`, {name}": one for name, one in found["accounting"]["command"].items()}
    runs |= {f"`choral plan`, {name}": one for name, one in found["planning"].items() if isinstance(one, dict)}
    rows = [(name, number(one["wall_s"]), number(one["cpu_s"]), one["limit_s"]) for name, one in runs.items()]
    reported = found["accounting"]["accountant"]
    compared = [
        (words, number(reported[f"{name}_cpu_s"]), number(reported[f"{name}_speedup"]), reported[f"{name}_over_peer"])
        for name, words in (("epsilon", "one ε"), ("noise", "the noise for an ε"))
    ]
    head = ["compared with dp-accounting's PLD accountant", "ours, CPU s", "times", "our answer over its answer"]
    return table(["command", "wall, s", "CPU, s", "limit that we set, s"], rows) + "\n\n" + table(head, compared)


def deployment(found: Results) -> str:
    """Seconds per round between processes over Flower, next to plain FedAvg."""
    reported = found["rounds"]
    rows = [
        (f"{one['parameters']:,}", _between(one, "choral"), _between(one, "flower_fedavg"), one["choral_over_fedavg"])
        for one in (reported[name] for name in ("small", "million") if name in reported)
    ]
    about = (
        f"{reported['nodes']} sites, {reported['rounds']} rounds; median, least and most, and the load of the machine."
    )
    sides = {"choral": "choral", "flower": "plain Flower"}
    idle = [
        (words, *(reported["idle"][side][f"{what}_a_minute"] for what in ("requests", "connections", "bytes")))
        for side, words in sides.items()
    ]
    made = table(["parameters", "choral, s per round", "plain FedAvg, s per round", "over FedAvg"], rows)
    head = ["an idle node, per minute", "requests", "new connections", "bytes, both ways"]
    return f"{about}\n\n{made}\n\n{table(head, idle)}"


def _between(one: Mapping[str, Any], side: str) -> str:
    least, most = one[f"{side}_spread_s"]
    before, after = one[f"{side}_load"]
    return f"{one[f'{side}_s']} ({least} to {most}), load {before} to {after}"


def others(found: Results) -> str:
    """Benchmarks that have no separate table, flat."""
    known = {"engine", "engine_scale", "secure_sum", "front_door", "accounting", "planning", "limits", "footprint",
             "accuracy", "scale", "about", "gpu", "lom", "rounds", "million",
             "models", *(made.__name__ for made in MADE)}  # fmt: skip
    rows = [(name, path, text) for name in found if name not in known for path, text in _flat(found[name])]
    return table(["benchmark", "what", "figure"], rows) if rows else "Nothing else was measured."


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, str]]:  # noqa: ANN401
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{path} {key.replace('_', ' ')}".strip())
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, number(value) or ""
    elif value is None or isinstance(value, str | bool):
        yield path, NOTHING if value is None else str(value)


def audits(found: Results) -> str:
    """What adversaries measured who see all that a rule grants."""
    rows = []
    for case, by_epsilon in found["audits"].items():
        for place, one in enumerate(by_epsilon.values() if isinstance(by_epsilon, dict) else ()):
            rows.append((
                case, one["sees"] if place == 0 else "", f"≤ {one['proved_epsilon']:.2f} ({one['rule']})",
                f"≥ {one['lower_bound']:.2f}" + ("" if one["survived"] else ", **refuted**"),
                f"{100 * one['share_of_epsilon']:.0f} %", f"{100 * one['share_of_mu']:.0f} %",
                f"{one['false_alarms']:,}, {one['hits']:,}",
            ))  # fmt: skip
    head = ["case", "the adversary sees", "ε proved", "ε measured", "share of ε", "share of μ", "false alarms, hits"]
    return table(head, rows)


def personal(found: Results) -> str:
    """Personal models next to the shared one and to each site alone."""
    rows = []
    for name in ("school", "adult_by_occupation"):
        for against, one in (found["personal"].get(name) or {}).items():
            error = one["standard_error"]
            cells = [f"{one[model]} ± {error[model]}" for model in PERSONAL]
            losses = f"{one['gain_over_alone']['loss']:+.4f} ± {error['gain_over_alone']['loss']}"
            rows.append((name.replace("_", " "), against.replace("_", " "), *cells, losses,
                         f"{100 * one['sites_no_worse_than_alone']:.0f} %"))  # fmt: skip
    head = ["data", "against", *PERSONAL.values(), "gain over alone, loss", "sites no worse than alone"]
    return table(head, rows)


PERSONAL = {"shared": "shared", "alone": "alone", "alone_by_validation": "alone, ridge chosen", "one_kappa": "personal"}


def devices(found: Results) -> str:
    """A whole device as the unit: accuracy in percent."""
    rows = [
        (name.replace("_", ", "), *(f"{one[key]:.2f}" for key in ("trusted", "choral", "whole_numbers")),
         f"{one['epsilon']:.1f}", *(f"{one['adaptive'][key]:.2f}" for key in ("too_small", "too_large", "fixed")),
         f"{one['adaptive']['epsilon']:.1f}")
        for name, one in found["devices"].items() if isinstance(one, dict)
    ]  # fmt: skip
    head = ["model, devices per round", "trusted server", "choral", "choral, whole numbers", "ε",
            "adaptive clip, from too small", "from too large", "fixed, as many rounds", "ε of these"]  # fmt: skip
    return table(head, rows)


def poison(found: Results) -> str:
    """What attackers reach with and without probes, in percent of accuracy or of rows on which a trigger works."""
    rows = [
        (attack.replace("_", " "), attackers, *(number(one.get(key), 4) if key in one else "" for key in POISONED))
        for attack, by_number in found["poison"].items() if isinstance(by_number, dict)
        for attackers, one in by_number.items()
    ]  # fmt: skip
    return table(["attack", "attackers of 16", *POISONED.values()], rows)


POISONED = {
    "clean": "nobody attacks", "plain": "plain sum", "probes": "with probes", "trigger_plain": "trigger, plain sum",
    "trigger_probes": "trigger, with probes", "named": "share of attackers named",
    "wrongly_named": "share of others named",
}  # fmt: skip


def heads(found: Results) -> str:
    """A linear model on a public encoder next to networks that are trained whole."""
    rows = [
        (against, model, f"{value:.3f} ± {one['deviation'][model]:.3f}")
        for against, one in found["heads"].items() if isinstance(one, dict)
        for model, value in one["accuracy"].items()
    ]  # fmt: skip
    return table(["ε = 1 against", "model", "accuracy"], rows)


def million(found: Results) -> str:
    """A round out of a million enrolled devices, as it was run, and what whole lists would have cost a device."""
    reported, one = found["million"], found["scale"]["pieces"]
    whole = {
        "check_cpu_ms": scale.DEVICES * one["roster_us_a_device"] / 1e3,
        "check_kb": scale.DEVICES * one["roster_bytes_a_device"] / 1e3,
    }
    missing = reported["round_devices"] - reported["round_included"]
    reported = {**reported, "check_kb": reported["check_bytes"] / 1e3, "round_missing": missing}
    rows = [
        (words, number(reported[name]), number(whole[name]) if name in whole else "") for name, words in RUN.items()
    ]
    return table(["what", "lists as trees, measured", "whole lists, computed"], rows)


RUN = {  # figure -> its words
    "devices": "devices enrolled",
    "tree_cpu_s": "the server makes the tree of the roster, CPU s",
    "cohort": "devices of the cohort that a device checks its part of",
    "check_cpu_ms": "a device checks roster and cohort, CPU ms",
    "check_cpu_ms_most": "the same, the slowest of 40 devices",
    "check_kb": "a device receives for it, kB",
    "server_cpu_ms_to_announce_one": "the server makes this message for one device, CPU ms",
    "round_devices": "devices of the round that was run to its sum",
    "round_missing": "of them without an update, and so not in the sum",
    "parameters": "parameters",
    "round_device_cpu_ms": "a device checks, agrees, pays, rounds, masks, shares and answers, CPU ms",
    "round_server_cpu_s": "the server announces, adds, unmasks and checks, CPU s",
    "round_device_sends_bytes": "a device sends with its masked update, bytes",
    "simulated_wall_s": "the same round in the simulator, s",
    "memory_mb": "memory of the process with all devices and the server, MB",
}


def larger_models(found: Results) -> str:
    """One round of 10^4 out of 10^6 devices with larger models, carried over from what was measured."""
    step = found["engine_scale"]["rows"][-1]["ns_a_parameter_step"]
    sizes = (CROSS_DEVICE.parameters, 10**6)
    reported = [scale.extrapolate(found["scale"], length=size, step_ns=step) for size in sizes]
    rows = [(words, *(number(one[name] / by) for one in reported)) for name, (words, by) in PIECES.items()]
    return table(["piece", *(f"d = {size:,}" for size in sizes)], rows)


PIECES = {  # piece -> its words, and what its figure is divided by
    "device_training_s": ("a device trains, CPU s", 1),
    "device_sum_s": ("a device masks, shares and answers, CPU s", 1),
    "device_agreements_s": ("a device agrees with its neighbours, CPU s", 1),
    "device_upload_bytes": ("a device sends, MB", 1e6),
    "device_download_bytes": ("a device receives of the model, MB", 1e6),
    "server_s": ("the server adds, unmasks and checks, CPU s", 1),
    "server_uploads_bytes": ("the server lays uploads aside, GB", 1e9),
    "server_network_s": ("the server sends and receives at 10 Gbit/s, s", 1),
}


def gpu(found: Results) -> str:
    """Milliseconds on one accelerator, and where they go."""
    if "gpu" not in found:
        return "Nothing was measured yet: bench/gpu.json is not there."
    reported = found["gpu"]
    works = {name: one for name, one in reported.items() if isinstance(one, dict) and "round" in one}
    parts = dict.fromkeys(part for one in works.values() for part in one if type(one[part]) is not bool)
    rows = [(part.replace("_", " "), *(number(one.get(part)) or "" for one in works.values())) for part in parts]
    about = f"{reported.get('device', 'device unknown')}, JAX {reported.get('jax', 'unknown')}."
    return about + "\n\n" + table(["ms, except for what says s", *(name.replace("_", " ") for name in works)], rows)


MADE = (machine, limits, engine, noise, first, rounds_of, growth, secure_sum, secure_sum_alone, lom, footprint,
        accuracy, accounting, deployment, others, million, larger_models, gpu, audits,
        personal, devices, heads, poison)  # fmt: skip
TABLES: dict[str, Callable[[Results], str]] = {made.__name__: made for made in MADE}


def shown(name: str, found: Results) -> str:
    """A table, or why there is none.

    >>> shown("limits", {"limits": {"reason": "no figures: exit status 1"}})
    'Not measured here (limits: no figures: exit status 1).'
    """
    try:
        return TABLES[name](found)
    except KeyError as missing:
        reported = [
            f"{one}: {value['reason']}" for one, value in found.items() if isinstance(value, dict) and "reason" in value
        ]
        return f"Not measured here ({'; '.join(reported) or f'no {missing}'})."
