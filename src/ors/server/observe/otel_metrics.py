"""The server's metrics for OpenTelemetry, under the names that Prometheus sees."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
from prometheus_client.core import Metric

from ors._version import __version__
from ors.server.observe.events import CallFinished, Event, Observer
from ors.server.observe.histogram import SECONDS
from ors.server.observe.metrics import METRICS
from ors.server.observe.prometheus import Metrics

_TIMED = {row.event: row for row in METRICS if row.kind == "histogram"}
UNITS = {"seconds": "s", "bytes": "By"}
SAME_MOMENT_SECONDS = 0.5
"""A reader asks for one metric after the other; all of them show the same moment."""


class OTelMetrics:
    """Makes the metrics with the meter of `provider`: `Server(observers=[OTelMetrics(provider)])`.

    Counters and gauges are read from the server's own when OpenTelemetry asks, so they cost a call nothing.
    A histogram must get each measurement as it happens.
    """

    def __init__(self, provider: MeterProvider, on_close: Callable[[], None] = lambda: None) -> None:
        self.close = on_close
        self._meter = provider.get_meter("ors", __version__)
        self._metrics: Metrics | None = None
        self._histograms: dict[str, Histogram] = {}
        self._found: dict[str, Metric] = {}
        self._read_at = 0.0

    def read_from(self, metrics: Metrics) -> None:
        """Creates the instruments that read `metrics`."""
        self._metrics = metrics
        make = {
            "counter": self._meter.create_observable_counter,
            "gauge": self._meter.create_observable_gauge,
        }
        for family in metrics.families():
            name, text = family.name, family.documentation
            unit = UNITS.get(name.rpartition("_")[2], "")
            if family.type in make:
                make[family.type](name, [partial(self._read, name)], unit, text)
            elif family.type == "histogram":
                self._histograms[name] = self._meter.create_histogram(
                    name, unit, text, explicit_bucket_boundaries_advisory=SECONDS
                )

    def observe(self, event: Event) -> None:
        """Records durations in the histograms."""
        row = _TIMED.get(type(event))
        if self._metrics is None or row is None:
            return
        labels = {label: getattr(event, label) for label in row.labels}
        if isinstance(event, CallFinished):
            labels["tool"] = self._metrics.tool_of(event)
        self._histograms[row.name].record(getattr(event, row.seconds), labels)

    def _read(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        family = self._families().get(name)
        if family is None:
            return []
        sample_name = f"{name}_total" if family.type == "counter" else name
        return [
            Observation(sample.value, sample.labels)
            for sample in family.samples
            if sample.name == sample_name
        ]

    def _families(self) -> dict[str, Metric]:
        # Runs in a thread of the reader, beside the event loop.
        if self._metrics is not None and time.monotonic() - self._read_at > SAME_MOMENT_SECONDS:
            self._read_at = time.monotonic()
            self._found = {family.name: family for family in self._metrics.families()}
        return self._found


def exported() -> Sequence[Observer]:
    """Metrics, sent to where OpenTelemetry's environment variables say.

    Raises:
        ImportError: the extra is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider as Provider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    # Not the process's provider, for the same reason as with spans.
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = Provider([reader], Resource.create({"service.name": "ors"}))
    return (OTelMetrics(provider, provider.shutdown),)
