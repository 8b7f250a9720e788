"""Rows reach a processor in two ways, whole tables or the used rows alone; programs are kept where the user says."""

import jax
import numpy as np
import pytest

from choral.core.errors import TrainingError
from choral.engine import processors as feed
from choral.engine.processors import keep_compiled, processors
from choral.learning.batches import EMPTY
from choral.tables.records import Records

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


@pytest.fixture(autouse=True)
def settings_put_back():
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize(("said", "kept"), [("off", False), ("here", True)])
def test_compiled_programs_are_kept_where_the_user_says_or_not_at_all(said, kept, tmp_path, monkeypatch):
    folder = tmp_path / "compiled"
    monkeypatch.setenv("CHORAL_CACHE", "off" if said == "off" else str(folder))
    keep_compiled()
    assert folder.exists() == kept
    assert jax.config.jax_compilation_cache_dir == (str(folder) if kept else None)


def test_the_users_cache_folder_is_the_default_and_jaxs_own_setting_wins(tmp_path, monkeypatch):
    monkeypatch.delenv("CHORAL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == "elsewhere"
    jax.config.update("jax_compilation_cache_dir", None)
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "choral" / "compiled")


def test_a_folder_that_can_not_be_made_is_no_reason_to_stop(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CHORAL_CACHE", str(tmp_path / "file" / "folder"))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None


def test_an_accelerator_that_is_not_there_is_named():
    with pytest.raises(TrainingError, match='CH702 no accelerator "abacus"'):
        processors("abacus")


SIZES = (3, 6, 4)


@pytest.fixture
def records():
    # Row r holds the number r, so that a row that arrives says which one it is.
    numbers = np.arange(sum(SIZES), dtype=np.float32)
    cuts = np.split(numbers, np.cumsum(SIZES)[:-1])
    return Records.of([(f"device {i}", rows[:, None], rows.astype(int) % 2) for i, rows in enumerate(cuts)], classes=2)


def arrived(records, wanted, *, most_rows, monkeypatch, resident):
    if not resident:
        monkeypatch.setattr(feed, "RESIDENT", {"cpu": 0})
        monkeypatch.setattr(feed, "ALIGNMENT", 2**62)
    made = feed.Feed(records, jax.devices("cpu")[:1], slots=2, most_rows=most_rows)
    assert made.resident is resident
    devices = np.array([1, 2])
    (features, labels, _), places = (
        (made.held[0], made.places(devices, wanted)) if resident else made.rows(devices, wanted, 0)
    )
    found = np.where(np.asarray(places) < 0, -1, np.asarray(features)[np.asarray(places), 0])
    assert (np.asarray(labels)[np.asarray(places)][found >= 0] == found[found >= 0] % 2).all()
    return found


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("most_rows", [2, 6])
def test_every_wanted_row_of_a_device_arrives_and_empty_places_stay_empty(records, monkeypatch, resident, most_rows):
    wanted = np.array([[[5, 0, EMPTY]], [[3, 3, 0]]], np.int32)  # rows of devices 1 and 2, which begin at 3 and 9
    found = arrived(records, wanted, most_rows=most_rows, monkeypatch=monkeypatch, resident=resident)
    assert found.tolist() == [[[8, 3, -1]], [[12, 12, 9]]]


def test_a_table_with_a_value_that_is_not_finite_is_known_to_have_one(records):
    made = feed.Feed(records, jax.devices("cpu")[:1], slots=1, most_rows=6)
    assert made.finite and made.bytes_in_flight == 0 and made.slot == 6
    records.features[4] = np.inf
    assert not feed.Feed(records, jax.devices("cpu")[:1], slots=1, most_rows=6).finite


def test_as_many_devices_are_under_way_as_a_quarter_of_the_free_memory_holds():
    assert feed.devices_in_flight(2**60, 3) == 3
    assert feed.devices_in_flight(0, 3) > 2**20
