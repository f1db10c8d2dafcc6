"""Checks of task tools and prompts."""

from typing import Any

from ors.conformance import expect
from ors.conformance.checks import check
from ors.conformance.faults import Fault
from ors.conformance.subject import Subject


@check("task-tools.shape")
async def shape(server: Subject) -> None:
    """Of the same form as /tools."""
    async with server.session() as episode:
        answer = await episode.get("task_tools")
        for tool in expect.tools(answer):
            if not isinstance(tool.get("input_schema", 0), dict | None):
                raise Fault(f"the tool {tool['name']!r} has no input_schema", answer.seen)


@check("task-tools.shared-too")
async def shared_too(server: Subject) -> None:
    """Nothing of /tools is missing."""
    shared = expect.names(expect.tools(await server.ask("GET", f"/{server.environment}/tools")))
    async with server.session() as episode:
        answer = await episode.get("task_tools")
        missing = shared - expect.names(expect.tools(answer))
        if missing:
            raise Fault(f"{', '.join(sorted(missing))} not listed", answer.seen)


@check("task-tools.specific", probe=True)
async def specific(server: Subject) -> None:
    """The probe's hint."""
    async with server.session() as episode:
        answer = await episode.get("task_tools")
        if "hint" not in expect.names(expect.tools(answer)):
            raise Fault("a tool with shared=False is not listed", answer.seen)


def _indexed(index: int) -> dict[str, Any]:
    return {"env_name": "probe_indexed", "split": "train", "index": index}


@check("task-tools.listed", indexed=True)
async def listed(server: Subject) -> None:
    """What list_task_tools returns for this task."""
    async with server.session(_indexed(0)) as episode:
        answer = await episode.get("task_tools")
        if "pick" not in expect.names(expect.tools(answer)):
            raise Fault("a tool that list_task_tools returned is not listed", answer.seen)


@check("task-tools.override-stands", indexed=True)
async def override_stands(server: Subject) -> None:
    """The other task's tool is neither there nor callable."""
    async with server.session(_indexed(1)) as episode:
        answer = await episode.get("task_tools")
        if expect.names(expect.tools(answer)) != {"always", "skip"}:
            raise Fault("the tools are not always and skip", answer.seen)
        (await episode.call("skip")).output()
        refused = await episode.call("pick")
        if any(event.name == "end" for event in refused.events) and refused.value().get("ok") is True:
            raise Fault("a tool that this task has not was run", refused.seen)


@check("prompt.blocks")
async def blocks(server: Subject) -> None:
    """Text or images."""
    async with server.session() as episode:
        answer = await episode.get("prompt")
        expect.blocks(expect.array(answer), answer.seen)


@check("prompt.keys")
async def keys(server: Subject) -> None:
    """No key more or less."""
    async with server.session() as episode:
        answer = await episode.get("prompt")
        expect.block_keys(expect.blocks(expect.array(answer), answer.seen), answer.seen)


@check("prompt.image", probe=True)
async def image(server: Subject) -> None:
    """A text, then an image."""
    async with server.session(image=True) as episode:
        answer = await episode.get("prompt")
        found = expect.blocks(expect.array(answer), answer.seen)
        if [block["type"] for block in found] != ["text", "image"]:
            raise Fault("not a text and an image", answer.seen)
        expect.block_keys(found, answer.seen)


@check("prompt.any-environment", several=True)
async def any_environment(server: Subject) -> None:
    """The path names another environment."""
    async with server.session() as episode:
        answer = await server.ask("GET", f"/{server.other}/prompt", sid=episode.sid)
        own = await episode.get("prompt")
        if expect.array(answer) != expect.array(own):
            raise Fault("not the prompt of the session", answer.seen)
