"""The networks of a work in PyTorch, for every contender that trains with it."""

import torch
from torch import nn

from bench.work import Work, first_weights


def dense_net(work: Work) -> nn.Sequential:
    """The work's network with its first weights."""
    parts: list[nn.Module] = []
    for weights, biases in first_weights(work):
        layer = nn.Linear(*weights.shape)
        layer.weight.data.copy_(torch.from_numpy(weights.T))
        layer.bias.data.copy_(torch.from_numpy(biases))
        parts += [layer, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def lenet() -> nn.Sequential:
    """Two convolutions of 5 × 5 with pooling, then three dense layers, for images of 28 × 28."""
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5, padding=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(784, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
