import jax
import pytest

from choral.core.errors import TrainingError
from choral.learning.processors import keep_compiled, knows, processors

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


def test_an_option_that_the_compiler_does_not_have_is_found_out_before_it_is_used():
    assert knows("xla_cpu_enable_fast_math", False)
    assert not knows("xla_cpu_no_such_option", False)
