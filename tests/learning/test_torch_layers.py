"""Which modules have their clipped sums in closed form, and which are mapped over rows."""

import pytest

torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")
from torch import nn  # noqa: E402

from choral.learning.torch_steps import stack_of  # noqa: E402


def stacked(module, axes=1):
    return stack_of(module, [name for name, one in module.named_parameters() if one.requires_grad], axes)


class Shifted(nn.Sequential):
    """A stack by its type, but with its own forward."""

    def forward(self, rows):
        return super().forward(rows) - rows.mean()


DENSE, TIED = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False))
TIED[2].weight = TIED[0].weight


@pytest.mark.parametrize(
    ("module", "axes", "lanes"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), 1, True),
        (nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.GELU()), nn.Linear(3, 2, bias=False)), 1, True),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 2)), 3, False),
        (nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), 2, False),
    ],
)
def test_stacks_of_known_layers_have_a_closed_form(module, axes, lanes):
    assert stacked(module, axes).lanes == lanes


def test_layers_that_do_more_than_their_class_says_are_in_no_stack():
    hooked, replaced, outer = (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(3))
    hooked[1].register_forward_hook(lambda _layer, _given, found: found - found.mean(dim=0))
    replaced[1].forward = lambda rows: rows - rows.mean(dim=0)
    outer.register_forward_pre_hook(lambda _layer, given: (given[0] - given[0].mean(dim=0),))
    assert [stacked(one) for one in (hooked, replaced, outer)] == [None] * 3


@pytest.mark.parametrize(
    ("module", "axes"),
    [
        (Shifted(nn.Linear(4, 2)), 1),  # whatever its forward does
        (nn.Linear(4, 2), 1),
        (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)), 1),
        (nn.Sequential(DENSE, nn.Linear(3, 4), DENSE), 1),  # one layer twice: its gradient is a sum of two
        (TIED, 1),
        (nn.Sequential(nn.Linear(4, 2)), 2),  # rows × places: the gradient of a row is a sum over places
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(4, 2)), 3),
        (nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(2, 2)), 3),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(2, 2)), 3),
        (nn.Sequential(nn.Flatten(0), nn.Linear(4, 2)), 1),  # it would join the rows
        (nn.Sequential(nn.Linear(4, 2), nn.Softmax(0)), 1),  # over the rows
    ],
    ids=lambda one: "" if isinstance(one, int) else type(one).__name__,
)
def test_whatever_might_mix_rows_or_sum_over_places_is_mapped_over_single_rows(module, axes):
    assert stacked(module, axes) is None


def test_an_activation_that_stands_there_twice_is_applied_twice():
    act = nn.ReLU()
    assert len(stacked(nn.Sequential(nn.Linear(4, 3), act, nn.Linear(3, 3), act, nn.Linear(3, 2))).layers) == 5


def test_a_layer_with_only_its_bias_frozen_is_mapped_and_a_frozen_layer_is_not_trained():
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    module[0].bias.requires_grad_(False)
    assert stacked(module) is None
    module[0].weight.requires_grad_(False)
    stack = stacked(module)
    assert [layer.weight for layer in stack.layers] == [None, None, 0] and not stack.lanes
