"""Spans of sessions and calls, as OpenTelemetry's own SDK gathers them."""

import http.server
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ors import Server
from ors.server.observe.otel_traces import OTelTraces
from tests.support.environments import Lab
from tests.support.live_server import app_of, serving
from tests.support.raw_http import Raw

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def traced() -> Iterator[tuple[Raw, InMemorySpanExporter]]:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    with serving(Server([Lab], observers=[OTelTraces(provider)])) as url:
        yield Raw(url), kept


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_call_is_a_child_of_its_session(traced: tuple[Raw, InMemorySpanExporter]) -> None:
    raw, kept = traced
    sid = raw.session(headers=PARENT)
    raw.call(sid, "reward", {"value": 0.5})
    raw.call(sid, "boom", {"text": "x"})
    raw.post("/delete", sid=sid)
    good, bad, session = kept.get_finished_spans()
    assert session.parent is not None
    assert f"{session.parent.trace_id:032x}" == TRACE
    assert session.context is not None
    assert [span.parent for span in (good, bad)] == [session.context] * 2
    assert session.name == "session lab"
    assert attributes(session)["ors.reason"] == "deleted"
    assert attributes(good)["ors.reward"] == 0.5
    assert (attributes(bad)["ors.tool"], attributes(bad)["ors.reason"]) == ("boom", "environment")
    assert (good.status.is_ok, bad.status.is_ok) == (True, False)
    assert good.start_time is not None
    assert session.start_time is not None
    assert good.end_time is not None
    assert session.start_time <= good.start_time <= good.end_time


def test_a_call_with_a_context_of_its_own_is_linked_to_its_session(
    traced: tuple[Raw, InMemorySpanExporter],
) -> None:
    raw, kept = traced
    sid = raw.session()
    raw.call(sid, "nothing", headers=PARENT)
    raw.post("/delete", sid=sid)
    call, session = kept.get_finished_spans()
    assert call.parent is not None
    assert f"{call.parent.trace_id:032x}" == TRACE
    assert [link.context for link in call.links] == [session.context]
    assert session.parent is None


@pytest.mark.parametrize("trace", ["", "nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "\xff" * 99])
def test_a_context_that_is_none_is_passed_over(traced: tuple[Raw, InMemorySpanExporter], trace: str) -> None:
    raw, kept = traced
    sid = raw.session(headers={"traceparent": trace})
    assert raw.call(sid, "nothing", headers={"traceparent": trace}).result()["ok"]
    raw.post("/delete", sid=sid)
    call, session = kept.get_finished_spans()
    assert call.context is not None
    assert session.parent is None


def test_a_failed_setup_is_an_error_of_the_session(traced: tuple[Raw, InMemorySpanExporter]) -> None:
    raw, kept = traced
    sid = raw.session(task={"fail": "setup"})
    raw.get("/lab/prompt", sid=sid)
    raw.post("/delete", sid=sid)
    (session,) = kept.get_finished_spans()
    assert not session.status.is_ok
    assert session.status.description == "environment"


def test_without_the_extra_a_server_serves_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with serving(Server([Lab])) as url:
        assert Raw(url).get("/health").status == 200
    assert "pip install 'ors-kit[otel]'" in caplog.text


@contextmanager
def collector(monkeypatch: pytest.MonkeyPatch, variable: str) -> Iterator[threading.Event]:
    """Listens where `variable` points to; the event is set once the span of a session has come."""
    came = threading.Event()

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces" and b"session lab" in body:
                came.set()
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        monkeypatch.setenv(variable, endpoint + ("/v1/traces" if "TRACES" in variable else ""))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield came
        listener.shutdown()


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
def test_with_an_endpoint_in_the_environment_spans_are_sent_there(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with collector(monkeypatch, variable) as came, serving(Server([Lab])) as url:
        raw = Raw(url)
        raw.post("/delete", sid=raw.session())
        assert came.wait(20)


def test_what_was_not_sent_yet_is_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(monkeypatch, "OTEL_EXPORTER_OTLP_ENDPOINT") as came:
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1000000")
        with serving(Server([Lab])) as url:
            raw = Raw(url)
            raw.post("/delete", sid=raw.session())
            assert not came.is_set()
        assert came.wait(20)


@pytest.mark.parametrize(("exporter", "observers"), [("otlp", 1), ("none", 0)])
def test_traces_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, exporter: str, observers: int) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", exporter)
    with collector(monkeypatch, "OTEL_EXPORTER_OTLP_ENDPOINT"):
        server = Server([Lab])
        with serving(server):
            found = app_of(server).shared.observers.all
    assert [type(one) for one in found] == [OTelTraces] * observers
