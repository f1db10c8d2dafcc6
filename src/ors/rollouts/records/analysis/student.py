"""Student's t distribution."""

from math import exp, inf, lgamma, log

_STEPS = 200
_PRECISION = 1e-12


def two_sided(t: float, degrees: int) -> float:
    """The probability of a value as far from 0 as `t`, or farther."""
    if t == inf or t == -inf:
        return 0.0
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def quantile(confidence: float, degrees: int) -> float:
    """The value that is not exceeded, on either side of 0, with this probability."""
    low, high = 0.0, 1.0
    while two_sided(high, degrees) > 1 - confidence:
        high *= 2
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if two_sided(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The continued fraction converges fast on this side of the mean only.
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x))
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, from its front (Lentz's method)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return value
