"""Findings of an examination, and their report."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ors.rollouts.records.statistics import counted

Level = Literal["fault", "warning"]

FIXES = {
    "splits": "Make list_splits() work.",
    "tasks": "Make list_tasks() work.",
    "empty": "List at least one task, or remove the split.",
    "count": "Make num_tasks() and list_tasks() agree.",
    "unstable": "Make list_tasks() return the same tasks in the same order: use a fixed seed, or sort them.",
    "overlap": "Keep the splits disjoint, otherwise a test split measures nothing.",
    "exposed": "Add it to private_fields, or list only an id and look up the answer in setup().",
    "tools": "Make list_tools() work.",
    "schema": "Fix its input schema.",
    "description": "Write a docstring: models use it to decide when to call the tool.",
    "format": "Simplify its input until every provider accepts it.",
    "opens": "Make __init__, setup() and get_prompt() work for every task.",
    "prompt": "Explain the task in get_prompt().",
    "answer-in-prompt": "Remove it from get_prompt(), unless the prompt lists choices.",
    "do-nothing": "Give reward for a result, not for a call. Check how empty answers are graded.",
    "not-there": "Add a method of that name with @tool, or handle it in _call_tool().",
    "refuses": "Put all rules for the input into the schema, so that models know them.",
    "not-deterministic": "Seed all randomness from the task. A grader must not depend on time.",
    "not-apart": "Keep state in the instance (self.…), not in the class, in a module or in shared files.",
    "episode": "See the server's log.",
    "gold": "Fix the grader or solve(). If the maximum is not 1, declare reward_range.",
    "declared-reward": "Fix the reward, or what the class declares: reward_range, reward_components.",
    "forged-grade": "Run the agent's program in its own process and grade its output: box.grade_cases().",
    "teardown": "Make it work no matter how the episode ended.",
    "memory": "Release the memory of an episode: look for lists and caches in the class or module.",
    "holds-loop": "Make it a plain def, which runs in a thread, or await the slow part.",
}
"""What an author should do about each finding, unless the finding says something else."""
WARNINGS = {"overlap", "exposed", "description", "refuses", "holds-loop"}
"""Findings that need not be faults."""


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
        self, id: str, text: str, *, fix: str = "", level: Level = "fault", where: str = "", source: str = ""
    ) -> None:
        """Adds a finding; the same finding of several tasks is one entry."""
        places = [where] if where else []
        for finding in self.findings:
            if (finding.id, finding.text) == (id, text):
                finding.where += [place for place in places if place not in finding.where]
                return
        level = "warning" if id in WARNINGS else level
        self.findings.append(Finding(id, level, text, fix or FIXES[id], places, source))

    @property
    def faults(self) -> list[Finding]:
        """Findings that are not just warnings."""
        return [finding for finding in self.findings if finding.level == "fault"]


def as_json(reports: list[QualityReport]) -> str:
    """Formats reports as JSON."""
    found = [{**asdict(report), "fit": not report.faults} for report in reports]
    return json.dumps(found, indent=2, ensure_ascii=False)


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
    kinds = ((faults, "fault"), (len(report.findings) - faults, "warning"))
    return ", ".join(counted(count, kind) for count, kind in kinds if count) or "no problems found"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in line)
