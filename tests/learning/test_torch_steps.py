"""PyTorch as a trainer: the same steps as JAX, one record's part in a sum, and the same integers everywhere."""

import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")

from torch import nn  # noqa: E402

from choral.config import job_of  # noqa: E402
from choral.core.errors import ConfigError, PlanError, TrainingError  # noqa: E402
from choral.core.plan import Plan  # noqa: E402
from choral.learning import models, noise, streams  # noqa: E402
from choral.learning.batches import Batches, drawer_of  # noqa: E402
from choral.learning.evaluate import evaluate, squared_gradient_norm  # noqa: E402
from choral.learning.recipe import Recipe  # noqa: E402
from choral.learning.torch_door import own  # noqa: E402
from choral.learning.torch_steps import DensePart, Layer, TorchModule, TorchTrainer, clip_factor  # noqa: E402
from choral.learning.trainer import JaxTrainer  # noqa: E402
from choral.run.planning import settle  # noqa: E402
from choral.run.runs import Run  # noqa: E402
from choral.tables.records import Records  # noqa: E402
from tests.learning import test_float_sum as worst  # noqa: E402
from tests.learning import torch_nets  # noqa: E402
from tests.run.small import SETTINGS, rows  # noqa: E402

IMAGES = np.random.default_rng(3).uniform(-1, 1, (240, 8, 8)).astype(np.float32)
LABELS = (IMAGES[:, :4].sum(axis=(1, 2)) > 0).astype(int)
# θ of a torch stack is (weights as out × in, bias) for each layer; JAX's are in × out.
TURN = [((6, 4), True), ((6,), False), ((2, 6), True), ((2,), False)]


def as_torch(flat):
    """The flat vector of a JAX network of widths (4, 6, 2), or an update of it, in PyTorch's order."""
    parts, at = [], 0
    for shape, turned in TURN:
        size = int(np.prod(shape))
        part = flat[at : at + size]
        parts.append(part.reshape(shape[::-1]).T.ravel() if turned else part)
        at += size
    return np.concatenate(parts)


def both(recipe, plan, extra=()):
    """The updates of the same network by both trainers, on the same batches and the same noise."""
    features, labels = rows(60)
    ours, theirs = models.mlp(4, (6,), 2), torch_nets.stack(4, 2)
    drawer = drawer_of(plan)
    room, steps = drawer.room(60), recipe.steps
    given = (np.array([60]), np.array([0]), np.array([3], np.uint64))
    batches = drawer.draw(*given, lambda _: streams.secure_words((1, steps, room)), room)
    drawn = noise.secure_normal((steps + 1, ours.size + len(extra)))
    start = ours.start(1)
    turned = np.concatenate([np.stack([as_torch(row[: ours.size]) for row in drawn]), drawn[:, ours.size :]], axis=1)
    labels = labels.astype(np.int32)
    if extra:
        ours, theirs = (replace(model, fixed=model) for model in (ours, theirs))
    mine = JaxTrainer(ours, recipe, features, labels).train(np.append(start, extra).astype(np.float32), batches, drawn)
    other = TorchTrainer(theirs, recipe, features, labels).train(
        np.append(as_torch(start), extra).astype(np.float32), batches, turned
    )
    size = sum(int(np.prod(shape)) for shape, _ in TURN)
    return np.concatenate([as_torch(mine[:size]), mine[size:]]), other


PLAN = Plan(devices=2, cohort=2, rounds=2, rows=60, batch=12, local_steps=4, step_size=0.5, clip=0.7, noise=0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"local_steps": 1, "law": "discrete_gaussian", "sampling": "partition"},
        pytest.param({"local_steps": 1}, marks=pytest.mark.long),
        pytest.param({"unit": "device", "clip": 0.05}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_torch_and_jax_take_the_same_steps_on_the_same_batches_and_noise(changes):
    plan = replace(PLAN, **changes)
    mine, other = both(Recipe.of(plan), plan)
    assert np.abs(other).max() > 0.001
    assert mine == pytest.approx(other, abs=2e-6)


def test_an_adaptive_clip_is_the_same_in_torch():
    plan = replace(PLAN, unit="device", clip=0.05, clip_quantile=0.5)
    mine, other = both(Recipe.of(plan), plan, extra=(np.log(0.05),))
    assert mine == pytest.approx(other, abs=2e-6) and len(mine) == 45


def gradients_one_by_one(model, flat, features, labels):
    """Each row's gradient by plain autograd, in float64, without any of choral's own code for gradients."""
    module = model.outside.module.double()
    try:
        found = []
        for row, label in zip(features, labels, strict=True):
            flat64 = torch.from_numpy(flat.astype(np.float64)).requires_grad_()
            named = dict(zip(model.outside.names, model.outside.tree(flat64), strict=True))
            out = torch.func.functional_call(module, named, (torch.from_numpy(row[None].astype(np.float64)),))
            lost = nn.functional.cross_entropy(out, torch.tensor([int(label)]))
            found.append(torch.autograd.grad(lost, flat64)[0].numpy())
        return np.stack(found)
    finally:
        module.float()


@pytest.mark.parametrize("make", [torch_nets.stack, torch_nets.normed, torch_nets.images], ids=lambda one: one.__name__)
def test_clipped_sums_are_those_of_gradients_taken_one_by_one(make):
    of_images = make is torch_nets.images
    features, labels = (IMAGES[:9], LABELS[:9]) if of_images else (rows()[0][:9], rows()[1][:9])
    model = make(features.shape[1:] if of_images else 4, 2)
    assert (model.outside.stack is None) == (make is torch_nets.normed)
    flat = model.start(2)
    each = gradients_one_by_one(model, flat, features, labels)
    norms = np.linalg.norm(each, axis=1)
    clip = float(np.median(norms))
    kept = np.arange(9) < 8
    wanted = (each * np.minimum(1, clip / norms)[:, None])[kept].sum(axis=0)
    given = (torch.from_numpy(flat)[None], torch.from_numpy(features)[None], model.outside.as_labels(labels)[None])
    found = model.outside.clipped_sums(*given, torch.from_numpy(kept)[None], clip)[0].numpy()
    assert found == pytest.approx(wanted, abs=2e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_a_stack_and_the_same_layers_mapped_have_the_same_sums(shared):
    act = nn.ReLU()
    module = nn.Sequential(nn.Linear(4, 5), act, nn.Linear(5, 5), act if shared else nn.SiLU(), nn.Linear(5, 3))
    model = own(module, nn.functional.cross_entropy, features=4, classes=3)
    flat, features = torch.from_numpy(model.start(1))[None], torch.from_numpy(rows()[0][:6])[None]
    labels, used = torch.tensor([[0, 1, 2, 0, 1, 2]]), torch.ones((1, 6), dtype=torch.bool)
    closed = model.outside.clipped_sums(flat, features, labels, used, 0.3)
    model.outside.stack = None
    assert closed.numpy() == pytest.approx(
        model.outside.clipped_sums(flat, features, labels, used, 0.3).numpy(), abs=1e-6
    )


def test_a_row_whose_gradient_is_not_finite_has_no_say():
    model, features = torch_nets.stack(4, 2), rows()[0][:3].copy()
    features[1] = np.inf
    given = [torch.from_numpy(one)[None] for one in (model.start(1), features)]
    labels, used = torch.zeros((1, 3), dtype=torch.int64), torch.tensor([[True, True, True]])
    spoilt = model.outside.clipped_sums(*given, labels, used, 1.0)
    without = model.outside.clipped_sums(*given, labels, torch.tensor([[True, False, True]]), 1.0)
    assert torch.isfinite(spoilt).all() and torch.equal(spoilt, without)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("clip", [1.0, 1e-6])
def test_no_row_is_longer_than_the_clip_however_long_its_gradient_was(bias, clip):
    """Inputs and slopes of every size that float32 has: the factor, or what it makes of a slope, may be subnormal."""
    rng, count = np.random.default_rng(7), 4000
    lanes = [
        torch.from_numpy((sign * 10.0 ** rng.uniform(-45, 38, (count, 1, 1))).astype(np.float32))
        for sign in (rng.uniform(0.5, 1, (count, 1, 3)), rng.uniform(0.5, 1, (count, 1, 40)))
    ]
    part = DensePart(Layer(nn.Linear(3, 40, bias=bias), 0, 1 if bias else None), *lanes)
    factor = clip_factor(part.squares().sqrt(), torch.ones((count, 1), dtype=torch.bool), clip)
    squares = sum(one.double().flatten(1).square().sum(dim=1) for _, one in part.sums(factor))
    assert float(squares.max().sqrt()) <= clip * (1 + 1e-6)
    assert float((squares.sqrt() > 0.99 * clip).float().mean()) > 0.2  # most rows that are too long are not thrown away


class Running(nn.Module):
    """It takes off a mean over all rows that it has ever seen."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, rows):
        self.mean.mul_(0.5).add_(0.5 * rows.mean(dim=0))
        return self.inner(rows - self.mean)


def test_a_buffer_that_a_call_writes_to_is_the_same_afterwards():
    outside = TorchModule(Running(), nn.functional.cross_entropy, classes=2)
    flat, (features, _) = np.ones(outside.size, np.float32), rows()
    first = outside.outputs(flat, features[:5])
    outside.outputs(flat, 100 * features[5:])
    assert np.array_equal(outside.outputs(flat, features[:5]), first)
    with pytest.raises(TrainingError, match="CH701"):  # and torch.func refuses to map it over rows
        own(Running(), nn.functional.cross_entropy, features=4)


def test_products_with_short_factors_are_refused():
    model, labels = torch_nets.stack(4, 2), np.zeros(240, np.int32)
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ConfigError, match=r'CH107 .*torch\.set_float32_matmul_precision\("highest"\)'):
            TorchTrainer(model, Recipe.of(PLAN), rows()[0], labels)
    finally:
        torch.set_float32_matmul_precision("highest")


def linear_in_torch(features=2):
    return own(nn.Sequential(nn.Linear(features, 2)), nn.functional.cross_entropy, features=features)


class OneByOne(nn.Module):
    """The same by mapping: no stack of known layers."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, rows):
        return self.inner(rows)


@pytest.mark.parametrize("count", [384, 2440, pytest.param(18_432, marks=pytest.mark.long)])
@pytest.mark.parametrize("mapped", [False, True], ids=["dense", "general"])
def test_one_record_moves_a_sum_by_no_more_than_the_clip_in_torch_either(count, mapped):
    """The worst rows of test_float_sum: joined, the record moves the sum by G at most, turned around by 2G."""
    model = own(OneByOne(), nn.functional.cross_entropy, features=2) if mapped else linear_in_torch()
    recipe = Recipe(steps=1, batch=count, step_size=1.0, clip=worst.clip_of(worst.STACK))
    record = 2 ** int(np.log2(count / 2))
    tables, labels = worst.worst_rows(count), np.ones(count, np.int32)
    place = np.arange(count, dtype=np.int32)[None, None]
    absent = place.copy()
    absent[..., record] = -1

    def update(table, at):
        batches = Batches(rows=at, counts=np.int32([[count]]))
        return TorchTrainer(model, recipe, table, labels).train(
            np.zeros(model.size, np.float32), batches, np.zeros((2, 1))
        )

    present = update(tables[0], place)
    assert 0.98 < worst.moved(worst.STACK, [present, update(tables[0], absent)], count) <= 1.01
    assert 1.9 < worst.moved(worst.STACK, [present, update(tables[1], place)], count) <= worst.MOST


@pytest.fixture
def nets(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_nets_of_tests", torch_nets)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("net", ["stack", pytest.param("normed", marks=pytest.mark.long), "images"])
def test_a_simulation_and_a_rehearsal_in_torch_have_the_same_integers(net):
    data = (IMAGES, LABELS) if net == "images" else rows()
    studies = [settle(job_of(**{**SETTINGS, "rounds": 1}, model=f"torch_nets_of_tests:{net}"), data) for _ in range(2)]
    simulated, rehearsed = (
        Run(kind, one).finish() for kind, one in zip(("simulation", "rehearsal"), studies, strict=True)
    )
    assert simulated.parameters.tobytes() == rehearsed.parameters.tobytes()
    assert not np.array_equal(simulated.parameters, studies[0].model.start(0))
    assert simulated.privacy.against_everyone.rule == "S5" and simulated.privacy.against_everyone.epsilon <= 4.0
    assert simulated.predict(data[0][:5]).shape == (5,)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"unit": "device", "clip": 0.1}, "S4"),
        ({"unit": "device", "clip": 0.1, "clip_quantile": 0.5}, "S4"),
        ({"sampling": "partition"}, "S1"),
        ({"local_steps": 1, "law": "discrete_gaussian"}, "S6"),
    ],
    ids=str,
)
def test_every_rule_that_a_torch_model_may_have_gives_the_same_integers_too(changes, rule):
    settings = {**SETTINGS, "rounds": 1, **changes}
    studies = [settle(job_of(**settings, model="torch_nets_of_tests:stack"), rows()) for _ in range(2)]
    found = [Run(kind, one).finish() for kind, one in zip(("simulation", "rehearsal"), studies, strict=True)]
    assert found[0].parameters.tobytes() == found[1].parameters.tobytes()
    assert found[0].privacy.against_everyone.rule == rule


@pytest.mark.usefixtures("nets")
def test_a_device_with_its_own_randomness_trains_in_torch():
    settings = {**SETTINGS, "seed": None, "rounds": 1}
    study = settle(job_of(**settings, model="torch_nets_of_tests:stack"), rows())
    assert Run("rehearsal", study).finish().privacy.against_everyone.rule == "S5"


@pytest.mark.usefixtures("nets")
def test_a_torch_model_is_refused_where_nothing_is_proved_of_it():
    once = job_of(**{**SETTINGS, "local_steps": None, "batch": None}, model="torch_nets_of_tests:stack",
                  noise_is_added="once")  # fmt: skip
    with pytest.raises((PlanError, ConfigError), match="S7"):
        settle(once, rows())


def test_figures_of_a_torch_model_are_those_of_the_same_model_in_jax():
    features, labels = rows(100)
    records = Records.of([("a", features[:40], labels[:40]), ("b", features[40:], labels[40:])])
    ours, theirs = models.mlp(4, (6,), 2), torch_nets.stack(4, 2)
    mine, other = evaluate(ours, ours.start(3), records), evaluate(theirs, as_torch(ours.start(3)), records)
    assert (mine.accuracy, mine.auc) == (other.accuracy, other.auc)
    assert mine.loss == pytest.approx(other.loss, rel=1e-5)
    assert squared_gradient_norm(ours, ours.start(3), records) == pytest.approx(
        squared_gradient_norm(theirs, as_torch(ours.start(3)), records), rel=1e-4
    )
