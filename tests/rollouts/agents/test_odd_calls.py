"""Calls that models or servers wrote badly: unreadable arguments, and the same id twice."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ors.testing
from ors import Server
from ors.client import AsyncORS
from ors.rollouts import AgentMessage, EpisodeRecord, Scored, ToolMessage, play
from ors.rollouts.agents import ModelAgent
from ors.rollouts.records import RunInfo, RunWriter, export_run, read_run
from tests.rollouts.agents.test_stop_reasons import PATHS, Shop, anthropic, chat, google, responses, said
from tests.support.scripted_server import Scripted, answer, scripted

JSON = dict[str, Any]
BROKEN = '{"what": "a house'


def chat_calls(*arguments: str) -> JSON:
    made = [
        {"id": "call_1", "type": "function", "function": {"name": "buy", "arguments": each}}
        for each in arguments
    ]
    return chat("tool_calls", None, tool_calls=made)


def responses_calls(*arguments: str) -> JSON:
    made = [
        {"type": "function_call", "call_id": "call_1", "name": "buy", "arguments": each} for each in arguments
    ]
    return responses("completed", None, *made, text="")


def anthropic_calls(*given: Any) -> JSON:
    made = [{"type": "tool_use", "id": "call_1", "name": "buy", "input": each} for each in given]
    return anthropic("tool_use", *made)


def google_calls(*given: Any, id: str | None = "call_1") -> JSON:
    named = {} if id is None else {"id": id}
    return google("STOP", *[{"functionCall": {"name": "buy", "args": each, **named}} for each in given])


ENDS = {
    "openai": chat(),
    "openai-responses": responses(),
    "anthropic": anthropic("end_turn", said()),
    "google": google("STOP", {"text": "Done."}),
}


@pytest.fixture
async def client() -> AsyncIterator[AsyncORS]:
    async with ors.testing.client(Server([Shop])) as made:
        yield made


async def played(client: AsyncORS, provider: str, body: JSON) -> tuple[EpisodeRecord, Scripted]:
    """The episode of a model that makes these calls, and then ends."""
    async with scripted() as script:
        script.on(PATHS[provider], answer(body), answer(ENDS[provider]))
        base = script.url + ("/v1" if provider.startswith("open") else "")
        agent = ModelAgent(provider, "m", base_url=base, api_key="sk-0123456789", retries=0)
        session = client.environment("shop").session(split="train", index=0)
        record = await play(session, agent, reward="sum")
        await agent.close()
    return record, script


def exports(folder: Path, record: EpisodeRecord) -> tuple[JSON, JSON]:
    """The episode as a line for fine-tuning, and as a trajectory; from the run that was written."""
    with RunWriter.create(folder / "run", RunInfo()) as writer:
        writer.append(record)
    run = read_run(folder / "run")
    export_run(run, "openai", folder / "sft.jsonl")
    export_run(run, "atif", folder / "atif")
    (trajectory,) = (folder / "atif").glob("*.json")
    return json.loads((folder / "sft.jsonl").read_text()), json.loads(trajectory.read_text())


UNREADABLE = [
    ("openai", chat_calls(BROKEN), BROKEN),
    ("openai", chat_calls("[1]"), "[1]"),
    ("openai-responses", responses_calls(BROKEN), BROKEN),
    ("anthropic", anthropic_calls(["a"]), '["a"]'),
    ("google", google_calls("a"), "a"),
]


@pytest.mark.parametrize(("provider", "body", "raw"), UNREADABLE, ids=lambda each: f"{each}"[:40])
async def test_unreadable_arguments_are_recorded_and_exported_as_they_were(
    client: AsyncORS, tmp_path: Path, provider: str, body: JSON, raw: str
) -> None:
    record, _ = await played(client, provider, body)
    assert (record.outcome, record.rewards) == (Scored(), (None, 1.0))
    example, trajectory = exports(tmp_path, record)
    line = json.loads((tmp_path / "run" / "episodes.jsonl").read_text())
    (call,) = (call for message in line["messages"] for call in message.get("calls", ()))
    assert call["raw"] == raw
    (taught,) = (call for message in example["messages"] for call in message.get("tool_calls", ()))
    assert taught["function"]["arguments"] == raw
    (kept,) = (call for step in trajectory["steps"] for call in step.get("tool_calls", ()))
    assert kept["arguments"] == {"not_a_json_object": raw}


TWICE = [
    ("openai", chat_calls('{"what": "a"}', '{"what": "b"}')),
    ("openai-responses", responses_calls('{"what": "a"}', '{"what": "b"}')),
    ("anthropic", anthropic_calls({"what": "a"}, {"what": "b"})),
    ("google", google_calls({"what": "a"}, {"what": "b"})),
]


@pytest.mark.parametrize(("provider", "body"), TWICE, ids=lambda each: f"{each}"[:40])
async def test_calls_with_the_same_id_get_ids_of_their_own(
    client: AsyncORS, tmp_path: Path, provider: str, body: JSON
) -> None:
    record, script = await played(client, provider, body)
    (reply,) = (each for each in record.messages if isinstance(each, AgentMessage) and each.calls)
    ids = [call.id for call in reply.calls]
    assert ids[0] == "call_1"
    assert len(set(ids)) == 2
    assert [each.call for each in record.messages if isinstance(each, ToolMessage)] == [*ids, None]
    sent = script.requests[1].body.decode()
    assert [sent.count(f'"{id}"') for id in ids] == [2, 2], "the call and its result go back under one id"
    example, trajectory = exports(tmp_path, record)
    assert [each["content"] for each in example["messages"] if each["role"] == "tool"] == [
        "bought a",
        "bought b",
    ]
    steps = [step for step in trajectory["steps"] if "tool_calls" in step]
    assert [call["arguments"] for step in steps for call in step["tool_calls"]] == [
        {"what": "a"},
        {"what": "b"},
    ]


async def test_calls_of_google_without_ids_stay_without(client: AsyncORS) -> None:
    record, script = await played(client, "google", google_calls({"what": "a"}, {"what": "b"}, id=None))
    assert record.rewards == (1.0, 1.0, 1.0)
    parts = script.requests[1].json()["contents"][1]["parts"]
    assert [part["functionCall"].keys() for part in parts] == [{"name", "args"}] * 2
