"""Modules for tests of the door for PyTorch; without the extra, this file and whoever imports it are skipped."""

import pytest

import choral

torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")
nn, functional = torch.nn, torch.nn.functional


def stack(features, classes):
    """Dense layers one after the other: in closed form."""
    net = nn.Sequential(nn.Linear(features, 6), nn.ReLU(inplace=True), nn.Linear(6, classes))
    return choral.torch(net, functional.cross_entropy, features=features, classes=classes)


class Normed(nn.Module):
    """A module with a forward of its own, so its gradients are mapped over rows."""

    def __init__(self, features, classes):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(features, 6), nn.LayerNorm(6), nn.Linear(6, classes)

    def forward(self, rows):
        return self.last(self.norm(torch.tanh(self.first(rows))))


def normed(features, classes):
    return choral.torch(Normed(features, classes), nn.CrossEntropyLoss(), features=features, classes=classes)


def images(features, classes):
    """Convolutions and a dense layer: in closed form."""
    height, width = features
    left = (height // 2 - 2) * (width // 2 - 2)
    net = nn.Sequential(
        nn.Unflatten(1, (1, height)), nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 2, 3, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(2 * left, classes),
    )  # fmt: skip
    return choral.torch(net, functional.cross_entropy, features=features, classes=classes)


def numbers(features, classes):
    """One output, for labels that are numbers."""
    return choral.torch(nn.Sequential(nn.Linear(features, 1)), nn.MSELoss(), features=features, classes=classes)
