"""The server's metrics, for Prometheus."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ors.server.observe.events import Event
from ors.server.observe.histogram import Histogram
from ors.server.observe.loop_lag import LoopLag
from ors.server.observe.metrics import METRICS, Labels, MetricRow, MetricSource, Values
from ors.server.runtime import Runtime
from ors.server.sessions.registry import Sessions

if TYPE_CHECKING:
    from prometheus_client.core import CollectorRegistry, Metric


class _Count(NamedTuple):
    """A metric that is counted from events. How to read them is found out once, not for every session."""

    labels: Callable[[Any], Labels]
    measure: Callable[[Any], float] | None
    """Reads what a histogram measures."""
    values: defaultdict[Labels, Any]


def _count(row: MetricRow) -> _Count:
    assert row.event is not None
    places = [row.event._fields.index(name) for name in row.labels]
    if row.kind == "histogram":
        measure = itemgetter(row.event._fields.index(row.seconds))
        return _Count(_reader(places), measure, defaultdict(Histogram))
    return _Count(_reader(places), None, defaultdict(int))


def _reader(places: list[int]) -> Callable[[Any], Labels]:
    if not places:
        return lambda event: ()
    if len(places) > 1:
        return itemgetter(*places)
    (place,) = places
    return lambda event: (event[place],)


class Metrics:
    """Counts events, and reads the other values when asked."""

    def __init__(self, runtime: Runtime, sessions: Sessions, tools: Mapping[str, Set[str]]) -> None:
        self.lag = LoopLag()
        self._source = MetricSource(runtime, sessions, list(tools), self.lag)
        self._counts = {row.name: _count(row) for row in METRICS if row.read is None}
        self._by_event: defaultdict[type[Event], list[_Count]] = defaultdict(list)
        for row in METRICS:
            if row.read is None and row.event is not None:
                self._by_event[row.event].append(self._counts[row.name])
        runtime.calls.know(tools)

    @cached_property
    def _registry(self) -> "CollectorRegistry":
        # prometheus-client is imported when metrics are asked for: 25 ms of a server's start.
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        ProcessCollector(registry=registry)
        return registry

    def text(self) -> bytes:
        """All metrics, in the format that Prometheus scrapes."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    @property
    def events(self) -> Iterable[type[Event]]:
        return self._by_event

    def observe(self, event: Event) -> None:
        """Counts an event. Calls are counted elsewhere, as they end."""
        for read, measure, values in self._by_event[type(event)]:
            labels = read(event)
            if measure is not None:
                values[labels].add(measure(event))
            elif "" not in labels:  # without a reason, a setup has not failed
                values[labels] += 1

    def collect(self) -> "Iterator[Metric]":
        """The server's own metrics, as they are now."""
        for row in METRICS:
            yield _family(row, self._counts[row.name].values if row.read is None else row.read(self._source))


def _family(row: MetricRow, values: Values) -> "Metric":
    from prometheus_client import core

    if row.kind == "histogram":
        histogram = core.HistogramMetricFamily(row.name, row.help, labels=row.labels)
        for labels, times in sorted(values.items()):
            histogram.add_metric(labels, times.cumulative(), times.seconds)
        return histogram
    kind = core.CounterMetricFamily if row.kind == "counter" else core.GaugeMetricFamily
    family = kind(row.name, row.help, labels=row.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family
