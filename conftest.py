"""What all tests share."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

CACHE = "JAX_COMPILATION_CACHE_DIR"

# Nothing is timed in a test, so a busy machine fails none; the rest is Hypothesis' own choice, in CI and elsewhere.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config):
    """The workers of one run, and the processes that tests start, compile each program once.

    JAX finds a program by all that it consists of. The folder is made for this run and goes with it, so no test meets
    what an earlier run left. It is in place before any worker starts, and before JAX is imported.
    """
    if CACHE in os.environ:  # of the run that this worker belongs to, or as whoever runs the tests wants it
        return
    folder = tempfile.TemporaryDirectory(prefix="choral-tests-")
    config.add_cleanup(folder.cleanup)
    os.environ |= {
        CACHE: folder.name,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@pytest.fixture(scope="session", autouse=True)
def _a_state_folder_of_the_tests(tmp_path_factory):
    """No test writes to the state folder of whoever runs it, not even a fixture of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _a_state_folder_for_each_test(monkeypatch, tmp_path_factory):
    """No test sees which tables another one approved: many are made up of the same rows."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="session")
def ended_study(tmp_path_factory):
    """A deployed study to its end, in one process; tests that change a home of it work on a copy."""
    from tests.run.consortium import Consortium, Sockets, agents

    made = Consortium(tmp_path_factory.mktemp("ended"))
    made.approve()
    with agents(made.homes):
        made.conductor(Sockets(made.homes)).run()
    return made
