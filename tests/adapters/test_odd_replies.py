"""Whatever a model writes, no parser raises anything but its own error."""

import json
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ors._json import dumps, loads
from ors.adapters.chat import call_of, parse_reply
from ors.client import Provider, ToolCallError, ToolInvocation, parse_tool_call
from ors.providers import MODEL_NAMES, api_of
from ors.rollouts import AgentMessage
from ors.rollouts.episodes.played import check_reply

HALF = "\ud83d"  # of an emoji: its other half was never sampled
DIGITS = "9" * 4300  # as many as Python reads
TEXTS = [
    HALF,
    f'{{"a": "{HALF}"}}',
    f'{{"{HALF}": 1}}',
    '{"a": "\\ud83d"}',
    "[" * 100_000,
    '{"a":' * 100_000,
    '{"a":' + "[" * 201 + "]" * 201 + "}",
    f'{{"a": {DIGITS}}}',
    f'{{"a": {DIGITS}9}}',
    f'{{"a": "\\ud83d", "b": {DIGITS}9}}',
    '{"a": NaN, "b": -Infinity}',
    '{"a": 1e999}',
    '{"a": "\x00"}',
    "\ufeff{}",
    '{"name": null}',
    '{"name": ["x"], "arguments": {}}',
    '{"name": "x", "arguments": "[[[["}',
]
ANY_TEXT = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=()))
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | ANY_TEXT
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner), max_leaves=8)


def all_examples(name: str) -> Any:
    def decorate(test: Any) -> Any:
        for text in TEXTS:
            test = example(**{name: text})(test)
        return settings(max_examples=60, deadline=None)(test)

    return decorate


def check(call: ToolInvocation) -> None:
    """A call that was read can be sent; of another, its text is known."""
    assert (call.error is None) == (call.raw is None)
    check_reply(AgentMessage(calls=(call,)))


@given(ANY_TEXT)
@all_examples("text")
def test_json_is_read_or_is_a_value_error(text: str) -> None:
    try:
        value = loads(text)
    except ValueError:
        return
    dumps(value)


@given(ANY_TEXT)
@all_examples("text")
def test_a_reply_is_always_read(text: str) -> None:
    for reply in (text, f"<tool_call>{text}</tool_call>"):
        check_reply(parse_reply(reply))
    (call,) = parse_reply(f'<tool_call>{{"name": "x", "arguments": {text}}}</tool_call>').calls[:1] or (None,)
    if call is not None:
        check(call)


@given(VALUES)
@all_examples("arguments")
def test_arguments_that_cannot_be_read_are_an_error_for_the_model(arguments: Any) -> None:
    call = call_of("x", arguments, "call_0")
    if isinstance(arguments, str):
        check(call)


@pytest.mark.parametrize("format", [None, *get_args(Provider)])
@given(call=VALUES, name=VALUES, arguments=VALUES)
@settings(max_examples=40, deadline=None)
def test_a_providers_call_is_read_or_refused(format: Any, call: Any, name: Any, arguments: Any) -> None:
    made = {"id": "1", "name": name, "arguments": arguments, "args": arguments, "input": arguments}
    kinds = [{"type": kind} for kind in ("function_call", "tool_use")]
    calls = [call, made, {"function": made}, {"functionCall": made}, *(made | kind for kind in kinds)]
    for each in calls:
        with suppress(ToolCallError, ValueError):
            parse_tool_call(each, format)


def test_arguments_that_are_nested_more_deeply_than_python_shows_are_refused() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    assert call_of("x", deep, "call_0").error is not None
    with pytest.raises(ValueError, match="Not a tool call"):
        parse_tool_call({"function": {"name": deep}})


def answers(text: str) -> dict[str, list[Any]]:
    """What providers answer where the model has written this as its arguments and as its text."""
    chat = {"id": "1", "type": "function", "function": {"name": "x", "arguments": text}}
    message = {"role": "assistant", "content": text, "tool_calls": [chat]}
    responses = {"type": "function_call", "call_id": "1", "name": "x", "arguments": text}
    use = {"type": "tool_use", "id": "1", "name": text, "input": {"a": text}}
    part = {"functionCall": {"name": text, "args": {"a": text}}}
    stopped = [{"choices": [{"message": message, "finish_reason": end}]} for end in ("stop", "length")]
    return {
        **dict.fromkeys(("openai", "openai-chat"), stopped),
        "openrouter": stopped,
        "openai-responses": [{"status": "completed", "output": [responses]}],
        "anthropic": [{"content": [use, {"type": "text", "text": text}], "stop_reason": "end_turn"}],
        "google": [{"candidates": [{"content": {"parts": [part, {"text": text}]}, "finishReason": "STOP"}]}],
    }


@given(ANY_TEXT)
@all_examples("text")
def test_a_providers_answer_with_anything_in_it_is_read(text: str) -> None:
    made = answers(text)
    assert made.keys() == MODEL_NAMES.keys()
    for name, given_answers in made.items():
        for answer in given_answers:
            reply = api_of(MODEL_NAMES[name]).read_answer(answer)
            assert len(reply.calls) == 1
            check_reply(reply)


@pytest.mark.parametrize("text", TEXTS[:10])
def test_what_cannot_be_read_goes_back_to_the_model(text: str) -> None:
    (call,) = parse_reply(f"<tool_call>{text}</tool_call>").calls
    assert (call.name, call.raw) == ("unread", text)
    assert call.error == "The call is not a JSON object with a name and arguments."
    read = call_of("x", json.dumps([text]), "call_0")
    assert read.error == "The arguments of 'x' are of type array: send a JSON object."
