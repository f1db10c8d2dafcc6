"""A session's prompt, calls and results, as the messages of model providers."""

import asyncio
import gc
import json
import weakref
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from ors import (
    Blocks,
    Environment,
    ImageBlock,
    JSONObject,
    Server,
    TextBlock,
    ToolError,
    ToolOutput,
    terminal,
    tool,
)
from ors.client import ORS, AsyncORS, Options, Provider
from ors.errors import SessionLost, ToolCallError, ToolFailed
from tests.support.live_server import serving
from tests.support.provider_types import message_problems
from tests.support.waiting import until

# The providers' packages take seconds to import: in one process.
pytestmark = pytest.mark.xdist_group("providers")
formats = pytest.mark.parametrize("format", get_args(Provider))

IMAGE = "iVBORw0KGgo="


class Gallery(Environment):
    """Shows pictures."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="What do you see?"), ImageBlock(data=IMAGE, mimeType="image/png")]

    @tool(concurrent=True)
    async def show(self, name: str) -> ToolOutput:
        """Shows a picture, once two have been asked for."""
        self.asked = getattr(self, "asked", 0) + 1
        await until(lambda: self.asked == 2)
        image = ImageBlock(data=IMAGE, mimeType="image/png")
        return ToolOutput(blocks=[TextBlock(text=f"This is {name}."), image])

    @tool
    def touch(self) -> ToolOutput:
        """Is not allowed."""
        raise ToolError("Do not touch.", reason="forbidden")

    @tool
    def break_it(self) -> ToolOutput:
        """Fails."""
        raise RuntimeError("broken")

    @tool
    def leave(self) -> ToolOutput:
        """Says nothing."""
        return ToolOutput(blocks=[])

    @terminal
    @tool
    def answer(self, text: str) -> ToolOutput:
        """Takes the last message."""
        if text == "?":
            raise ToolError("That is no answer.")
        return ToolOutput(blocks=[], reward=1.0, finished=True)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Server([Gallery])) as address:
        yield address


async def played(url: str, format: Provider) -> list[dict[str, Any]]:
    """Two calls at once, one that is refused, one that fails, one without output, and the last message."""
    async with (
        AsyncORS(url) as client,
        client.environment("gallery").session(split="train", index=0) as session,
    ):
        show = session.call_tool
        await asyncio.gather(show("show", {"name": "a"}, call_id="toolu_a"), show("show", {"name": "b"}))
        with pytest.raises(ToolCallError):
            await session.call_tool("touch")
        with pytest.raises(ToolFailed):
            await session.call_tool("break_it")
        await session.call_tool("leave")
        with pytest.raises(ToolCallError):
            await session.call_terminal_tool("?")
        await session.call_terminal_tool("Two pictures.")
        return await session.messages(format)


@formats
async def test_every_provider_takes_the_messages(url: str, format: Provider) -> None:
    messages = await played(url, format)
    assert message_problems(format, messages) == []
    text = json.dumps(messages)
    assert text.count(IMAGE) == 3
    told = ["What do you see?", "toolu_a", "This is a.", "This is b.", "Do not touch.", "Two pictures."]
    assert [text.count(each) for each in told] == [
        1,
        3 if "chat" in format or "router" in format else 2,
        1,
        1,
        1,
        1,
    ]
    assert text.index("Two pictures.") > text.index("That is no answer.")
    assert "break_it" not in text


async def test_chat_completions_shows_images_after_all_results_of_the_turn(url: str) -> None:
    messages = await played(url, "openai-chat")
    roles = "user assistant tool tool user assistant tool assistant tool assistant user assistant"
    assert " ".join(each["role"] for each in messages) == roles
    assert [each["id"] for each in messages[1]["tool_calls"]] == ["toolu_a", "call_2"]
    assert [each["tool_call_id"] for each in messages[2:4]] == ["toolu_a", "call_2"]
    assert all(isinstance(each["content"], str) for each in messages[2:4])
    assert [each["type"] for each in messages[4]["content"]] == ["text", "image_url", "text", "image_url"]
    assert messages[0]["content"][1]["image_url"]["url"] == f"data:image/png;base64,{IMAGE}"
    assert messages[-1]["content"] == "Two pictures."


async def test_anthropic_gets_all_results_of_a_turn_in_one_message_and_refusals_as_errors(url: str) -> None:
    messages = await played(url, "anthropic")
    both, refused, empty = messages[2]["content"], messages[4]["content"], messages[6]["content"]
    assert [each["tool_use_id"] for each in both] == ["toolu_a", "call_2"]
    assert [part["type"] for part in both[0]["content"]] == ["text", "image"]
    assert "is_error" not in both[0]
    assert refused[0]["is_error"] is True
    assert "content" not in empty[0]


async def test_google_gets_all_results_of_a_turn_in_one_content_and_refusals_as_errors(url: str) -> None:
    messages = await played(url, "google")
    both = [part["functionResponse"] for part in messages[2]["parts"]]
    assert [each["id"] for each in both] == ["toolu_a", "call_2"]
    assert both[0]["response"] == {"output": "This is a."}
    assert both[0]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": IMAGE}}]
    assert messages[4]["parts"][0]["functionResponse"]["response"] == {"error": "Do not touch."}


async def test_responses_gets_items(url: str) -> None:
    kinds = [each["type"] for each in await played(url, "openai")]
    pair = ["function_call", "function_call_output"]
    both = ["function_call"] * 2 + ["function_call_output"] * 2
    assert kinds == ["message", *both, *pair, *pair, "message", "message", "message"]


def test_the_sync_client_has_them_too(url: str) -> None:
    with ORS(url) as client, client.environment("gallery").session(split="train", index=0) as session:
        session.call_tool("leave", {}, call_id="call_x")
        messages = session.messages(format="openai-chat")
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    assert messages[2]["tool_call_id"] == "call_x"


async def test_calls_that_follow_each_other_are_replies_of_their_own(url: str) -> None:
    async with (
        AsyncORS(url) as client,
        client.environment("gallery").session(split="train", index=0) as session,
    ):
        for _ in range(2):
            await session.call_tool("leave")
        messages = await session.messages("openai-chat")
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [messages[at]["tool_call_id"] for at in (2, 4)] == ["call_1", "call_2"]


async def test_an_input_that_is_changed_later_is_told_as_it_was(url: str) -> None:
    async with (
        AsyncORS(url) as client,
        client.environment("gallery").session(split="train", index=0) as session,
    ):
        given = {"name": "before"}
        with pytest.raises(ToolCallError):
            await session.call_tool("no_such_tool", given)
        given["name"] = "after"
        (call,) = (await session.messages("anthropic"))[1]["content"]
    assert call["input"] == {"name": "before"}


async def test_messages_need_the_server_only_for_a_prompt_that_was_not_asked_for(url: str) -> None:
    async with AsyncORS(url) as client:
        environment = client.environment("gallery")
        async with environment.session(split="train", index=0) as known:
            await known.get_prompt()
        assert len(await known.messages("openai")) == 1
        async with environment.session(split="train", index=0) as unknown:
            pass
        with pytest.raises(SessionLost):
            await unknown.messages("openai")


async def test_an_unknown_format_is_named(url: str) -> None:
    async with (
        AsyncORS(url) as client,
        client.environment("gallery").session(split="train", index=0) as session,
    ):
        with pytest.raises(ValueError, match="Invalid format: 'opnai'; use one of openai"):
            await session.messages("opnai")  # type: ignore[arg-type]


async def test_a_client_that_keeps_nothing_says_so_and_frees_its_results(url: str) -> None:
    client = AsyncORS(url, options=Options(keep_messages=False))
    async with client, client.environment("gallery").session(split="train", index=0) as session:
        await session.get_prompt()
        output = await session.call_tool("leave", call_id="call_x")
        gone = weakref.ref(output)
        del output
        gc.collect()
        assert gone() is None
        with pytest.raises(RuntimeError, match=r"Options\(keep_messages=False\)"):
            await session.messages("openai")
