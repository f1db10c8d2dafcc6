"""Every metric of a server: a row of name, help, kind, labels and value. Add new ones here."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from ors.server.observe.events import (
    CallFinished,
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
from ors.server.observe.loop_lag import LoopLag
from ors.server.runtime import Runtime
from ors.server.sessions.kept_results import RECORD_BYTES
from ors.server.sessions.registry import Sessions
from ors.server.sessions.states import READY

Labels = tuple[str, ...]
Values = Mapping[Labels, Any]
"""Numbers, or `Histogram` of a histogram, by the values of the labels."""


class MetricSource(NamedTuple):
    """Where metrics read their values."""

    runtime: Runtime
    sessions: Sessions
    environments: list[str]
    lag: LoopLag


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


def _records(source: MetricSource) -> Values:
    counts = [recorder.counts() for recorder in source.runtime.observers.recorders]
    return {
        (result,): sum(numbers) for result, numbers in zip(_RESULTS, zip(*counts, strict=True), strict=False)
    }


def _gauge(name: str, help: str, value: Callable[[MetricSource], float]) -> MetricRow:
    return MetricRow(name, help, "gauge", read=lambda now: {(): value(now)})


_ENV = ("environment",)
_REASON = ("environment", "reason")
_TOOL = ("environment", "tool")
_CALL = ("environment", "tool", "outcome", "reason")
_RESULTS = ("written", "dropped")
METRICS = (
    MetricRow("ors_calls", "Tool calls", "counter", _CALL, lambda now: now.runtime.calls.counts()),
    MetricRow("ors_result_bytes", "Bytes of results", "counter", _ENV, lambda now: now.runtime.calls.sizes()),
    MetricRow(
        "ors_call_seconds",
        "Time of a call",
        "histogram",
        _TOOL,
        lambda now: now.runtime.calls.times(),
        CallFinished,
    ),
    MetricRow(
        "ors_episodes",
        "Episodes that ended",
        "counter",
        (*_ENV, "outcome"),
        lambda now: now.runtime.episodes.outcomes(),
    ),
    MetricRow(
        "ors_episodes_solved",
        "Episodes with a reward of 1 or more",
        "counter",
        _ENV,
        lambda now: now.runtime.episodes.solved(),
    ),
    MetricRow(
        "ors_episode_reward",
        "Rewards of scored episodes, those above and below zero apart",
        "counter",
        (*_ENV, "sign"),
        lambda now: now.runtime.episodes.rewards(),
    ),
    MetricRow("ors_sessions_created", "Sessions created", "counter", _ENV, event=SessionOpened),
    MetricRow("ors_sessions_closed", "Sessions ended", "counter", _REASON, event=SessionClosed),
    MetricRow("ors_setups_failed", "Setups that failed", "counter", _REASON, event=SessionReady),
    MetricRow("ors_calls_replayed", "Calls that clients came back for", "counter", _ENV, event=CallReplayed),
    MetricRow("ors_requests_rejected", "Requests turned away", "counter", ("reason",), event=Rejected),
    MetricRow("ors_records", "Episode records", "counter", ("result",), _records),
    MetricRow("ors_setup_seconds", "Time to set up", "histogram", _ENV, event=SessionReady),
    MetricRow(
        "ors_teardown_seconds",
        "Time to tear down",
        "histogram",
        _ENV,
        None,
        SessionClosed,
        "teardown_seconds",
    ),
    MetricRow(
        "ors_sandbox_kills",
        "Programs in sandboxes that a limit has ended",
        "counter",
        ("limit",),
        event=SandboxKilled,
    ),
    MetricRow("ors_sandbox_open_seconds", "Time to open a sandbox", "histogram", event=SandboxOpened),
    _gauge("ors_sandboxes_open", "Sandboxes that are open", lambda now: now.runtime.sandboxes.open),
    _gauge(
        "ors_sandboxes_waiting",
        "Callers that wait for a sandbox of a pool",
        lambda now: now.runtime.sandboxes.in_line,
    ),
    MetricRow("ors_sessions", "Sessions now", "gauge", (*_ENV, "state"), _sessions),
    _gauge("ors_calls_running", "Calls that run or wait for their turn", lambda now: now.runtime.running),
    _gauge(
        "ors_creations_waiting", "Creations that wait for a place", lambda now: now.sessions.admission.waiting
    ),
    _gauge(
        "ors_threads_lost",
        "Threads stuck in tools that nobody waits for",
        lambda now: now.runtime.threads.lost,
    ),
    _gauge("ors_results_kept", "Finished results that are kept", lambda now: len(now.runtime.kept)),
    _gauge(
        "ors_results_kept_bytes",
        f"Bytes of finished results that are kept, with {RECORD_BYTES} more for each",
        lambda now: now.runtime.kept.bytes,
    ),
    _gauge(
        "ors_event_loop_lag_seconds",
        "How late the event loop was, at worst, in half a minute",
        lambda now: now.lag.seconds,
    ),
    MetricRow(
        "ors_event_loop_held",
        "Times that a method held the event loop",
        "counter",
        ("environment", "method"),
        event=LoopHeld,
    ),
)
