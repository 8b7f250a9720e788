"""How long `choral account` takes, from the start of its process, against its limits; its accountant next to a peer's.

python -m bench.accounting [--json]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PLAN = {
    "rounds": 13,
    "local-steps": 10,
    "cohort": 10,
    "devices": 16,
    "rows": 2440,
    "batch": 244,
    "noise": 0.004902,
    "clip": 1.0,
    "delta": 1e-4,
}
LIMITS = {"poisson": 2.0, "partition": 0.5}  # seconds


def command(sampling: str) -> dict[str, float]:
    """Best wall and CPU seconds of the whole command."""
    words = [sys.executable, "-m", "choral", "account", "--json", "--sampling", sampling]
    words += [word for name, value in PLAN.items() for word in (f"--{name}", str(value))]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(SOURCE)]))
    }
    walls, cpus = [], []
    for _ in range(5):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(words, env=environment, check=True, capture_output=True)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall_s": round(min(walls), 3), "cpu_s": round(min(cpus), 3), "limit_s": LIMITS[sampling]}


def accountants() -> dict[str, float]:
    """CPU seconds for one ε and for the noise of a budget, ours and dp-accounting's own accountant, same adjacency."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    from choral.accounting.calibrate import smallest_noise
    from choral.accounting.proofs import exposed
    from choral.core import poisson
    from choral.core.plan import Budget

    steps, z, q, delta = PLAN["rounds"] * PLAN["local-steps"], PLAN["noise"] * PLAN["batch"], 0.1, PLAN["delta"]
    part = exposed(**{name.replace("-", "_"): value for name, value in PLAN.items() if name != "delta"})

    def event(noise: float) -> dp_accounting.DpEvent:
        step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(noise))
        return dp_accounting.SelfComposedDpEvent(step, steps)

    def fresh() -> PLDAccountant:
        return PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)

    def timed(work: object) -> tuple[float, float]:
        start = time.process_time()
        answer = work()  # type: ignore[operator]
        return time.process_time() - start, float(answer)

    poisson.epsilon({(2.0, 0.5): 2}, delta=delta)  # both have their libraries loaded
    ours, epsilon = timed(lambda: poisson.epsilon({(z, q): steps}, delta=delta))
    theirs, their_epsilon = timed(lambda: fresh().compose(event(z)).get_epsilon(delta))
    target = 2.0
    our_search, noise = timed(lambda: smallest_noise(part, Budget(epsilon=target, delta=delta)))
    their_search, their_noise = timed(
        lambda: dp_accounting.calibrate_dp_mechanism(
            fresh, event, target, delta, dp_accounting.ExplicitBracketInterval(0.5, 20), tol=1e-3
        )
    )
    return {
        "epsilon": epsilon,
        "epsilon_over_peer": round(epsilon / their_epsilon, 6),
        "epsilon_cpu_s": round(ours, 4),
        "epsilon_speedup": round(theirs / ours, 1),
        "noise_over_peer": round(noise * PLAN["batch"] / their_noise, 4),
        "noise_cpu_s": round(our_search, 4),
        "noise_speedup": round(their_search / our_search, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    reported = {"command": {name: command(name) for name in LIMITS}, "accountant": accountants()}
    if wanted.json:
        print(json.dumps(reported))
    else:
        for name, times in reported["command"].items():
            print(
                f"choral account, {name}: {times['wall_s']} s wall, {times['cpu_s']} s CPU, limit {times['limit_s']} s"
            )
        for name, figure in reported["accountant"].items():
            print(f"{name:<20} {figure}")
    return int(any(each["wall_s"] > each["limit_s"] for each in reported["command"].values()))


if __name__ == "__main__":
    sys.path.insert(0, str(SOURCE))
    sys.exit(main())
