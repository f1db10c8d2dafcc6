"""The suite: runs checks on one server, and formats the results."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Literal

from ors.conformance.checks import Check, all_checks
from ors.conformance.http import Http
from ors.conformance.requirements import (
    NotTried,
    Requirement,
    ServerUnreachable,
    Violation,
    requirements,
    shown,
)
from ors.conformance.subject import ServerUnderTest, Times

Outcome = Literal["passed", "failed", "not tried"]


@dataclass(frozen=True)
class CheckResult:
    """Result of one check."""

    requirement: Requirement
    outcome: Outcome
    reason: str = ""
    """Why the check failed or was not tried."""
    seen: str = ""
    """Bytes that show a violation."""
    seconds: float = 0.0


@dataclass(frozen=True)
class ConformanceReport:
    """Results of all checks on one server."""

    url: str
    environments: tuple[str, ...]
    probed: bool
    """Whether the server has the probe environment."""
    results: tuple[CheckResult, ...]

    def of(self, outcome: Outcome, level: str | None = None) -> list[CheckResult]:
        """Results with this outcome, and this level if given."""
        return [r for r in self.results if r.outcome == outcome and level in (None, r.requirement.level)]

    @property
    def conforms(self) -> bool:
        """Whether no MUST requirement failed."""
        return not self.of("failed", "must")


def check(
    url: str,
    *,
    slow: bool = False,
    environment: str | None = None,
    only: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    times: Times | None = None,
    patience: float = 10.0,
    on_result: Callable[[CheckResult], None] | None = None,
) -> ConformanceReport:
    """Checks the server at that URL.

    `only` has ids of requirements, or their first parts ("call" for all of "call.*").

    Raises:
        ServerUnreachable: no server answers.
        ValueError: the URL, a requirement or the environment does not exist.
    """
    http = Http(url, patience, dict(headers or {}))
    checks = _chosen(tuple(only))
    subject = ServerUnderTest(http, times or Times(), wanted=environment)
    return asyncio.run(_run(subject, checks, slow, on_result or (lambda result: None)))


def _chosen(only: tuple[str, ...]) -> list[Check]:
    by_id = {check.id: check for check in all_checks()}
    for name in only:
        if not any(id == name or id.startswith(f"{name}.") for id in by_id):
            raise ValueError(f"no requirement is called {name!r}")
    wanted = [
        id for id in requirements() if not only or any(f"{id}.".startswith(f"{name}.") for name in only)
    ]
    return [by_id[id] for id in wanted]


async def _run(
    server: ServerUnderTest, checks: list[Check], slow: bool, on_result: Callable[[CheckResult], None]
) -> ConformanceReport:
    await _greet(server)

    async def one(check: Check) -> CheckResult:
        result = await _tried(check, server, slow)
        on_result(result)
        return result

    # Slow checks only wait, so they run concurrently.
    found = [await one(check) for check in checks if "slow" not in check.needs]
    found += await asyncio.gather(*(one(check) for check in checks if "slow" in check.needs))
    order = {check.id: number for number, check in enumerate(checks)}
    found.sort(key=lambda result: order[result.requirement.id])
    return ConformanceReport(
        server.http.url, tuple(server.environments), "probe" in server.probes, tuple(found)
    )


async def _greet(server: ServerUnderTest) -> None:
    try:
        await server.discover()
    except Violation as fault:
        if not server.environments:
            raise ServerUnreachable(f"{server.http.url} does not answer as an ORS server: {fault}") from None
    if server.wanted and server.wanted.lower() not in {name.lower() for name in server.environments}:
        raise ValueError(f"the server has no environment {server.wanted!r}")


async def _tried(check: Check, server: ServerUnderTest, slow: bool) -> CheckResult:
    requirement = requirements()[check.id]
    obstacle = check.obstacle(server, slow)
    if obstacle:
        return CheckResult(requirement, "not tried", obstacle)
    began = time.perf_counter()

    def result(outcome: Outcome, reason: str = "", seen: bytes = b"") -> CheckResult:
        return CheckResult(requirement, outcome, reason, shown(seen), time.perf_counter() - began)

    try:
        await check.run(server)
    except NotTried as why:
        return result("not tried", str(why))
    except Violation as fault:
        return result("failed", fault.text, fault.seen)
    except ServerUnreachable as gone:
        return result("failed", f"the server is gone: {gone}")
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        # The answer has a form that the check does not expect.
        return result("failed", f"the answer could not be understood: {type(error).__name__}: {error}")
    return result("passed")


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
        "results": [_flat(**asdict(result)) for result in report.results],
    }
    return json.dumps(value, indent=2, ensure_ascii=False)


def _flat(requirement: dict[str, Any], seconds: float, **result: Any) -> dict[str, Any]:
    return {**requirement, **result, "seconds": round(seconds, 3)}
