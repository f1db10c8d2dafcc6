"""Every metric of a server: a row of name, help, kind, labels and value. Add new ones here."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ors.server.episodes.author_code import AuthorCode
from ors.server.observe.counters import Labels, Tally
from ors.server.observe.events import (
    CallReplayed,
    Event,
    LoopHeld,
    Rejected,
    SandboxKilled,
    SandboxOpened,
    SessionClosed,
    SessionOpened,
    SessionReady,
)
from ors.server.observe.loop_watch import LoopWatch
from ors.server.sessions.kept_results import RECORD_BYTES
from ors.server.sessions.registry import Sessions
from ors.server.sessions.session import READY
from ors.server.sessions.shared import Shared

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Values = Mapping[Labels, Any]
"""Numbers, or `Tally` of a histogram, by the values of the labels."""


class MetricSource(NamedTuple):
    shared: Shared
    sessions: Sessions
    code: AuthorCode
    environments: list[str]
    watch: LoopWatch


class MetricRow(NamedTuple):
    """One metric. Its value is read from the server, or counted from events whose fields are its labels."""

    name: str
    help: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: Labels = ()
    read: Callable[[MetricSource], Values] | None = None
    event: type[Event] | None = None
    seconds: str = "seconds"
    """The field of the event that a histogram measures."""


def _sessions(source: MetricSource) -> Values:
    # Report a zero too: autoscalers must see the difference between none and no answer.
    found: Counter[Labels] = Counter({(environment, READY.value): 0 for environment in source.environments})
    found.update((session.environment, session.state.value) for session in list(source.sessions))
    return found


def _calls(source: MetricSource) -> Values:
    return {labels: tally.count for labels, tally in source.shared.calls.by(4).items()}


def _result_bytes(source: MetricSource) -> Values:
    return {labels: tally.bytes for labels, tally in source.shared.calls.by(1).items()}


def _records(source: MetricSource) -> Values:
    counts = [recorder.counts() for recorder in source.shared.observers.recorders]
    return {
        (result,): sum(numbers) for result, numbers in zip(_RESULTS, zip(*counts, strict=True), strict=False)
    }


def _counter(name: str, help: str, labels: Labels, read: Callable[[MetricSource], Values]) -> MetricRow:
    return MetricRow(name, help, "counter", labels, read)


def _episodes(name: str, help: str, labels: Labels, numbers: str) -> MetricRow:
    """A row for one of the dictionaries of `EpisodeCounters`."""
    return MetricRow(name, help, "counter", labels, attrgetter(f"shared.episodes.{numbers}"))


def _gauge(name: str, help: str, value: Callable[[MetricSource], float]) -> MetricRow:
    return MetricRow(name, help, "gauge", read=lambda now: {(): value(now)})


def _counted(name: str, help: str, event: type[Event], labels: Labels = ()) -> MetricRow:
    return MetricRow(name, help, "counter", labels, event=event)


def _timed(name: str, help: str, event: type[Event], labels: Labels = (), of: str = "seconds") -> MetricRow:
    return MetricRow(name, help, "histogram", labels, event=event, seconds=of)


_ENV = ("environment",)
_REASON = ("environment", "reason")
_SIGN = ("environment", "sign")
_COMPONENT = ("environment", "component", "sign")
_TOOL = ("environment", "tool")
_CALL = ("environment", "tool", "outcome", "reason")
_RESULTS = ("written", "dropped")
METRICS = (
    _counter("ors_calls", "Tool calls", _CALL, _calls),
    _counter("ors_result_bytes", "Bytes of results", _ENV, _result_bytes),
    MetricRow("ors_call_seconds", "Time of a call", "histogram", _TOOL, lambda now: now.shared.calls.by(2)),
    _episodes("ors_episodes", "Episodes that ended", ("environment", "outcome"), "outcomes"),
    _episodes("ors_episodes_solved", "Episodes with a reward of 1 or more", _ENV, "solved"),
    _episodes("ors_episode_reward", "Sum of episode rewards, split by sign", _SIGN, "rewards"),
    _episodes(
        "ors_episode_reward_component",
        "Sum of named episode rewards, split by sign",
        _COMPONENT,
        "components",
    ),
    _counted("ors_sessions_created", "Sessions created", SessionOpened, _ENV),
    _counted("ors_sessions_closed", "Sessions ended", SessionClosed, _REASON),
    _counted("ors_setups_failed", "Setups that failed", SessionReady, _REASON),
    _counted("ors_calls_replayed", "Calls rejoined by their client", CallReplayed, _ENV),
    _counted("ors_requests_rejected", "Requests refused", Rejected, ("reason",)),
    _counter("ors_records", "Episode records", ("result",), _records),
    _timed("ors_setup_seconds", "Time to set up", SessionReady, _ENV),
    _timed("ors_teardown_seconds", "Time to tear down", SessionClosed, _ENV, "teardown_seconds"),
    _counted("ors_sandbox_kills", "Sandbox programs killed by a limit", SandboxKilled, ("limit",)),
    _timed("ors_sandbox_open_seconds", "Time to open a sandbox", SandboxOpened),
    _gauge("ors_sandboxes_open", "Open sandboxes", lambda now: now.code.sandboxes.open),
    _gauge(
        "ors_sandboxes_waiting",
        "Callers waiting for a pooled sandbox",
        lambda now: now.code.sandboxes.in_line,
    ),
    MetricRow("ors_sessions", "Sessions now", "gauge", ("environment", "state"), _sessions),
    _gauge("ors_calls_running", "Calls running or queued", lambda now: now.shared.running),
    _gauge("ors_threads_lost", "Threads stuck in abandoned tool calls", lambda now: now.code.threads.lost),
    _gauge(
        "ors_results_kept",
        "Finished results kept for clients that reconnect",
        lambda now: len(now.shared.kept),
    ),
    _gauge(
        "ors_results_kept_bytes",
        f"Bytes of finished results that are kept, with {RECORD_BYTES} more for each",
        lambda now: now.shared.kept.bytes,
    ),
    _gauge("ors_event_loop_lag_seconds", "Worst event loop lag of the last 30 s", lambda now: now.watch.lag),
    _counted("ors_event_loop_held", "Times a method blocked the event loop", LoopHeld, ("method",)),
)


class _Count(NamedTuple):
    """A metric that is counted from events."""

    read: Callable[[Any], Labels]
    measure: Callable[[Any], float] | None
    values: defaultdict[Labels, Any]


def _reader(names: Labels) -> Callable[[Any], Labels]:
    if len(names) == 1:
        read = attrgetter(*names)
        return lambda event: (read(event),)
    return attrgetter(*names) if names else lambda event: ()


class Metrics:
    """Counts events, and reads the other values when asked."""

    def __init__(self, source: MetricSource, tools: Mapping[str, Set[str]]) -> None:
        self._source = source
        self._counts: dict[str, defaultdict[Labels, Any]] = {}
        self._by_event: defaultdict[type[Event], list[_Count]] = defaultdict(list)
        for row in METRICS:
            if row.event is not None:
                measure = attrgetter(row.seconds) if row.kind == "histogram" else None
                values = self._counts[row.name] = defaultdict(int if measure is None else Tally)
                self._by_event[row.event].append(_Count(_reader(row.labels), measure, values))
        source.shared.calls.know(tools)

    def text(self) -> bytes:
        # prometheus-client is imported when metrics are asked for: 25 ms of a server's start.
        from prometheus_client import generate_latest

        return generate_latest(self)

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
        from prometheus_client import ProcessCollector

        for row in METRICS:
            yield _family(row, self._counts[row.name] if row.read is None else row.read(self._source))
        yield from ProcessCollector(registry=None).collect()


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
