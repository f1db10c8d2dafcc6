"""Tables of the errors and metrics, from the classes and rows that define them."""

import inspect

from ors import errors
from ors.errors import ORSError
from ors.server.admin.metrics import METRICS, MetricRow
from scripts.site.markdown import code, table


def metrics() -> str:
    """A table of all metrics, with the names that Prometheus shows."""
    rows = [(code(metric_name(row)), row.kind, ", ".join(map(code, row.labels)), row.help) for row in METRICS]
    return table(("metric", "kind", "labels", "meaning"), sorted(rows))


def metric_name(row: MetricRow) -> str:
    """The name of a metric on the metrics page."""
    return f"{row.name}_total" if row.kind == "counter" else row.name


def error_classes() -> list[type[ORSError]]:
    """All error classes, each after its base."""
    named = [getattr(errors, name) for name in errors.__all__]
    return sorted(named, key=lambda each: [one.__name__ for one in reversed(each.__mro__)])


def error_sections() -> str:
    """A table of all errors, then a section for each."""
    rows = [
        (f"[{code(each.__name__)}](#{each.__name__.lower()})", str(each.status), each.who, _first_line(each))
        for each in error_classes()
    ]
    sections = [_section(each) for each in error_classes()]
    return table(("error", "status", "who failed", "meaning"), rows) + "\n" + "\n".join(sections)


def _section(error: type[ORSError]) -> str:
    base = error.__bases__[0].__name__
    below = f"A kind of [`{base}`](#{base.lower()}). " if base != "Exception" else ""
    facts = f"{below}Status {error.status}; the party that failed: {error.who}."
    return f"### {error.__name__}\n\n{inspect.getdoc(error)}\n\n{facts}\n"


def _first_line(error: type[ORSError]) -> str:
    return (inspect.getdoc(error) or "").split("\n")[0]
