"""Prompts, replies and results as the messages of model providers."""

from typing import Any, get_args

import pytest

from ors.client import (
    Provider,
    TextBlock,
    ToolCallError,
    ToolInvocation,
    ToolOutput,
    convert_prompt,
    convert_reply,
    convert_results,
    parse_tool_call,
)
from tests.support.provider_types import message_problems

# The providers' packages take seconds to import: in one process.
pytestmark = pytest.mark.xdist_group("providers")
formats = pytest.mark.parametrize("format", get_args(Provider))
CALL = ToolInvocation("look", {"at": "sky", "deep": {"n": [1, None]}}, "call_1")


@formats
def test_an_empty_prompt_and_blank_texts_are_messages_that_providers_take(format: Provider) -> None:
    prompts: list[list[TextBlock]] = [[], [TextBlock(text="")], [TextBlock(text=" \n"), TextBlock(text="Hi")]]
    for blocks in prompts:
        messages = convert_prompt(blocks, format)
        assert message_problems(format, messages) == []
    if format == "anthropic":
        assert convert_prompt([TextBlock(text=" ")], format)[0]["content"] == [
            {"type": "text", "text": "(empty)"}
        ]
    if format == "google":
        assert convert_prompt([], format)[0]["parts"] == [{"text": "(empty)"}]


@formats
def test_a_reply_may_be_text_calls_both_or_nothing(format: Provider) -> None:
    for text, calls in (("Hi.", []), ("", [CALL]), ("Hi.", [CALL]), ("", [])):
        messages = convert_reply(text, calls, format)
        assert message_problems(format, convert_prompt([TextBlock(text="Go")], format) + messages) == []
        assert ("Hi." in str(messages)) == bool(text)
        assert ("look" in str(messages)) == bool(calls)
    if format in ("anthropic", "google", "openai"):
        assert convert_reply("", [], format) == []


@formats
def test_a_call_reads_back_as_it_was(format: Provider) -> None:
    (message,) = convert_reply("", [CALL], format)
    written: Any = message
    for key in ("tool_calls", "content", "parts"):
        written = message[key][0] if message.get(key) else written
    assert parse_tool_call(written, format) == CALL


@formats
def test_results_without_output_are_messages_that_providers_take(format: Provider) -> None:
    second = ToolInvocation("look", {}, "call_2")
    results: list[tuple[ToolInvocation, ToolOutput | ToolCallError]] = [
        (CALL, ToolOutput(blocks=[])),
        (second, ToolCallError("")),
    ]
    assert message_problems(format, convert_results(results, format)) == []
    assert [each for each in convert_results([], format) if each] == []


@pytest.mark.parametrize("format", ["openai", "openai-chat", "openrouter", "anthropic"])
def test_a_call_without_an_id_is_an_error_where_results_are_matched_by_it(format: Provider) -> None:
    nameless = ToolInvocation("look", {})
    with pytest.raises(ValueError, match="The call of 'look' has no id"):
        convert_reply("", [nameless], format)
    with pytest.raises(ValueError, match="The call of 'look' has no id"):
        convert_results([(nameless, ToolOutput(blocks=[]))], format)


def test_google_matches_results_by_name_if_there_is_no_id() -> None:
    nameless = ToolInvocation("look", {})
    (reply,) = convert_reply("", [nameless, nameless], "google")
    (results,) = convert_results([(nameless, ToolOutput(blocks=[]))], "google")
    assert reply["parts"][0]["functionCall"] == {"name": "look", "args": {}}
    assert results["parts"][0]["functionResponse"] == {"name": "look", "response": {"output": ""}}
    # Its newer models refuse a first call without a signature.
    assert ["thoughtSignature" in part for part in reply["parts"]] == [True, False]


@pytest.mark.parametrize(
    "convert",
    [
        lambda: convert_prompt([], "opnai"),  # type: ignore[arg-type]
        lambda: convert_reply("", [], "opnai"),  # type: ignore[arg-type]
        lambda: convert_results([], "opnai"),  # type: ignore[arg-type]
    ],
)
def test_an_unknown_format_is_named(convert: Any) -> None:
    with pytest.raises(ValueError, match="Invalid format: 'opnai'"):
        convert()
