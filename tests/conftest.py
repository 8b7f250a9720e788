"""What all tests share."""

import pytest


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
