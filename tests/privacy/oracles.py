"""Independent figures: mpmath at 50 digits, from the definitions and not from choral's formulas."""

import mpmath

mpmath.mp.dps = 50


def gaussian_delta(epsilon, mu):
    """δ(ε) of μ-Gaussian DP (Balle and Wang 2018, Theorem 8)."""
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    return mpmath.ncdf(-epsilon / mu + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


def concentrated_delta(epsilon, rho):
    """δ(ε) of ρ-zCDP: inf over α of exp((α−1)(αρ−ε))/(α−1)·(1−1/α)^α (Canonne, Kamath, Steinke 2020, Corollary 13)."""
    epsilon, rho = mpmath.mpf(epsilon), mpmath.mpf(rho)

    def slope(t):  # of ln δ in α, increasing; α = 1 + e^t
        u = mpmath.exp(t)
        return (2 * u + 1) * rho - epsilon + mpmath.log(u / (1 + u))

    low, high = mpmath.mpf(-800), mpmath.mpf(800)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    u = mpmath.exp(low)
    return mpmath.exp(u * ((1 + u) * rho - epsilon) + (1 + u) * mpmath.log(u / (1 + u)) - mpmath.log(u))


def brackets(delta_at, epsilon, delta, tolerance=1e-9):
    """Whether the true ε lies within a relative tolerance of this one, since δ(ε) falls."""
    epsilon, delta = mpmath.mpf(epsilon), mpmath.mpf(delta)
    return delta_at(epsilon * (1 + tolerance)) <= delta <= delta_at(epsilon * (1 - tolerance))


def hockey_stick(epsilon, noise_multiplier, probability):
    """δ(ε) of one Poisson-sampled step, by numerical integration of the two mixtures' densities."""
    z, q, bound = mpmath.mpf(noise_multiplier), mpmath.mpf(probability), mpmath.exp(epsilon)

    def excess(x):
        p = (1 - q) * mpmath.npdf(x, 0, z) + q * mpmath.npdf(x, 1, z)
        other = (1 - q) * mpmath.npdf(x, 0, z) + q * mpmath.npdf(x, -1, z)
        return p - bound * other

    # The likelihood ratio rises in x, so the excess has one zero and is positive beyond it.
    zero = mpmath.findroot(excess, (mpmath.mpf(0), z * z * epsilon + 1), solver="anderson", verify=False)
    return mpmath.quad(excess, [zero, zero + z, zero + 3 * z, zero + 8 * z, zero + 40 * z])
