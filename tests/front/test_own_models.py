"""A model may be given in any form that makes one: a function, however it was made, a model, or a module."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import choral
from choral.core.errors import ConfigError
from tests.run.small import SETTINGS, rows

SHORT = {**SETTINGS, "rounds": 1}


def straight(features, classes, *, scale=1.0):
    def predict(weights, many):
        return scale * (many @ weights)

    def loss(weights, row, label):
        return -jax.nn.log_softmax(scale * (row @ weights))[label]

    return choral.model(
        lambda _: jnp.zeros((features, classes)), loss, predict, features=features, classes=classes, name="straight"
    )


def closure():
    def inside(features, classes):
        return straight(features, classes)

    return inside


class Making:
    """An object that can be called."""

    def __call__(self, features, classes):
        return straight(features, classes)

    def by_method(self, features, classes):
        return straight(features, classes)


FORMS = {
    "a function": lambda: straight,
    "a lambda": lambda: lambda features, classes: straight(features, classes),
    "a closure": closure,
    "a partial": lambda: functools.partial(straight, scale=1.0),
    "an object": Making,
    "a method": lambda: Making().by_method,
    "a model": lambda: straight(rows()[0].shape[1], 2),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("start", [choral.simulate, choral.rehearse])
def test_every_form_of_the_same_model_gives_the_same_parameters_and_opens_again(form, start, tmp_path):
    given = FORMS[form]()
    result = start(rows(), **SHORT, model=given, out=tmp_path / "run")
    assert result.parameters.tolist() == start(rows(), **SHORT, model=straight).parameters.tolist()
    assert (
        choral.open(tmp_path / "run", model=given).predict_proba(rows()[0]) == result.predict_proba(rows()[0])
    ).all()


def test_a_run_is_gone_on_with_if_its_model_is_given_once_more(tmp_path):
    given = functools.partial(straight, scale=0.5)
    whole = choral.simulate(rows(), **SETTINGS, model=given, out=tmp_path / "run")
    for name in ("result.json", "model.json", "model.safetensors"):
        (tmp_path / "run" / name).unlink()
    with pytest.raises(ConfigError, match=r'CH110 .*"given:straight" is code that was given from Python'):
        choral.resume(tmp_path / "run", rows())
    again = choral.resume(tmp_path / "run", rows(), model=given).finish()
    assert again.parameters.tolist() == whole.parameters.tolist()


@pytest.mark.parametrize(("given", "said"), [(3, "model is a int"), ([straight], "model is a list")])
def test_what_makes_no_model_is_refused_in_words(given, said):
    with pytest.raises(ConfigError, match=rf"CH102 {said}.* Give a name, a function of features= and classes="):
        choral.simulate(rows(), **SHORT, model=given)
    with pytest.raises(ConfigError, match=r'CH102 .*"given:lambda" can\'t be made: .*unexpected keyword argument'):
        choral.simulate(rows(), **SHORT, model=lambda _: None)


def test_a_model_of_other_shapes_is_refused():
    with pytest.raises(ConfigError, match=r'CH102 .*"given:straight" is a model of 3 features and 2 classes'):
        choral.simulate(rows(), **SHORT, model=straight(3, 2))


def test_a_module_of_pytorch_is_trained_as_it_is_and_comes_back_with_its_parameters(tmp_path):
    torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")
    features, labels = rows()
    module = torch.nn.Sequential(torch.nn.Linear(features.shape[1], 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    before = [one.clone() for one in module.parameters()]
    result = choral.simulate((features, labels), **SHORT, model=module, out=tmp_path / "run")
    back = result.module()
    found = torch.softmax(back(torch.tensor(features)), dim=1).detach().numpy()
    assert found == pytest.approx(result.predict_proba(features), abs=1e-6)
    assert not back.training and all((one == old).all() for one, old in zip(module.parameters(), before, strict=True))
    again = choral.open(tmp_path / "run", model=module).module()
    assert all((one == new).all() for one, new in zip(back.parameters(), again.parameters(), strict=True))
    made = choral.torch(module, torch.nn.functional.cross_entropy, features=np.int64(features.shape[1]), classes=2)
    same = choral.simulate((features, labels), **SHORT, model=made)  # converted already
    assert same.parameters.tolist() == result.parameters.tolist()


def test_a_module_learns_numbers_by_their_squared_error():
    torch = pytest.importorskip("torch", reason="the extra choral[torch] is not installed")
    features, _ = rows()
    numbers = 5 * features[:, 0]
    module = torch.nn.Linear(features.shape[1], 1)
    result = choral.simulate((features, numbers), **SETTINGS, label_bounds=[-6, 6], model=module)
    assert result.module()(torch.tensor(features)).shape == (len(features), 1)
    assert np.corrcoef(result.predict(features), numbers)[0, 1] > 0.5


def test_only_modules_come_back_as_modules():
    result = choral.simulate(rows(), **SHORT)
    with pytest.raises(ConfigError, match=r'CH104 the model "logistic" is no PyTorch module'):
        result.module()
