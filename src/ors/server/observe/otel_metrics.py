"""The server's metrics by OpenTelemetry: those of the page for Prometheus, under the same names."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
from prometheus_client.core import Metric

from ors._version import __version__
from ors.server.observe.counters import SECONDS
from ors.server.observe.events import CallFinished, Event, Observer, SessionClosed, SessionReady
from ors.server.observe.prometheus import Metrics

UNITS = {"seconds": "s", "bytes": "By"}
SAME_LOOK_SECONDS = 0.5
"""A reader asks for one metric after the other, and is told of one moment."""


class OTelMetrics:
    """Makes the metrics, with the meter of `provider`: pass it to `Server(observers=[Metering(provider)])`.

    Counters and gauges are read off our own when OpenTelemetry asks, so they cost a call nothing; a histogram
    must be told of each time as it passes.
    """

    def __init__(self, provider: MeterProvider, on_close: Callable[[], None] = lambda: None) -> None:
        self.close = on_close
        self._meter = provider.get_meter("ors", __version__)
        self._metrics: Metrics | None = None
        self._histograms: dict[str, Histogram] = {}
        self._found: dict[str, Metric] = {}
        self._looked = 0.0

    def read_from(self, metrics: Metrics) -> None:
        """From now on there is something to read."""
        self._metrics = metrics
        make = {
            "counter": self._meter.create_observable_counter,
            "gauge": self._meter.create_observable_gauge,
        }
        for family in metrics.families():
            name, text, unit = (
                family.name,
                family.documentation,
                UNITS.get(family.name.rpartition("_")[2], ""),
            )
            if family.type in make:
                make[family.type](name, [partial(self._read, name)], unit, text)
            elif family.type == "histogram":
                self._histograms[name] = self._meter.create_histogram(
                    name, unit, text, explicit_bucket_boundaries_advisory=SECONDS
                )

    def observe(self, event: Event) -> None:
        """Tells the histograms how long something took."""
        if self._metrics is None:
            return
        if isinstance(event, CallFinished):
            labels = {"environment": event.environment, "tool": self._metrics.tool_of(event)}
            self._histograms["ors_call_seconds"].record(event.seconds, labels)
        elif isinstance(event, SessionReady):
            self._histograms["ors_setup_seconds"].record(event.seconds, {"environment": event.environment})
        elif isinstance(event, SessionClosed):
            labels = {"environment": event.environment}
            self._histograms["ors_teardown_seconds"].record(event.teardown_seconds, labels)

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
        # In a thread of the reader's, beside the event loop.
        if self._metrics is not None and time.monotonic() - self._looked > SAME_LOOK_SECONDS:
            self._looked = time.monotonic()
            self._found = {family.name: family for family in self._metrics.families()}
        return self._found


def exported() -> Sequence[Observer]:
    """Metrics, sent to where OpenTelemetry's variables say.

    Raises:
        ImportError: the extra is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider as Provider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    # Ours alone, as the spans' provider is.
    reader = PeriodicExportingMetricReader(OTLPMetricExporter())
    provider = Provider([reader], Resource.create({"service.name": "ors"}))
    return (OTelMetrics(provider, provider.shutdown),)
