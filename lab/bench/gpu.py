# ruff: noqa: E402
"""Milliseconds per round on an accelerator, and where they go.

`PYTHONPATH=src:lab/src python3 lab/bench/gpu.py [--json]` needs JAX and NumPy only. `round` is a round of a run that
reports at its end, `round_waited_for` one that the host waits for; what follows are its parts, each timed alone on
inputs that are ready, and `updates_*` are the local steps in other forms. `round_of_runs_together` is a round of as
many runs of a sweep as one call takes, where they go together.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # run as a file, this one would otherwise hide other modules

import jax
import jax.numpy as jnp
import numpy as np

from bench import work as works
from bench.peers.ours import backend_of, flat_weights
from bench.work import ADULT_LOGISTIC, ADULT_MLP, ADULT_WIDE, CROSS_DEVICE, Work, cohort_of
from choral.engine.compiled import CompiledEngine
from choral.engine.draws import Turn
from choral.engine.programs import with_added
from choral.learning import clipped, local, noise, streams
from choral.learning.local import Noise, local_update
from choral.learning.recipe import Recipe
from choral.tables.records import Records
from choral_lab.research.sweep import RepeatOfSweep, RunOfSweep, go_together, mixes_repeats, runs_together

ROUNDS = 60  # of a run, between two reports
MILLION = (784, 720, 600, 10)  # 1,003,810 parameters
WORKS = {
    "cross_device_r1000": CROSS_DEVICE.but(devices=2000, cohort=1000),
    "cross_device_r100": CROSS_DEVICE.but(devices=2000),
    "devices_100000": CROSS_DEVICE.but(devices=100_000, cohort=1000, fewest_rows=32, most_rows=50),
    "adult_mlp": ADULT_MLP,
    "adult_logistic": ADULT_LOGISTIC,
    "adult_wide": ADULT_WIDE,
    "million_parameters": CROSS_DEVICE.but(devices=2000, layers=MILLION),
    "n100000_million_parameters": CROSS_DEVICE.but(
        devices=100_000, cohort=1000, fewest_rows=32, most_rows=50, layers=MILLION
    ),
}
TARGETS = {"cross_device_r1000": 22.0, "cross_device_r100": 3.4}


def milliseconds(task: Callable[[], Any], repeats: int) -> float:
    """The time of one call in a stream of calls that nobody waits for but at the end; the better of two streams."""
    jax.block_until_ready(task())
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        for _ in range(repeats):
            last = task()
        jax.block_until_ready(last)
        best = min(best, (time.perf_counter() - start) / repeats)
    return round(1e3 * best, 3)


def jax_normal(key: jax.Array, shape: tuple[int, ...], start: int) -> jax.Array:
    """JAX's own Gaussians (threefry), to compare with."""
    return jax.random.normal(jax.random.fold_in(jax.random.wrap_key_data(key[:2]), start), shape)


def short_products(inputs: jax.Array, slopes: jax.Array) -> jax.Array:
    """Clipped gradients added in the short products that accelerators use by default: what full ones cost."""
    return inputs.T @ slopes


def updates(
    backend: CompiledEngine,
    recipe: Recipe,
    draw: Noise = noise.normal,
    *,
    in_one_order: bool = False,
    kernels: bool = False,
) -> Callable[..., jax.Array]:
    """The local steps of all lanes as one compiled call; in one order, all calls add alike, as those of a round do."""
    shortcuts = backend.form.shortcuts if kernels else replace(backend.form.shortcuts, kernels=False)

    def all_lanes(parameters: Any, features: Any, labels: Any, lengths: Any, *of_device: Any) -> jax.Array:  # noqa: ANN401
        one = partial(local_update, backend.model, recipe, parameters, features, labels, lengths=lengths)
        same = partial(one, shortcuts=shortcuts, draw=draw)
        return jax.vmap(same)(*of_device)

    return jax.jit(all_lanes, compiler_options=local.COMPILED if in_one_order else None)


def whole_rounds(backend: CompiledEngine, work: Work, repeats: int) -> float:
    """Milliseconds per round of a run that reports at its end only: the host draws while the processor trains."""
    cohorts = [cohort_of(work, number) for number in range(repeats)]
    best = float("inf")
    for _ in range(3):  # the first one compiles what is left
        start = time.perf_counter()
        for _ in backend.rounds(flat_weights(work), cohorts, every=repeats):
            pass
        best = min(best, time.perf_counter() - start)
    return round(1e3 * best / repeats, 3)


def of_drawing(backend: CompiledEngine, work: Work, repeats: int) -> dict[str, Any]:
    """Milliseconds per round of what the host says and of what is drawn by its word, and whether all bits are right.

    The model after three rounds in one call is compared with three rounds that the host waits for.
    """
    cohorts, stay = [cohort_of(work, number) for number in range(ROUNDS)], backend.resident
    if stay is None:
        return {}
    turns: list[Turn] = [(number, cohort, None) for number, cohort in enumerate(cohorts)]
    some = next(iter(stay.groups(turns)))
    size = some.stop - some.start
    group = [(turn, backend.rounds_of[turn[1]]) for turn in turns[some]]
    who = stay.who(group, size)
    theta = shared = flat_weights(work)
    one, other = (backend_of(work, records=backend.records) for _ in range(2))
    for number, cohort in enumerate(cohorts[:3]):
        opened = one.train(theta, number, cohort)
        theta = one.apply(theta, opened.total, opened.count)
    (last,) = other.rounds(shared, cohorts[:3], every=3)
    return {
        "rounds_per_call": size,
        "same_bits_as_rounds_apart": bool((last.parameters == theta).all()),
        "host_says": milliseconds(lambda: stay.who(group, size), 3) / size,
        "draw": milliseconds(lambda: stay.draw(who), repeats) / size,
    }


def of_sweep(backend: CompiledEngine, work: Work, repeats: int, alone: float) -> dict[str, Any]:
    """A round of as many runs as one call takes, of four repeats with other rows, and of one after the other.

    A run's bits are compared with those that it has in a call for it alone, where all other places repeat it and no
    other repeat is there.
    """
    if not go_together(backend):
        return {}
    base = backend.records
    tables = [replace(base, features=base.features + np.float32(0.01 * number)) for number in range(4)]
    sizes, noises = (0.05, 0.1, 0.2, 0.4), (0.01, 0.02)
    recipes = [replace(backend.recipe, step_size=size, noise=sigma) for size in sizes for sigma in noises]
    runs = [RunOfSweep(number, one) for number in range(4) for one in recipes]
    cohorts = [[cohort_of(work, ROUNDS * number + one) for one in range(ROUNDS)] for number in range(4)]

    def together(some: list[RunOfSweep], tables: list[Records] = tables) -> tuple[float, list[Any]]:
        engines = [backend_of(work, records=table) for table in tables]
        begun = [RepeatOfSweep(*one) for one in zip(engines, [flat_weights(work)] * 4, cohorts, strict=False)]
        start = time.perf_counter()
        (look,) = runs_together(begun, some, every=ROUNDS)
        return time.perf_counter() - start, look.parameters

    (_, every), (_, single) = together(runs), together(runs[5:6], tables[:1])  # of the first repeat
    best = min(together(runs)[0] for _ in range(max(1, repeats // 5)))
    return {
        "runs_together": len(runs),
        "round_of_runs_together": round(1e3 * best / ROUNDS, 3),
        "times_as_fast": round(len(runs) * alone * ROUNDS / (1e3 * best), 1),
        "same_bits_in_other_company": bool((every[5] == single[0]).all()),
    }


def of_research() -> dict[str, float]:
    """Seconds of a sweep: 45 runs of 500 rounds, nine in each of five repeats, in calls for all repeats and apart.

    What is compiled counts.
    """
    from choral_lab.research import Experiment, Records, Task, experiment, logistic, mlp, sweep_training

    rows = np.random.default_rng(0).normal(size=(16, 3052, 104)).astype(np.float32) / 10
    records = Records.of([(f"device {number}", one, one[:, 0] > 0) for number, one in enumerate(rows)])
    numbers = [(size, sigma) for size in (0.1, 0.2, 0.4) for sigma in (0.005, 0.01, 0.02)]
    found = {}
    for name, model in (("logistic", logistic), ("network", lambda width: mlp(width, (64, 32)))):
        task = Task.of(name, records, model)
        plain = Experiment(task=task, cohort=10, rounds=500, local_steps=10, batch=64, step_size=1.0, clip=1.0, looks=5)
        candidates = [replace(plain, step_size=size, noise=sigma) for size, sigma in numbers]
        runs = [(one, repeat) for one in candidates for repeat in range(5)]
        for way, mixes in (("together", mixes_repeats), ("apart", lambda: False)):
            with patch.object(experiment, "mixes_repeats", mixes), patch.object(sweep_training, "mixes_repeats", mixes):
                start = time.perf_counter()
                list(experiment.train_together(runs))
                found[f"{name}_{way}_s"] = round(time.perf_counter() - start, 2)
            experiment._kept.clear()
    return found


def parts(work: Work, repeats: int, *, sampling: str, variants: bool) -> dict[str, Any]:
    """A round, its parts, and its other forms."""
    start = time.perf_counter()
    backend = backend_of(work, sampling=sampling)
    cohort, shared = cohort_of(work, 0), flat_weights(work)
    backend.train(shared, 0, cohort)
    found: dict[str, Any] = {"first_round_s": round(time.perf_counter() - start, 2)}
    found |= {"lanes": backend.lanes, "room": backend.room, "usual": backend.form.shortcuts.usual}
    found["round"] = whole_rounds(backend, work, ROUNDS)
    found["round_waited_for"] = milliseconds(lambda: backend.train(shared, 0, cohort).total, repeats)

    lanes = slice(0, backend.lanes)
    turn, before = (0, cohort, None), backend.rounds_of[cohort]
    batches = backend.drawing.batches([turn], before)
    words = streams.words(streams.keys(1, "noise", 0, cohort)[:, None], np.arange(work.steps + 1))
    fed = backend.feed.held[0], backend.feed.places(cohort[lanes], batches.rows[lanes])
    given = (shared, *fed[0], fed[1], batches.counts[lanes], noise.split(words)[lanes])
    inputs = [jax.device_put(value) for value in given]
    parameters, features, _, _, rows, _, keys = inputs
    dither = jax.device_put(noise.split(streams.keys(1, "dither", 0, cohort))[lanes])
    keep, total = jnp.ones(backend.lanes, jnp.bool_), jnp.zeros((2, backend.model.size), jnp.int32)
    steps = updates(backend, backend.recipe, in_one_order=True, kernels=True)
    ready, added = steps(*inputs), jax.jit(with_added, compiler_options=local.COMPILED)
    found |= of_drawing(backend, work, repeats)
    found |= of_sweep(backend, work, repeats, found["round"]) if sampling == "partition" else {}
    tasks: dict[str, Callable[[], Any]] = {
        "updates": lambda: steps(*inputs),
        "codec": lambda: added(backend.traced_codec, total, [ready], dither, keep),
        "gather_alone": _gather(features, rows),
        "noise_alone": _noise(parameters, keys, work),
    }
    quiet = updates(backend, replace(backend.recipe, noise=0.0))
    tasks["updates_without_noise"] = lambda: quiet(*inputs)
    if variants:
        ordered, free = (updates(backend, backend.recipe, in_one_order=one_order) for one_order in (True, False))
        tasks["updates_without_kernel"] = lambda: ordered(*inputs)
        tasks["updates_in_any_order"] = lambda: free(*inputs)
        threefry = updates(backend, backend.recipe, jax_normal)
        tasks["updates_jax_normal"] = lambda: threefry(*inputs)
        with patch.object(clipped, "added_products", short_products):
            coarse = updates(backend, backend.recipe)
            jax.block_until_ready(coarse(*inputs))
        tasks["updates_sums_short"] = lambda: coarse(*inputs)
    found |= {name: milliseconds(task, repeats) for name, task in tasks.items()}
    for precision in ("highest", "bfloat16") if variants else ():
        with jax.default_matmul_precision(precision):
            other = updates(backend, backend.recipe)
            found[f"updates_products_{precision}"] = milliseconds(lambda other=other: other(*inputs), repeats)
    return found


def _gather(features: jax.Array, rows: jax.Array) -> Callable[[], jax.Array]:
    """Every batch's rows fetched and added up, step by step."""

    @jax.jit
    def fetch(features: jax.Array, rows: jax.Array) -> jax.Array:
        steps = jnp.swapaxes(rows, 0, 1)
        return jax.lax.scan(lambda total, batch: (total + features[batch].sum(axis=(0, 1)), None),
                            jnp.zeros(features.shape[1]), steps)[0]  # fmt: skip

    return lambda: fetch(features, rows)


def _noise(parameters: jax.Array, keys: jax.Array, work: Work) -> Callable[[], jax.Array]:
    """The noise of all steps added to all lanes' parameters, and nothing else."""

    @jax.jit
    def add(parameters: jax.Array, keys: jax.Array) -> jax.Array:
        lanes = jnp.broadcast_to(parameters, (len(keys), len(parameters)))
        draw = jax.vmap(lambda key: noise.normal(key, parameters.shape))
        steps = jnp.swapaxes(keys, 0, 1)[:-1]
        return jax.lax.scan(lambda held, key: (held + work.noise * draw(key), None), lanes, steps)[0]

    return lambda: add(parameters, keys)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--works", nargs="*", default=list(WORKS), choices=list(WORKS), help="which works to time")
    parser.add_argument("--repeats", type=int, default=20, help="rounds in each stream")
    parser.add_argument(
        "--sampling", default="partition", choices=["partition", "poisson"], help="how batches are drawn"
    )
    parser.add_argument("--sweep", action="store_true", help="time a sweep of choral_lab.research as well")
    parser.add_argument("--no-variants", action="store_true", help="leave the other forms of the local steps out")
    args = parser.parse_args()
    works.IN_MEMORY = 2**33
    device = jax.devices()[0]
    results: dict[str, Any] = {"device": f"{device.platform} {device.device_kind}", "jax": jax.__version__}
    for name in args.works:
        results[name] = parts(WORKS[name], args.repeats, sampling=args.sampling, variants=not args.no_variants)
        target = f" (target {TARGETS[name]})" if name in TARGETS else ""
        print(f"{name}{target}: {results[name]}", file=sys.stderr, flush=True)
    if args.sweep:
        results["sweep_of_45_runs"] = of_research()
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
