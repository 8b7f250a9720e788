"""Five sites learn digits through a frozen public encoder: a small head at ε = 1 in place of a whole network."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from onnx import helper, numpy_helper, save
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import choral

PUBLIC, CLUSTERS, SHARPNESS = 600, 16, 0.5
BUDGET = {"devices": 5, "epsilon": 1.0, "delta": 1e-5, "against": "server and colluders", "test": 0.25}


def images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Public images without labels, and the sites' own images and labels; no image is in both."""
    rows, labels = load_digits(return_X_y=True)
    rows, order = (rows / 8 - 1).astype(np.float32), np.random.default_rng(0).permutation(len(rows))
    return rows[order[:PUBLIC]], rows[order[PUBLIC:]], labels[order[PUBLIC:]]


def encoder(public: np.ndarray) -> str:
    """An ONNX file that says how near an image is to each of 16 centres, which are found among public images alone."""
    centres = KMeans(CLUSTERS, n_init=10, random_state=0).fit(public).cluster_centers_
    weights = {"W": 2 * SHARPNESS * centres.T, "b": -SHARPNESS * np.square(centres).sum(axis=1)}
    nodes = [helper.make_node("Gemm", ["x", "W", "b"], ["n"]), helper.make_node("Softmax", ["n"], ["embedding"])]
    values = [helper.make_tensor_value_info(name, 1, ["rows", n]) for name, n in (("x", 64), ("embedding", CLUSTERS))]
    arrays = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "centres", values[:1], values[1:], arrays)
    path = Path(mkdtemp()) / "centres.onnx"
    save(helper.make_model(graph, ir_version=7, opset_imports=[helper.make_opsetid("", 13)]), path)
    return f"onnx:{path}"


def head(seed: int, **settings: object) -> choral.Trained:
    """Logistic regression on the 16 embeddings of each image; `row_length` is declared, as the range is."""
    public, rows, labels = images()
    frozen = {"encoder": encoder(public), "embedding_bounds": [-1, 1], "row_length": 1.5, "noise_is_added": "once"}
    return choral.simulate((rows, labels), **{**BUDGET, **frozen, "seed": seed, **settings})


def main() -> dict[str, object]:
    """The accuracy of the head and of a network trained whole, after each round, at the same ε."""
    _, rows, labels = images()
    whole = choral.simulate((rows, labels), model="mlp", hidden=[32], seed=1, **BUDGET)
    found = {"head on an encoder": head(1), "network, trained whole": whole}
    rules = " and ".join(f"{name} by rule {one.privacy.with_secure_sum.rule}" for name, one in found.items())
    claim = whole.privacy.with_secure_sum
    return {
        "title": "Digits at five sites", "x": "round", "y": "test accuracy", "anchors": {},
        "lines": {name: [(line.round, line.test["accuracy"]) for line in one.history] for name, one in found.items()},
        "claim": f"ε ≤ {claim.epsilon:.2f}, δ = 1e-5, {whole.privacy.adjacency}, against {claim.adversary}: {rules}",
    }  # fmt: skip


if __name__ == "__main__":
    print(main())
