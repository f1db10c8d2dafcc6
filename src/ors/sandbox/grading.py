"""Grading: a grader, or a program with cases, in a sandbox that the agent has never been in."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ors.errors import SandboxLimit
from ors.sandbox.spec import Cases, GradedCases

if TYPE_CHECKING:
    from ors.sandbox.box import Sandbox

GRADER = "/home/agent/grade"
GRADER_ENV = {"PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""Python looks for modules neither in the grader's folder nor in /work, unless it is told to."""
CASES_AT_ONCE = 4
MORE_OUTPUT = 1 << 16
"""Bytes that a program may print beyond what is expected."""


async def put_files(grader: "Sandbox", files: Mapping[str, bytes | str | Path]) -> None:
    """Puts the files of a grader into its folder, in a sandbox that has a copy of the work."""
    for name, content in {".keep": b"", **files}.items():
        data = content.read_bytes() if isinstance(content, Path) else content
        await grader.write_file(f"{GRADER}/{name}", _bytes(data))


async def run_cases(
    grader: "Callable[[], Awaitable[Sandbox]]",
    argv: Sequence[str] | str,
    cases: Cases,
    timeout: float,
    exact: bool,
) -> GradedCases:
    """Runs a program once per case, each time in a new sandbox; compares what it prints here."""
    pairs = list(cases.items() if isinstance(cases, Mapping) else cases)
    if not pairs:
        raise ValueError("grade_cases needs at least one case")
    places = asyncio.Semaphore(CASES_AT_ONCE)

    async def reason(given: bytes, expected: bytes) -> str:
        most = 2 * len(expected) + MORE_OUTPUT
        try:
            async with places, await grader() as box:
                result = await box.exec(argv, stdin=given, timeout=timeout, max_output=most)
        except SandboxLimit as limit:
            if limit.reason == "waiting":
                raise
            return limit.reason or "limit"
        if result.returncode != 0:
            return result.limit or f"exit status {result.returncode}"
        return "" if _printed(result.stdout, exact) == _printed(expected, exact) else "wrong output"

    running = [asyncio.ensure_future(reason(_bytes(given), _bytes(wanted))) for given, wanted in pairs]
    try:
        return GradedCases(tuple(await asyncio.gather(*running)))
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _printed(output: bytes, exact: bool) -> list[bytes]:
    return [output] if exact else [line.rstrip() for line in output.rstrip().split(b"\n")]
