"""OpenReward's rollout log, as its SDK sends it, and the runs that it becomes."""

import json
import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

from ors.recording import open_rollouts
from ors.rollouts import (
    AgentMessage,
    EpisodeRecord,
    Failed,
    Scored,
    SystemMessage,
    ToolMessage,
    Unscored,
    UserMessage,
)
from ors.rollouts.records import find_runs, read_run
from ors.types import TextBlock
from tests.recording.test_sessions import until
from tests.requirements import proves
from tests.support.environments import Lab, Other
from tests.support.raw_http import Answer, Raw
from tests.support.recorded import Recorded, recording

NO_END = Failed("infrastructure", "model", "NoEnd", "The log of this rollout has no end")


class Rollout:
    """The events of a rollout, in the SDK's form."""

    def __init__(self, **fields: Any) -> None:
        self.id = str(uuid.uuid4())
        self.count = 0
        known = {"eventId": self.id, "timestamp": 1_000_000, "runName": "first", "environment": "me/lab"}
        self.start = {**known, **fields, "eventType": "rollout"}

    def message(self, type: str, content: str | None = None, **fields: Any) -> dict[str, Any]:
        self.count += 1
        known = {"eventId": str(uuid.uuid4()), "rolloutEventId": self.id, "index": self.count - 1}
        known |= {"timestamp": 1_000_000 + 1000 * self.count, "type": type, "content": content}
        return {**known, "isFinished": False, "metadata": {}, "eventType": "message", **fields}


def sent(raw: Raw, *events: dict[str, Any]) -> Answer:
    return raw.post("/v1/rollouts", {"events": list(events)})


def logged(lab: Recorded, run: str = "first") -> EpisodeRecord:
    (found,) = lab.records(f"rollouts/{run}")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def conversation(rollout: Rollout) -> list[dict[str, Any]]:
    say = rollout.message
    return [
        rollout.start,
        say("system_message", "Be brief."),
        say("user_message", "Add 2 and 3."),
        say("reasoning", None, summary="An addition."),
        say("assistant_message", "I add."),
        say("tool_call", '{"a":2,"b":3}', name="add", callId="c1"),
        say("tool_call", '{"a":', name="add", callId="c2"),
        say("tool_result", "5", callId="c1", reward=0.5),
        say("tool_result", "bad", callId="c2"),
        say("tool_call", '{"answer":5}', name="submit", callId="c3"),
        say("tool_result", "right", callId="c3", reward=1.0, isFinished=True, metadata={"grader": "exact"}),
    ]


@proves("besides.rollout-log")
@pytest.mark.parametrize("environments", [[Lab], [Lab, Other]], ids=["one", "two"])
def test_a_logged_rollout_is_an_episode_of_the_run_that_it_names(folder: Path, environments: Any) -> None:
    rollout = Rollout(
        split="test", task_spec={"a": 2}, run_info={"model_name": "m-1", "lr": 0.1}, metadata={"note": 1}
    )
    with recording(folder, environments) as lab:
        assert sent(lab.raw, *conversation(rollout)).status == 200
        update = {"eventId": rollout.id, "timestamp": 1, "rollout_info": {"task_index": 7}}
        assert sent(lab.raw, {**update, "eventType": "rollout_update"}).status == 200
    record = logged(lab)
    assert record.id == rollout.id.replace("-", "")
    assert (record.task.environment, record.task.split, record.task.index) == ("me/lab", "test", 7)
    assert (record.task.spec, record.agent) == ({"a": 2}, "m-1")
    assert (record.outcome, record.reward, record.rewards) == (Scored(), 1.0, (0.5, None, 1.0))
    assert (record.started, record.seconds) == (1000.0, 10.0)
    assert record.metadata == {"metadata": {"note": 1}, "rollout_info": {"task_index": 7}}
    system, user, agent, first, second, again, last = record.messages
    assert system == SystemMessage("Be brief.")
    assert user == UserMessage([TextBlock(text="Add 2 and 3.")])
    assert isinstance(agent, AgentMessage)
    assert (agent.text, agent.reasoning) == ("I add.", "An addition.")
    assert [(call.name, call.input, call.id) for call in agent.calls] == [
        ("add", {"a": 2, "b": 3}, "c1"),
        ("add", {}, "c2"),
    ]
    assert agent.calls[1].error == "The arguments are not a JSON object"
    assert isinstance(first, ToolMessage)
    assert (first.name, first.call, first.blocks) == ("add", "c1", [TextBlock(text="5")])
    assert (first.started, first.seconds) == (5.0, 2.0)
    assert isinstance(second, ToolMessage)
    assert isinstance(again, AgentMessage)
    assert isinstance(last, ToolMessage)
    assert (last.finished, last.metadata) == (True, {"grader": "exact"})
    assert read_run(folder / "rollouts/first").info.config["run_info"] == {"model_name": "m-1", "lr": 0.1}
    assert list((folder / "open").iterdir()) == []
    assert list(find_runs(folder.parent)) == [folder, folder / "rollouts" / "first"]


def test_batches_may_arrive_in_any_order_and_twice(folder: Path) -> None:
    rollout = Rollout()
    events = conversation(rollout)
    with recording(folder, [Lab]) as lab:
        for start in (6, 0, 3, 6, 9):
            sent(lab.raw, *events[start : start + 3])
    record = logged(lab)
    assert (record.outcome, record.rewards) == (Scored(), (0.5, None, 1.0))
    assert [message.role for message in record.messages][:3] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("last", "outcome", "reward"),
    [
        (("tool_result", "more", {"reward": 0.5}), NO_END, None),
        (("user_message", "go on", {}), NO_END, None),
        (("assistant_message", "I am done", {}), Unscored(), None),
        (("assistant_message", "I am done", {"reward": 0.25}), Scored(), 0.25),
        (("tool_result", "over", {"isFinished": True}), Unscored(), None),
    ],
)
def test_a_rollout_without_an_end_is_recorded_as_what_it_is(
    folder: Path, last: tuple[str, str, dict[str, Any]], outcome: Any, reward: float | None
) -> None:
    rollout = Rollout()
    kind, content, fields = last
    with recording(folder, [Lab]) as lab:
        sent(lab.raw, rollout.start, rollout.message("user_message", "hi"))
        sent(lab.raw, rollout.message(kind, content, **fields))
    assert (logged(lab).outcome, logged(lab).reward) == (outcome, reward)


def test_a_finished_rollout_is_written_while_the_server_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_rollouts, "QUIET_SECONDS", 0.0)
    finished, running = Rollout(), Rollout()
    with recording(folder, [Lab]) as lab:
        sent(lab.raw, running.start, running.message("user_message", "hi"))
        sent(lab.raw, *conversation(finished))
        until(lambda: lab.counts()[0] == 1)
        assert logged(lab).id == uuid.UUID(finished.id).hex
        monkeypatch.setattr(open_rollouts, "ABANDONED_SECONDS", 0.0)
        until(lambda: lab.counts()[0] == 2)
    assert [record.outcome for record in lab.records("rollouts/first")] == [Scored(), NO_END]


def test_a_killed_server_leaves_open_rollouts_to_the_next_one(folder: Path) -> None:
    rollout = Rollout()
    first = conversation(rollout)[0]
    with recording(folder, [Lab]) as lab:
        sent(lab.raw, first)
        until(lambda: any(path.stat().st_size for path in (folder / "open").glob("*")))
        (left,) = [path.read_bytes() for path in (folder / "open").iterdir()]
    (folder / "rollouts/first/episodes.jsonl").unlink()
    (folder / "open" / f"{uuid.UUID(rollout.id).hex}.jsonl").write_bytes(left + b'{"torn')
    with recording(folder, [Lab]) as lab:
        pass
    assert logged(lab).outcome == NO_END


@pytest.mark.parametrize("name", ["../../out", "a/b", "", ".", "ünï cödé", "x" * 300, "run\0"])
def test_a_run_of_any_name_stays_in_the_folder(folder: Path, name: str) -> None:
    rollout = Rollout(runName=name)
    with recording(folder, [Lab]) as lab:
        sent(lab.raw, *conversation(rollout))
    (made,) = (folder / "rollouts").iterdir()
    assert read_run(made).info.config["run_name"] in (name, "unnamed")
    assert len(list(read_run(made).episodes())) == 1
    assert {path.name for path in folder.parent.iterdir()} == {folder.name}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", 'must be a JSON object like {"events": […]}'),
        (b"[]", 'must be a JSON object like {"events": […]}'),
        (b'{"events": {}}', 'must be a JSON object like {"events": […]}'),
        (b'{"events": [1]}', "events[0] must be an object"),
        (b'{"events": [{"eventType": "rollout", "eventId": "../x"}]}', "events[0].eventId must be a UUID"),
        (b'{"events": [{"eventType": "message"}]}', "events[0].rolloutEventId must be a UUID"),
    ],
)
def test_a_log_that_is_not_valid_is_refused_with_the_reason(folder: Path, body: bytes, said: str) -> None:
    with recording(folder, [Lab]) as lab:
        answer = lab.raw.post("/v1/rollouts", body)
        assert (answer.status, said in answer.detail) == (400, True), answer


def test_odd_values_in_a_log_are_left_out(folder: Path) -> None:
    rollout = Rollout(split=7, task_spec=[], run_info="x", metadata=None)
    odd = rollout.message("tool_result", "x", reward=float("nan"), metadata="no", timestamp=None, index="b")
    unknown = rollout.message("hologram", "x", reward="high", timestamp=10**400)
    update = {"eventType": "rollout_update", "eventId": rollout.id, "rollout_info": {"task_index": True}}
    with recording(folder, [Lab]) as lab:
        body = json.dumps({"events": [rollout.start, odd, unknown, update, {"eventType": "later"}]}).encode()
        assert b"NaN" in body
        assert lab.raw.post("/v1/rollouts", body).status == 200
    record = logged(lab)
    assert (record.rewards, record.task.split, record.task.index) == ((None,), None, None)
    assert record.agent == ""


def test_the_log_needs_a_key_where_the_server_has_keys(folder: Path) -> None:
    rollout = Rollout()
    with recording(folder, [Lab], api_keys=["team=s3cret"]) as lab:
        assert sent(lab.raw, rollout.start).status == 401
        headers = {"x-api-key": "s3cret"}
        events = conversation(rollout)
        assert lab.raw.post("/v1/rollouts", {"events": events}, headers=headers).status == 200
    assert logged(lab).outcome == Scored()


def test_a_full_queue_asks_the_sdk_to_come_back(folder: Path) -> None:
    with recording(folder, [Lab], most_bytes=100) as lab:
        answer = sent(lab.raw, *conversation(Rollout()))
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


def test_a_log_that_cannot_be_written_is_said_and_nothing_fails(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(folder, [Lab]) as lab, caplog.at_level(logging.WARNING):
        (folder / "open").write_text("in the way")
        assert sent(lab.raw, *conversation(Rollout())).status == 200
        until(lambda: lab.counts() == (0, 1))
        (folder / "open").unlink()
    assert sum("cannot be written" in record.message for record in caplog.records) == 1
