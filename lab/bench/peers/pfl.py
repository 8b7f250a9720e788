"""pfl-research: its FederatedAveraging and SimulatedBackend, with an Opacus optimiser inside each device.

pfl itself clips and noises whole updates only; with Opacus inside a device it does the same steps as the others.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

from bench.peers.nets import dense_net
from bench.peers.opacus import best_threads_for
from bench.work import Work, rows_of
from bench.worker import serve


class Private(nn.Module):
    """The network as pfl wants it, with Opacus's per-example gradients."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.network = GradSampleModule(dense_net(work))

    def loss(self, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.network(features), labels)

    @torch.no_grad()
    def metrics(self, features: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        return {"loss": Weighted(float(self.loss(features, labels)) * len(labels), len(labels))}


def prepare(values: dict[str, Any]) -> Callable[[int], None]:
    warnings.simplefilter("ignore")
    work = Work.from_dict(values)
    rows = rows_of(work)
    features, labels = rows.features, rows.labels.astype(np.int64)

    def device(number: int) -> Dataset:
        own = rows.of(number)
        order = np.resize(np.random.permutation(np.arange(own.start, own.stop)), work.steps * work.batch)
        return Dataset((torch.from_numpy(features[order]), torch.from_numpy(labels[order])), user_id=str(number))

    def optimizer(parameters: Any, lr: float) -> DPOptimizer:  # noqa: ANN401
        return DPOptimizer(
            torch.optim.SGD(list(parameters), lr=lr),
            noise_multiplier=work.noise * work.batch / work.clip,
            max_grad_norm=work.clip,
            expected_batch_size=work.batch,
        )

    devices = FederatedDataset(device, get_user_sampler("random", list(range(work.devices))))
    backend = SimulatedBackend(training_data=devices, val_data=devices)
    network = Private(work)
    central = torch.optim.SGD(network.parameters(), lr=1.0)
    model = PyTorchModel(network, local_optimizer_create=optimizer, central_optimizer=central)
    training = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.step_size, local_batch_size=work.batch)
    best_threads_for(work, torch.from_numpy(features[: work.batch]), torch.from_numpy(labels[: work.batch]))
    algorithm = FederatedAveraging()
    asked = 0

    def rounds(count: int) -> None:
        nonlocal asked
        asked += count
        numbers = NNAlgorithmParams(
            central_num_iterations=asked,
            evaluation_frequency=10**9,  # pfl evaluates at iteration 0 only, which the warm-up takes
            train_cohort_size=work.cohort,
            val_cohort_size=0,
        )
        algorithm.run(
            algorithm_params=numbers,
            backend=backend,
            model=model,
            model_train_params=training,
            model_eval_params=NNEvalHyperParams(local_batch_size=None),
            send_metrics_to_platform=False,
        )

    return rounds


if __name__ == "__main__":
    serve(prepare)
