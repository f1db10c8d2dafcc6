"""Checks of task tools and prompts."""

from typing import Any

from ors.conformance import expect
from ors.conformance.checks import check
from ors.conformance.faults import Violation
from ors.conformance.subject import ServerUnderTest


@check("task-tools.shape")
async def shape(server: ServerUnderTest) -> None:
    """Expects the same form as /tools."""
    async with server.session() as episode:
        expect.tools(await episode.get("task_tools"))


@check("task-tools.shared-too")
async def shared_too(server: ServerUnderTest) -> None:
    """Expects all tools of /tools."""
    shared = expect.names(expect.tools(await server.ask("GET", f"/{server.environment}/tools")))
    async with server.session() as episode:
        answer = await episode.get("task_tools")
        missing = shared - expect.names(expect.tools(answer))
        if missing:
            raise Violation(f"{', '.join(sorted(missing))} not listed", answer.seen)


@check("task-tools.specific", probe=True)
async def specific(server: ServerUnderTest) -> None:
    """Expects the probe's hint."""
    async with server.session() as episode:
        answer = await episode.get("task_tools")
        if "hint" not in expect.names(expect.tools(answer)):
            raise Violation("a tool with shared=False is not listed", answer.seen)


def _indexed(index: int) -> dict[str, Any]:
    return {"env_name": "probe_indexed", "split": "train", "index": index}


@check("task-tools.listed", indexed=True)
async def listed(server: ServerUnderTest) -> None:
    """Expects the tool that list_task_tools returns for this task."""
    async with server.session(_indexed(0)) as episode:
        answer = await episode.get("task_tools")
        if "pick" not in expect.names(expect.tools(answer)):
            raise Violation("a tool that list_task_tools returned is not listed", answer.seen)


@check("task-tools.override-stands", indexed=True)
async def override_stands(server: ServerUnderTest) -> None:
    """The other task's tool must not be listed or callable."""
    async with server.session(_indexed(1)) as episode:
        answer = await episode.get("task_tools")
        if expect.names(expect.tools(answer)) != {"always", "skip"}:
            raise Violation("the tools are not always and skip", answer.seen)
        (await episode.call("skip")).output()
        refused = await episode.call("pick")
        if any(event.name == "end" for event in refused.events) and refused.value().get("ok") is True:
            raise Violation("a tool that this task does not have was run", refused.seen)


@check("prompt.blocks")
async def blocks(server: ServerUnderTest) -> None:
    """Expects text or image blocks."""
    async with server.session() as episode:
        answer = await episode.get("prompt")
        expect.blocks(expect.array(answer), answer.seen)


@check("prompt.keys")
async def keys(server: ServerUnderTest) -> None:
    """Expects exactly the keys of each type."""
    async with server.session() as episode:
        answer = await episode.get("prompt")
        expect.block_keys(expect.blocks(expect.array(answer), answer.seen), answer.seen)


@check("prompt.image", probe=True)
async def image(server: ServerUnderTest) -> None:
    """Expects a text, then an image."""
    async with server.session(image=True) as episode:
        answer = await episode.get("prompt")
        found = expect.blocks(expect.array(answer), answer.seen)
        if [block["type"] for block in found] != ["text", "image"]:
            raise Violation("the blocks are not a text and an image", answer.seen)
        expect.block_keys(found, answer.seen)


@check("prompt.any-environment", several=True)
async def any_environment(server: ServerUnderTest) -> None:
    """The path names another environment."""
    async with server.session() as episode:
        answer = await server.ask("GET", f"/{server.other}/prompt", sid=episode.sid)
        own = await episode.get("prompt")
        if expect.array(answer) != expect.array(own):
            raise Violation("this is not the prompt of the session", answer.seen)
