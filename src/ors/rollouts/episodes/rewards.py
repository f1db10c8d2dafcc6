"""Reductions: how the rewards of an episode's steps become one number."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

ReductionName = Literal["last", "sum", "max"]
Reduction = ReductionName | Callable[[Sequence[float]], float]
"""A name, or a function of the rewards that were given, in their order. It is not called without any."""

_BY_NAME: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda rewards: rewards[-1],
    "sum": sum,
    "max": max,
}


def reducer(reduction: Reduction) -> Callable[[Sequence[float]], float]:
    """The function of a reduction.

    Raises:
        ValueError: there is none of that name.
    """
    if callable(reduction):
        return reduction
    if reduction not in _BY_NAME:
        names = ", ".join(get_args(ReductionName))
        raise ValueError(f"Unknown reward reduction {reduction!r}: use one of {names}, or a function")
    return _BY_NAME[reduction]
