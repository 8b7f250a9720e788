"""Opacus in a federation: each device takes Opacus's own noisy steps on Poisson batches, the server averages.

Reads one JSON object from stdin: a file with the rows, the split, the cohorts and the start, and the noise or the
budget. Writes one: the test accuracy, the noise in clips, and ε by Opacus's accountant (one record added or removed).
"""

import json
import sys
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.accountants import PRVAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.optimizers import DPOptimizer
from torch import nn


def network(layers: list[int], start: np.ndarray) -> nn.Sequential:
    """A dense stack with ReLU between layers, from the flat start: each layer's weights [in, out], then its biases."""
    parts: list[nn.Module] = []
    at = 0
    for fan, out in pairwise(layers):
        layer = nn.Linear(fan, out)
        layer.weight.data.copy_(torch.from_numpy(start[at : at + fan * out].reshape(fan, out).T))
        layer.bias.data.copy_(torch.from_numpy(start[at + fan * out : at + (fan + 1) * out]))
        at += (fan + 1) * out
        parts += [layer, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def train(asked: dict[str, Any], data: Any, noise: float) -> nn.Module:  # noqa: ANN401
    """The averaged model after all rounds."""
    model = network(asked["layers"], data["start"])
    private = GradSampleModule(model)
    optimizer = DPOptimizer(
        torch.optim.SGD(private.parameters(), lr=asked["step_size"]),
        noise_multiplier=noise,
        max_grad_norm=asked["clip"],
        expected_batch_size=asked["batch"],
        generator=torch.Generator().manual_seed(asked["seed"]),
    )
    draw = torch.Generator().manual_seed(asked["seed"] + 1)
    weights = list(model.parameters())
    shared = [weight.detach().clone() for weight in weights]
    features, labels = torch.from_numpy(data["features"]), torch.from_numpy(data["labels"]).long()
    for cohort in asked["cohorts"]:
        sums = [torch.zeros_like(weight) for weight in shared]
        for device in cohort:
            first, last = data["offsets"][device], data["offsets"][device + 1]
            with torch.no_grad():
                torch._foreach_copy_(weights, shared)
            for _ in range(asked["steps"]):
                chosen = first + torch.nonzero(torch.rand(int(last - first), generator=draw) < asked["rate"])[:, 0]
                optimizer.zero_grad()
                nn.functional.cross_entropy(private(features[chosen]), labels[chosen]).backward()
                optimizer.step()
            with torch.no_grad():
                torch._foreach_add_(sums, weights)
        shared = torch._foreach_div(sums, float(len(cohort)))
    with torch.no_grad():
        torch._foreach_copy_(weights, shared)
    return model


def main() -> None:
    warnings.simplefilter("ignore")  # Opacus warns that its noise is not cryptographic; here it is a simulation
    torch.set_num_threads(1)
    asked = json.load(sys.stdin)
    data = np.load(asked["file"])
    steps = asked["most_rounds"] * asked["steps"]
    noise = asked["noise_multiplier"] or get_noise_multiplier(
        target_epsilon=asked["epsilon"],
        target_delta=asked["delta"],
        sample_rate=asked["rate"],
        steps=steps,
        accountant="prv",
    )
    model = train(asked, data, noise)
    accountant = PRVAccountant()
    accountant.history = [(noise, asked["rate"], steps)]
    with torch.no_grad():
        reported = model(torch.from_numpy(data["test_features"])).argmax(1).numpy()
    found = {
        "accuracy": float((reported == data["test_labels"]).mean()),
        "noise_multiplier": noise,
        "epsilon_add_or_remove": accountant.get_epsilon(delta=asked["delta"]),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
