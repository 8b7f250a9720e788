"""Which processors compute, how rows reach them, and where compiled programs are kept from one process to the next.

All rows reach a processor once, or, when they are many, only those that a block of devices uses.
"""

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from choral.core.errors import TrainingError
from choral.learning.batches import EMPTY
from choral.learning.clipped import lengths_of
from choral.tables.records import Records

RESIDENT = {"cpu": 2**30}  # bytes of rows that are copied to a processor of this kind; more is read as it is needed
RESIDENT_ELSEWHERE = 2**35
_lengths_of = jax.jit(lengths_of)
ALIGNMENT = 64  # bytes; rows in host memory that begin so are used in place on a CPU, memory-mapped files included

Rows = tuple[Array, Array, Array | None]  # features, labels, and lengths of the features where they are known


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


class Feed:
    """Rows for compiled calls that always have the same shapes: features, labels, and each device's first row in them.

    `slots` is how many devices a call serves, `most_rows` how many different rows one device can use in a round.
    `finite` is whether every feature is known to be finite. With `lengths`, rows that stay where they are have theirs
    taken once, and not in every step.
    """

    def __init__(
        self, records: Records, processors: Sequence[Any], slots: int, most_rows: int, *, lengths: bool = False
    ) -> None:
        self.records, self.processors, self.slots = records, processors, slots
        self.slot = min(int(records.sizes.max()), most_rows)
        kind = processors[0].platform
        size = records.features.nbytes
        in_place = kind == "cpu" and records.features.ctypes.data % ALIGNMENT == 0
        mapped = isinstance(records.features, np.memmap)
        small = size <= RESIDENT.get(kind, RESIDENT_ELSEWHERE) and not mapped
        self.resident = in_place or small
        self.bytes_in_flight = 0 if self.resident else self.slot * (4 * math.prod(records.shape) + 4)
        self.held: list[Rows] = []
        if self.resident:
            arrays = (np.asarray(records.features), np.asarray(records.labels))
            each = [(jax.device_put(arrays[0], p), jax.device_put(arrays[1], p)) for p in processors]
            self.held = [(*pair, _lengths_of(pair[0]) if lengths and small else None) for pair in each]
        # A sum is finite only if all its terms are; what is large is not read for this alone.
        self.finite = small and math.isfinite(jnp.sum(self.held[0][0]))

    def put(self, arrays: tuple[NDArray[Any], ...], at: int) -> tuple[NDArray[Any] | Array, ...]:
        """The arrays on their way to processor number `at`, in one go; a CPU takes them from where they are."""
        processor = self.processors[at]
        return arrays if processor.platform == "cpu" else jax.device_put(arrays, processor)

    def places(self, devices: NDArray[np.int64], wanted: NDArray[np.int32]) -> NDArray[np.int32]:
        """Where each wanted row of each device is in a table that is on the processors; EMPTY places stay so."""
        places = wanted + self.records.offsets[devices].astype(np.int32)[:, None, None]
        np.copyto(places, EMPTY, where=wanted < 0)
        return places

    def rows(
        self, devices: NDArray[np.int64], wanted: NDArray[np.int32], at: int
    ) -> tuple[Rows, NDArray[np.int32] | Array]:
        """The wanted rows of rows that are elsewhere, and where each is in them; on processor number `at`."""
        features = np.zeros((self.slots * self.slot, *self.records.shape), dtype=np.float32)
        labels = np.zeros(len(features), dtype=self.records.labels.dtype)
        places, empty, wanted = np.empty_like(wanted), wanted < 0, np.maximum(wanted, 0)
        for number, device in enumerate(devices):
            start, begin = number * self.slot, self.records.offsets[device]
            size = int(self.records.offsets[device + 1] - begin)
            if size <= self.slot:
                chosen: Any = slice(begin, begin + size)
                places[number] = start + wanted[number]
            else:  # more rows than a round can use: only the used ones are read
                used, where = np.unique(wanted[number], return_inverse=True)
                chosen, size = begin + used, len(used)
                places[number] = start + where.reshape(wanted[number].shape)
            features[start : start + size] = self.records.features[chosen]
            labels[start : start + size] = self.records.labels[chosen]
        places[empty] = EMPTY
        processor = self.processors[at]
        return (jax.device_put(features, processor), jax.device_put(labels, processor), None), places


def devices_in_flight(bytes_per_device: int, least: int) -> int:
    """How many devices may be under way before the host waits: as many as a quarter of the free memory holds.

    >>> devices_in_flight(10**15, 8)
    8
    """
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):  # not on this system: assume little
        free = 2**30
    return max(least, math.floor(free / 4 / max(bytes_per_device, 1)))
