"""Checks of discovery: health, environments, tools, splits, tasks."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from ors.conformance import expect
from ors.conformance.checks import Check, answers, check
from ors.conformance.http import Answer
from ors.conformance.requirements import NotTried, Violation
from ors.conformance.subject import ServerUnderTest
from ors.schemas import problems

UNKNOWN = "no-such-environment"


@check("health.ok")
async def health(server: ServerUnderTest) -> None:
    expect.value(await server.ask("GET", "/health"), {"status": "ok"})


@check("environments.list")
async def environments(server: ServerUnderTest) -> None:
    answer = await server.ask("GET", "/list_environments")
    if not all(isinstance(name, str) for name in expect.array(answer)):
        raise Violation("a name is not a string", answer.seen)


@check("environments.usable")
async def usable(server: ServerUnderTest) -> None:
    for name in [server.first, *server.environments[1:]]:
        expect.status(await server.ask("GET", f"/{name}/tools"), 200)
        expect.status(await server.ask("GET", f"/{name}/splits"), 200)


async def _tools(server: ServerUnderTest) -> list[tuple[Answer, list[dict[str, Any]]]]:
    answers = [await server.ask("GET", f"/{name}/tools") for name in [server.first, *server.environments[1:]]]
    return [(answer, expect.tools(answer)) for answer in answers]


@check("tools.shape")
async def shape(server: ServerUnderTest) -> None:
    await _tools(server)


@check("tools.schema-present")
async def schema_present(server: ServerUnderTest) -> None:
    for answer, tools in await _tools(server):
        for tool in tools:
            answer.fault_if("input_schema" not in tool, f"the tool {tool['name']!r} has no input_schema")


@check("tools.schema-valid")
async def schema_valid(server: ServerUnderTest) -> None:
    for answer, tools in await _tools(server):
        for tool in tools:
            found = problems(tool.get("input_schema"))
            if found:
                raise Violation(f"the schema of {tool['name']!r}: {found[0]}", answer.seen)


@check("tools.exact-keys")
async def exact_keys(server: ServerUnderTest) -> None:
    for answer, tools in await _tools(server):
        for tool in tools:
            if tool.keys() - {"name", "description", "input_schema"}:
                raise Violation(f"the tool {tool['name']!r} has the keys {sorted(tool)}", answer.seen)


@check("tools.distinct")
async def distinct(server: ServerUnderTest) -> None:
    for answer, tools in await _tools(server):
        answer.fault_if(len(expect.tool_names(answer)) != len(tools), "two tools have the same name")


@check("tools.shared-only", "probe")
async def shared_only(server: ServerUnderTest) -> None:
    """The probe's hint is not shared."""
    answer = await server.ask("GET", "/probe/tools")
    answer.fault_if("hint" in expect.tool_names(answer), "a task-specific tool is listed without a session")


@check("splits.shape")
async def splits(server: ServerUnderTest) -> None:
    for name in [server.first, *server.environments[1:]]:
        answer = await server.ask("GET", f"/{name}/splits")
        for split in expect.array(answer):
            if not isinstance(split, dict) or not isinstance(split.get("name"), str):
                raise Violation("a split has no name", answer.seen)
            if split.get("type") not in ("train", "validation", "test"):
                raise Violation("a split has an unknown type", answer.seen)


@check("splits.types", "probe")
async def split_types(server: ServerUnderTest) -> None:
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


NO_SPLIT = "no-such-split"
FAR = 10**12


@check("tasks.shape")
async def tasks_shape(server: ServerUnderTest) -> None:
    answer = await server.of_split("tasks")
    if answer.status == 400 and "index" in expect.detail(answer):
        raise NotTried("the environment does not list its tasks")
    given = expect.mapping(answer, "tasks", "env_name")
    if not isinstance(given["tasks"], list) or not all(isinstance(task, dict) for task in given["tasks"]):
        raise Violation("`tasks` is not an array of objects", answer.seen)
    if str(given["env_name"]).lower() != server.environment.lower():
        raise Violation("`env_name` is not the environment's name", answer.seen)


def _bad_split(id: str, name: str, **body: int) -> Check:
    return answers(id, 400, "POST", f"/{{0.environment}}/{name}", {"split": NO_SPLIT, **body})


BAD_SPLIT = (
    _bad_split("tasks.bad-split", "tasks"),
    _bad_split("num-tasks.bad-split", "num_tasks"),
    _bad_split("task.bad-split", "task", index=0),
    _bad_split("range.bad-split", "task_range", start=0, stop=1),
)


@check("tasks.not-listed", "probe_indexed")
async def not_listed(server: ServerUnderTest) -> None:
    split, last = {"split": "train"}, {"number": 999_999, "tool": "skip"}
    answer = expect.status(await server.ask("POST", "/probe_indexed/tasks", split), 400)
    if "index-based API" not in expect.detail(answer):
        raise Violation("the error does not name the index-based API", answer.seen)
    expect.value(await server.ask("POST", "/probe_indexed/num_tasks", split), {"num_tasks": 1_000_000})
    task = await server.ask("POST", "/probe_indexed/task", {**split, "index": 999_999})
    expect.entry(task, "task", last)
    some = await server.ask("POST", "/probe_indexed/task_range", {**split, "start": -1})
    expect.entry(some, "tasks", [last])


@check("num-tasks.count")
async def count(server: ServerUnderTest) -> None:
    answer = await server.of_split("num_tasks")
    found = expect.mapping(answer, "num_tasks")["num_tasks"]
    answer.fault_if(type(found) is not int or found < 0, "`num_tasks` is not a number of tasks")
    if found != len(await server.tasks()):
        raise Violation("`num_tasks` is not the number of tasks that are listed", answer.seen)


@check("task.by-index")
async def by_index(server: ServerUnderTest) -> None:
    tasks = await server.tasks()
    for index in (0, len(tasks) - 1):
        expect.entry(await server.of_split("task", index=index), "task", tasks[index])


@check("task.out-of-range")
async def out_of_range(server: ServerUnderTest) -> None:
    total = expect.mapping(await server.of_split("num_tasks"), "num_tasks")["num_tasks"]
    for index in (total, FAR):
        expect.status(await server.of_split("task", index=index), 400)


@check("task.negative")
async def negative(server: ServerUnderTest) -> None:
    expect.status(await server.of_split("task", index=-1), 400)


@check("task.env-name")
async def env_name(server: ServerUnderTest) -> None:
    for answer in (
        await server.of_split("task", index=0),
        await server.of_split("task_range", start=0, stop=1),
    ):
        expect.entry(answer, "env_name", server.environment.lower())


@check("task.second-names")
async def second_names(server: ServerUnderTest) -> None:
    """Compares the answers under both names, if the server has the second ones."""
    for name, body in (("task", {"index": 0}), ("task_range", {"start": 0, "stop": 2})):
        answer = await server.of_split(f"get_{name}", **body)
        if answer.status in (307, 308, 404, 405):
            raise NotTried(f"the server has no /get_{name}, which is optional")
        first = await server.of_split(name, **body)
        answer.fault_if(answer.json() != first.json(), f"this is not what /{name} answers")


def _ranges(id: str, *wanted: slice) -> Check:
    async def run(server: ServerUnderTest) -> None:
        tasks = await server.tasks()
        for each in wanted:
            ends = {"start": each.start, "stop": each.stop}
            given = {name: end for name, end in ends.items() if end is not None}
            expect.entry(await server.of_split("task_range", **given), "tasks", tasks[each])

    return check(id)(run)


RANGES = (
    _ranges("range.slice", slice(0, 1), slice(1, 3)),
    _ranges("range.defaults", slice(None, None), slice(1, None), slice(None, 1)),
    _ranges("range.negative", slice(-1, None), slice(0, -1), slice(-2, -1)),
    _ranges("range.clamp", slice(0, FAR), slice(-FAR, 1), slice(FAR, FAR + 1), slice(1, 0)),
)
