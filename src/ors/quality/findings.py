"""Findings of an examination, and their report."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["fault", "warning"]


@dataclass
class Finding:
    """A fault or warning about an environment, and how to fix it."""

    id: str
    level: Level
    text: str
    fix: str
    where: list[str]
    """Tasks with this fault."""
    source: str = ""
    """The author's line that raised, or the traceback."""

    def __str__(self) -> str:
        more = f" and {len(self.where) - 1} more" if len(self.where) > 1 else ""
        return f"{self.text} ({self.where[0]}{more})" if self.where else self.text


@dataclass
class QualityReport:
    """Results for one environment."""

    environment: str
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    """Rewards of simple policies, numbers of tasks and tools."""
    not_tried: dict[str, str] = field(default_factory=dict)
    """Steps that could not be examined, and why."""

    def found(
        self, id: str, text: str, fix: str, *, level: Level = "fault", where: str = "", source: str = ""
    ) -> None:
        """Adds a finding; the same finding of several tasks is one entry."""
        places = [where] if where else []
        for finding in self.findings:
            if (finding.id, finding.text) == (id, text):
                finding.where += [place for place in places if place not in finding.where]
                return
        self.findings.append(Finding(id, level, text, fix, places, source))

    @property
    def faults(self) -> list[Finding]:
        """Findings that are not just warnings."""
        return [finding for finding in self.findings if finding.level == "fault"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "fit": not self.faults,
            "findings": [vars(finding) for finding in self.findings],
            "figures": self.figures,
            "not_tried": self.not_tried,
        }


def as_json(reports: list[QualityReport]) -> str:
    """Formats reports as JSON."""
    return json.dumps([report.as_dict() for report in reports], indent=2, ensure_ascii=False)


def as_text(report: QualityReport) -> str:
    """Formats a report for people: each finding and its fix."""
    lines = [f"{report.environment}: {_verdict(report)}"]
    for finding in report.findings:
        mark = "✗" if finding.level == "fault" else "!"
        lines += [f"  {mark} {finding.id}: {finding}", f"      {finding.fix}"]
        lines += [f"    {line}" for line in finding.source.splitlines()]
    if report.figures:
        lines.append("  " + "; ".join(f"{name} {_text(value)}" for name, value in report.figures.items()))
    lines += [f"  · not tried: {name} ({why})" for name, why in report.not_tried.items()]
    return "\n".join(_printable(line) for line in lines) + "\n"


def _verdict(report: QualityReport) -> str:
    faults = len(report.faults)
    warnings = len(report.findings) - faults
    if not report.findings:
        return "nothing found"
    words = [f"{count} {word}" for count, word in ((faults, "faults"), (warnings, "warnings")) if count]
    return ", ".join(word[:-1] if word.startswith("1 ") else word for word in words)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return (
        f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    )


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
