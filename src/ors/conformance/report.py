"""Formats reports as text, JSON, JUnit XML or a badge."""

import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from itertools import groupby
from typing import Any

from ors.conformance.suite import CheckResult, ConformanceReport

HINTS = {"needs the probe environment": " (ors serve ors.conformance.probe)", "slow": " (--slow tries them)"}
MARKS = {"passed": "✓", "failed": "✗", "not tried": "·"}


def as_text(report: ConformanceReport, *, verbose: bool = False) -> str:
    """Formats a report by chapter. Without `verbose`, only failed checks are listed."""
    lines = [f"{report.url}: {', '.join(report.environments) or 'no environments'}", ""]
    for chapter, results in groupby(report.results, key=lambda result: result.requirement.chapter):
        lines += _chapter(chapter, list(results), verbose)
    return "\n".join([*lines, *_totals(report)]) + "\n"


def _chapter(name: str, results: list[CheckResult], verbose: bool) -> list[str]:
    count = {outcome: sum(r.outcome == outcome for r in results) for outcome in MARKS}
    words = [f"{number} {outcome}" for outcome, number in count.items() if number]
    lines = [f"{name}: {', '.join(words)}"]
    for result in results:
        if verbose or result.outcome == "failed":
            lines += _lines(result)
    return [*lines, ""]


def _not_tried(report: ConformanceReport) -> list[str]:
    """Numbers of checks that were not tried, by reason and chapter; the most frequent reason first."""
    reasons: dict[str, Counter[str]] = {}
    for result in report.of("not tried"):
        reasons.setdefault(result.reason, Counter())[result.requirement.chapter] += 1
    lines = []
    for reason, chapters in sorted(reasons.items(), key=lambda item: -item[1].total()):
        where = ", ".join(f"{chapter} {count}" for chapter, count in chapters.items())
        lines.append(f"  · {chapters.total():3} {reason}{HINTS.get(reason, '')}: {where}")
    return ["", "Not tried (-v lists them):", *lines] if lines else []


def _lines(result: CheckResult) -> list[str]:
    wanted = result.requirement
    lines = [f"  {MARKS[result.outcome]} {wanted.level:6} {wanted.id:32} {wanted.text}"]
    if result.outcome == "failed":
        lines.append(f"    {result.reason}  [{wanted.source}]")
        if result.seen:
            lines.append(f"    {result.seen}")
    elif result.outcome == "not tried":
        lines.append(f"    not tried: {result.reason}")
    return lines


def _totals(report: ConformanceReport) -> list[str]:
    lines = []
    for level in ("must", "should"):
        passed, failed = len(report.of("passed", level)), len(report.of("failed", level))
        not_tried = len(report.of("not tried", level))
        lines.append(f"{level:6} {passed} passed, {failed} failed, {not_tried} not tried")
    return [*lines, *_not_tried(report)]


def as_json(report: ConformanceReport) -> str:
    """Formats the whole report as JSON."""
    value: dict[str, Any] = {
        "url": report.url,
        "environments": list(report.environments),
        "probed": report.probed,
        "conforms": report.conforms,
        "counts": {
            level: {outcome: len(report.of(outcome, level)) for outcome in ("passed", "failed", "not tried")}
            for level in ("must", "should")
        },
        "results": [_as_dict(result) for result in report.results],
    }
    return json.dumps(value, indent=2, ensure_ascii=False)


def _as_dict(result: CheckResult) -> dict[str, Any]:
    wanted = result.requirement
    return {
        "id": wanted.id,
        "level": wanted.level,
        "chapter": wanted.chapter,
        "text": wanted.text,
        "page": wanted.page,
        "section": wanted.section,
        "outcome": result.outcome,
        "reason": result.reason,
        "seen": result.seen,
        "seconds": round(result.seconds, 3),
    }


def as_junit(report: ConformanceReport) -> str:
    """Formats a report as JUnit XML with a test case per requirement."""
    suites = ElementTree.Element("testsuites", name="ors check")
    for chapter, group in groupby(report.results, key=lambda result: result.requirement.chapter):
        results = list(group)
        suite = ElementTree.SubElement(
            suites,
            "testsuite",
            name=chapter,
            tests=str(len(results)),
            failures=str(sum(r.outcome == "failed" for r in results)),
            skipped=str(sum(r.outcome == "not tried" for r in results)),
        )
        for result in results:
            _test_case(suite, result)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _test_case(suite: ElementTree.Element, result: CheckResult) -> None:
    wanted = result.requirement
    case = ElementTree.SubElement(
        suite, "testcase", classname=wanted.level, name=wanted.id, time=f"{result.seconds:.3f}"
    )
    if result.outcome == "failed":
        failure = ElementTree.SubElement(case, "failure", message=f"{wanted.text} {result.reason}")
        failure.text = f"{wanted.source}\n{result.seen}"
    elif result.outcome == "not tried":
        ElementTree.SubElement(case, "skipped", message=result.reason)


def as_badge(report: ConformanceReport) -> str:
    """Markdown badge for a README."""
    passed, tried = len(report.of("passed")), len(report.of("passed")) + len(report.of("failed"))
    color = "red" if not report.conforms else "yellow" if report.of("failed") else "brightgreen"
    label = f"{passed}%2F{tried}%20passed"
    return f"![ORS conformance: {passed}/{tried} passed](https://img.shields.io/badge/ORS-{label}-{color})"
