"""Whole episodes between our client and our server, over every transport."""

import asyncio
import uuid

import pytest

from ors.client import AsyncORS, Task
from ors.errors import (
    BadRequest,
    CallOutcomeUnknown,
    NotFound,
    ServerFailed,
    SessionLost,
    ToolCallError,
    ToolFailed,
)
from ors.types import ImageBlock, TextBlock
from tests.support.environments import Lab


def task(**spec: str) -> Task:
    return Task("lab", {"id": uuid.uuid4().hex, **spec})


async def test_discovery(client: AsyncORS) -> None:
    assert await client.health() == {"status": "ok"}
    assert await client.list_environments() == ["lab", "other"]
    env = client.environment("Lab")
    assert await env.list_splits() == ["train", "test", "extra"]
    assert await env.num_tasks("train") == 5
    assert await env.get_task("train", 4) == Task("lab", {"n": 4, "split": "train"})
    assert [t.task_spec["n"] for t in await env.get_task_range("train", -2)] == [3, 4]
    assert len(await env.list_tasks("test")) == 5
    assert "echo" in [tool.name for tool in await env.list_tools()]
    with pytest.raises(BadRequest):
        await env.list_tasks("nope")
    with pytest.raises(NotFound):
        await client.environment("nope").list_splits()


async def test_a_split_is_fetched_in_pages(client: AsyncORS) -> None:
    found = [found.task_spec["n"] async for found in client.environment("lab").tasks("train", page_size=2)]
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("given", [{"task": Task("lab", {"n": 2})}, {"split": "train", "index": 2}])
async def test_an_episode(client: AsyncORS, given: dict[str, object]) -> None:
    async with client.environment("lab").session(**given) as session:  # type: ignore[arg-type]
        prompt = await session.get_prompt()
        assert prompt == [TextBlock(text="task 2"), ImageBlock(data="aGk=", mimeType="image/png")]
        assert {"echo", "hint"} <= {tool.name for tool in await session.list_tools()}
        assert (await session.list_tools(format="anthropic"))[0]["input_schema"]
        await session.ping()
        output = await session.call_tool("reward", {"value": 0.25, "finished": True})
        assert (output.reward, output.finished, output.metadata) == (0.25, True, {"k": [1, None]})
        with pytest.raises(ToolCallError) as caught:
            await session.call_tool("nothing")
        assert caught.value.reason == "episode_finished"


async def test_each_way_a_call_can_go_wrong(client: AsyncORS) -> None:
    async with client.environment("lab").session(task()) as session:
        with pytest.raises(ToolCallError) as caught:
            await session.call_tool("no_such_tool")
        assert caught.value.reason == "not_found"
        with pytest.raises(ToolCallError) as caught:
            await session.call_tool("echo", {"wrong": 1})
        assert caught.value.reason == "input_validation"
        with pytest.raises(ToolCallError, match="not today") as caught:
            await session.call_tool("refuse", {"text": "not today"})
        assert caught.value.reason == "mood"
        with pytest.raises(ToolFailed, match="two\nlines"):
            await session.call_tool("boom", {"text": "two\nlines"})
        assert (await session.call_tool("reward")).reward is None


@pytest.mark.parametrize(
    "text", ["", " ", "ä\u2028\u2029\x85🙂\r\n\t", "x" * 4095 + " " * 5000 + "y", "\ud800", "\x00"]
)
async def test_text_arrives_as_it_was(client: AsyncORS, text: str) -> None:
    async with client.environment("lab").session(task()) as session:
        for size in (1, 50):
            output = await session.call_tool("echo", {"text": text * size})
            assert isinstance(output.blocks[0], TextBlock)
            assert output.blocks[0].text == text * size


async def test_a_large_request_and_a_large_result(client: AsyncORS) -> None:
    async with client.environment("lab").session(task()) as session:
        text = "0123456789abcdef" * 2**18
        output = await session.call_tool("echo", {"text": text})
        assert output.blocks[0].text == text  # type: ignore[union-attr]


async def test_secrets_arrive(client: AsyncORS) -> None:
    async with client.environment("lab").session(task(), secrets={"key": "sk-1"}) as session:
        output = await session.call_tool("show_secrets")
        assert output.metadata == {"key": "sk-1"}


async def test_a_failed_setup_is_told(client: AsyncORS) -> None:
    async with client.environment("lab").session(task(fail="setup")) as session:
        with pytest.raises(ServerFailed, match="no setup today"):
            await session.get_prompt()
        with pytest.raises(ToolFailed, match="no setup today"):
            await session.call_tool("echo", {"text": "x"})


async def test_concurrent_calls_of_one_session_overlap(client: AsyncORS) -> None:
    async with client.environment("lab").session(task()) as session:
        met = await asyncio.gather(*(session.call_tool("meet", {"name": name}) for name in "ab"))
        assert [m.blocks[0].text for m in met] == ["met: True"] * 2  # type: ignore[union-attr]


async def test_a_running_call_is_rejoined_by_sid_and_task_id(client: AsyncORS) -> None:
    env, given = client.environment("lab"), task()
    key = given.task_spec["id"]
    session = await env.session(given).start()
    assert session.sid is not None
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    call = asyncio.create_task(session.call_tool("hold", on_task_id=started.set_result))
    task_id = await started
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    async with env.attach(session.sid) as attached:
        Lab.gates[f"{key}.hold"].set()
        output = await attached.rejoin(task_id)
        assert output.blocks[0].text == "held"  # type: ignore[union-attr]
        assert Lab.counts[f"{key}.hold"] == 1
        with pytest.raises(CallOutcomeUnknown):
            await attached.rejoin("no-such-call")
    await session.close()


async def test_deleting_a_session_ends_its_running_call(client: AsyncORS) -> None:
    env = client.environment("lab")
    session = await env.session(task()).start()
    assert session.sid is not None
    begun = asyncio.Event()
    call = asyncio.create_task(session.call_tool("stay", on_task_id=lambda _: begun.set()))
    await begun.wait()
    await env.attach(session.sid).close()
    with pytest.raises(SessionLost, match="Session deleted") as told:
        await call
    with pytest.raises(SessionLost) as told_again:
        await session.get_prompt()
    with pytest.raises(SessionLost) as told_late:
        await env.attach(session.sid).start()
    assert [each.value.reason for each in (told, told_again, told_late)] == ["deleted"] * 3


async def test_an_environment_that_is_not_the_sessions_is_not_found(client: AsyncORS) -> None:
    session = await client.environment("lab").session(task()).start()
    assert session.sid is not None
    with pytest.raises(NotFound):
        await client.environment("other").attach(session.sid).call_tool("always")
    assert await session.call_tool("nothing")
    await session.close()
