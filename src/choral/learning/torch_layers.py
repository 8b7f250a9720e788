"""Layers of PyTorch: which mix rows and are refused, and which have the gradients of single rows in closed form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from choral.core.errors import ConfigError

if TYPE_CHECKING:
    from choral.learning.torch_steps import TorchModule

# What each layer that can't be trained row by row is to be replaced by.
_MIXES = "It takes means over the rows of a batch, so a row alone has no gradient."
_DRAWS = "It draws its own random numbers, which no seed of a run repeats. The noise of the plan regularises already."
REFUSED: tuple[tuple[type[nn.Module], str, str], ...] = (
    (nn.modules.batchnorm._BatchNorm, _MIXES, "nn.GroupNorm, or nn.LayerNorm"),
    (nn.modules.dropout._DropoutNd, _DRAWS, "nn.Identity"),
    (nn.RReLU, _DRAWS, "nn.LeakyReLU"),
)

# Layers without parameters that treat every number, or every row, by itself.
ELEMENTWISE = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh,
               nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardtanh, nn.Hardswish, nn.Identity)  # fmt: skip
LONGEST_INPUT = 2.0**60  # of a dense layer
BY_ROW = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d, nn.Flatten, nn.Unflatten)


def refuse_layers(module: nn.Module) -> None:
    """CH107 for a layer that mixes rows or draws random numbers, with its name and what to put in its place."""
    for name, layer in module.named_modules():
        tracked = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        for kind, why, instead in REFUSED:
            harmless = getattr(layer, "p", None) == 0
            if tracked or (isinstance(layer, kind) and not harmless):
                found = f'the layer "{name or type(layer).__name__}" is a {type(layer).__name__}.'
                wanted = "track_running_stats=False" if tracked else f"{instead} in its place"
                raise ConfigError("CH107", found, why=_MIXES if tracked else why, fix=f"Use {wanted}.")
    for name, one in module.named_parameters():
        if one.dtype != torch.float32:
            raise ConfigError(
                "CH107", f'the parameter "{name}" is {one.dtype}.', fix="Use float32: module.float()."
            )  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One layer of a stack, and where its weight and its bias stand among the trained parameters."""

    module: nn.Module
    weight: int | None = None
    bias: int | None = None


@dataclass(frozen=True)
class Stack:
    """Layers one after the other, each of them known, so that no row can mix with another.

    The gradient of a dense layer is the outer product of its input a and the slope b at its output: its norm is
    ‖a‖‖b‖, and the clipped sum is one matrix product. The gradient of a convolution is, for each row, the product of
    its patches and its slopes, which is computed for all rows at once.
    """

    layers: tuple[Layer, ...]
    lanes: bool  # whether several devices can be computed in one product: only dense layers can

    def clipped_sums(
        self, module: "TorchModule", flats: Tensor, rows: Tensor, labels: Tensor, used: Tensor, clip: float
    ) -> Tensor:
        """Each lane's clipped sum over one piece."""
        if self.lanes:
            return self._sums(module, module.tree(flats), rows, labels, used, clip)
        lanes = zip(flats, rows, labels, used, strict=True)
        return torch.stack([self._sums(module, module.tree(one), x, y, some, clip) for one, x, y, some in lanes])

    def _sums(
        self, module: "TorchModule", tree: Sequence[Tensor], rows: Tensor, labels: Tensor, used: Tensor, clip: float
    ) -> Tensor:
        with torch.enable_grad():
            trained, inputs, ends, outputs = self._forward(tree, rows)
            lost = module.total_loss(outputs.flatten(0, -2), labels.flatten())
            slopes = torch.autograd.grad(lost, ends)
        parts = [_part(layer, a, b) for layer, a, b in zip(trained, inputs, slopes, strict=True)]
        squares = torch.stack([part.squares() for part in parts]).sum(dim=0)
        factor = clip_factor(squares.sqrt(), used, clip)
        sums = {place: one for part in parts for place, one in part.sums(factor)}
        return torch.cat([sums[place].flatten(1 if self.lanes else 0) for place in sorted(sums)], dim=-1)

    def _forward(self, tree: Sequence[Tensor], rows: Tensor) -> tuple[list[Layer], list[Tensor], list[Tensor], Tensor]:
        """The trained layers, what goes into each, what comes out of it, and the outputs of the stack."""
        trained, inputs, ends, here = [], [], [], rows
        for layer in self.layers:
            if layer.weight is None:
                # A layer that writes over its input would write over what another layer has given.
                here = layer.module(here.clone() if getattr(layer.module, "inplace", False) else here)
                continue
            weight, bias = tree[layer.weight], None if layer.bias is None else tree[layer.bias]
            inputs.append(here.detach())
            here = _applied(layer.module, here, weight, bias, lanes=self.lanes)
            if not here.requires_grad:
                here.requires_grad_()  # the first one: all slopes behind it are wanted, none ahead of it
            trained.append(layer)
            ends.append(here)
        return trained, inputs, ends, here


def clip_factor(norms: Tensor, used: Tensor, clip: float) -> Tensor:
    """min(1, G/norm) in float32 for each norm in float64; 0 for a row that is not used or has no finite gradient.

    >>> clip_factor(torch.tensor([0.0, 4.0, torch.nan]).double(), torch.tensor([True] * 3), 1.0).tolist()
    [1.0, 0.25, 0.0]
    """
    if clip == float("inf"):
        return (used & (norms < torch.inf)).float()
    return in_float32(torch.where(used, (clip / norms).clamp(max=1.0), 0.0))


def in_float32(factors: Tensor) -> Tensor:
    """Factors in float32, and 0 for those that it would round by more than half of its last digit.

    Below 2^-126 float32 has fewer digits. A factor there is rounded by up to its own size, and the gradient that it
    shortens, which is as much longer, would exceed the clip.

    >>> in_float32(torch.tensor([0.5, 1e-44]).double()).tolist()
    [0.5, 0.0]
    """
    return torch.where(factors >= torch.finfo(torch.float32).tiny, factors, 0.0).float()


def _applied(module: nn.Module, rows: Tensor, weight: Tensor, bias: Tensor | None, *, lanes: bool) -> Tensor:
    if isinstance(module, nn.Conv2d):
        return functional.conv2d(rows, weight, bias, module.stride, module.padding, module.dilation)
    if not lanes:
        return functional.linear(rows, weight, bias)
    turned = weight.transpose(-1, -2)
    return torch.bmm(rows, turned) if bias is None else torch.baddbmm(bias[:, None], rows, turned)


@dataclass(frozen=True)
class DensePart:
    """A dense layer's part of the gradients: a is (…, rows, fan), b is (…, rows, out)."""

    layer: Layer
    a: Tensor
    b: Tensor

    def squares(self) -> Tensor:
        """The squared norm of each row's part, in float64."""
        of_a = torch.linalg.vector_norm(self.a, dim=-1, dtype=torch.float64).square()
        # b times its factor is rounded to 2^-149 at best, and a multiplies that: of a longer a the row has no say.
        of_a = torch.where(of_a <= LONGEST_INPUT**2, of_a, torch.inf)
        of_b = torch.linalg.vector_norm(self.b, dim=-1, dtype=torch.float64).square()
        return (of_a if self.layer.bias is None else of_a + 1) * of_b

    def sums(self, factor: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(place among the parameters, clipped sum) of the weight and of the bias."""
        counted = factor[..., None] > 0
        scaled = torch.where(counted, self.b * factor[..., None], 0)
        assert self.layer.weight is not None  # noqa: S101 - only layers with weights are trained
        yield self.layer.weight, scaled.transpose(-1, -2) @ torch.where(counted, self.a, 0)
        if self.layer.bias is not None:
            yield self.layer.bias, scaled.sum(dim=-2)


@dataclass(frozen=True)
class RowsPart:
    """A convolution's gradients, one for each row."""

    layer: Layer
    weights: Tensor  # (rows, out, fan)
    biases: Tensor  # (rows, out)

    def squares(self) -> Tensor:
        """The squared norm of each row's part, in float64."""
        found = torch.linalg.vector_norm(self.weights.flatten(1), dim=1, dtype=torch.float64).square()
        if self.layer.bias is None:
            return found
        return found + torch.linalg.vector_norm(self.biases, dim=1, dtype=torch.float64).square()

    def sums(self, factor: Tensor) -> Iterator[tuple[int, Tensor]]:
        """(place among the parameters, clipped sum) of the weight and of the bias."""
        counted = factor[:, None] > 0
        assert self.layer.weight is not None  # noqa: S101 - only layers with weights are trained
        yield self.layer.weight, factor @ torch.where(counted, self.weights.flatten(1), 0)
        if self.layer.bias is not None:
            yield self.layer.bias, factor @ torch.where(counted, self.biases, 0)


def _part(layer: Layer, a: Tensor, b: Tensor) -> DensePart | RowsPart:
    module = layer.module
    if isinstance(module, nn.Linear):
        return DensePart(layer, a, b)
    assert isinstance(module, nn.Conv2d)  # noqa: S101 - the only other kind with weights
    patches = functional.unfold(a, module.kernel_size, module.dilation, module.padding, module.stride)
    slopes = b.flatten(2)
    return RowsPart(layer, torch.bmm(slopes, patches.transpose(1, 2)), slopes.sum(dim=2))


def stack_of(module: nn.Module, names: Sequence[str], axes: int = 1) -> Stack | None:
    """The module as a stack of known layers, or None where it has another form, or a layer of another kind.

    `axes` is how many axes a row has.

    >>> stack_of(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), ["0.weight", "0.bias", "2.weight"]) is None
    True
    """
    if type(module) is not nn.Sequential or any(map(_changed, module.modules())):
        return None
    places = {name: place for place, name in enumerate(names)}
    leaves = list(_leaves(module))
    parameters = [id(parameter) for _, one in leaves for parameter in one.parameters()]
    if len(set(parameters)) < len(parameters):
        return None  # a layer stands there twice, or two layers share a weight: their gradients add up
    layers = [_layer(name, one, places) for name, one in leaves]
    known = [layer for layer in layers if layer is not None]
    trained = [layer for layer in known if layer.weight is not None]
    covered = {place for layer in trained for place in (layer.weight, layer.bias) if place is not None}
    if len(known) < len(layers) or covered != set(places.values()) or not trained:
        return None
    lanes = all(isinstance(layer.module, (nn.Linear, *ELEMENTWISE)) for layer in known) and len(trained) == sum(
        isinstance(layer.module, nn.Linear) for layer in known
    )  # fmt: skip
    flat = all(_takes_flat_rows(known, place, axes) for place, layer in enumerate(known) if layer.weight is not None)
    return Stack(tuple(known), lanes=lanes) if flat else None


def _changed(module: nn.Module) -> bool:
    """Whether a layer does more than its class says: it has hooks, or a forward that somebody put into its place."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)


def _leaves(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, one in module._modules.items():
        if one is None:
            continue
        if type(one) is nn.Sequential:
            yield from _leaves(one, f"{path}{name}.")
        else:
            yield f"{path}{name}", one


def _layer(name: str, module: nn.Module, places: dict[str, int]) -> Layer | None:
    """A layer of a stack, or None where its gradients have no closed form here."""
    weight, bias = places.get(f"{name}.weight"), places.get(f"{name}.bias")
    if type(module) in (*ELEMENTWISE, *BY_ROW):
        whole = not isinstance(module, nn.Flatten) or (module.start_dim, module.end_dim) == (1, -1)
        within = not isinstance(module, nn.Unflatten) or (isinstance(module.dim, int) and module.dim > 0)
        return Layer(module) if whole and within else None
    if type(module) is nn.Conv2d and not (
        (module.padding_mode, module.groups) == ("zeros", 1) and not isinstance(module.padding, str)
    ):
        return None
    if type(module) not in (nn.Linear, nn.Conv2d):
        return None
    whole = weight is not None and (bias is not None) == (module.bias is not None)
    frozen = weight is None and bias is None
    return Layer(module, weight, bias) if whole else Layer(module) if frozen else None


def _takes_flat_rows(layers: Sequence[Layer], place: int, axes: int) -> bool:
    """Whether a dense layer's input has one axis for each row: behind a convolution it must have been flattened."""
    if not isinstance(layers[place].module, nn.Linear):
        return True
    for layer in reversed(layers[:place]):
        if isinstance(layer.module, nn.Flatten | nn.Linear):
            return True
        if not isinstance(layer.module, ELEMENTWISE):
            return False
    return axes == 1  # the first layer with weights
