"""Models from other frameworks, images and frozen encoders: `python -m bench.models [--quick] [--json]`.

- `torch_adult_vs_opacus_loop`: a round of Adult's network with 10 devices by `choral.torch`, compared with Opacus.
- `cnn_vs_opacus_loop`, `cnn_vs_vmap_grad`: a round of a LeNet-like network on 28 × 28 images with 100 devices, by the
  built-in `kind = "cnn"`, compared with Opacus and with the gradients of single rows by `vmap(grad)`.
- `head_minus_whole_points`: percentage points by which a convex head on a frozen public encoder is above a network
  that is trained whole, on digits at the same ε.

Both sides of a ratio do the same work in turns, in one run, on the same two cores, as in `bench.engine`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.engine import machine
from bench.harness import Contender, Figure, NoFigureError, ratio, take_turns
from bench.work import ADULT_MLP, Work

if TYPE_CHECKING:
    from choral.front import Trained

LENET = Work(devices=400, fewest_rows=100, most_rows=100, layers=(784, 10), cohort=100, steps=2, batch=32)
EPSILON, DELTA, DEVICES = 1.0, 1e-4, 5
PUBLIC = 0.4  # the share of the digits that is taken for public: the encoder is trained on it, and nothing else is
SIZES = (48, 24)  # of the encoder's hidden layers; the last one is the embedding


def compared(ours: tuple[str, ...], peer: tuple[str, ...], work: Work, *, rounds: int, repeats: int,
           environment: str | None = None, share: int = 1) -> dict[str, Any]:  # fmt: skip
    """How many times the peer takes our time; with `share` > 1 its loop is timed on that part of the cohort."""
    try:
        with Contender(*ours) as mine, Contender(*peer, environment=environment) as other:
            mine.prepare(work)
            other.prepare(work.but(cohort=work.cohort // share))
            figures = take_turns([(mine, rounds), (other, 1)], repeats)
    except NoFigureError as reason:
        return {"times": None, "reason": str(reason)}
    own, theirs = figures
    theirs = Figure(wall=tuple(share * s for s in theirs.wall), cpu=tuple(share * s for s in theirs.cpu))
    return {**ratio(theirs, own), "ours": own.to_dict(), "peer": theirs.to_dict(), "scaled_by": share}


def torch_adult(form: str, repeats: int) -> dict[str, Any]:
    """Adult's network in PyTorch, compared with Opacus."""
    return compared(
        ("ours_torch", "dense"), ("opacus", form), ADULT_MLP, rounds=3, repeats=repeats, environment="opacus"
    )


def cnn_beside_opacus(form: str, repeats: int) -> dict[str, Any]:
    """The built-in convolutional network, compared with Opacus."""
    return compared(("ours_cnn", "closed"), ("opacus_lenet", form), LENET, rounds=1, repeats=repeats,
                  environment="opacus", share=5)  # fmt: skip


def torch_lenet_beside_opacus(repeats: int) -> dict[str, Any]:
    """The same network in PyTorch, compared with Opacus."""
    return compared(("ours_torch", "lenet"), ("opacus_lenet", "hooks"), LENET, rounds=1, repeats=repeats,
                  environment="opacus", share=5)  # fmt: skip


def cnn_beside_mapped(repeats: int) -> dict[str, Any]:
    """The built-in convolutional network, compared with `vmap(grad)` of the same network, in its faster form."""
    forms = ("vmap_grad", "vmap_patches")
    found = {form: compared(("ours_cnn", "closed"), ("ours_cnn", form), LENET, rounds=1, repeats=repeats, share=10)
             for form in forms}  # fmt: skip
    least = min((one for one in found.values() if one["times"] is not None), key=lambda one: one["times"], default=None)
    return {**(least or found[forms[0]]), "forms": {form: one["times"] for form, one in found.items()}}


def digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Images of 8 × 8 as 64 numbers in −1…1, and their labels."""
    from bench.real_tables import digits as table

    frame = table().frame
    pixels = frame.drop(columns="target").to_numpy(np.float32) / 8 - 1
    return pixels, frame["target"].to_numpy(np.int32)


def encoder(rows: NDArray[np.float32], labels: NDArray[np.int32]) -> Callable[[NDArray[np.float32]], NDArray[Any]]:
    """Embeddings of a network that is trained on public rows, without any noise; their numbers lie in −1…1."""
    from choral.learning.converged import converged
    from choral.learning.models import mlp
    from choral.tables.records import Records

    model, cut = mlp(rows.shape[1], SIZES, 10), len(labels) * 4 // 5
    parts = [("public", rows[some], labels[some]) for some in (slice(0, cut), slice(cut, None))]
    tree = model.unravel(converged(model, *(Records.of([part], classes=10) for part in parts)))  # type: ignore[arg-type]
    (first, bias), (second, shift), _ = [[np.asarray(part) for part in layer] for layer in tree]

    def embed(given: NDArray[np.float32]) -> NDArray[Any]:
        hidden = np.maximum(np.maximum(given @ first + bias, 0) @ second + shift, 0)
        return hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), 1e-6)

    return embed


def head_minus_whole(seeds: int) -> dict[str, Any]:
    """Accuracy of a head on a frozen encoder, and of a network trained whole, on the same private rows at ε = 1."""
    from choral import simulate

    try:
        pixels, labels = digits()
    except NoFigureError as reason:
        return {"points": None, "reason": str(reason)}
    heads, wholes, terms = [], [], {}
    for seed in range(1, seeds + 1):
        order = np.random.default_rng([seed, 0xE4C]).permutation(len(labels))
        public, private = np.split(order, [int(PUBLIC * len(order))])
        embed = encoder(pixels[public], labels[public])
        budget = {"epsilon": EPSILON, "delta": DELTA, "devices": DEVICES, "cohort": DEVICES, "seed": seed,
                  "against": "server and colluders"}  # fmt: skip
        rows, answers = pixels[private], labels[private]
        head = simulate((embed(rows).astype(np.float32), answers), model="logistic", row_length=2.0**0.5,
                        noise_is_added="once", **budget)  # fmt: skip
        whole = simulate((rows, answers), model="mlp", hidden=list(SIZES), **budget)
        heads.append(head.test["accuracy"])
        wholes.append(whole.test["accuracy"])
        terms = {"head": _terms(head), "whole": _terms(whole)}
    points = 100 * (np.array(heads) - np.array(wholes))
    return {"points": round(float(points.mean()), 1), "head": heads, "whole": wholes, "seeds": seeds,
            "epsilon": EPSILON, "delta": DELTA, "terms": terms}  # fmt: skip


def _terms(result: "Trained") -> str:
    """What the ε of a run holds for: its rule, its adjacency and its adversary."""
    claim = result.privacy.with_secure_sum
    assert claim is not None and claim.epsilon <= EPSILON  # the limit was against sums
    return f"rule {claim.rule}, {result.privacy.adjacency}, against {claim.adversary}"


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {  # a part of the results -> how it is measured, quickly or not
    "torch_adult_vs_opacus_loop": lambda _: torch_adult("hooks", 15),
    "cnn_vs_opacus_loop": lambda quick: cnn_beside_opacus("hooks", 2 if quick else 5),
    "cnn_vs_vmap_grad": lambda quick: cnn_beside_mapped(2 if quick else 5),
    "head_minus_whole_points": lambda _: head_minus_whole(5),
}
MORE: dict[str, Callable[[bool], dict[str, Any]]] = {
    "torch_adult_vs_opacus_ghost": lambda _: torch_adult("ghost", 7),
    "cnn_vs_opacus_ghost": lambda _: cnn_beside_opacus("ghost", 5),
    "torch_lenet_vs_opacus_loop": lambda _: torch_lenet_beside_opacus(5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the four headline figures only, with fewer repeats")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--only", nargs="*", choices=[*PARTS, *MORE], help="measure these parts only")
    args = parser.parse_args()
    start, before, details = time.perf_counter(), machine(), {}
    for name, part in (PARTS if args.quick and args.only is None else {**PARTS, **MORE}).items():
        if args.only is None or name in args.only:
            details[name] = part(args.quick)
            print(f"{name}: {json.dumps(details[name])}", file=sys.stderr, flush=True)
    headline = {name: one.get("times", one.get("points")) for name, one in details.items()}
    results = {**headline, "details": details, "machine": before, "seconds": round(time.perf_counter() - start, 1)}
    if args.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
