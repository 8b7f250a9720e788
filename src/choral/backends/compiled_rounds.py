"""What is compiled for rounds that stay on the processors: all that they draw, and all that they train."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, PartitionSpec

from choral.backends.compiled import Form, TracedCodec, lane_changes, lane_updates, mean_of, unfused, with_added
from choral.learning.batches import EMPTY
from choral.learning.batches.compiled_drawing import CompiledDrawer, keys, split, words
from choral.learning.feed import Rows
from choral.learning.local import COMPILED
from choral.learning.recipe import TracedNumbers

CALLS = "calls"  # the axis of a mesh of processors
Where = Any  # a partition of arrays, which JAX does not type
_spec: Callable[..., Where] = PartitionSpec
EVERYWHERE, BY_CALL = _spec(), _spec(None, CALLS)


add_everywhere: Callable[..., tuple[Array, Array]] = lax.psum


class WhoTrains(NamedTuple):
    """What the host says of some rounds: who takes part, by (round, call, lane), and what everything is drawn from."""

    devices: Any  # integers, on the host or on the processors; so are the others
    before: Any
    keep: Any
    seeds: Any  # of each round, for batches, noise and dither


class Drawn(NamedTuple):
    """What is drawn for some rounds, by (round, call, lane)."""

    rows: Array
    counts: Array
    noise: Array
    dither: Array
    keep: Array


@partial(jax.jit, static_argnums=(0, 1, 2))
def draw_rounds(
    drawer: CompiledDrawer, steps: int, mesh: Mesh | None, tables: tuple[Array, ...], first: Array, who: WhoTrains
) -> Drawn:
    """All that some rounds draw, drawn where it is needed; traced with 64-bit integers on."""

    def draw(tables: tuple[Array, ...], first: Array, who: WhoTrains) -> Drawn:
        of_batches, of_noise, of_dither = (keys(who.seeds[:, None, None, which], who.devices) for which in range(3))
        rows, counts = drawer.draw(tables, who.devices, who.before, of_batches)
        places = jnp.where(rows < 0, EMPTY, first[who.devices][..., None, None] + rows)
        step_keys = split(words(of_noise[..., None], jnp.arange(steps + 1)))
        return Drawn(rows=places, counts=counts, noise=step_keys, dither=split(of_dither), keep=who.keep)

    if mesh is None:
        return draw(tables, first, who)
    specs = (EVERYWHERE, EVERYWHERE, WhoTrains(BY_CALL, BY_CALL, BY_CALL, EVERYWHERE))
    return jax.shard_map(draw, mesh=mesh, in_specs=specs, out_specs=BY_CALL, check_vma=False)(tables, first, who)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=COMPILED)
def train_rounds(
    form: Form,
    mesh: Mesh | None,
    numbers: TracedNumbers,
    codec: TracedCodec,
    nothing: np.int32,
    theta: Array,
    rows: Rows,
    drawn: Drawn,
    scales: Array,
    *,
    several: bool = False,
) -> tuple[Array, Array, Array]:
    """θ after these rounds, the halves of the last sum, and how many updates of each round are in each state.

    A round with a scale of 0 is none: it leaves θ as it is. If `several` runs, over which this is mapped, draw the
    same, all noise of a call is drawn before its steps, and updates are rounded as one vector: less is compiled.
    """

    def train(
        numbers: TracedNumbers,
        codec: TracedCodec,
        nothing: Array,
        theta: Array,
        rows: Rows,
        drawn: Drawn,
        scales: Array,
    ) -> tuple[Array, Array, Array]:
        nobody = jnp.zeros((2, theta.shape[0]), jnp.int32)

        def one_round(state: tuple[Array, Array], given: tuple[Drawn, Array]) -> tuple[tuple[Array, Array], Array]:
            (theta, before), (turn, scale) = state, given

            def one_call(total: Array, call: Drawn) -> tuple[Array, Array]:
                lanes = call.rows, call.counts, call.noise
                if several:
                    changes = [lane_updates(form, numbers, theta, rows, lanes, ahead=True)]
                else:
                    changes = lane_changes(form, numbers, theta, rows, lanes)
                return with_added(codec, total, changes, call.dither, call.keep)

            total, found = lax.scan(one_call, nobody, turn)
            found = found.sum(axis=0)
            if mesh is not None:
                total, found = add_everywhere((total, found), CALLS)
            moved = theta + unfused(mean_of(total, scale), nothing)
            one = scale > 0
            return (jnp.where(one, moved, theta), jnp.where(one, total, before)), found

        (theta, total), found = lax.scan(one_round, (theta, nobody), (drawn, scales))
        return theta, total, found

    given: Any = (numbers, codec, nothing, theta, rows, drawn, scales)
    if mesh is None:
        return train(*given)
    specs = (EVERYWHERE,) * 5 + (BY_CALL, EVERYWHERE)
    return jax.shard_map(train, mesh=mesh, in_specs=specs, out_specs=EVERYWHERE, check_vma=False)(*given)
