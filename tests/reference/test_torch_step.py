"""PyTorch against the reference: the same rows and the same Gaussians."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")

from choral.learning.recipe import noise_on_sum  # noqa: E402
from choral.learning.rounding import in_clipping  # noqa: E402
from choral.learning.torch_door import own  # noqa: E402
from choral.learning.torch_steps import TorchTrainer  # noqa: E402
from tests.reference import step  # noqa: E402
from tests.reference.test_step import (  # noqa: E402
    CHOSEN,
    CLIPPED,
    FEATURES,
    MODELS,
    RECIPE,
    ROOM,
    batches_of,
    by_hand,
    gaussians,
    labels_of,
    same,
    start_of,
)


# θ of a torch stack is (weights as out × in, bias) for each layer; JAX's are in × out.
def turned(model, flat):
    return np.concatenate([part for w, b in step.split(model.widths, flat) for part in (w.T.ravel(), b)])


@pytest.mark.parametrize("recipe", [RECIPE, CLIPPED, replace(RECIPE, steps=1)], ids=["steps", "update", "one step"])
def test_pytorch_takes_the_steps_of_the_reference(recipe):
    ours, linear, relu = MODELS["network"], torch.nn.Linear, torch.nn.ReLU
    module = torch.nn.Sequential(linear(5, 6), relu(), linear(6, 4), relu(), linear(4, 3))
    model, drawn = own(module, torch.nn.functional.cross_entropy, features=5, classes=3), gaussians(ours)
    there = np.stack([turned(ours, one) for one in drawn])
    start = turned(ours, start_of(ours))
    found = TorchTrainer(model, recipe, FEATURES, labels_of(ours)).train(
        start, batches_of(CHOSEN[: recipe.steps]), there
    )
    plain = by_hand(ours, recipe, drawn)
    if recipe.update_noise:  # the leaves of the module have the sizes of ours
        spread = recipe.update_noise * (1 + in_clipping(ours.sizes))
        plain = step.clipped_update(plain, clip=recipe.update_clip, spread=spread, drawn=drawn[-1])
    else:
        plain += spread_apart(recipe, ours, model, drawn)
    same(found, turned(ours, plain))


def spread_apart(recipe, ours, theirs, drawn):
    """What another factor for float32 makes of the noise of steps on a loss that is linear in it; about 0."""
    difference = noise_on_sum(theirs, recipe, ROOM) - noise_on_sum(ours, recipe, ROOM)
    assert abs(difference) < 1e-4
    return -recipe.step_size / recipe.batch * difference * drawn[: recipe.steps].sum(axis=0)
