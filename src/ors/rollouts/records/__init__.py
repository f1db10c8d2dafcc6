"""Runs on disk: written, read, summed up, compared and exported."""

from ors.rollouts.records.comparison import Comparison, TaskChange, compare
from ors.rollouts.records.exports import FORMATS, OUTCOMES, Exported, ExportFormat, export_run
from ors.rollouts.records.files import RunError
from ors.rollouts.records.health import Finding, Health, check
from ors.rollouts.records.info import RunInfo
from ors.rollouts.records.line import line_schema, record_json
from ors.rollouts.records.reader import BrokenLine, Entry, Run, entry_of, find_runs, read_run
from ors.rollouts.records.statistics import Estimate, Row, Summary, clustered_mean, summarize, task_rows
from ors.rollouts.records.writer import RunWriter

__all__ = [
    "FORMATS",
    "OUTCOMES",
    "BrokenLine",
    "Comparison",
    "Entry",
    "Estimate",
    "ExportFormat",
    "Exported",
    "Finding",
    "Health",
    "Row",
    "Run",
    "RunError",
    "RunInfo",
    "RunWriter",
    "Summary",
    "TaskChange",
    "check",
    "clustered_mean",
    "compare",
    "entry_of",
    "export_run",
    "find_runs",
    "line_schema",
    "read_run",
    "record_json",
    "summarize",
    "task_rows",
]
