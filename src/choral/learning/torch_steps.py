"""Local steps in PyTorch: gradients of single rows, clipped and added in the pieces that the proofs count on.

docs/accounting.md, "Arithmetic", says what is rounded where. Norms are taken in float64. A piece of a batch is added in
float32, and pieces are added in float64. Batches have one shape, whatever they hold, so that no row's gradient depends
on which others were drawn.
"""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from choral.core.errors import ConfigError, TrainingError
from choral.core.plan import COUNT_LENGTH, LARGEST_LOG_CLIP
from choral.learning import rounding
from choral.learning.batches import Batches
from choral.learning.models import Model
from choral.learning.recipe import Recipe, TracedNumbers
from choral.learning.torch_layers import Stack, clip_factor, in_float32, refuse_layers, stack_of
from choral.tables.records import Labels

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
