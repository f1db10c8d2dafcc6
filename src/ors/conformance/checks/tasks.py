"""Checks of tasks: lists, counts, indices, ranges."""

from typing import Any

from ors.conformance import expect
from ors.conformance.checks import Check, check
from ors.conformance.faults import NotTried, Violation
from ors.conformance.subject import ServerUnderTest

NO_SPLIT = "no-such-split"
FAR = 10**12


@check("tasks.shape")
async def shape(server: ServerUnderTest) -> None:
    """Expects objects, and the name of the environment."""
    split = await server.split()
    answer = await server.ask("POST", f"/{server.environment}/tasks", {"split": split})
    if answer.status == 400 and "index" in expect.detail(answer):
        raise NotTried("the environment does not list its tasks")
    given = expect.mapping(answer, "tasks", "env_name")
    if not isinstance(given["tasks"], list) or not all(isinstance(task, dict) for task in given["tasks"]):
        raise Violation("`tasks` is not an array of objects", answer.seen)
    if str(given["env_name"]).lower() != server.environment.lower():
        raise Violation("`env_name` is not the environment's name", answer.seen)


def _bad_split(id: str, name: str, **body: Any) -> Check:
    async def run(server: ServerUnderTest) -> None:
        path = f"/{server.environment}/{name}"
        expect.status(await server.ask("POST", path, {"split": NO_SPLIT, **body}), 400)

    return check(id)(run)


BAD_SPLIT = (
    _bad_split("tasks.bad-split", "tasks"),
    _bad_split("num-tasks.bad-split", "num_tasks"),
    _bad_split("task.bad-split", "task", index=0),
    _bad_split("range.bad-split", "task_range", start=0, stop=1),
)


@check("tasks.not-listed", indexed=True)
async def not_listed(server: ServerUnderTest) -> None:
    """Tasks that cannot be listed are available by index."""
    split = {"split": "train"}
    answer = expect.status(await server.ask("POST", "/probe_indexed/tasks", split), 400)
    if "index-based API" not in expect.detail(answer):
        raise Violation("the error does not name the index-based API", answer.seen)
    expect.value(await server.ask("POST", "/probe_indexed/num_tasks", split), {"num_tasks": 1_000_000})
    task = await server.ask("POST", "/probe_indexed/task", {**split, "index": 999_999})
    if expect.mapping(task, "task")["task"] != {"number": 999_999, "tool": "skip"}:
        raise Violation("this is not the last task", task.seen)
    some = await server.ask("POST", "/probe_indexed/task_range", {**split, "start": -1})
    if expect.mapping(some, "tasks")["tasks"] != [{"number": 999_999, "tool": "skip"}]:
        raise Violation("this is not the last task", some.seen)


@check("num-tasks.count")
async def count(server: ServerUnderTest) -> None:
    """Compares the number with the list."""
    split = await server.split()
    answer = await server.ask("POST", f"/{server.environment}/num_tasks", {"split": split})
    found = expect.mapping(answer, "num_tasks")["num_tasks"]
    if type(found) is not int or found < 0:
        raise Violation("`num_tasks` is not a number of tasks", answer.seen)
    if found != len(await server.tasks(split)):
        raise Violation("`num_tasks` is not the number of tasks that are listed", answer.seen)


@check("task.by-index")
async def by_index(server: ServerUnderTest) -> None:
    """Requests the first and the last task."""
    split = await server.split()
    tasks = await server.tasks(split)
    for index in (0, len(tasks) - 1):
        answer = await server.ask("POST", f"/{server.environment}/task", {"split": split, "index": index})
        if expect.mapping(answer, "task")["task"] != tasks[index]:
            raise Violation(f"this is not the task listed at {index}", answer.seen)


@check("task.out-of-range")
async def out_of_range(server: ServerUnderTest) -> None:
    """Requests the index after the last, and a huge one."""
    split = await server.split()
    path = f"/{server.environment}/num_tasks"
    total = expect.mapping(await server.ask("POST", path, {"split": split}), "num_tasks")["num_tasks"]
    for index in (total, FAR):
        body = {"split": split, "index": index}
        expect.status(await server.ask("POST", f"/{server.environment}/task", body), 400)


@check("task.negative")
async def negative(server: ServerUnderTest) -> None:
    """Requests the index -1."""
    body = {"split": await server.split(), "index": -1}
    expect.status(await server.ask("POST", f"/{server.environment}/task", body), 400)


@check("task.env-name")
async def env_name(server: ServerUnderTest) -> None:
    """Looks at both answers."""
    split = await server.split()
    for name, body in (("task", {"index": 0}), ("task_range", {"start": 0, "stop": 1})):
        answer = await server.ask("POST", f"/{server.environment}/{name}", {"split": split, **body})
        if expect.mapping(answer, "env_name")["env_name"] != server.environment.lower():
            raise Violation("`env_name` is not the environment's name", answer.seen)


@check("task.second-names")
async def second_names(server: ServerUnderTest) -> None:
    """Compares the answers under both names, if the server has the second ones."""
    split = {"split": await server.split()}
    for name, body in (("task", {**split, "index": 0}), ("task_range", {**split, "start": 0, "stop": 2})):
        answer = await server.ask("POST", f"/{server.environment}/get_{name}", body)
        if answer.status in (307, 308, 404, 405):
            raise NotTried(f"the server has no /get_{name}, which is optional")
        if answer.json() != (await server.ask("POST", f"/{server.environment}/{name}", body)).json():
            raise Violation(f"this is not what /{name} answers", answer.seen)


async def _range(server: ServerUnderTest, wanted: slice, split: str, tasks: list[Any]) -> None:
    body: dict[str, Any] = {"split": split}
    body |= {} if wanted.start is None else {"start": wanted.start}
    body |= {} if wanted.stop is None else {"stop": wanted.stop}
    answer = await server.ask("POST", f"/{server.environment}/task_range", body)
    if expect.mapping(answer, "tasks")["tasks"] != tasks[wanted]:
        raise Violation(f"these are not the tasks [{wanted.start}:{wanted.stop}]", answer.seen)


def _ranges(id: str, *wanted: slice) -> Check:
    async def run(server: ServerUnderTest) -> None:
        split = await server.split()
        tasks = await server.tasks(split)
        for each in wanted:
            await _range(server, each, split, tasks)

    return check(id)(run)


RANGES = (
    _ranges("range.slice", slice(0, 1), slice(1, 3)),
    _ranges("range.defaults", slice(None, None), slice(1, None), slice(None, 1)),
    _ranges("range.negative", slice(-1, None), slice(0, -1), slice(-2, -1)),
    _ranges("range.clamp", slice(0, FAR), slice(-FAR, 1), slice(FAR, FAR + 1), slice(1, 0)),
)
