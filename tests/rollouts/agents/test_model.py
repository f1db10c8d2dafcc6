"""Models of providers: each dialect, spoken with a server that checks every request."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ors.client import ToolInvocation
from ors.providers import api_of
from ors.providers.base import ModelOptions, ModelRequest
from ors.rollouts import (
    AgentMessage,
    Conversation,
    Message,
    SystemMessage,
    TaskRef,
    ToolMessage,
    Usage,
    UserMessage,
)
from ors.rollouts.agents import ModelAgent, Prices
from ors.types import ImageBlock, TextBlock, ToolSpec
from tests.support.model_provider import ALL, Answers, CheckedScript, providing
from tests.support.scripted_server import answer

# The providers' packages take seconds to import: in one process.
pytestmark = pytest.mark.xdist_group("providers")
dialects = pytest.mark.parametrize("answers", ALL, ids=lambda each: each.provider)

KEY = "sk-very-secret-0123456789"
LOOK = ToolSpec(
    name="look",
    description="Looks",
    input_schema={"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
)
SUBMIT = ToolSpec(name="submit", description="", input_schema=None)
IMAGE = ImageBlock(data="iVBORw0KGgo=", mimeType="image/png")
PROMPT = UserMessage([TextBlock(text="What is this?"), IMAGE])


def conversation(*messages: Message) -> Conversation:
    return Conversation(TaskRef("sums", "train", 0), messages=list(messages))


@asynccontextmanager
async def asked(
    answers: Answers, *replies: Any, **options: Any
) -> AsyncIterator[tuple[ModelAgent, CheckedScript]]:
    """An agent, and the provider that it asks."""
    async with providing(answers) as script:
        script.on(answers.path, *replies)
        options = {"base_url": script.url + answers.prefix, "api_key": KEY} | options
        agent = ModelAgent(answers.provider, "some-model", **options)
        yield agent, script
        await agent.close()


@dialects
async def test_a_model_plays_with_images_two_calls_and_reasoning_both_ways(answers: Answers) -> None:
    first = answers(
        "I look.", [("call_a", "look", '{"at": "sky"}'), ("call_b", "submit", "{}")], thought="Hm, blue?"
    )
    last = answers("It is the sky.")
    async with asked(answers, answer(first), answer(last)) as (agent, script):
        talk = conversation(SystemMessage("Be brief."), PROMPT)
        reply = await agent.reply(talk, [LOOK, SUBMIT])
        assert reply.text == "I look."
        assert reply.reasoning == "Hm, blue?"
        assert reply.calls == (
            ToolInvocation("look", {"at": "sky"}, "call_a"),
            ToolInvocation("submit", {}, "call_b"),
        )
        assert (reply.stop, reply.role) == ("stop", "assistant")
        talk.messages += [
            reply,
            ToolMessage("call_a", "look", [TextBlock(text="Blue."), IMAGE]),
            ToolMessage("call_b", "submit", [TextBlock(text="Not yet.")], ok=False),
        ]
        final = await agent.reply(talk, [LOOK, SUBMIT])
        assert (final.text, final.calls, final.reasoning) == ("It is the sky.", (), None)
    asked_first, asked_last = (json.dumps(script.body(number)) for number in (0, 1))
    assert asked_first.count(IMAGE.data) == 1
    assert asked_last.count(IMAGE.data) == 2
    assert "Be brief." in asked_first
    for told in ("Blue.", "Not yet.", "call_a", "call_b"):
        assert told in asked_last
    assert ("c2VjcmV0" in asked_last) == (answers.provider != "openai")
    assert "Hm, blue?" in asked_last


def sent_back(answers: Answers, body: dict[str, Any]) -> Any:
    """The model's own part of a request."""
    if answers.format == "openai":
        return [each for each in body["input"] if each["type"] in ("reasoning", "message", "function_call")][
            1:
        ]
    (reply,) = [
        each for each in body.get("messages") or body["contents"] if each["role"] in ("assistant", "model")
    ]
    return reply


@dialects
async def test_a_reply_goes_back_as_the_provider_sent_it(answers: Answers) -> None:
    made = answers("I look.", [("call_a", "look", '{"at": "sky"}')], thought="Hm.")
    async with asked(answers, answer(made), answer(answers("Done."))) as (agent, script):
        talk = conversation(UserMessage([TextBlock(text="Go")]))
        talk.messages.append(await agent.reply(talk, [LOOK]))
        talk.messages.append(ToolMessage("call_a", "look", []))
        await agent.reply(talk, [LOOK])
        found = sent_back(answers, script.body())
    if answers.format == "openai":
        assert found == made["output"]
    elif answers.format == "anthropic":
        assert found["content"] == made["content"]
    elif answers.format == "google":
        assert found == made["candidates"][0]["content"]
    else:
        message = made["choices"][0]["message"]
        assert found == {key: value for key, value in message.items() if value is not None}


@dialects
async def test_tokens_are_counted_and_priced(answers: Answers) -> None:
    prices = Prices(input=2.0, cached=0.5, output=10.0)
    async with asked(answers, answer(answers("Hi.")), prices=prices) as (agent, _):
        reply = await agent.reply(conversation(PROMPT), [])
    assert reply.usage == Usage(1000, 100, 800, 60, reply.usage.cost)
    assert reply.usage.cost == pytest.approx((200 * 2.0 + 800 * 0.5 + 100 * 10.0) / 1e6)
    assert reply.seconds > 0


@dialects
async def test_without_prices_the_cost_is_unknown(answers: Answers) -> None:
    async with asked(answers, answer(answers("Hi."))) as (agent, _):
        assert (await agent.reply(conversation(PROMPT), [])).usage.cost is None


async def test_the_cost_that_openrouter_reports_is_kept() -> None:
    answers = ALL[1]
    made = answers("Hi.")
    made["usage"]["cost"] = 0.25
    async with asked(answers, answer(made)) as (agent, _):
        assert (await agent.reply(conversation(PROMPT), [])).usage.cost == 0.25


@dialects
async def test_a_refusal_and_output_that_was_cut_off_are_said(answers: Answers) -> None:
    refused, cut = answers("I cannot.", stop="refusal"), answers("It is", stop="length")
    async with asked(answers, answer(refused), answer(cut)) as (agent, _):
        talk = conversation(PROMPT)
        no = await agent.reply(talk, [LOOK])
        short = await agent.reply(talk, [LOOK])
    assert (no.stop, no.text) == ("refusal", "I cannot.")
    assert (short.stop, short.text) == ("length", "It is")


async def test_a_call_that_anthropic_has_cut_off_is_not_run() -> None:
    """Its input is valid JSON: what was written of it so far."""
    answers = next(each for each in ALL if each.provider == "anthropic")
    listed = [("call_1", "look", '{"at": "it"}'), ("call_2", "submit", "{}")]
    async with asked(answers, answer(answers("", listed, stop="length"))) as (agent, _):
        reply = await agent.reply(conversation(PROMPT), [LOOK, SUBMIT])
    assert [call.error for call in reply.calls] == [
        None,
        "The output was cut off before the end of this call",
    ]


@dialects
@pytest.mark.parametrize("left", [None, {}])
async def test_a_usage_that_is_missing_is_unknown_and_costs_nobody_knows_what(
    answers: Answers, left: Any
) -> None:
    made = answers("Hi.")
    for name in made.keys() & {"usage", "usageMetadata"}:
        made[name] = left
    prices = Prices(input=2.0, output=10.0)
    async with asked(answers, answer(made), prices=prices) as (agent, _):
        usage = (await agent.reply(conversation(PROMPT), [])).usage
    assert (usage.cost, usage.unknown) == (None, 1)


@dialects
async def test_a_negative_count_of_tokens_is_none(answers: Answers) -> None:
    made = answers("Hi.")
    for name in made.keys() & {"usage", "usageMetadata"}:
        made[name] = dict.fromkeys(made[name], -1)
    async with asked(answers, answer(made)) as (agent, _):
        usage = (await agent.reply(conversation(PROMPT), [])).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (0, 0, 0)


def spoil(answers: Answers, made: Any) -> None:
    """Makes the arguments of the first call something that is no object."""
    if answers.format == "anthropic":
        made["content"][0]["input"] = "at: sky"
    elif answers.format == "google":
        made["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] = "at: sky"


@dialects
async def test_arguments_that_cannot_be_read_are_an_error_of_the_call(answers: Answers) -> None:
    arguments = '{"at": "sk' if answers.format in ("openai", "openai-chat", "openrouter") else "{}"
    made = answers(calls=[("call_a", "look", arguments), ("call_b", "submit", "{}")])
    spoil(answers, made)
    async with asked(answers, answer(made)) as (agent, _):
        reply = await agent.reply(conversation(PROMPT), [LOOK, SUBMIT])
    bad, good = reply.calls
    assert (bad.name, bad.id, bad.input) == ("look", "call_a", {})
    assert bad.error is not None
    assert "send a JSON object" in bad.error
    assert good == ToolInvocation("submit", {}, "call_b")


@pytest.mark.parametrize("answers", ALL[:2], ids=lambda each: each.provider)
async def test_unreadable_arguments_go_back_as_json_that_every_server_reads(answers: Answers) -> None:
    made = answers(calls=[("call_a", "look", '{"at": "sk')])
    async with asked(answers, answer(made), answer(answers("Sorry."))) as (agent, script):
        talk = conversation(PROMPT)
        talk.messages.append(await agent.reply(talk, [LOOK]))
        talk.messages.append(ToolMessage("call_a", "look", [TextBlock(text="Not JSON.")], ok=False))
        await agent.reply(talk, [LOOK])
    (call,) = sent_back(answers, script.body())["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"not_a_json_object": '{"at": "sk'}


@dialects
async def test_a_tool_that_does_not_exist_is_left_to_the_environment(answers: Answers) -> None:
    async with asked(answers, answer(answers(calls=[("call_a", "fly", '{"to": 1}')]))) as (agent, _):
        reply = await agent.reply(conversation(PROMPT), [LOOK])
    assert reply.calls == (ToolInvocation("fly", {"to": 1}, "call_a"),)


@dialects
async def test_a_tool_name_that_the_provider_forbids_is_an_error_before_any_request(answers: Answers) -> None:
    wrong = ToolSpec(name="look at", description="", input_schema=None)
    async with asked(answers) as (agent, script):
        with pytest.raises(ValueError, match="Tool 'look at': the provider wants a name that matches"):
            await agent.reply(conversation(PROMPT), [wrong])
        assert script.requests == []


@dialects
async def test_images_are_named_in_text_for_models_that_take_none(answers: Answers) -> None:
    async with asked(answers, answer(answers("Hi.")), images=False) as (agent, script):
        talk = conversation(PROMPT, AgentMessage(calls=(ToolInvocation("look", {}, "call_1"),)))
        talk.messages.append(ToolMessage("call_1", "look", [IMAGE]))
        await agent.reply(talk, [LOOK])
    body = json.dumps(script.body())
    assert IMAGE.data not in body
    assert body.count("[an image of type image/png, 9 bytes, which you cannot see]") == 2


@dialects
async def test_messages_of_other_agents_are_converted(answers: Answers) -> None:
    """An empty reply too, which some providers would refuse as a message."""
    talk = conversation(
        PROMPT,
        AgentMessage(text="Let me look.", calls=(ToolInvocation("look", {"at": "sky"}, "call_1"),)),
        ToolMessage("call_1", "look", []),
        AgentMessage(),
        UserMessage([TextBlock(text="Go on.")]),
    )
    async with asked(answers, answer(answers("Hi."))) as (agent, script):
        await agent.reply(talk, [LOOK])
    body = json.dumps(script.body())
    assert "Let me look." in body
    assert "Go on." in body


@dialects
async def test_an_empty_reply_is_no_message_that_the_provider_refuses(answers: Answers) -> None:
    looked = AgentMessage(calls=(ToolInvocation("look", {"at": "it"}, "call_1"),))
    seen = ToolMessage("call_1", "look", [TextBlock(text="a cat")])
    async with asked(answers, answer(answers("")), answer(answers("Hi."))) as (agent, script):
        talk = conversation(PROMPT, looked, seen)
        talk.messages += [await agent.reply(talk, [LOOK]), UserMessage([TextBlock(text="Go on.")])]
        await agent.reply(talk, [LOOK])
    before, after = (
        body.get("messages") or body.get("input") or body["contents"]
        for body in (script.body(0), script.body(1))
    )
    empty = [{"role": "assistant", "content": ""}]
    assert after[len(before) : -1] == (empty if answers.format in ("openai-chat", "openrouter") else [])


OPTIONS: dict[str, Any] = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "reasoning_effort": "low"}
WRITTEN: dict[str, dict[str, Any]] = {
    "openai": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "reasoning_effort": "low"},
    "openrouter": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "reasoning": {"effort": "low"}},
    "openai-responses": {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 64,
        "reasoning": {"effort": "low"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
    },
    "anthropic": {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 64,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
    },
    "google": {
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 64,
            "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True},
        }
    },
}


@dialects
async def test_options_are_written_as_the_provider_names_them(answers: Answers) -> None:
    async with asked(answers, answer(answers("Hi.")), **OPTIONS) as (agent, script):
        await agent.reply(conversation(PROMPT), [])
    body = script.body()
    given = {
        key: value for key, value in body.items() if key not in ("model", "messages", "input", "contents")
    }
    assert given == WRITTEN[answers.provider]


@pytest.mark.parametrize("provider", ["openai", "openrouter", "google"])
async def test_seed_and_stop_reach_the_providers_that_have_them(provider: str) -> None:
    (answers,) = [each for each in ALL if each.provider == provider]
    async with asked(answers, answer(answers("Hi.")), seed=7, stop=("END",)) as (agent, script):
        await agent.reply(conversation(PROMPT), [])
    body = script.body().get("generationConfig", script.body())
    assert 0 <= body["seed"] < 2**31
    assert body.get("stop", body.get("stopSequences")) == ["END"]


async def test_each_task_and_sample_has_a_seed_of_its_own_which_is_always_the_same() -> None:
    (answers,) = [each for each in ALL if each.provider == "openai"]
    task, other = TaskRef("sums", "train", 0), TaskRef("sums", "train", 1)
    episodes = [(7, task, 0), (7, task, 1), (7, other, 0), (8, task, 0), (7, task, 0)]
    seeds = []
    for seed, given, sample in episodes:
        async with asked(answers, answer(answers("Hi.")), seed=seed) as (agent, script):
            await agent.reply(Conversation(given, sample, [PROMPT]), [])
            seeds.append(script.body()["seed"])
    assert len(set(seeds[:4])) == 4
    assert seeds[4] == seeds[0]


@pytest.mark.parametrize("stop", ["END", ["END"], ("END",)])
def test_stop_may_be_one_text_or_several(stop: Any) -> None:
    assert ModelAgent("openai", "m", api_key=KEY, stop=stop).options.stop == ("END",)


@pytest.mark.parametrize(
    ("provider", "option"),
    [("openai-responses", {"seed": 1}), ("openai-responses", {"stop": ("x",)}), ("anthropic", {"seed": 1})],
)
def test_an_option_that_the_provider_does_not_have_is_an_error(provider: str, option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{provider} has no option '{next(iter(option))}'"):
        ModelAgent(provider, "some-model", api_key=KEY, **option)


async def test_extra_fields_reach_into_objects_and_none_removes_one() -> None:
    answers = ALL[4]
    extra = {"generationConfig": {"topK": 5, "seed": None}, "systemInstruction": None}
    async with asked(answers, answer(answers("Hi.")), seed=1, temperature=1.0, extra=extra) as (
        agent,
        script,
    ):
        await agent.reply(conversation(SystemMessage("Gone."), PROMPT), [])
    assert script.body()["generationConfig"] == {"topK": 5, "temperature": 1.0}
    assert "systemInstruction" not in script.body()


def test_openais_own_models_get_the_newer_name_of_the_token_limit() -> None:
    request = ModelRequest("m", "", [], [], ModelOptions(max_tokens=5), official=True)
    body = api_of("openai-chat").write_body(request)
    assert body["max_completion_tokens"] == 5
    assert "max_tokens" not in body


async def test_a_call_without_an_id_gets_one_that_its_result_carries_too() -> None:
    answers = ALL[0]
    made = answers(calls=[("", "look", "{}")])
    async with asked(answers, answer(made), answer(answers("Hi."))) as (agent, script):
        talk = conversation(PROMPT)
        talk.messages.append(await agent.reply(talk, [LOOK]))
        (call,) = talk.messages[-1].calls  # type: ignore[union-attr]
        assert call.id
        talk.messages.append(ToolMessage(call.id, "look", []))
        await agent.reply(talk, [LOOK])
    assert sent_back(answers, script.body())["tool_calls"][0]["id"] == call.id


async def test_a_prompt_that_google_blocks_is_a_refusal_with_its_tokens() -> None:
    answers = ALL[4]
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    async with asked(answers, answer(blocked)) as (agent, _):
        no = await agent.reply(conversation(PROMPT), [LOOK])
    assert (no.stop, no.text, no.usage.input_tokens) == ("refusal", "", 3)


async def test_chat_content_may_come_in_parts() -> None:
    answers = ALL[0]
    made = answers("x")
    made["choices"][0]["message"]["content"] = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    async with asked(answers, answer(made)) as (agent, _):
        assert (await agent.reply(conversation(PROMPT), [])).text == "ab"
