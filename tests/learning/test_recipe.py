"""The numbers of a recipe: given to what is compiled they change no bit, and others of them compile nothing."""

import math
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from choral.engine import programs
from choral.learning.local import COMPILED, Shortcuts, local_changes, local_update
from choral.learning.models import logistic
from choral.learning.recipe import Recipe

MODEL, ROOM = logistic(5, 3), 12
ONE_STEP = Recipe(steps=1, batch=7, step_size=0.3, clip=0.7, noise=0.11)
SEVERAL = replace(ONE_STEP, steps=4)


def given(recipe, lanes=3):
    draw = np.random.default_rng(2)
    return (
        draw.normal(size=MODEL.size).astype(np.float32),
        draw.normal(size=(20, 5)).astype(np.float32),
        draw.integers(0, 3, 20).astype(np.int32),
        draw.integers(0, 20, (lanes, recipe.steps, ROOM)).astype(np.int32),
        draw.integers(0, ROOM, (lanes, recipe.steps)).astype(np.int32),
        draw.integers(0, 2**32, (lanes, recipe.steps + 1, 4), dtype=np.uint32),
    )


def with_numbers(recipe):
    parameters, features, labels, *lanes = given(recipe)
    form = programs.Form(model=MODEL, recipe=recipe.form, shortcuts=Shortcuts(usual=ROOM, finite=True))
    numbers, call = programs.stacked_numbers(MODEL, [recipe], ROOM), programs.Drawn(*lanes, dither=None, keep=None)
    return np.asarray(programs.updates_of(form, numbers, parameters[None], (features, labels, None), call))[0]


@pytest.fixture
def traces(monkeypatch):
    """An entry for each time that the steps were traced, which is done whenever something is compiled."""
    found = []

    def traced(*given, **named):
        found.append(given[1])
        return local_changes(*given, **named)

    monkeypatch.setattr(programs, "local_changes", traced)
    return found


RECIPES = {
    "one step": ONE_STEP,
    "several steps": SEVERAL,
    "no clip": replace(SEVERAL, clip=math.inf, noise=0.0),
    "a tiny clip": replace(ONE_STEP, clip=2.0**-12),
    "a clipped update": replace(SEVERAL, clip=math.inf, noise=0.0, update_clip=0.4, update_noise=0.2),
    "a strict step": replace(ONE_STEP, noise=0.0, strict=True),
}


def with_constants(recipe):
    def constants(parameters, features, labels, *lanes):
        one = partial(
            local_update, MODEL, recipe, parameters, features, labels, shortcuts=Shortcuts(usual=ROOM, finite=True)
        )
        return jax.vmap(one)(*lanes)

    return np.asarray(jax.jit(constants, compiler_options=COMPILED)(*given(recipe)))


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.steps == 1])
def test_numbers_that_are_given_have_the_bits_of_numbers_that_are_compiled(name):
    np.testing.assert_array_equal(with_numbers(RECIPES[name]), with_constants(RECIPES[name]))


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.steps > 1])
def test_after_several_steps_they_differ_by_a_rounding_of_each_step_at_most(name):
    # The compiler rounds θ − (η/γ)g once or twice, by what it knows of η/γ; the noisy sum g has the same bits.
    recipe = RECIPES[name]
    parameters, numbers = given(recipe)[0], with_numbers(recipe)
    largest = np.abs(parameters).max() + np.abs(numbers).max()
    np.testing.assert_allclose(numbers, with_constants(recipe), rtol=0, atol=2 * recipe.steps * 2.0**-23 * largest)


@pytest.mark.parametrize(
    ("recipe", "other"),
    [
        (ONE_STEP, {"step_size": 0.11, "clip": 1.3, "noise": 0.4, "batch": 9}),
        (SEVERAL, {"step_size": 0.11, "clip": 1.3, "noise": 0.4, "batch": 9}),
        (RECIPES["a clipped update"], {"update_clip": 1.5, "update_noise": 0.3}),
    ],
)
def test_another_step_size_clip_or_noise_compiles_nothing(recipe, other, traces):
    first = with_numbers(recipe)
    traces.clear()
    second = with_numbers(replace(recipe, **other))
    assert traces == []
    assert not np.array_equal(first, second)


def test_a_form_keeps_what_decides_how_steps_are_compiled():
    assert ONE_STEP.form == replace(ONE_STEP, clip=3.0, noise=0.01, step_size=7.0, batch=2).form
    assert ONE_STEP.form != replace(ONE_STEP, noise=0.0).form
    assert ONE_STEP.form != replace(ONE_STEP, clip=2.0**-12).form
