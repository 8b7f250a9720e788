"""Which processors compute, and where compiled programs are kept from one process to the next."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax

from choral.core.errors import TrainingError


def processors(accelerator: str | None) -> list[Any]:
    """The machine's processors of this kind ("cpu", "gpu"), or those that JAX prefers.

    >>> processors("cpu")[0].platform
    'cpu'
    """
    try:
        return list(jax.local_devices(backend=accelerator) if accelerator else jax.local_devices())
    except RuntimeError as error:
        raise TrainingError(
            "CH702",
            f'no accelerator "{accelerator}" on this machine.',
            fix='Leave it out, use "cpu", or install JAX for your accelerator.',
        ) from error


@cache
def knows(option: str, value: bool) -> bool:
    """Whether the compiler has such an option: options for speed alone come and go with the versions of JAX.

    >>> knows("xla_backend_extra_speed", True)
    False
    """
    try:
        jax.jit(lambda: 0, compiler_options={option: value}).lower().compile()
    except (RuntimeError, ValueError):
        return False
    return True


def keep_compiled() -> None:
    """Keep compiled programs in the user's cache folder, unless JAX has one already or CHORAL_CACHE is "off".

    CHORAL_CACHE may also name the folder. A folder that can't be made is no reason to stop: programs compile again.
    """
    chosen = os.environ.get("CHORAL_CACHE", "")
    if chosen == "off" or getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    user = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(chosen or Path(user, "choral", "compiled"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    update: Callable[[str, Any], None] = jax.config.update
    update("jax_compilation_cache_dir", str(folder))
    update("jax_persistent_cache_min_compile_time_secs", 0.1)
    update("jax_persistent_cache_min_entry_size_bytes", 0)
