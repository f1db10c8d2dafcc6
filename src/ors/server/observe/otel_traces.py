"""Sessions and calls as spans of OpenTelemetry.

A span lasts as long as its session, from `/create` to the end of its teardown. Each call is its child. A
`traceparent` of the request becomes the parent: that of `/create` of the session, that of `/call` of the
call, which is then linked to its session.
"""

import time
from collections.abc import Callable, Sequence

from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import ors.server.observe.events as events
from ors import _protocol
from ors._version import __version__

LONGEST_NAME = 100
_CONTEXTS = TraceContextTextMapPropagator()


class OTelTraces:
    """Makes spans with the tracer of `provider`: `Server(observers=[OTelTraces(provider)])`."""

    def __init__(self, provider: TracerProvider, on_close: Callable[[], None] = lambda: None) -> None:
        self.close = on_close
        self._tracer = provider.get_tracer("ors", __version__)
        self._sessions: dict[str, Span] = {}

    def observe(self, event: events.Event) -> None:
        match event:
            case events.CallFinished():
                self._call(event)
            case events.SessionOpened():
                self._open(event)
            case events.SessionReady():
                self._ready(event)
            case events.SessionClosed():
                self._close(event)

    def _open(self, event: events.SessionOpened) -> None:
        self._sessions[event.sid] = self._tracer.start_span(
            f"session {event.environment}",
            context=_CONTEXTS.extract({_protocol.TRACE: event.trace}),
            kind=SpanKind.SERVER,
            attributes={
                "ors.session": event.sid,
                "ors.environment": event.environment,
                "ors.api_key": event.key,
            },
        )

    def _ready(self, event: events.SessionReady) -> None:
        span = self._sessions.get(event.sid)
        if span is not None:
            span.add_event("ready" if not event.reason else "setup failed", {"ors.reason": event.reason})
            if event.reason:
                span.set_status(Status(StatusCode.ERROR, event.reason))

    def _close(self, event: events.SessionClosed) -> None:
        span = self._sessions.pop(event.sid, None)
        if span is not None:
            span.set_attribute("ors.reason", event.reason)
            span.end()

    def _call(self, event: events.CallFinished) -> None:
        session = self._sessions.get(event.sid)
        above = set_span_in_context(session) if session is not None else None
        links = []
        if event.trace:
            above = _CONTEXTS.extract({_protocol.TRACE: event.trace})
            links = [Link(session.get_span_context())] if session is not None else []
        ended = time.time_ns()
        span = self._tracer.start_span(
            "call",  # not the tool: agents may invent names, and span names should be few
            context=above,
            kind=SpanKind.SERVER,
            start_time=ended - round(event.seconds * 1e9),
            links=links,
            attributes=_attributes(event),
        )
        if event.outcome == "failed":
            span.set_status(Status(StatusCode.ERROR, event.reason))
        span.end(ended)


def _attributes(event: events.CallFinished) -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {
        "ors.session": event.sid,
        "ors.environment": event.environment,
        "ors.tool": event.tool[:LONGEST_NAME],
        "ors.task_id": event.task_id,
        "ors.outcome": event.outcome,
        "ors.finished": event.finished,
    }
    if event.reason:
        found["ors.reason"] = event.reason
    if event.reward is not None:
        found["ors.reward"] = event.reward
    return found | {f"ors.reward.{name}": value for name, value in event.components.items()}


def exported() -> Sequence[events.Observer]:
    """Spans, sent to where OpenTelemetry's environment variables say.

    Raises:
        ImportError: the extra is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider as Provider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # Not the process's provider: other traces of the process are not ours to send.
    provider = Provider(resource=Resource.create({"service.name": "ors"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return (OTelTraces(provider, provider.shutdown),)
