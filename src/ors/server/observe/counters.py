"""Counters and histograms that are plain numbers until someone asks for them.

prometheus-client's own take a lock and look their labels up each time: 7% of an episode, by the profiler.
It is imported when they are asked for: 25 ms of a server's start.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
BOUNDS = [*map(str, SECONDS), "+Inf"]


class Counters:
    """How often something happened, by its labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._said = (name, text, labels)
        self._found: defaultdict[tuple[str, ...], int] = defaultdict(int)

    def add(self, *labels: str) -> None:
        """It happened once more."""
        self._found[labels] += 1

    def collect(self) -> "Iterator[Metric]":
        """As Prometheus sees it."""
        from prometheus_client.core import CounterMetricFamily

        name, text, labels = self._said
        metric = CounterMetricFamily(name, text, labels=labels)
        for values, count in sorted(self._found.items()):
            metric.add_metric(values, count)
        yield metric


class Histograms:
    """How long something took, by its labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._said = (name, text, labels)
        self._found: dict[tuple[str, ...], tuple[list[int], list[float]]] = {}

    def add(self, seconds: float, *labels: str) -> None:
        """It took so long."""
        found = self._found.get(labels)
        if found is None:
            found = self._found[labels] = ([0] * len(BOUNDS), [0.0])
        found[0][bisect_left(SECONDS, seconds)] += 1
        found[1][0] += seconds

    def collect(self) -> "Iterator[Metric]":
        """As Prometheus sees it."""
        from prometheus_client.core import HistogramMetricFamily

        name, text, labels = self._said
        metric = HistogramMetricFamily(name, text, labels=labels)
        for values, (buckets, total) in sorted(self._found.items()):
            metric.add_metric(values, cumulative(buckets), total[0])
        yield metric


def cumulative(buckets: Sequence[int]) -> list[tuple[str, float]]:
    """The buckets of a histogram, each with all below it."""
    found, total = [], 0
    for bound, count in zip(BOUNDS, buckets, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
