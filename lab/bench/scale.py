"""Large models and a million devices, on paper: pieces and how they grow. `python -m bench.scale [--quick] [--json]`.

`bench.million` runs such a round with 10^4 parameters; this carries it to models that no single machine can run.

Rounds of the secure sum on its sparse graph are run for growing cohorts and vectors, with what a device agrees, shares
and hashes; `extrapolate` carries them, and the engine's local steps, to cohorts of 10^4 out of 10^6. CPU seconds of one
core; the best of the repeats.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.harness import growth, print_figures
from bench.secure_sum import Case, Cohort
from choral.core.keys import Identity, Roster
from choral.core.shares import fresh_secret, split
from choral.run.planning import sparse
from choral.server.secrets import join

DEVICES, COHORT, LINK = 10**6, 10**4, 10e9  # n, r, and bits a second of the server's network
COHORTS, SHORT, LONG, REPEATS = (100, 200, 400, 800), 10**4, 2 * 10**5, 5
PARTS = {"device": "device_cpu", "server": "server_cpu", "bytes": "bytes"}  # of what a round tells


def best(task: Callable[[], object], repeats: int = 5) -> float:
    """The least CPU seconds of so many calls."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        task()
        spent.append(time.process_time() - start)
    return min(spent)


def rounds(cohort: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of a device and of the server in a round with short vectors, and in one with long ones.

    They take turns, since their difference is a small part of either; most of a round does not depend on the vector.
    """
    both = [Cohort(Case(sparse(cohort), length)) for length in (SHORT, LONG)]
    for one in both:
        one.begin()
        one.round()
    runs = [[one.round() for one in both] for _ in range(REPEATS)]
    short, long = ({name: min(run[key] for run in of) for name, key in PARTS.items()} for of in zip(*runs, strict=True))
    return short, long


def pieces() -> dict[str, float]:
    """What else a device does, in microseconds each, and what the list of all devices costs a device."""
    one, other = Identity.fresh("device-000001"), Identity.fresh("device-000002")
    secure = sparse(COHORT)
    points, threshold = list(range(1, (secure.neighbours or 0) + 1)), secure.threshold
    shares = split(fresh_secret(), threshold, points)
    given = dict(list(zip(points, shares, strict=True))[:threshold])
    bundles = [Identity.fresh(f"device-{number:06}").bundle for number in range(1000)]
    total, upload = np.zeros(10**6, np.uint32), np.ones(10**6, np.uint32)
    return {
        "agreement_us": 1e6 * best(lambda: one.pair(other.bundle, b"bench"), 50),
        "split_us": 1e6 * best(lambda: split(fresh_secret(), threshold, points)),
        "join_us": 1e6 * best(lambda: join(given, threshold)),
        "roster_us_a_device": 1e6 * best(lambda: Roster.of(bundles).digest, 3) / len(bundles),
        "roster_bytes_a_device": len(bundles[0].signed) + len(bundles[0].signature),
        "add_ns_a_parameter": 1e9 * best(lambda: np.add(total, upload, out=total), 20) / len(total),
        "neighbours": secure.neighbours or 0,
    }


def measure(quick: bool) -> dict[str, Any]:
    """The pieces, and what a round costs each side: so much in any case and so much a parameter, against the cohort.

    Two lengths of the vector tell the two parts apart; each part has its own exponent in r.
    """
    cohorts = COHORTS[:2] if quick else COHORTS
    runs = {size: rounds(size) for size in cohorts}
    found: dict[str, Any] = {
        "pieces": {name: _short(value) for name, value in pieces().items()},
        "cohorts": list(cohorts),
    }
    for side in ("device", "server"):
        slopes = [(long[side] - short[side]) / (LONG - SHORT) for short, long in runs.values()]
        fixed = [short[side] - slope * SHORT for (short, _), slope in zip(runs.values(), slopes, strict=True)]
        found[side] = {
            "fixed_ms": [_short(1e3 * seconds) for seconds in fixed],
            "ns_a_parameter": [_short(1e9 * seconds) for seconds in slopes],
            "fixed_exponent": growth(cohorts, fixed),
            "parameter_exponent": growth(cohorts, slopes),
        }
    found["bytes_a_parameter"] = _short(runs[cohorts[0]][1]["bytes"] / LONG)
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def extrapolate(measured: dict[str, Any], *, length: int, step_ns: float, steps: int = 10) -> dict[str, float]:
    """Seconds and bytes of one round of COHORT of DEVICES, for a model of so many parameters.

    Power laws in r through the largest cohort that was measured, linear in the parameters. Pairs of a cohort that is
    drawn out of a million have hardly met before, so every agreement is paid.
    """
    one, factor = measured["pieces"], COHORT / measured["cohorts"][-1]

    def grown(side: str) -> float:
        part = measured[side]
        fixed = 1e-3 * part["fixed_ms"][-1] * factor ** part["fixed_exponent"]
        return fixed + 1e-9 * length * part["ns_a_parameter"][-1] * factor ** part["parameter_exponent"]

    upload = measured["bytes_a_parameter"] * length
    return {
        "device_training_s": steps * length * step_ns * 1e-9,
        "device_sum_s": grown("device"),
        "device_agreements_s": one["neighbours"] * one["agreement_us"] * 1e-6,
        "device_upload_bytes": upload,
        "device_download_bytes": 4 * length,
        "server_s": grown("server"),
        "server_uploads_bytes": COHORT * upload,
        "server_network_s": 8 * COHORT * (upload + 4 * length) / LINK,
    }


def main() -> None:
    print_figures(__doc__, measure, "the two smallest cohorts")


if __name__ == "__main__":
    main()
