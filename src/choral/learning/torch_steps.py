"""Local steps in PyTorch: gradients of single rows, clipped and added in the pieces that the proofs count on.

Layers that mix rows are refused. A stack of known layers has the gradients of its rows in closed form.

docs/accounting.md, "Arithmetic", says what is rounded where. Norms are taken in float64. A piece of a batch is added in
float32, and pieces are added in float64. Batches have one shape, whatever they hold, so that no row's gradient depends
on which others were drawn.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.functional import cross_entropy

from choral.core.errors import ConfigError, TrainingError
from choral.core.plan import COUNT_LENGTH, LARGEST_LOG_CLIP
from choral.learning import rounding
from choral.learning.batches import Batches
from choral.learning.models import Model
from choral.learning.recipe import Recipe, TracedNumbers
from choral.tables.records import Labels

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


Loss = Callable[[Tensor, Tensor], Tensor]
Floats = NDArray[np.float32]


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for each call: devices run side by side, and sums have the same bits wherever they are computed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.autocast("cpu", enabled=False):  # products in full: gradients of length G are made and added here
            yield
    finally:
        torch.set_num_threads(before)


def require_full_products() -> None:
    """Nothing, or CH107 where this process lets PyTorch shorten the factors of products.

    >>> require_full_products()
    """
    # PyTorch 2.9 and later has one setting for each kind of processor; before, there is one for all.
    of_processor = getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", None)
    if of_processor in ("bf16", "tf32") or (of_processor is None and torch.get_float32_matmul_precision() != "highest"):
        raise ConfigError(
            "CH107",
            "PyTorch is set to shorten the factors of float32 products.",
            why="Then one record could move a sum by more than the noise is made for.",
            fix='Call torch.set_float32_matmul_precision("highest").',
        )


class TorchModule:
    """A module as a function of a flat vector of parameters: `learning.models.OtherFramework` in PyTorch."""

    def __init__(self, module: nn.Module, loss: Loss, *, classes: int, axes: int = 1) -> None:
        refuse_layers(module)
        self.names = [name for name, one in module.named_parameters() if one.requires_grad]
        self.module, self.loss, self.classes = (
            copy.deepcopy(module).cpu().train(False).requires_grad_(False),
            loss,
            classes,
        )
        own = dict(self.module.named_parameters())
        self.shapes = [own[name].shape for name in self.names]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.size = sum(self.sizes)
        self.stack: Stack | None = stack_of(self.module, self.names, axes)
        self._copies = threading.local()

    def __repr__(self) -> str:
        return f"TorchModule({type(self.module).__name__}, {self.size:,} parameters)"

    @property
    def _mine(self) -> nn.Module:
        """The module, one copy for each thread: a call with other parameters puts them into it for a while."""
        if not hasattr(self._copies, "module"):
            self._copies.module = copy.deepcopy(self.module)
        found: nn.Module = self._copies.module
        return found

    def start(self, seed: int | None) -> list[Floats]:
        """The module's own weights, or those that its layers draw from this seed."""
        found = dict((self.module if seed is None else self._drawn(seed)).named_parameters())
        return [found[name].detach().numpy().copy() for name in self.names]

    def _drawn(self, seed: int) -> nn.Module:
        """The module with weights drawn from this seed; CH107 for a weight that no layer draws."""
        drawn = copy.deepcopy(self.module)
        own = dict(drawn.named_parameters())
        for name in self.names:  # what it was must not be the start: nobody has said that it is public
            own[name].fill_(torch.nan)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for layer in drawn.modules():
                reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
                if callable(reset) and any(True for _ in layer.parameters()):
                    reset()
        if left := next((name for name in self.names if torch.isnan(own[name]).any()), None):
            raise ConfigError(
                "CH107",
                f'the parameter "{left}" is drawn by no reset_parameters.',
                why="Training would start from what it is now, whatever rows that came from.",
                fix="Give its layer a reset_parameters, or keep_weights=True for weights that are public.",
            )
        return drawn

    def trained(self, parameters: Floats) -> nn.Module:
        """A module as it was given, in evaluation mode, with these parameters."""
        made = copy.deepcopy(self.module)
        own = dict(made.named_parameters())
        for name, part in zip(self.names, self.tree(torch.tensor(parameters)), strict=True):
            own[name].copy_(part)
        return made

    def tree(self, flats: Tensor) -> list[Tensor]:
        """The parameters in their shapes; of several lanes, with the lanes first."""
        parts = flats.split(self.sizes, dim=-1)
        return [part.view(*flats.shape[:-1], *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def losses_of(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of each row by itself."""

        def one(output: Tensor, label: Tensor) -> Tensor:
            # One output is a number, or the score of class 1: it stands alone, and its label is a number too.
            alone = output.shape[-1] == 1
            found = self.loss(output if alone else output[None], label.float()[None] if alone else label[None])
            return found.sum() if found.numel() == 1 else _refuse_loss(found)

        return vmap(one)(outputs, labels)

    def total_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the rows' losses."""
        plain = self.loss is cross_entropy or (type(self.loss) is nn.CrossEntropyLoss and _usual(self.loss))
        if plain and outputs.shape[-1] > 1:  # one call for all rows, and the same sum
            return cross_entropy(outputs, labels, reduction="sum")
        return self.losses_of(outputs, labels).sum()

    def outputs(self, parameters: Floats, rows: Floats) -> Floats:
        """A row of outputs for each row."""
        with one_thread(), torch.no_grad():
            found: Floats = self._outputs(torch.from_numpy(np.array(parameters)), torch.from_numpy(rows)).numpy()
        return found

    def losses(self, parameters: Floats, rows: Floats, labels: Labels) -> Floats:
        """The loss of each row."""
        with one_thread(), torch.no_grad():
            outputs = self._outputs(torch.from_numpy(np.array(parameters)), torch.from_numpy(rows))
            found: Floats = self.losses_of(outputs, self.as_labels(labels)).numpy()
        return found

    def gradient(self, parameters: Floats, rows: Floats, labels: Labels, weights: Floats) -> Floats:
        """The gradient of the weighted sum of the rows' losses."""
        with one_thread():
            flat = torch.from_numpy(np.array(parameters, dtype=np.float32)).requires_grad_()
            lost = self.losses_of(self._outputs(flat, torch.from_numpy(rows)), self.as_labels(labels))
            found: Floats = torch.autograd.grad(lost @ torch.from_numpy(weights), flat)[0].numpy()
        return found

    def check_closed_form(self, parameters: Floats, rows: Floats, labels: Labels, total: Floats) -> None:
        """Keep the closed form only if its sum is the gradient of all rows, and a clipped row as long as the clip."""
        if self.stack is None:
            return
        one = torch.from_numpy(np.array(parameters))[None], torch.from_numpy(rows)[None], self.as_labels(labels)[None]
        used = torch.ones((1, len(rows)), dtype=torch.bool)
        clip = 0.5 * float(np.linalg.norm(total)) / len(rows)
        with one_thread(), torch.no_grad():
            whole = self.clipped_sums(*one, used, float("inf"))[0].numpy()
            each = [self.clipped_sums(*one, used & (torch.arange(len(rows)) == row), clip) for row in range(len(rows))]
        longest = max(float(torch.linalg.vector_norm(sum_)) for sum_ in each)
        if not (np.allclose(whole, total, rtol=1e-3, atol=1e-4) and abs(longest - clip) <= 1e-3 * clip):
            self.stack = None

    def check_mapped(self, parameters: Floats, rows: Floats, labels: Labels) -> None:
        """Nothing, or what torch.func says of a module whose gradients it can't map over rows."""
        if self.stack is None:
            used = torch.ones(len(rows), dtype=torch.bool)
            with one_thread(), torch.no_grad():
                self._mapped(torch.from_numpy(parameters), torch.from_numpy(rows), self.as_labels(labels), used, 1.0)

    def as_labels(self, labels: Labels) -> Tensor:
        """Labels as PyTorch's losses take them."""
        return torch.from_numpy(labels.astype(np.int64 if self.classes else np.float32))

    def _outputs(self, flat: Tensor, rows: Tensor) -> Tensor:
        found: Tensor = functional_call(self._mine, self._named(self.tree(flat)), (rows,))
        return found

    def _named(self, tree: Sequence[Tensor]) -> dict[str, Tensor]:
        """What a call of the module reads: these parameters, and copies of its buffers, which it can't keep."""
        buffers = {name: one.clone() for name, one in self.module.named_buffers()}
        return {**buffers, **dict(zip(self.names, tree, strict=True))}

    @property
    def kept(self) -> list[object]:
        """What the module of this thread holds without parameters and buffers; it must be the same after a call."""
        names = ("_parameters", "_buffers", "_modules")
        held = [(key, value) for one in self._mine.modules() for key, value in vars(one).items() if key not in names]
        return [
            (key, id(value), tuple(map(id, value)) if isinstance(value, list | dict | set) else ())
            for key, value in held
        ]

    def clipped_sums(self, flats: Tensor, rows: Tensor, labels: Tensor, used: Tensor, clip: float) -> Tensor:
        """Each lane's sum over the used rows of one piece, every row's gradient scaled to a norm of at most the clip.

        A stack of known layers has its products in closed form; any other module by the gradient of one row, mapped.
        """
        if self.stack is not None:
            return self.stack.clipped_sums(self, flats, rows, labels, used, clip)
        return torch.stack([self._mapped(*lane, clip) for lane in zip(flats, rows, labels, used, strict=True)])

    def _mapped(self, flat: Tensor, rows: Tensor, labels: Tensor, used: Tensor, clip: float) -> Tensor:
        def lost(tree: list[Tensor], row: Tensor, label: Tensor) -> Tensor:
            return self.losses_of(functional_call(self._mine, self._named(tree), (row[None],)), label[None])[0]

        leaves = vmap(grad(lost), in_dims=(None, 0, 0))(self.tree(flat), rows, labels)
        gradients = torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
        factor = clip_factor(torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64), used, clip)
        return factor @ torch.where(factor[:, None] > 0, gradients, 0)


def _usual(loss: nn.CrossEntropyLoss) -> bool:
    return loss.weight is None and loss.label_smoothing == 0 and loss.ignore_index < 0


def _refuse_loss(found: Tensor) -> Tensor:
    raise TrainingError(
        "CH701",
        f"the loss has shape {tuple(found.shape)} for one row.",
        fix='Return one number, for example with reduction="mean".',
    )


class TorchTrainer:
    """Lines 5 to 10 of Algorithm 1 in PyTorch, for one device or for several side by side."""

    def __init__(self, model: Model, recipe: Recipe, features: Floats, labels: Labels) -> None:
        require_full_products()
        assert isinstance(model.outside, TorchModule)  # noqa: S101 - choral.torch made the model
        self.model, self.recipe, self.outside = model, recipe, model.outside
        self.features = torch.from_numpy(features if features.flags.writeable else features.copy())
        self.labels = self.outside.as_labels(labels)

    def train(self, parameters: Floats, batches: Batches, noise: NDArray[Any]) -> Floats:
        """θ_i − θ after the recipe's steps on the only device of these batches."""
        update: Floats = self.train_together(parameters, batches, np.zeros(1, np.int64), noise[None])[0]
        return update

    @staticmethod
    def lanes(model: Model) -> int:
        """How many devices one call trains: several where their products are batched, and fit a core's cache."""
        batched = isinstance(model.outside, TorchModule) and model.outside.stack and model.outside.stack.lanes
        return max(1, 2**20 // model.size) if batched else 1

    def train_together(
        self, parameters: Floats, batches: Batches, starts: NDArray[np.int64], noise: NDArray[Any]
    ) -> Floats:
        """The updates of several devices whose rows begin at these places of the features."""
        require_full_products()
        with one_thread(), torch.no_grad():
            updates: Floats = self._updates(torch.from_numpy(np.array(parameters)), batches, starts, noise).numpy()
        return updates

    def _updates(self, given: Tensor, batches: Batches, starts: NDArray[np.int64], noise: NDArray[Any]) -> Tensor:
        recipe, fixed = self.recipe, self.model.fixed or self.model
        numbers = TracedNumbers.of(fixed, recipe, batches.rows.shape[-1])
        drawn = torch.from_numpy(np.array(noise, np.float32))
        start = given[: fixed.size].expand(len(starts), -1)
        eta, share = float(numbers.step_size), float(numbers.share)
        theta = start
        for step in range(recipe.steps):
            total = self._sum(theta, batches.rows[:, step], batches.counts[:, step], starts)
            if recipe.noise:
                total = total + float(numbers.spread) * drawn[:, step].double()
            slopes = total.float()  # noisy: from here on, rounding is post-processing
            if recipe.steps == 1:  # not θ' − θ: at a large θ that loses bits of what is summed with others' updates
                return self._finished(-(eta * share) * slopes, given, numbers, drawn[:, -1])
            theta = theta - eta * (slopes * share)
        return self._finished((theta - start) * float(numbers.weight), given, numbers, drawn[:, -1])

    def _sum(
        self, theta: Tensor, rows: NDArray[np.int32], counts: NDArray[np.int32], starts: NDArray[np.int64]
    ) -> Tensor:
        """Each lane's clipped sum in float64: the pieces are those of the JAX engine, and are added in float64."""
        room = rows.shape[-1]
        pieces, size = rounding.pieces(room, rounding.strict_rows(room) if self.recipe.strict else None)
        used = (np.arange(room) < counts[:, None]) & (rows >= 0)
        places = torch.from_numpy(np.where(used, rows + starts[:, None], starts[:, None]))
        taken, total = torch.from_numpy(used), torch.zeros(theta.shape, dtype=torch.float64)
        for first in range(0, pieces * size, size):
            piece = slice(first, first + size)
            if not used[:, piece].any():
                continue  # adds nothing
            at, chosen = places[:, piece], taken[:, piece]
            total += self.outside.clipped_sums(theta, self.features[at], self.labels[at], chosen, self.recipe.clip)
        return total

    def _finished(self, updates: Tensor, given: Tensor, numbers: TracedNumbers, drawn: Tensor) -> Tensor:
        """The updates as they are, or clipped as a whole and with noise (rule S4)."""
        recipe = self.recipe
        if recipe.update_clip == float("inf"):
            return updates
        lengths = torch.linalg.vector_norm(updates, dim=1, dtype=torch.float64)
        clip = float(numbers.update_clip)
        if recipe.adaptive:  # in units of the clip whose logarithm was sent, with ±λ/2 for whether it is within
            unit = given[-1].double().clamp(-LARGEST_LOG_CLIP, LARGEST_LOG_CLIP).exp()
            factor = in_float32(clip / torch.maximum(lengths, unit))
            within = torch.where(lengths <= unit, COUNT_LENGTH / 2, -COUNT_LENGTH / 2)
            sent = torch.cat([_scaled(updates, factor), within[:, None].float()], dim=1)
        else:
            sent = _scaled(updates, clip_factor(lengths, torch.ones_like(lengths, dtype=torch.bool), clip))
        return sent + float(numbers.update_spread) * drawn if recipe.update_noise else sent


def _scaled(updates: Tensor, factor: Tensor) -> Tensor:
    """Each update times its factor; nothing of one that is not finite."""
    return torch.where(factor[:, None] > 0, updates * factor[:, None], 0)
