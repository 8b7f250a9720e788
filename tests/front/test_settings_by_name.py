"""The typed keyword arguments are the settings of choral.toml, each with its type; and they win over a file."""

import types
import typing
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

import choral
from choral import config
from choral.config import Job, job_of
from choral.config.settings import RENAMED
from choral.core.errors import ConfigError
from choral.front import AskSettingsByName, RunOptions, SettingsByName
from choral.learning.models import Model

TABLES = {one.name: one.type for one in fields(Job) if one.name not in ("source", "text", "origin", "maker")}
NAMES = {new: old for old, new in RENAMED.items()}


def by_name(kind):
    """A type of choral.toml as Python takes it: None is not given, and a list may also be a tuple."""
    parts = set(typing.get_args(kind)) if typing.get_origin(kind) in (types.UnionType, typing.Union) else {kind}
    lists = {part for part in parts if typing.get_origin(part) is list}
    tuples = {tuple[(*typing.get_args(part), ...)] for part in lists}
    found = type(None)
    for part in parts | tuples:
        found = part | found
    return found


def expected(table):
    return {NAMES.get(name, name): by_name(kind) for name, kind in typing.get_type_hints(table).items()}


def test_every_setting_is_a_typed_keyword_argument_and_nothing_else_is():
    wanted = {name: kind for table in TABLES if table != "ask" for name, kind in expected(TABLES[table]).items()}
    wanted["model"] = wanted["model"] | Callable[..., object] | Model
    wanted["ask"] = AskSettingsByName | None
    reported = typing.get_type_hints(SettingsByName)
    assert set(reported) == set(wanted)
    assert [name for name in wanted if set(typing.get_args(reported[name])) != set(typing.get_args(wanted[name]))] == []
    asked = typing.get_type_hints(AskSettingsByName)
    assert {name: set(typing.get_args(kind)) for name, kind in asked.items()} == {
        name: set(typing.get_args(kind)) for name, kind in expected(TABLES["ask"]).items()
    }


def test_the_verbs_take_them_and_what_only_a_run_has():
    assert set(typing.get_type_hints(RunOptions)) - set(typing.get_type_hints(SettingsByName)) == {
        "out", "drop", "compare", "log"
    }  # fmt: skip
    for verb in (choral.simulate, choral.rehearse, choral.fit):
        (given,) = typing.get_args(typing.get_type_hints(verb)["settings"])
        assert given is RunOptions


TEXT = """\
# mine
[privacy]
epsilon = 2.0
[federation]
devices = 4
rounds = 3
[data]
csv = "all.csv"
[run]
seed = 1
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "choral.toml").write_text(TEXT)
    return tmp_path / "choral.toml"


def test_a_setting_given_by_name_replaces_the_files_and_none_leaves_it(file):
    job = config.read(file, epsilon=1.0, seed=7, rounds=None, delta=1e-6, model="mlp", hidden=(4,))
    assert (job.privacy.epsilon, job.run.seed, job.federation.rounds, job.privacy.delta) == (1.0, 7, 3, 1e-6)
    assert (job.model.kind, job.model.hidden, job.folder) == ("mlp", [4], file.parent)
    again = config.parse(job.text, source=str(file))  # as a run that goes on reads it
    assert {name: getattr(again, name) for name in TABLES} == {name: getattr(job, name) for name in TABLES}
    assert config.read(file, seed=None).text == TEXT


def test_a_complaint_names_the_line_of_the_file_or_the_keyword(file):
    with pytest.raises(ConfigError, match=r"CH102 epsilon= with .*choral.toml privacy.epsilon = -1"):
        config.read(file, epsilon=-1)
    with pytest.raises(ConfigError, match=r"CH104 .*choral.toml:5|CH104 cohort= with .*choral.toml federation.cohort"):
        config.read(file, cohort=9)
    with pytest.raises(ConfigError, match=r'CH101 unknown setting "epsilom". Did you mean "epsilon"'):
        config.read(file, epsilom=1.0)
    file.write_text(TEXT.replace("rounds = 3", "rounds = 0"))
    with pytest.raises(ConfigError, match=r"CH102 .*choral.toml:6 federation.rounds = 0"):
        config.read(file, epsilon=1.0)


def test_a_whole_job_takes_no_settings():
    with pytest.raises(ConfigError, match=r'CH104 "epsilon" is given with a job'):
        choral.simulate(job_of(epsilon=2.0), epsilon=1.0)


def test_numbers_of_numpy_are_settings_as_pythons_own_are():
    given = {"devices": np.int64(8), "rounds": np.uint8(3), "hidden": np.array([8, 4]), "epsilon": np.float32(0.5)}
    given |= {"robust": np.bool_(False), "limits": {"north": np.float64(2.0)}, "ask": {"most": np.int32(2)}}
    job = job_of(**given)
    assert (job.federation.devices, job.federation.rounds, job.model.hidden) == (8, 3, [8, 4])
    assert (job.privacy.epsilon, job.federation.robust, job.ask.most) == (0.5, False, 2)
    assert job == job_of(devices=8, rounds=3, hidden=[8, 4], epsilon=0.5, robust=False, limits={"north": 2.0},
                         ask={"most": 2})  # fmt: skip
    with pytest.raises(ConfigError, match=r"CH102 settings:2 federation.devices = 2\.5"):
        job_of(devices=np.float64(2.5))
