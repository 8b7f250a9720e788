"""Gaussian noise (line 9 of Algorithm 1): counter-based for simulations, from a cryptographic stream for deployments.

A simulated number is a function of (key, place) alone, made of a few integer operations and one polynomial, so that
the compiler fuses it into the step that uses it and no noise is ever stored. It is for simulations only: who knows the
seed knows the noise, and beyond 5 standard deviations its 32 bits leave gaps.
"""

import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from choral.learning.streams import Words, secure_words, words

# x = u·P(t) for u = 2Φ(x) − 1, t = affine in √(1 − ln(1 − u²)); minimax over |u| ≤ 1 − 2^-32, |error| ≤ 2e-5 in x.
_QUANTILE = (
    3.57079364, 2.80244735, -0.00906323403, -0.127995584, 0.279935706, -0.309243924,
    0.0426798562, 0.244467088, -0.143494209, -0.0674520884, 0.0548641678,
)  # fmt: skip
_T_SLOPE, _T_SHIFT = 0.534459043, -1.534459043
# ln(1 + m) = m·L(m) for √½ ≤ 1 + m ≤ √2, within 4e-7; the compiler's own logarithm costs as much as all the rest.
_ROUNDS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)  # of `triple32`
_LOGARITHM = (1.00000096, -0.50001145, 0.333146738, -0.249082892, 0.204917596, -0.186807514, 0.119310544)

PlusProduct = Callable[[Array, Array, Array], Array]  # (c, a, b) -> a·b + c


def split(keys: Words) -> NDArray[np.uint32]:
    """Each 64-bit key as four unrelated 32-bit words in a new last axis, the form that `bits` takes.

    >>> split(np.array([1, 2], dtype=np.uint64)).shape
    (2, 4)
    """
    return words(keys[..., None], np.arange(2)).astype("<u8").view("<u4").astype(np.uint32)


def bits(key: Array, shape: tuple[int, ...], start: int = 0) -> Array:
    """32 random bits for each place from `start` on, a hash of (key, place).

    Three multiply-xorshift rounds with the constants of `triple32` (C. Wellons' hash-prospector, public domain). Each
    key counts with its own step and adds its own word before every round, so no stream is a shift of another.

    >>> bits(jnp.uint32([1, 2, 3, 4]), (2, 3)).dtype
    dtype('uint32')
    """
    first, second, third, step = ready(key)
    count = lax.iota(jnp.uint32, math.prod(shape)) + jnp.uint32(start)
    return mixed(count * step + first, second, third).reshape(shape)


def ready(key: Array) -> list[Array]:
    """The words that `mixed` takes, each for all places: where its count begins, the two added on the way, its step."""
    return [key[..., 0], key[..., 1] * jnp.uint32(_ROUNDS[1]), key[..., 2] * jnp.uint32(_ROUNDS[2]), key[..., 3] | 1]


def mixed(count: Array, second: Array, third: Array) -> Array:
    """The hash of these counts; a word is added before a round's product, hence its product after it."""
    x = (count ^ (count >> 17)) * jnp.uint32(_ROUNDS[0])
    x = (x ^ (x >> 11)) * jnp.uint32(_ROUNDS[1]) + second
    x = (x ^ (x >> 15)) * jnp.uint32(_ROUNDS[2]) + third
    hashed: Array = x ^ (x >> 14)
    return hashed


def uniform(key: Array, shape: tuple[int, ...], start: int = 0) -> Array:
    """Multiples of 2^-24 in [0, 1), for the dither of the codec in a simulation.

    >>> bool(uniform(jnp.uint32([1, 2, 3, 4]), (4,)).max() < 1)
    True
    """
    top = lax.bitcast_convert_type(bits(key, shape, start) >> 8, jnp.int32)
    fraction: Array = top.astype(jnp.float32) * jnp.float32(2.0**-24)
    return fraction


def normal(key: Array, shape: tuple[int, ...], start: int = 0) -> Array:
    """Standard Gaussians by inversion of 32 bits, out to 6.3 standard deviations and within 3e-5 of the exact quantile.

    >>> normal(jnp.uint32([1, 2, 3, 4]), (2, 3)).shape
    (2, 3)
    """
    return quantiles(bits(key, shape, start), lambda rest: _root(1 - _logarithm(rest)))


def plus_product(sum_: Array, a: Array, b: Array) -> Array:
    """a·b + sum_, rounded once or twice, as the compiler likes.

    >>> float(plus_product(*jnp.float32([1, 2, 3])))
    7.0
    """
    return a * b + sum_


def quantiles(drawn: Array, far: Callable[[Array], Array], plus: PlusProduct = plus_product) -> Array:
    """Each 32 bits as a Gaussian; `far` gives √(1 − ln x), in whatever way a processor has it soonest.

    Products with powers of two round nothing, so their sums have the same bits whether or not the two are fused.
    """
    signed = lax.bitcast_convert_type(drawn, jnp.int32)
    # The distance to the near tail is taken in integers, since 1 − u² would cancel there, and in signed ones: without
    # AVX-512 an unsigned integer has no instruction that makes it a float.
    distance = (signed ^ ~(signed >> 31)) & jnp.int32(2**31 - 1)
    # Four times the tail's probability.
    four = plus(jnp.float32(2.0**-31), distance.astype(jnp.float32), jnp.float32(2.0**-30))
    t = plus(jnp.float32(_T_SHIFT), far(four * plus(jnp.float32(1), four, jnp.float32(-0.25))), jnp.float32(_T_SLOPE))
    centre: Array = plus(jnp.float32(2.0**-32), signed.astype(jnp.float32), jnp.float32(2.0**-31))
    return centre * _polynomial(_QUANTILE, t, plus)


def _logarithm(x: Array) -> Array:
    """The natural logarithm of positive, normal numbers."""
    word = lax.bitcast_convert_type(x, jnp.int32)
    exponent = (word - jnp.int32(0x3F3504F3)) >> 23  # so that the rest lies between √½ and √2
    rest = lax.bitcast_convert_type(word - (exponent << 23), jnp.float32) - 1
    whole: Array = exponent.astype(jnp.float32) * jnp.float32(math.log(2))
    return whole + rest * _polynomial(_LOGARITHM, rest)


def _root(x: Array) -> Array:
    """The square root of positive, normal numbers; on a GPU, whose own costs more than all the rest, within 8e-7."""
    root: Array = lax.platform_dependent(x, cuda=newton_root, default=jnp.sqrt)
    return root


def newton_root(x: Array) -> Array:
    """Half the exponent as a first guess of 1/√x, a step with J. Kadlec's constants, and a step of Newton's."""
    guess = lax.bitcast_convert_type(jnp.int32(0x5F1FFFF9) - (lax.bitcast_convert_type(x, jnp.int32) >> 1), jnp.float32)
    inverse = guess * (jnp.float32(1.68191391) - jnp.float32(0.703952253) * x * guess * guess)
    root = x * inverse
    corrected: Array = root + root * (jnp.float32(0.5) - jnp.float32(0.5) * root * inverse)
    return corrected


def _polynomial(coefficients: tuple[float, ...], x: Array, plus: PlusProduct = plus_product) -> Array:
    value: Array = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = plus(jnp.float32(coefficient), value, x)
    return value


def secure_normal(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Standard Gaussians that nobody can predict: exact inversion, in double precision, of a cryptographic stream.

    The tail probability has 52 bits behind its leading one, however small it is, so numbers far out lie as close as
    numbers near 0: only float32 spaces them, by 2^-24 of themselves or less. Low bits of floating-point Gaussians can
    leak (Mironov 2012); what leaves a device is rounded to the codec's grid, which is no finer than that within its
    range. The strict mode leaves the noise to `secagg.codec`.

    >>> secure_normal((2, 3)).dtype
    dtype('float32')
    """
    from scipy.special import ndtri

    value: NDArray[np.float64] = ndtri(_small_uniform(drawn := secure_words(shape)))
    value[(drawn & np.uint64(1)).astype(bool)] *= -1
    return value.astype(np.float32)


def _small_uniform(drawn: Words) -> NDArray[np.float64]:
    """Uniform in (0, 1/2), every binade with all its bits, from all but the lowest bit of each word.

    Bits 12 to 63 stand behind the leading one. Its place is that of the first one among bits 1 to 11; where all are
    zero, once in 2^11 draws, fresh words go on.
    """
    halvings = 11 - np.frexp(((drawn >> np.uint64(1)) & np.uint64(2**11 - 1)).astype(np.float64))[1]
    more = np.argwhere(halvings == 11)
    while len(more):
        fresh = secure_words((len(more),))
        zeros = 53 - np.frexp((fresh >> np.uint64(11)).astype(np.float64))[1]
        halvings[tuple(more.T)] += zeros
        more = more[zeros == 53]
    rest = ((drawn >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    uniform: NDArray[np.float64] = np.ldexp(1 + rest, -2 - halvings)
    return uniform
