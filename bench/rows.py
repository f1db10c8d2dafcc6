"""The rows of the comparison, and what each is meant to reach."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. The targets are ratios of our figure to the other one, except `at_most`.

    `reference` and `floor` are at least what is meant where more is better, and else at most.
    """

    key: str
    title: str
    unit: str
    more_is_better: bool = True
    reference: float | None = None
    floor: float | None = None
    at_most: float | None = None


ROWS = (
    Row("calls_1", "calls, 1 connection", "/s", reference=8),
    Row("calls_32", "calls, 32 connections", "/s", reference=55, floor=0.75),
    Row("calls_256", "calls, 256 connections", "/s", reference=55, floor=0.75),
    Row("cpu_1", "server CPU a call, 1 connection", "µs", more_is_better=False),
    Row("cpu_32", "server CPU a call, 32 connections", "µs", more_is_better=False),
    Row("cpu_256", "server CPU a call, 256 connections", "µs", more_is_better=False),
    Row("p50_1", "median latency, 1 connection", "µs", more_is_better=False),
    Row("p99_32", "99% of latencies, 32 connections", "µs", more_is_better=False),
    Row("sync_32", "sync tool, 32 connections", "/s", reference=15),
    Row("sync_cpu_32", "server CPU a sync call, 32 connections", "µs", more_is_better=False),
    Row("episodes_32", "whole episodes, 32 connections", "/s", reference=30),
    Row("episodes_cpu_32", "server CPU an episode, 32 connections", "µs", more_is_better=False),
    Row("big_64", "64 KB results, 32 connections", "MB/s", reference=12),
    Row("big_1024", "1 MB results, 8 connections", "MB/s", reference=12),
    Row("memory_idle", "memory of an idle session", "bytes", more_is_better=False, reference=0.5),
    Row("memory_called", "memory of a session after one call", "bytes", more_is_better=False, reference=0.35),
    Row("slow_1000", "1,000 two-second calls at once", "s", more_is_better=False),
    Row("slow_5000", "5,000 two-second calls at once", "s", more_is_better=False, at_most=3.0),
    Row("startup", "start to first answer", "ms", more_is_better=False),
    # Our `import ors` finds names on demand, so alone it loads next to nothing: authors pay for the next row.
    Row("import_ors", "import ors, no name used", "ms", more_is_better=False, reference=0.5),
    Row("import_author", "from ors import Environment, tool, …", "ms", more_is_better=False, reference=0.5),
    Row("import_client", "from ors.client import ORS", "ms", more_is_better=False, reference=0.5),
    Row("help", "ors --help", "ms", more_is_better=False, at_most=300),
    Row("client_32", "client, 32 at once", "/s"),
    Row("client_256", "client, 256 at once", "/s"),
    Row("client_cpu_32", "client CPU a call, 32 at once", "µs", more_is_better=False, reference=0.33),
    Row("client_cpu_256", "client CPU a call, 256 at once", "µs", more_is_better=False, reference=0.33),
)
