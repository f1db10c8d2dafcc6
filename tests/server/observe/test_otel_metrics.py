"""Metrics as OpenTelemetry's own SDK gathers them, beside the page for Prometheus."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from ors import Limits, Server
from ors.server.observe.counters import SECONDS
from ors.server.observe.otel_metrics import OTelMetrics
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

Points = dict[str, dict[frozenset[tuple[str, Any]], Any]]


@pytest.fixture
def metered() -> Iterator[tuple[Raw, InMemoryMetricReader]]:
    reader = InMemoryMetricReader()
    observers = [OTelMetrics(MeterProvider([reader]))]
    with serving(Server([Lab], observers=observers, limits=Limits(sessions=3))) as url:
        yield Raw(url), reader


def told(reader: InMemoryMetricReader) -> Points:
    """Every point, by the metric's name and its attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: {frozenset((point.attributes or {}).items()): point for point in metric.data.data_points}
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_names_labels_and_values_are_those_of_the_page_for_prometheus(
    metered: tuple[Raw, InMemoryMetricReader],
) -> None:
    raw, reader = metered
    sids = [raw.session() for _ in range(3)]
    assert raw.post("/create", {"task_spec": {}}, sid="one-too-many").status == 429
    raw.call(sids[0], "reward", {"value": 0.5})
    raw.call(sids[1], "boom", {"text": "x"})
    raw.call(sids[1], "an agent's invention")
    task_id = raw.call(sids[1], "nothing").events()[0][1]
    raw.call(sids[1], "", task_id=task_id)
    raw.post("/delete", sid=sids[0])
    found = told(reader)
    compared = set()
    for family in text_string_to_metric_families(raw.get("/-/metrics").body.decode()):
        for sample in family.samples:
            point = found.get(family.name, {}).get(frozenset(sample.labels.items()))
            if family.type in ("counter", "gauge") and not sample.name.endswith("_created"):
                assert point is not None, sample
                if family.name.startswith("ors_") and not family.name.endswith("lag_seconds"):
                    assert point.value == sample.value, sample
                compared.add(family.name)
            elif sample.name.endswith("_count"):
                assert found[family.name][frozenset(sample.labels.items())].count == sample.value, sample
                compared.add(family.name)
    assert compared == set(found)
    assert {"ors_calls", "ors_sessions", "ors_call_seconds", "ors_threads_lost"} < compared
    assert "process_resident_memory_bytes" in compared


def test_histograms_have_our_bounds(metered: tuple[Raw, InMemoryMetricReader]) -> None:
    raw, reader = metered
    raw.call(raw.session(), "nothing")
    (point,) = told(reader)["ors_call_seconds"].values()
    assert isinstance(point, HistogramDataPoint)
    assert tuple(point.explicit_bounds) == SECONDS
    assert sum(point.bucket_counts) == 1


@contextmanager
def collector(monkeypatch: pytest.MonkeyPatch, wanted: dict[str, bytes]) -> Iterator[threading.Event]:
    """Listens where the variables point to; the event is set once each path has got what is wanted there."""
    got, everything = set(), threading.Event()

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.add(self.path if wanted.get(self.path, b"\0\0\0") in body else f"something else: {self.path}")
            if wanted.keys() <= got:
                everything.set()
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{listener.server_address[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
        yield everything
        listener.shutdown()


def test_with_an_endpoint_in_the_environment_spans_and_metrics_are_sent_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = {"/v1/traces": b"session lab", "/v1/metrics": b"ors_sessions_closed"}
    with collector(monkeypatch, wanted) as everything, serving(Server([Lab])) as url:
        raw = Raw(url)
        raw.post("/delete", sid=raw.session())
        assert everything.wait(20)


def test_what_was_not_sent_yet_is_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"/v1/traces": b"session lab", "/v1/metrics": b"ors_sessions_closed"}
    with collector(monkeypatch, wanted) as everything:
        for name in ("OTEL_BSP_SCHEDULE_DELAY", "OTEL_METRIC_EXPORT_INTERVAL"):
            monkeypatch.setenv(name, "1000000")
        with serving(Server([Lab])) as url:
            raw = Raw(url)
            raw.post("/delete", sid=raw.session())
            assert not everything.is_set()
        assert everything.wait(20)


@pytest.mark.parametrize(("variable", "left"), [("TRACES", "OTelMetrics"), ("METRICS", "OTelTraces")])
def test_either_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, variable: str, left: str) -> None:
    monkeypatch.setenv(f"OTEL_{variable}_EXPORTER", "none")
    with collector(monkeypatch, {}):
        server = Server([Lab])
        with serving(server):
            observers = server._app.runtime.observers.all
    assert [
        type(one).__name__ for one in observers if type(one).__name__ in ("OTelMetrics", "OTelTraces")
    ] == [left]
