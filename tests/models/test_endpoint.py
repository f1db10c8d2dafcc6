"""Requests that fail: what is repeated, what is not, and what the error says."""

import asyncio
import base64
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from ors.client.requests.retry import Retry, retry_after
from ors.rollouts import ContextExceeded, ModelError
from ors.rollouts.agents import ModelAgent
from tests.rollouts.agents.test_model import KEY, LOOK, PROMPT, asked, conversation
from tests.support.model_provider import ALL, Answers
from tests.support.scripted_server import Reply, answer, head

pytestmark = pytest.mark.xdist_group("providers")
dialects = pytest.mark.parametrize("answers", ALL, ids=lambda each: each.provider)
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which are not made."""
    made: list[float] = []

    async def sleep(_: Retry, seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(Retry, "_sleep", sleep)
    return made


async def replied(agent: ModelAgent) -> Any:
    return await agent.reply(conversation(PROMPT), [LOOK])


@dialects
async def test_the_provider_says_how_long_to_wait(answers: Answers, pauses: list[float]) -> None:
    busy = answer({"error": {"message": "slow down"}}, 429, {"Retry-After": "7"})
    async with asked(answers, busy, answer(answers("Hi."))) as (agent, script):
        assert (await replied(agent)).text == "Hi."
        assert len(script.requests) == 2
    (pause,) = pauses
    assert 7.0 <= pause <= 7.7


@dialects
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_failure_that_may_pass_is_repeated(answers: Answers, status: int) -> None:
    async with asked(answers, answer(OVERLOADED, status), answer(answers("Hi."))) as (agent, script):
        assert (await replied(agent)).text == "Hi."
        assert [each.body for each in script.requests] == [script.requests[0].body] * 2


@dialects
async def test_retries_end_and_pauses_grow_to_their_limit(answers: Answers, pauses: list[float]) -> None:
    options = {"retries": 4, "backoff_seconds": 1.0, "longest_pause_seconds": 3.0}
    async with asked(answers, answer(OVERLOADED, 500), **options) as (agent, script):
        with pytest.raises(ModelError, match=r"^127\.0\.0\.1:\d+ answered 500: Overloaded$") as caught:
            await replied(agent)
        assert len(script.requests) == 5
    assert caught.value.status == 500
    assert not isinstance(caught.value, ContextExceeded)
    for pause, whole in zip(pauses, [1.0, 2.0, 3.0, 3.0], strict=True):
        assert whole / 2 <= pause <= whole


async def test_a_wait_over_the_limit_is_not_made(pauses: list[float]) -> None:
    busy = answer({"error": {"message": "quota"}}, 429, {"Retry-After": "3600"})
    async with asked(ALL[0], busy) as (agent, script):
        with pytest.raises(ModelError, match="429"):
            await replied(agent)
        assert (len(script.requests), pauses) == (1, [])


async def test_an_empty_account_is_not_asked_again() -> None:
    empty = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    async with asked(ALL[0], answer(empty, 429)) as (agent, script):
        with pytest.raises(ModelError, match="exceeded your current quota"):
            await replied(agent)
        assert len(script.requests) == 1


def test_retry_after_is_read_as_seconds_or_a_date() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert retry_after({"Retry-After": "2.5"}) == 2.5
    assert 80 < (retry_after({"Retry-After": soon}) or 0) <= 90
    assert retry_after({"Retry-After": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0.0
    assert retry_after({"Retry-After": "later"}) is None
    assert retry_after({}) is None


@pytest.mark.parametrize(("headers", "least"), [({}, 34.5), ({"Retry-After": "2"}, 2.0)])
@dialects
async def test_google_asks_for_a_pause_in_the_body_which_a_header_overrides(
    answers: Answers, headers: dict[str, str], least: float, pauses: list[float]
) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    busy = answer({"error": {"message": "busy", "details": details}}, 429, headers)
    async with asked(answers, busy, answer(answers("Hi."))) as (agent, _):
        await replied(agent)
    (pause,) = pauses
    assert least <= pause <= 1.1 * least


async def test_an_answer_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ors.models.MAX_ANSWER_BYTES", 100)
    async with asked(ALL[0], answer(ALL[0]("x" * 200))) as (agent, script):
        with pytest.raises(ModelError, match="is over 100 bytes"):
            await replied(agent)
        assert len(script.requests) == 1


LONG = [(answers, error) for answers in ALL for error in answers.context_errors]


@pytest.mark.parametrize(("answers", "error"), LONG, ids=[each.provider for each, _ in LONG])
async def test_a_conversation_that_is_too_long_is_told_apart(answers: Answers, error: Any) -> None:
    async with asked(answers, answer(error, 400)) as (agent, script):
        with pytest.raises(ContextExceeded, match="400") as caught:
            await replied(agent)
        assert len(script.requests) == 1
    assert caught.value.status == 400


@dialects
async def test_a_request_that_is_refused_is_not_repeated(answers: Answers) -> None:
    wrong = {
        "error": {"message": "Invalid 'temperature': too " + "high " * 200, "type": "invalid_request_error"}
    }
    async with asked(answers, answer(wrong, 400)) as (agent, script):
        with pytest.raises(ModelError, match="answered 400: Invalid 'temperature'") as caught:
            await replied(agent)
        assert len(script.requests) == 1
    assert not isinstance(caught.value, ContextExceeded)
    assert len(str(caught.value)) < 400


@dialects
async def test_a_hanging_answer_ends_at_the_time_limit(answers: Answers, pauses: list[float]) -> None:
    hanging = Reply(b"", hold=asyncio.Event())
    async with asked(answers, hanging, request_seconds=0.05, retries=1) as (agent, _):
        with pytest.raises(ModelError, match=r"did not answer within 0\.05 s"):
            await replied(agent)
    assert len(pauses) == 1


@dialects
async def test_a_body_that_hangs_ends_at_the_time_limit(answers: Answers) -> None:
    begun = Reply(head(200, {}, 1000) + b'{"id": ', hold=asyncio.Event())
    async with asked(answers, begun, request_seconds=0.05, retries=0) as (agent, _):
        with pytest.raises(ModelError, match="did not answer"):
            await replied(agent)


@dialects
async def test_a_body_that_is_not_json_is_asked_for_again(answers: Answers) -> None:
    page = answer(b"<html>the gateway is tired</html>")
    async with asked(answers, page, answer(answers("Hi."))) as (agent, script):
        assert (await replied(agent)).text == "Hi."
        script.on(answers.path, page)
        with pytest.raises(ModelError, match="is not JSON"):
            await replied(agent)
        assert len(script.requests) == 2 + 9


@dialects
@pytest.mark.parametrize("value", [{}, [], 7, {"choices": []}, {"output": 3}, {"content": None}])
async def test_json_that_is_no_answer_is_an_error_of_the_provider(answers: Answers, value: Any) -> None:
    async with asked(answers, answer(value)) as (agent, _):
        with pytest.raises(ModelError, match="is not valid: it has no"):
            await replied(agent)


@dialects
async def test_a_broken_connection_is_made_again(answers: Answers) -> None:
    cut = Reply(head(200, {}, 1000) + b'{"id": ', cut=True)
    async with asked(answers, Reply(b"", cut=True), cut, answer(answers("Hi."))) as (agent, script):
        assert (await replied(agent)).text == "Hi."
        assert script.connections == 3


async def test_a_server_that_cannot_be_reached_is_named() -> None:
    agent = ModelAgent("openai", "m", base_url="http://127.0.0.1:1/v1", retries=1)
    with pytest.raises(ModelError, match=r"no answer from 127\.0\.0\.1:1"):
        await replied(agent)
    await agent.close()


async def test_an_error_that_comes_with_status_200_counts_as_one() -> None:
    inside = answer({"error": {"code": 502, "message": "the upstream is gone"}})
    async with asked(ALL[1], inside, answer(ALL[1]("Hi."))) as (agent, script):
        assert (await replied(agent)).text == "Hi."
        assert len(script.requests) == 2
        script.on(ALL[1].path, answer({"error": {"code": 400, "message": "no such model"}}))
        with pytest.raises(ModelError, match="answered 400: no such model"):
            await replied(agent)


async def test_a_response_that_failed_is_asked_for_again() -> None:
    answers = ALL[2]
    failed = answers("") | {"status": "failed", "error": {"code": "server_error", "message": "oops"}}
    async with asked(answers, answer(failed), answer(answers("Hi."))) as (agent, _):
        assert (await replied(agent)).text == "Hi."


@dialects
@pytest.mark.parametrize("status", [400, 401, 403, 404, 500])
async def test_the_key_is_sent_and_never_told(
    answers: Answers, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": f"Incorrect API key provided: {KEY}. You can find it on our page."}}
    async with asked(answers, answer(echo, status), retries=0) as (agent, script):
        with pytest.raises(ModelError) as caught:
            await replied(agent)
        assert KEY in script.requests[0].headers[answers.key_header]
    told = f"{agent!r} {caught.value!r} {caught.value} {caplog.text} {caught.value.__cause__}"
    assert KEY not in told
    # Providers repeat a part of a wrong key in their text.
    assert ("Incorrect API key" in told) == (status != 401)
    assert str(status) in str(caught.value)
    assert repr(agent) == f"<ModelAgent {answers.provider}:some-model>"


SHOWN = [
    KEY,
    f"{KEY[:5]}***{KEY[-4:]}",
    f"{KEY[:7]}...{KEY[-2:]}",
    f"{KEY[:9]}…",
    f"'****{KEY[-4:]}'",
    f"key={KEY[:4]}XXXXXXXXXXXX{KEY[-4:]}",
    base64.b64encode(KEY.encode()).decode(),
]


@dialects
@pytest.mark.parametrize("shown", SHOWN)
async def test_a_key_that_is_shown_in_part_is_not_told(answers: Answers, shown: str) -> None:
    echo = {"error": {"message": f"The key {shown} may not use this model."}}
    async with asked(answers, answer(echo, 403), answer(answers(f"I was asked with {shown}."))) as (agent, _):
        with pytest.raises(ModelError, match=r"403: The key .*may not use this model") as caught:
            await replied(agent)
        reply = await replied(agent)
    refusal = str(caught.value).partition("403")[2]  # before it stands a port, which may have any digits
    for told in (refusal, reply.text, repr(reply.native)):
        assert "***" in told
        for length in (3, len(KEY)):
            assert KEY[:length] not in told
            assert KEY[-length:] not in told
    assert reply.text.startswith("I was asked with ")


async def test_a_part_of_the_key_without_a_mask_is_not_told_in_an_error() -> None:
    answers = ALL[0]
    async with asked(answers, answer({"error": f"The key {KEY[:12]} is not known"}, 403)) as (agent, _):
        with pytest.raises(ModelError, match=r"403: The key \*\*\* is not known"):
            await replied(agent)


@pytest.mark.parametrize("text", ["Wait... task-... and ...89ab", "secret", "sk-very", "***"])
async def test_a_reply_that_only_resembles_the_key_is_kept(text: str) -> None:
    answers = ALL[0]
    async with asked(answers, answer(answers(text))) as (agent, _):
        assert (await replied(agent)).text == text


async def test_the_key_of_a_local_server_may_be_a_word_of_its_replies() -> None:
    answers = ALL[0]
    async with asked(answers, answer(answers("Ollama... runs.")), api_key="ollama") as (agent, _):
        assert (await replied(agent)).text == "Ollama... runs."


@dialects
async def test_no_part_of_the_key_is_told_where_a_long_text_is_shortened(answers: Answers) -> None:
    echo = {"error": {"message": f"{'x' * 280} {KEY}"}}
    async with asked(answers, answer(echo, 400), retries=0) as (agent, _):
        with pytest.raises(ModelError) as caught:
            await replied(agent)
    assert KEY[:6] not in str(caught.value)


VARIABLES = {
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openai-chat": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openai-responses": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "openrouter": ("OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
}


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in {each for pair in VARIABLES.values() for each in pair} | {"GOOGLE_API_KEY"}:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@dialects
async def test_key_and_address_come_from_the_providers_own_variables(
    answers: Answers, no_variables: pytest.MonkeyPatch
) -> None:
    key, url = VARIABLES[answers.provider]
    no_variables.setenv(key, "sk-from-the-variable\n")
    async with asked(answers, answer(answers("Hi."))) as (_, script):
        no_variables.setenv(url, f"{script.url}{answers.prefix}/")
        agent = ModelAgent(answers.provider, "some-model")
        await replied(agent)
        await agent.close()
        assert script.requests[0].headers[answers.key_header].endswith("sk-from-the-variable")


@pytest.mark.parametrize("provider", VARIABLES)
def test_a_missing_key_is_an_error_that_names_the_variable(
    provider: str, no_variables: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=f"needs an API key: set .*{VARIABLES[provider][0]}"):
        ModelAgent(provider, "some-model")


@dialects
async def test_a_server_of_ones_own_needs_no_key(answers: Answers, no_variables: pytest.MonkeyPatch) -> None:
    async with asked(answers, answer(answers("Hi.")), api_key=None) as (agent, script):
        await replied(agent)
        assert answers.key_header not in script.requests[0].headers


@pytest.mark.parametrize("key", ["sk-ä", "sk-a\nX-Evil: 1", "sk-\x00"])
def test_a_key_with_odd_characters_is_refused_without_being_told(key: str) -> None:
    with pytest.raises(ValueError, match="API key for openai contains characters") as caught:
        ModelAgent("openai", "m", api_key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://h/v1", "http://", "http://h:x/v1", "http://h/v1?key=1"]
)
def test_an_address_that_is_not_one_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        ModelAgent("openai", "m", base_url=url)
