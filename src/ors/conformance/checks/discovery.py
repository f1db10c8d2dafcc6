"""Checks of health, environments, tools and splits."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ors.conformance import expect
from ors.conformance.checks import Check, check
from ors.conformance.faults import Violation
from ors.conformance.http import RawAnswer
from ors.conformance.subject import ServerUnderTest
from ors.schemas import problems

UNKNOWN = "no-such-environment"


@check("health.ok")
async def health(server: ServerUnderTest) -> None:
    """Expects exactly this answer."""
    expect.value(await server.ask("GET", "/health"), {"status": "ok"})


@check("environments.list")
async def environments(server: ServerUnderTest) -> None:
    """Expects an array of strings."""
    answer = await server.ask("GET", "/list_environments")
    if not all(isinstance(name, str) for name in expect.array(answer)):
        raise Violation("a name is not a string", answer.seen)


@check("environments.usable")
async def usable(server: ServerUnderTest) -> None:
    """Requests tools and splits of each environment."""
    for name in [server.first, *server.environments[1:]]:
        expect.status(await server.ask("GET", f"/{name}/tools"), 200)
        expect.status(await server.ask("GET", f"/{name}/splits"), 200)


async def _tools(server: ServerUnderTest) -> list[tuple[RawAnswer, list[dict[str, Any]]]]:
    answers = [await server.ask("GET", f"/{name}/tools") for name in [server.first, *server.environments[1:]]]
    return [(answer, expect.tools(answer)) for answer in answers]


@check("tools.shape")
async def shape(server: ServerUnderTest) -> None:
    """Looks at the tools of every environment."""
    await _tools(server)


@check("tools.schema-present")
async def schema_present(server: ServerUnderTest) -> None:
    """Looks at every tool."""
    for answer, tools in await _tools(server):
        for tool in tools:
            if "input_schema" not in tool:
                raise Violation(f"the tool {tool['name']!r} has no input_schema", answer.seen)


@check("tools.schema-valid")
async def schema_valid(server: ServerUnderTest) -> None:
    """Looks at every tool that has a schema."""
    for answer, tools in await _tools(server):
        for tool in tools:
            found = problems(tool.get("input_schema"))
            if found:
                raise Violation(f"the schema of {tool['name']!r}: {found[0]}", answer.seen)


@check("tools.exact-keys")
async def exact_keys(server: ServerUnderTest) -> None:
    """Expects no key besides the three."""
    for answer, tools in await _tools(server):
        for tool in tools:
            if tool.keys() - {"name", "description", "input_schema"}:
                raise Violation(f"the tool {tool['name']!r} has the keys {sorted(tool)}", answer.seen)


@check("tools.distinct")
async def distinct(server: ServerUnderTest) -> None:
    """Looks for duplicate names."""
    for answer, tools in await _tools(server):
        if len(expect.names(tools)) != len(tools):
            raise Violation("two tools have the same name", answer.seen)


@check("tools.shared-only", probe=True)
async def shared_only(server: ServerUnderTest) -> None:
    """The probe's hint is not shared."""
    answer = await server.ask("GET", "/probe/tools")
    if "hint" in expect.names(expect.tools(answer)):
        raise Violation("a task-specific tool is listed without a session", answer.seen)


@check("splits.shape")
async def splits(server: ServerUnderTest) -> None:
    """Looks at the splits of every environment."""
    for name in [server.first, *server.environments[1:]]:
        answer = await server.ask("GET", f"/{name}/splits")
        for split in expect.array(answer):
            if not isinstance(split, dict) or not isinstance(split.get("name"), str):
                raise Violation("a split has no name", answer.seen)
            if split.get("type") not in ("train", "validation", "test"):
                raise Violation("a split has an unknown type", answer.seen)


@check("splits.types", probe=True)
async def split_types(server: ServerUnderTest) -> None:
    """The probe has a split of each type."""
    answer = await server.ask("GET", "/probe/splits")
    wanted = {"train": "train", "test": "test", "validation": "validation", "extra": "validation"}
    if {split["name"]: split["type"] for split in expect.array(answer)} != wanted:
        raise Violation(f"the types are not {wanted}", answer.seen)


def _unknown(id: str, method: str, name: str, body: Mapping[str, Any] | None = None) -> Check:
    async def run(server: ServerUnderTest) -> None:
        answer = await server.ask(method, f"/{UNKNOWN}/{name}", body)
        where = urlsplit(answer.header("location") or "").path
        if answer.status in (301, 302, 307, 308) and UNKNOWN in where:
            answer = await server.ask(method, where.removeprefix(server.http.prefix), body)
        expect.status(answer, 404)

    return check(id)(run)


UNKNOWN_ENVIRONMENT = (
    _unknown("tools.unknown-environment", "GET", "tools"),
    _unknown("splits.unknown-environment", "GET", "splits"),
    _unknown("tasks.unknown-environment", "POST", "tasks", {"split": "train"}),
    _unknown("num-tasks.unknown-environment", "POST", "num_tasks", {"split": "train"}),
    _unknown("task.unknown-environment", "POST", "task", {"split": "train", "index": 0}),
    _unknown("range.unknown-environment", "POST", "task_range", {"split": "train", "start": 0, "stop": 1}),
)
