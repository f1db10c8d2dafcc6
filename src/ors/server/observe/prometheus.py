"""The server's metrics, for Prometheus."""

from collections import Counter as Count
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ors.server.observe.counters import Counters, Histograms
from ors.server.observe.events import (
    CallFinished,
    CallReplayed,
    Event,
    Rejected,
    SessionClosed,
    SessionOpened,
    SessionReady,
)
from ors.server.observe.loop_lag import LoopLag
from ors.server.runtime import Runtime
from ors.server.sessions.registry import Sessions
from ors.server.sessions.results import RECORD_BYTES
from ors.server.sessions.session import READY

if TYPE_CHECKING:
    from prometheus_client.core import CollectorRegistry, Metric


class Metrics:
    """Counts what happens, and looks at what is there when it is asked."""

    def __init__(self, runtime: Runtime, sessions: Sessions, tools: Mapping[str, Set[str]]) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._environments = list(tools)
        self.lag = LoopLag()
        env = ["environment"]
        self._created = Counters("ors_sessions_created", "Sessions created", env)
        self._closed = Counters("ors_sessions_closed", "Sessions ended", [*env, "reason"])
        self._failed = Counters("ors_setups_failed", "Setups that failed", [*env, "reason"])
        self._setup = Histograms("ors_setup_seconds", "Time to set up", env)
        self._teardown = Histograms("ors_teardown_seconds", "Time to tear down", env)
        self._replays = Counters("ors_calls_replayed", "Calls that clients came back for", env)
        self._rejected = Counters("ors_requests_rejected", "Requests turned away", ["reason"])
        runtime.calls.know(tools)

    @cached_property
    def _registry(self) -> "CollectorRegistry":
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Now(self))
        ProcessCollector(registry=registry)
        return registry

    def text(self) -> bytes:
        """Everything, in the format that Prometheus scrapes."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    def families(self) -> "Iterable[Metric]":
        """Everything, for whoever has a format of its own. May be asked for in another thread."""
        return self._registry.collect()

    def tool_of(self, event: CallFinished) -> str:
        """The label that its tool has here."""
        return self._runtime.calls.tool_of(event.environment, event.tool, event.outcome)

    def observe(self, event: Event) -> None:
        """Counts an event; calls are counted as they end."""
        if isinstance(event, SessionOpened):
            self._created.add(event.environment)
        elif isinstance(event, SessionReady):
            self._setup.add(event.seconds, event.environment)
            if event.reason:
                self._failed.add(event.environment, event.reason)
        elif isinstance(event, SessionClosed):
            self._closed.add(event.environment, event.reason)
            self._teardown.add(event.teardown_seconds, event.environment)
        elif isinstance(event, CallReplayed):
            self._replays.add(event.environment)
        elif isinstance(event, Rejected):
            self._rejected.add(event.reason)

    def now(self) -> "Iterator[Metric]":
        """The calls so far, and what there is at this moment."""
        from prometheus_client.core import GaugeMetricFamily

        yield from self._runtime.calls.collect()
        for counted in (self._created, self._closed, self._failed, self._replays, self._rejected):
            yield from counted.collect()
        yield from self._setup.collect()
        yield from self._teardown.collect()
        sessions = GaugeMetricFamily("ors_sessions", "Sessions now", labels=["environment", "state"])
        # A zero is told too: who scales by this must see the difference between none and no answer.
        found = Count({(environment, READY.value): 0 for environment in self._environments})
        found.update((session.environment, session.state.value) for session in list(self._sessions))
        for (environment, state), count in sorted(found.items()):
            sessions.add_metric([environment, state], count)
        yield sessions
        for name, text, value in (
            ("ors_calls_running", "Calls that run or wait for their turn", self._runtime.running),
            ("ors_creations_waiting", "Creations that wait for a place", self._sessions.admission.waiting),
            ("ors_threads_lost", "Threads stuck in tools that nobody waits for", self._runtime.threads.lost),
            ("ors_results_kept", "Finished results that are kept", len(self._runtime.kept)),
            (
                "ors_results_kept_bytes",
                f"Bytes of finished results that are kept, with {RECORD_BYTES} more for each",
                self._runtime.kept.bytes,
            ),
            (
                "ors_event_loop_lag_seconds",
                "How late the event loop was, at worst, in half a minute",
                self.lag.seconds,
            ),
        ):
            yield GaugeMetricFamily(name, text, value=value)


@runtime_checkable
class MetricsReader(Protocol):
    """An observer who also reads the metrics, when it likes."""

    def read_from(self, metrics: Metrics) -> None:
        """Here they are."""


class _Now:
    """What prometheus-client asks for the present."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> "Iterator[Metric]":
        return self._metrics.now()
