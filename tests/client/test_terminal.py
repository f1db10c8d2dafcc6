"""The tool for the agent's last message, as a client sees it."""

from collections.abc import Iterator
from typing import get_args

import pytest

from ors import Server
from ors.client import ORS, AsyncORS, Provider, TerminalToolSpec
from ors.errors import ServerFailed, ToolCallError
from tests.support.live_server import serving
from tests.support.scripted_server import answer, scripted
from tests.support.terminal_environment import Essay, Garden, Plain


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Essay, Garden, Plain])) as address:
        yield address


async def test_the_last_message_goes_to_the_terminal_tool(url: str) -> None:
    async with AsyncORS(url) as client:
        environment = client.environment("essay")
        assert await environment.is_assistant_message_final()
        async with environment.session(split="train", index=0) as session:
            assert await session.list_tools() == []
            assert await session.is_assistant_message_final()
            ids: list[str] = []
            output = await session.call_terminal_tool("elppa", on_task_id=ids.append)
    assert (output.reward, output.finished, len(ids)) == (1.0, True, 1)
    assert output.blocks[0].text == "you said elppa"  # type: ignore[union-attr]


def test_the_sync_client_calls_it_too(url: str) -> None:
    with ORS(url) as client:
        environment = client.environment("garden")
        assert environment.is_assistant_message_final()
        assert environment.terminal_tool() == TerminalToolSpec(
            name="grade", arg=None, description="Looks at the garden."
        )
        with environment.session(split="train", index=0) as session:
            session.call_tool("dig")
            assert session.is_assistant_message_final()
            assert session.terminal_tool() == environment.terminal_tool()
            output = session.call_terminal_tool("what I say does not count")
    assert (output.reward, output.finished) == (1.0, True)


async def test_an_environment_without_one_says_so(url: str) -> None:
    async with AsyncORS(url) as client:
        environment = client.environment("plain")
        assert await environment.terminal_tool() is None
        assert not await environment.is_assistant_message_final()
        async with environment.session(split="train", index=0) as session:
            assert await session.terminal_tool() is None
            with pytest.raises(ToolCallError, match="'plain' has no @terminal tool") as caught:
                await session.call_terminal_tool("hello")
    assert caught.value.reason == "not_found"


async def test_it_is_listed_among_the_tools_for_those_who_ask(url: str) -> None:
    async with AsyncORS(url) as client:
        environment = client.environment("essay")
        (spec,) = await environment.list_tools(terminal=True)
        assert (spec.name, spec.description) == ("grade", "Grades the answer.")
        assert (spec.input_schema or {})["required"] == ["answer"]
        garden = await client.environment("garden").list_tools(terminal=True)
        assert [(one.name, one.input_schema) for one in garden] == [("dig", None), ("grade", None)]
        async with environment.session(split="train", index=0) as session:
            assert await session.list_tools(terminal=True) == [spec]
            for provider in get_args(Provider):
                assert await session.list_tools(provider) == []
                (converted,) = await session.list_tools(provider, terminal=True)
                assert "The agent's last message." in str(converted)


@pytest.mark.parametrize("wrong", ["grade", {}, {"name": 5}, {"name": "grade", "arg": ["answer"]}])
async def test_one_that_is_none_is_an_error(wrong: object) -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        script.on("/env/tools", answer({"tools": [], "terminal_tool": wrong}))
        with pytest.raises(ServerFailed):
            await client.environment("env").terminal_tool()


async def test_a_server_that_knows_none_is_understood() -> None:
    async with scripted() as script, AsyncORS(script.url) as client:
        script.on("/env/tools", answer({"tools": []}))
        assert await client.environment("env").terminal_tool() is None
