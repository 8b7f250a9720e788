"""Opacus, a loop over the cohort: `hooks` (the default), `ghost` clipping, or `engine`, as its tutorial writes it.

`hooks` and `ghost` are leaner than the tutorial: one private model serves all devices, batches are slices of a tensor,
and there is no data loader and no accountant. `engine` has PrivacyEngine make the private model again for each device.
"""

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from bench.peers.nets import dense_net
from bench.work import Work, batches_of, cohort_of, rows_of
from bench.worker import serve

Step = Callable[[torch.Tensor, torch.Tensor], None]


def private_step(work: Work, model: nn.Module, *, ghost: bool) -> Step:
    """One noisy clipped step with Opacus's own parts."""
    settings: dict[str, Any] = {
        "noise_multiplier": work.noise * work.batch / work.clip,  # Opacus counts noise in clips, on the sum
        "max_grad_norm": work.clip,
        "expected_batch_size": work.batch,
    }
    if ghost:
        wrapped: Any = GradSampleModuleFastGradientClipping(model, max_grad_norm=work.clip, use_ghost_clipping=True)
        optimizer: Any = DPOptimizerFastGradientClipping(
            torch.optim.SGD(wrapped.parameters(), lr=work.step_size), **settings
        )
        loss: Any = DPLossFastGradientClipping(wrapped, optimizer, nn.CrossEntropyLoss())
    else:
        wrapped = GradSampleModule(model)
        optimizer = DPOptimizer(torch.optim.SGD(wrapped.parameters(), lr=work.step_size), **settings)
        loss = nn.CrossEntropyLoss()

    def step(features: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss(wrapped(features), labels).backward()
        optimizer.step()

    return step


def best_threads(task: Callable[[], None]) -> None:
    """Leave torch at the number of threads that is fastest for the task: small models lose by a second one."""
    most, took = torch.get_num_threads(), {}
    for threads in {1, most}:
        torch.set_num_threads(threads)
        task()
        start = time.perf_counter()
        for _ in range(10):
            task()
        took[threads] = time.perf_counter() - start
    torch.set_num_threads(min(took, key=took.__getitem__))


def best_threads_for(work: Work, features: torch.Tensor, labels: torch.Tensor) -> None:
    """The same, for a private step of this work."""
    step = private_step(work, dense_net(work), ghost=False)
    best_threads(lambda: step(features[: work.batch], labels[: work.batch]))


def prepare_lean(
    values: dict[str, Any],
    *,
    ghost: bool,
    make: Callable[[Work], nn.Module] = dense_net,
    shape: tuple[int, ...] | None = None,
) -> Callable[[int], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Rounds with one private model, its weights put back before each device; rows of this shape, if one is given."""
    work = Work.from_dict(values)
    rows = rows_of(work)
    features, labels = torch.from_numpy(rows.features), torch.from_numpy(rows.labels).long()
    features = features if shape is None else features.reshape(-1, *shape)
    model = make(work)
    step = private_step(work, model, ghost=ghost)
    weights = list(model.parameters())
    shared = [weight.detach().clone() for weight in weights]
    best_threads(lambda: step(features[: work.batch], labels[: work.batch]))
    done = 0

    def rounds(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        nonlocal shared, done
        for number in range(done, done + count):
            sums = [torch.zeros_like(weight) for weight in shared]
            for batches in torch.from_numpy(batches_of(work, rows, number)):
                with torch.no_grad():
                    torch._foreach_copy_(weights, shared)
                for batch in batches:
                    step(features[batch], labels[batch])
                with torch.no_grad():
                    torch._foreach_add_(sums, weights)
            shared = torch._foreach_div(sums, float(work.cohort))
        done += count
        return [(weight.T, bias) for weight, bias in zip(shared[::2], shared[1::2], strict=True)]

    return rounds


def train_with_engine(work: Work, model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> None:
    """One device's steps as Opacus's and Flower's tutorials write them."""
    private, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=work.step_size),
        data_loader=DataLoader(TensorDataset(features, labels), batch_size=work.batch),
        noise_multiplier=work.noise * work.batch / work.clip,
        max_grad_norm=work.clip,
    )
    steps = 0
    while steps < work.steps:
        for batch_features, batch_labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(batch_features), batch_labels).backward()
            optimizer.step()
            steps += 1
            if steps == work.steps:
                break


def prepare_engine(values: dict[str, Any]) -> Callable[[int], Any]:
    """Rounds in which each device calls PrivacyEngine.make_private, with its Poisson data loader."""
    work = Work.from_dict(values)
    rows = rows_of(work)
    features, labels = torch.from_numpy(rows.features), torch.from_numpy(rows.labels).long()
    shared = [weight.detach().clone() for weight in dense_net(work).parameters()]
    best_threads_for(work, features, labels)
    done = 0

    def device(own: slice) -> list[torch.Tensor]:
        model = dense_net(work)
        weights = list(model.parameters())
        with torch.no_grad():
            torch._foreach_copy_(weights, shared)
        train_with_engine(work, model, features[own], labels[own])
        return [weight.detach() for weight in weights]

    def rounds(count: int) -> list[torch.Tensor]:
        nonlocal shared, done
        for number in range(done, done + count):
            updates = [device(rows.of(one)) for one in cohort_of(work, number)]
            shared = [torch.stack(same).mean(0) for same in zip(*updates, strict=True)]
        done += count
        return shared

    return rounds


def prepare(values: dict[str, Any]) -> Callable[[int], Any]:
    warnings.simplefilter("ignore")  # Opacus warns that its noise is not cryptographic; here it is timed, not used
    form = sys.argv[1] if len(sys.argv) > 1 else "hooks"
    return prepare_engine(values) if form == "engine" else prepare_lean(values, ghost=form == "ghost")


if __name__ == "__main__":
    serve(prepare)
