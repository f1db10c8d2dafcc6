"""Replies as text: what is said, and the calls in it."""

import pytest

from ors.adapters.chat import parse_reply
from ors.client import ToolInvocation

FIRST, SECOND = '{"name": "look", "arguments": {}}', '{"name": "guess", "arguments": {"number": 3}}'


def test_calls_are_read_in_their_order_and_the_rest_is_said() -> None:
    text = f"So:\n<tool_call>{FIRST}</tool_call> and\n<tool_call>\n{SECOND}\n</tool_call> done <|im_end|>\n"
    reply = parse_reply(text)
    assert reply.text == "So:\n and\n done"
    assert reply.calls == (
        ToolInvocation("look", {}, "call_0"),
        ToolInvocation("guess", {"number": 3}, "call_1"),
    )


def test_a_reply_may_be_nothing_but_a_call() -> None:
    reply = parse_reply(f"<tool_call>{FIRST}</tool_call><|im_end|>")
    assert (reply.text, len(reply.calls)) == ("", 1)


@pytest.mark.parametrize("text", [f"<tool_call>{FIRST}", f"</tool_call>{FIRST}<tool_call>"])
def test_a_call_without_an_end_is_said(text: str) -> None:
    reply = parse_reply(text)
    assert (reply.text, reply.calls) == (text, ())


@pytest.mark.parametrize("call", ["guess 3", "[]", "{}", "null", '{"arguments": {}}'])
def test_a_call_that_cannot_be_read_is_an_error_for_the_model(call: str) -> None:
    (read,) = parse_reply(f"<tool_call>{call}</tool_call>").calls
    assert (read.error is not None, read.raw) == (True, call)


@pytest.mark.parametrize("given", ["[1]", '"{"'])
def test_arguments_that_cannot_be_read_are_kept(given: str) -> None:
    (read,) = parse_reply(f'<tool_call>{{"name": "a", "arguments": {given}}}</tool_call>').calls
    assert (read.name, read.input, read.raw) == ("a", {}, given.strip('"'))


def test_arguments_may_be_a_text_with_json() -> None:
    (read,) = parse_reply('<tool_call>{"name": "a", "arguments": "{\\"n\\": 1}"}</tool_call>').calls
    assert read == ToolInvocation("a", {"n": 1}, "call_0")
