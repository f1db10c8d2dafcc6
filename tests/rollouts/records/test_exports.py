"""Exports: what is in them, and that the providers' own types take it."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import TypeAdapter

from ors.client import ToolInvocation
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    SystemMessage,
    ToolMessage,
    Truncated,
    Unscored,
    Usage,
    UserMessage,
)
from ors.rollouts.records import ExportFormat, RunInfo, RunWriter, export_run, read_run
from ors.rollouts.records.exports import NOT_RUN, atif_trajectory, openai_example
from ors.types import ImageBlock, TextBlock, ToolSpec
from tests.support.episode_records import LOST, RECORDS, episode
from tests.support.recorded_runs import tear

PNG = "iVBORw0KGgo="
IMAGE = ImageBlock(data=PNG, mimeType="image/png")
OPENAI_MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
OPENAI_TOOLS = TypeAdapter(list[ChatCompletionToolParam])
ATIF_KEYS = {
    "": {
        *("schema_version", "session_id", "trajectory_id", "agent", "steps", "final_metrics", "extra"),
    },
    "agent": {"name", "version", "model_name", "tool_definitions"},
    "steps": {
        *(
            "step_id",
            "timestamp",
            "source",
            "message",
            "reasoning_content",
            "tool_calls",
            "observation",
            "metrics",
        ),
    },
    "tool_calls": {"tool_call_id", "function_name", "arguments"},
    "results": {"source_call_id", "content"},
    "final_metrics": {
        *(
            "total_prompt_tokens",
            "total_completion_tokens",
            "total_cached_tokens",
            "total_cost_usd",
            "total_steps",
        ),
    },
    "metrics": {"prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"},
}


def conversation(*messages: Any, **more: Any) -> EpisodeRecord:
    return replace(episode(), messages=messages, **more)


def call(id: str | None, name: str = "submit") -> ToolInvocation:
    return ToolInvocation(name, {"answer": 4}, id)


def result(id: str | None, *blocks: Any, name: str = "submit") -> ToolMessage:
    return ToolMessage(id, name, list(blocks) or [TextBlock(text="ok")])


def exported(tmp_path: Path, *records: EpisodeRecord, **how: Any) -> list[dict[str, Any]]:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        for record in records:
            writer.append(record)
    out = tmp_path / "new" / "sft.jsonl"
    export_run(read_run(tmp_path / "run"), "openai", out, **how)
    assert [path.name for path in out.parent.iterdir()] == ["sft.jsonl"]
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_an_episode_is_messages_and_tools() -> None:
    record = conversation(
        SystemMessage("Be brief."),
        UserMessage([TextBlock(text="What is"), TextBlock(text="2 + 2?")]),
        AgentMessage("Let me see.", (call("a"),), reasoning="hm"),
        result("a"),
        AgentMessage("It is 4."),
    )
    found = openai_example(record)
    assert found["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is\n2 + 2?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "submit", "arguments": '{"answer":4}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
        {"role": "assistant", "content": "It is 4."},
    ]
    assert [tool["function"]["name"] for tool in found["tools"]] == ["submit"]


def test_calls_with_the_same_id_are_all_exported_each_with_its_result() -> None:
    reply = AgentMessage(calls=(call("a"), call("a", "look"), call("a")))
    told = [result("a", TextBlock(text=text)) for text in ("1st", "2nd", "3rd")]
    record = conversation(reply, *told)
    asked, *answers = openai_example(record)["messages"]
    ids = [each["id"] for each in asked["tool_calls"]]
    assert len(set(ids)) == 3
    assert [(each["tool_call_id"], each["content"]) for each in answers] == [
        (ids[0], "1st"),
        (ids[1], "2nd"),
        (ids[2], "3rd"),
    ]
    (step,) = atif_trajectory(record, version="1", save=lambda content, ending: "")["steps"]
    assert [each["tool_call_id"] for each in step["tool_calls"]] == ids
    assert [each["source_call_id"] for each in step["observation"]["results"]] == ids


def test_calls_without_ids_get_ids_that_their_results_have_too() -> None:
    reply = AgentMessage(calls=(call(None), call(None, "look"), call(None)))
    results = [
        result(None, TextBlock(text="saw"), name="look"),
        result(None),
        result(None, TextBlock(text="2nd")),
    ]
    found = openai_example(conversation(reply, *results, AgentMessage(calls=(call(None),)), result(None)))
    made, *answers, again, last = found["messages"]
    first, second, third = (each["id"] for each in made["tool_calls"])
    assert [(each["tool_call_id"], each["content"]) for each in answers] == [
        (second, "saw"),
        (first, "ok"),
        (third, "2nd"),
    ]
    assert again["tool_calls"][0]["id"] == last["tool_call_id"] not in (first, second, third)


def test_a_call_that_was_not_run_says_so() -> None:
    found = openai_example(conversation(AgentMessage(calls=(call("a"), call("b"))), result("a")))
    assert found["messages"][-1] == {"role": "tool", "tool_call_id": "b", "content": NOT_RUN}


def test_images_are_data_urls_and_those_of_results_follow() -> None:
    url = {"url": f"data:image/png;base64,{PNG}"}
    prompt = UserMessage([TextBlock(text="Look:"), IMAGE])
    found = openai_example(conversation(prompt, AgentMessage(calls=(call("a"),)), result("a", IMAGE)))[
        "messages"
    ]
    assert found[0]["content"] == [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": url}]
    assert found[2]["content"] == "(The images of this result follow in the next message.)"
    assert found[3]["role"] == "user"
    assert found[3]["content"][1] == {"type": "image_url", "image_url": url}


def test_the_result_of_a_terminal_tool_has_no_call_and_is_left_out() -> None:
    found = openai_example(conversation(AgentMessage("Four."), result(None, name="answer")))
    assert found["messages"] == [{"role": "assistant", "content": "Four."}]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(RECORDS)
def test_any_episode_fits_the_types_of_openai(record: EpisodeRecord) -> None:
    found = openai_example(replace(record, tools=(ToolSpec(name="a", description="", input_schema=None),)))
    OPENAI_MESSAGES.validate_python(found["messages"])
    OPENAI_TOOLS.validate_python(found["tools"])
    made = [each["id"] for message in found["messages"] for each in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in found["messages"] if message["role"] == "tool"]
    assert sorted(set(made)) == sorted(set(answered))


def test_only_scored_episodes_are_exported_unless_others_are_asked_for(tmp_path: Path) -> None:
    records = [
        episode(0, 1.0),
        episode(1, 0.25),
        episode(2, 0.75, outcome=Truncated("turns")),
        episode(3, None, outcome=Unscored()),
        episode(4, None, outcome=LOST),
    ]
    asked = ["What is 0 + 0?", "What is 1 + 1?", "What is 2 + 2?"]

    def questions(name: str, **how: Any) -> list[str]:
        return [each["messages"][0]["content"] for each in exported(tmp_path / name, *records, **how)]

    assert questions("a") == asked[:2]
    assert questions("b", min_reward=0.5) == asked[:1]
    assert questions("c", min_reward=0.25) == asked[:2]
    assert questions("d", min_reward=0.5, outcomes=("scored", "truncated", "failed")) == [asked[0], asked[2]]
    assert len(questions("e", outcomes=("scored", "unscored", "truncated", "failed"))) == 5


@pytest.mark.parametrize("format", ["openai", "atif"])
def test_an_episode_that_cannot_be_exported_does_not_stop_the_others(
    format: ExportFormat, tmp_path: Path
) -> None:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        for index in range(4):
            writer.append(episode(index))
        long = UserMessage([TextBlock(text="x" * 70_000)])
        writer.append(replace(episode(4), messages=(long,)))
        bad = replace(episode(5), tools=(ToolSpec(name="no spaces", description="", input_schema=None),))
        writer.append(bad)
    tear(tmp_path / "run", 1)
    (tmp_path / "run" / "blobs" / hashlib.sha256(b"x" * 70_000).hexdigest()).write_bytes(b"x" * 69_999)
    done = export_run(read_run(tmp_path / "run"), format, tmp_path / "out")
    torn, damaged, *strange = done.skipped
    assert (episode(1).id in torn, episode(4).id in damaged) == (True, True)
    assert [f"Episode {bad.id}: Tool 'no spaces'" in each for each in strange] == [True] * (
        format == "openai"
    )
    assert (done.episodes, done.left_out) == (4 - len(strange), 0)


def test_an_export_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        writer.append(episode(0))
    run = read_run(tmp_path / "run")
    (tmp_path / "run" / "out").mkdir()
    with pytest.raises(IsADirectoryError):
        export_run(run, "openai", tmp_path / "run" / "out")
    assert [path.name for path in (tmp_path / "run").glob(".*")] == []


def atif(record: EpisodeRecord) -> dict[str, Any]:
    saved: list[bytes] = []

    def save(content: bytes, ending: str) -> str:
        saved.append(content)
        return f"{len(saved)}{ending}"

    found: dict[str, Any] = json.loads(json.dumps(atif_trajectory(record, version="1", save=save)))
    return found


def test_a_trajectory_has_the_steps_and_the_reward() -> None:
    record = conversation(
        SystemMessage("Be brief."),
        UserMessage([TextBlock(text="Look:"), IMAGE, ImageBlock(data="?", mimeType="image/png")]),
        AgentMessage("Hm.", (call("a"), call(None)), "thoughts", usage=Usage(10, 2, 5, 1, 0.25)),
        replace(result("a"), started=2.0),
        result(None, ImageBlock(data=PNG, mimeType="image/bmp")),
        AgentMessage("Four."),
        result(None, name="answer"),
        usage=Usage(10, 2, 5, 1, 0.25),
        started=1_700_000_000.0,
    )
    found = atif(record)
    assert (found["schema_version"], found["trajectory_id"]) == ("ATIF-v1.8", record.id)
    assert found["extra"]["reward"] == 1.0
    assert found["extra"]["outcome"] == {"type": "scored"}
    system, user, agent, last = found["steps"]
    assert (system["source"], system["message"]) == ("system", "Be brief.")
    assert user["message"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image", "source": {"media_type": "image/png", "path": "1.png"}},
        {"type": "text", "text": "[image of type image/png]"},
    ]
    assert agent["timestamp"] == "2023-11-14T22:13:22+00:00"
    assert [each["tool_call_id"] for each in agent["tool_calls"]] == ["a", "ors_call_1"]
    assert agent["observation"]["results"] == [
        {"source_call_id": "a", "content": "ok"},
        {"source_call_id": "ors_call_1", "content": [{"type": "text", "text": "[image of type image/bmp]"}]},
    ]
    assert agent["metrics"]["cost_usd"] == found["final_metrics"]["total_cost_usd"] == 0.25
    assert last["observation"]["results"] == [{"content": "ok"}]
    assert [step["step_id"] for step in found["steps"]] == [1, 2, 3, 4]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(RECORDS)
def test_a_trajectory_has_no_other_keys_than_the_format(record: EpisodeRecord) -> None:
    found = atif(replace(record, started=0.0))
    assert found.keys() <= ATIF_KEYS[""]
    assert found["agent"].keys() <= ATIF_KEYS["agent"]
    assert found["final_metrics"].keys() <= ATIF_KEYS["final_metrics"]
    for step in found["steps"]:
        assert step.keys() <= ATIF_KEYS["steps"]
        ids = {each["tool_call_id"] for each in step.get("tool_calls", ())}
        for part in step.get("tool_calls", ()):
            assert part.keys() == ATIF_KEYS["tool_calls"]
        for part in step.get("observation", {}).get("results", ()):
            assert part.keys() <= ATIF_KEYS["results"]
            assert part.get("source_call_id") in {None, *ids}
        assert step.get("metrics", {}).keys() <= ATIF_KEYS["metrics"]


def test_each_episode_is_a_file_beside_its_images(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        writer.append(conversation(UserMessage([IMAGE]), AgentMessage("4"), id="../evil"))
        writer.append(episode(1, None, outcome=LOST))
        writer.append(conversation(id="empty", sample=1))
    run, out = read_run(tmp_path / "run"), tmp_path / "out" / "atif"
    done = export_run(run, "atif", out, outcomes=("scored", "failed"))
    assert (done.episodes, done.left_out) == (2, 1)
    assert sorted(path.name for path in out.iterdir()) == [
        f"{1:016x}{0:016x}.json",
        "___evil-2d6afc71.json",
        "images",
    ]
    path = json.loads((out / "___evil-2d6afc71.json").read_text())["steps"][0]["message"][0]["source"]["path"]
    assert (out / path).read_bytes().startswith(b"\x89PNG")
