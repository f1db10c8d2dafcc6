"""Stop reasons of providers: only an answer is graded, and only a whole call runs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import ors.testing
from ors import Server, TextBlock, ToolOutput, tool
from ors.client import AsyncORS
from ors.rollouts import EpisodeRecord, Failed, Refused, Scored, ToolMessage, Truncated, play
from ors.rollouts.agents import ModelAgent
from tests.support.scripted_server import answer, scripted
from tests.support.terminal_environment import Garden, Generous

JSON = dict[str, Any]
PATHS = {
    "openai": "/v1/chat/completions",
    "openrouter": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/m:generateContent",
}
MODEL = Failed("model", "model", "ModelError")
TOKENS = Truncated("tokens")


class Shop(Generous):
    """Pays for every last message, and for every purchase."""

    @tool
    def buy(self, what: str = "everything") -> ToolOutput:
        """Buys."""
        return ToolOutput(blocks=[TextBlock(text=f"bought {what}")], reward=1.0)


@pytest.fixture
async def client() -> AsyncIterator[AsyncORS]:
    async with ors.testing.client(Server([Shop, Garden])) as made:
        yield made


async def played(client: AsyncORS, provider: str, *bodies: JSON, environment: str = "shop") -> EpisodeRecord:
    async with scripted() as script:
        script.on(PATHS[provider], *map(answer, bodies))
        base = script.url + ("/v1" if provider.startswith("open") else "")
        agent = ModelAgent(provider, "m", base_url=base, api_key="sk-0123456789", retries=0)
        session = client.environment(environment).session(split="train", index=0)
        record = await play(session, agent, reward="sum")
        await agent.close()
    return record


def short(record: EpisodeRecord) -> Any:
    """The outcome, without the words that explain it."""
    outcome = record.outcome
    if isinstance(outcome, Failed):
        return Failed(outcome.who, outcome.stage, outcome.error)
    return Truncated(outcome.limit) if isinstance(outcome, Truncated) else outcome


def chat(reason: Any = "stop", text: Any = "It is done.", **message: Any) -> JSON:
    said = {"role": "assistant", "content": text, **message}
    return {"choices": [{"index": 0, "finish_reason": reason, "message": said}]}


def chat_call(arguments: str, id: str = "call_1") -> JSON:
    return {"id": id, "type": "function", "function": {"name": "buy", "arguments": arguments}}


def responses(status: Any = "completed", why: str | None = None, *output: JSON, text: str = "Done.") -> JSON:
    part = {"type": "output_text", "text": text}
    said = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    details = None if why is None else {"reason": why}
    return {"status": status, "incomplete_details": details, "output": [*([said] if text else []), *output]}


def responses_call(arguments: str, status: str | None = "completed") -> JSON:
    call = {"type": "function_call", "call_id": "call_1", "name": "buy", "arguments": arguments}
    return call if status is None else call | {"status": status}


def anthropic(reason: Any = "end_turn", *content: JSON) -> JSON:
    return {"type": "message", "role": "assistant", "stop_reason": reason, "content": list(content)}


def said(text: str = "Done.") -> JSON:
    return {"type": "text", "text": text}


def use(**given: Any) -> JSON:
    return {"type": "tool_use", "id": "call_1", "name": "buy", "input": given}


def google(reason: Any = "STOP", *parts: JSON, **candidate: Any) -> JSON:
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    return {"candidates": [{"finishReason": reason, **content, **candidate}]}


def without(made: JSON, *path: Any) -> JSON:
    inner: Any = made
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return made


REFUSAL_PART = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
CASES = [
    ("openai", chat("stop"), Scored()),
    ("openai", chat("eos_token"), Scored()),
    ("openai", without(chat(), "choices", 0, "finish_reason"), Scored()),
    ("openai", chat("length"), TOKENS),
    ("openai", chat("model_length"), TOKENS),
    ("openai", chat("content_filter"), Refused()),
    ("openai", chat("content_filter", "", tool_calls=[chat_call("{}")]), Refused()),
    ("openai", chat("stop", None, refusal="I cannot."), Refused()),
    ("openai", chat("tool_calls"), MODEL),
    ("openai", chat("function_call"), MODEL),
    ("openai", chat("insufficient_system_resource"), MODEL),
    ("openai", chat("abort"), MODEL),
    ("openai", chat(None), MODEL),
    ("openai", chat(["stop"]), MODEL),
    ("openai", chat("stop", None), MODEL),
    ("openai", chat("stop", " \n"), MODEL),
    ("openai", chat("stop", "", reasoning_content="Hm."), MODEL),
    ("openai", {"choices": []}, MODEL),
    ("openrouter", chat("error"), MODEL),
    ("openrouter", chat("content_filter"), Refused()),
    ("openai-responses", responses(), Scored()),
    ("openai-responses", without(responses(), "status"), Scored()),
    ("openai-responses", responses("incomplete", "max_output_tokens"), TOKENS),
    ("openai-responses", responses("incomplete", "content_filter"), Refused()),
    ("openai-responses", responses("incomplete", "something_new"), MODEL),
    ("openai-responses", responses("incomplete"), MODEL),
    ("openai-responses", responses("in_progress"), MODEL),
    ("openai-responses", responses("queued"), MODEL),
    ("openai-responses", responses("cancelled"), MODEL),
    ("openai-responses", responses("failed"), MODEL),
    ("openai-responses", responses(None), MODEL),
    ("openai-responses", responses("completed", None, REFUSAL_PART, text=""), Refused()),
    ("openai-responses", responses(text=""), MODEL),
    ("anthropic", anthropic("end_turn", said()), Scored()),
    ("anthropic", anthropic("stop_sequence", said()), Scored()),
    ("anthropic", without(anthropic("end_turn", said()), "stop_reason"), Scored()),
    ("anthropic", anthropic("max_tokens", said()), TOKENS),
    ("anthropic", anthropic("model_context_window_exceeded", said()), TOKENS),
    ("anthropic", anthropic("refusal", said()), Refused()),
    ("anthropic", anthropic("refusal"), Refused()),
    ("anthropic", anthropic("tool_use", said()), MODEL),
    ("anthropic", anthropic("pause_turn"), MODEL),
    ("anthropic", anthropic("something_new", said()), MODEL),
    ("anthropic", anthropic(None, said()), MODEL),
    ("anthropic", anthropic("end_turn"), MODEL),
    ("google", google("STOP", {"text": "Done."}), Scored()),
    ("google", google("MAX_TOKENS", {"text": "Do"}), TOKENS),
    *[
        ("google", google(reason, {"text": "Do"}), Refused())
        for reason in (
            *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        )
    ],
    *[
        ("google", {"promptFeedback": {"blockReason": reason}}, Refused())
        for reason in ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY")
    ],
    ("google", google("MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: buy("), MODEL),
    *[
        ("google", google(reason, {"text": "Done."}), MODEL)
        for reason in ("OTHER", "UNEXPECTED_TOOL_CALL", "FINISH_REASON_UNSPECIFIED", "SOMETHING_NEW", None)
    ],
    ("google", without(google("STOP", {"text": "Done."}), "candidates", 0, "finishReason"), MODEL),
    ("google", google("STOP"), MODEL),
    ("google", {"candidates": []}, MODEL),
    ("google", {}, MODEL),
]


@pytest.mark.parametrize(("provider", "body", "outcome"), CASES, ids=lambda each: f"{each}"[:60])
async def test_only_an_answer_reaches_the_terminal_tool(
    client: AsyncORS, provider: str, body: JSON, outcome: Any
) -> None:
    record = await played(client, provider, body)
    assert short(record) == outcome
    assert record.rewards == ((1.0,) if outcome == Scored() else ())


CUT = [
    ("openai", chat("length", "", tool_calls=[chat_call("")])),
    ("openai", chat("length", "", tool_calls=[chat_call('{"what": "a ho')])),
    ("openai", chat("length", "", tool_calls=[chat_call('{"what": "a ho"}')])),  # completed by the server
    ("openai-responses", responses("incomplete", "max_output_tokens", responses_call("", None))),
    ("openai-responses", responses("incomplete", "max_output_tokens", responses_call("{}"))),
    ("openai-responses", responses("completed", None, responses_call("{}", "incomplete"))),
    ("anthropic", anthropic("max_tokens", use())),
    ("google", google("MAX_TOKENS", {"functionCall": {"name": "buy"}})),
    ("google", google("MAX_TOKENS", {"functionCall": {"name": "buy", "args": {"what": "a ho"}}})),
]
ENDS = {
    "openai": chat("length"),
    "openai-responses": responses("incomplete", "max_output_tokens"),
    "anthropic": anthropic("max_tokens", said()),
    "google": google("MAX_TOKENS", {"text": "Do"}),
}


@pytest.mark.parametrize(("provider", "body"), CUT, ids=lambda each: f"{each}"[:60])
async def test_a_call_that_was_cut_off_never_runs(client: AsyncORS, provider: str, body: JSON) -> None:
    record = await played(client, provider, body, ENDS[provider])
    assert short(record) == TOKENS
    assert all(reward is None for reward in record.rewards)


WHOLE_THEN_CUT = [
    ("openai", chat("length", "", tool_calls=[chat_call("{}"), chat_call("", "call_2")])),
    (
        "openai-responses",
        responses("incomplete", "max_output_tokens", responses_call("{}"), responses_call("", None)),
    ),
    ("anthropic", anthropic("max_tokens", use(), use() | {"id": "call_2"})),
    ("google", google("MAX_TOKENS", *[{"functionCall": {"name": "buy", "args": {}}}] * 2)),
]


@pytest.mark.parametrize(("provider", "body"), WHOLE_THEN_CUT, ids=lambda each: f"{each}"[:60])
async def test_a_whole_call_before_one_that_was_cut_off_runs(
    client: AsyncORS, provider: str, body: JSON
) -> None:
    record = await played(client, provider, body, ENDS[provider])
    results = [each for each in record.messages if isinstance(each, ToolMessage)]
    assert [each.ok for each in results] == [True, False]
    assert record.rewards == (1.0, None)


async def test_a_turn_that_anthropic_paused_goes_on_and_only_its_end_is_graded(client: AsyncORS) -> None:
    search = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    async with scripted() as script:
        paused, ended = anthropic("pause_turn", said("Wait."), search), anthropic("end_turn", said("Done."))
        script.on("/v1/messages", answer(paused), answer(ended))
        agent = ModelAgent("anthropic", "m", base_url=script.url, api_key="sk-0123456789")
        session = client.environment("shop").session(split="train", index=0)
        record = await play(session, agent, reward="sum", nudge="Go on.")
        await agent.close()
    assert (record.outcome, record.rewards) == (Scored(), (1.0,))
    sent = script.requests[1].json()["messages"]
    assert sent[1:] == [{"role": "assistant", "content": [said("Wait."), search]}]


async def test_a_model_that_says_nothing_after_its_calls_is_done_and_not_graded(client: AsyncORS) -> None:
    record = await played(client, "anthropic", anthropic("tool_use", use()), anthropic("end_turn"))
    assert (record.outcome, record.rewards) == (Scored(), (1.0,))
    dig = anthropic("tool_use", {"type": "tool_use", "id": "call_1", "name": "dig", "input": {}})
    record = await played(client, "anthropic", dig, anthropic("end_turn"), environment="garden")
    assert (record.outcome, record.rewards) == (Scored(), (None, 1.0)), "this tool takes no message"


async def test_a_refusal_keeps_the_rewards_of_the_steps_before_it(client: AsyncORS) -> None:
    record = await played(client, "anthropic", anthropic("tool_use", use()), anthropic("refusal"))
    assert (record.outcome, record.reward) == (Refused(), 1.0)


async def test_the_failure_names_the_reason(client: AsyncORS) -> None:
    record = await played(client, "google", google("MALFORMED_FUNCTION_CALL", finishMessage="print("))
    assert isinstance(record.outcome, Failed)
    assert "MALFORMED_FUNCTION_CALL" in record.outcome.message
    assert "print(" in record.outcome.message
