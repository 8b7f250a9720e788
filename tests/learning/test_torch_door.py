"""What choral.torch takes and what it refuses, with the layer's name and what to put in its place."""

import builtins

import numpy as np
import pytest

import choral
from choral.core.errors import ConfigError, TrainingError

torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")
from torch import nn  # noqa: E402

LOSS = nn.functional.cross_entropy


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(6), r'CH107 the layer "1" is a BatchNorm1d\. .* Use nn\.GroupNorm, or nn\.LayerNorm'),
        (nn.SyncBatchNorm(6), "SyncBatchNorm"),
        (nn.Sequential(nn.BatchNorm2d(6)), r'the layer "1\.0" is a BatchNorm2d'),
        (nn.InstanceNorm1d(6, track_running_stats=True), "track_running_stats=False"),
        (nn.Dropout(0.5), r"is a Dropout\. It draws .* Use nn\.Identity"),
        (nn.Linear(6, 6).double(), r'the parameter "1\.weight" is torch\.float64'),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, nn.Module) else "",
)
def test_layers_that_mix_rows_are_refused_by_name(layer, message):
    with pytest.raises(ConfigError, match=message):
        choral.torch(nn.Sequential(nn.Linear(4, 6), layer, nn.Linear(6, 2)), LOSS, features=4)


class Centred(nn.Module):
    """It takes off the mean over the batch, which no list of layers knows."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)

    def forward(self, rows):
        return self.inner(rows - rows.mean(dim=0))


def test_a_module_that_mixes_rows_in_its_own_code_is_found_by_trying():
    with pytest.raises(ConfigError, match=r"CH107 .* gives a row another output when other rows are there"):
        choral.torch(Centred(), LOSS, features=4)


class Remembering(nn.Module):
    """It keeps the last rows in an attribute, which no state dict shows, and adds their mean in the next call."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(4, 2), []

    def forward(self, rows):
        self.last.append(1)
        return self.inner(rows) + 1e-4 * len(self.last)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(4, 2), 0

    def forward(self, rows):
        self.calls += 1
        return self.inner(rows)


@pytest.mark.parametrize("module", [Remembering, Counting])
def test_a_module_that_keeps_something_between_calls_is_refused(module):
    with pytest.raises(ConfigError, match=r'CH107 the model "torch" keeps something from one call to the next'):
        choral.torch(module(), LOSS, features=4)


class Scaled(nn.Module):
    """A weight that no layer draws."""

    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 2), nn.Parameter(torch.full((2,), 7.0))

    def forward(self, rows):
        return self.scale * self.inner(rows)


def test_a_weight_that_no_layer_draws_is_not_the_start_unless_it_is_public():
    with pytest.raises(ConfigError, match=r'CH107 the parameter "scale" is drawn by no reset_parameters'):
        choral.torch(Scaled(), LOSS, features=4)
    assert 7.0 in choral.torch(Scaled(), LOSS, features=4, keep_weights=True).start(1)


class Attending(nn.Module):
    """Attention draws its weights in a function with another name."""

    def __init__(self):
        super().__init__()
        self.attention, self.last = nn.MultiheadAttention(2, 1, batch_first=True), nn.Linear(4, 2)

    def forward(self, rows):
        pairs = rows.reshape(-1, 2, 2)
        return self.last(self.attention(pairs, pairs, pairs)[0].flatten(1))


def test_attention_is_drawn_from_the_seed():
    starts = [choral.torch(Attending(), LOSS, features=4).start(3) for _ in range(2)]
    assert np.array_equal(*starts)


@pytest.mark.parametrize(
    ("module", "loss", "message"),
    [
        (nn.Linear(3, 2), LOSS, "does not accept 4 features"),
        (nn.Linear(4, 3), LOSS, r"predicts shape \(5, 3\) for 5 rows"),
        (nn.Linear(4, 2), lambda outputs, _: outputs, r"the loss has shape \(1, 2\) for one row"),
    ],
)
def test_shapes_are_checked_before_anything_is_trained(module, loss, message):
    with pytest.raises(TrainingError, match=f"CH701 .*{message}"):
        choral.torch(module, loss, features=4)


def test_a_closed_form_that_is_not_the_gradient_of_the_module_is_not_used(monkeypatch):
    from choral.learning import torch_steps

    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    assert choral.torch(module, LOSS, features=4).outside.stack is not None
    real = torch_steps.DensePart.sums
    bugs = {
        "squares": lambda self: torch.ones(self.b.shape[:-1]).double(),  # a norm that is wrong
        "sums": lambda self, factor: real(self, 2 * factor),  # a sum that is too long
    }
    for name, bug in bugs.items():
        with monkeypatch.context() as patch:
            patch.setattr(torch_steps.DensePart, name, bug)
            assert choral.torch(module, LOSS, features=4).outside.stack is None


def test_frozen_parameters_stay_and_are_not_sent():
    frozen = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    frozen[0].requires_grad_(False)
    assert choral.torch(frozen, LOSS, features=4).size == 18


def test_weights_are_drawn_from_the_seed_or_kept():
    module = nn.Linear(4, 2)
    drawn, kept = (choral.torch(module, LOSS, features=4, keep_weights=keep) for keep in (False, True))
    assert np.array_equal(drawn.start(1), drawn.start(1)) and not np.array_equal(drawn.start(1), drawn.start(2))
    assert np.array_equal(kept.start(1)[:8], module.weight.detach().numpy().ravel())


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def no_torch(name, *given, **more):
        if name == "torch":
            raise ImportError(name)
        return real(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", no_torch)
    with pytest.raises(ConfigError, match=r"CH106 PyTorch modules need torch\. pip install 'choral\[torch\]'"):
        choral.torch(None, LOSS, features=4)
