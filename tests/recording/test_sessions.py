"""Sessions of a real server, as the episodes that they become."""

import base64
import json
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from ors import Limits, Server
from ors.recording import SessionRecorder
from ors.rollouts import AgentMessage, Failed, Outcome, Scored, ToolMessage, Unscored, UserMessage
from ors.rollouts.records import RunError
from ors.types import Blocks, TextBlock
from tests.support.environments import Lab
from tests.support.live_server import app_of, serving
from tests.support.mcp_messages import path_of, send
from tests.support.raw_http import Raw
from tests.support.recorded import INFO, Recorded, recording
from tests.support.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def counted(lab: Recorded, written: int, dropped: int) -> None:
    wait_until(lambda: lab.counts() == (written, dropped), f"{written} written, {dropped} dropped")


def by_index(raw: Raw, split: str, index: int) -> str:
    sid = raw.post("/create_session").json()["sid"]
    raw.post("/create", {"env_name": "lab", "split": split, "index": index}, sid=sid)
    return str(sid)


def test_a_finished_session_is_an_episode_with_its_prompt_tools_calls_and_rewards(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        sid = by_index(lab.raw, "test", 3)
        lab.raw.get("/lab/prompt", sid=sid)
        listed = lab.raw.get("/lab/task_tools", sid=sid).json()["tools"]
        lab.raw.call(sid, "echo", {"text": "hi"})
        lab.raw.call(sid, "reward", {"value": 0.25})
        lab.raw.call(sid, "reward", {"value": 0.5, "finished": True})
        lab.raw.post("/delete", sid=sid)
    record = lab.record()
    assert (record.task.environment, record.task.split, record.task.index) == ("lab", "test", 3)
    assert record.task.spec == {"n": 3, "split": "test"}
    assert record.session == sid
    assert record.outcome == Scored()
    assert (record.reward, record.rewards) == (0.75, (None, 0.25, 0.5))
    assert [tool.name for tool in record.tools] == [tool["name"] for tool in listed]
    prompt, first, echo, *_, last = record.messages
    assert isinstance(prompt, UserMessage)
    assert prompt.blocks[0] == TextBlock(text="task 3")
    assert isinstance(first, AgentMessage)
    assert [(call.name, call.input) for call in first.calls] == [("echo", {"text": "hi"})]
    assert isinstance(echo, ToolMessage)
    assert (echo.call, echo.blocks) == (first.calls[0].id, [TextBlock(text="hi")])
    assert isinstance(last, ToolMessage)
    assert (last.finished, last.reward, last.metadata) == (True, 0.5, {"k": [1, None]})
    assert 0 < echo.started < last.started < record.seconds


def test_an_episode_that_was_played_over_mcp_is_recorded_like_any_other(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        sid = by_index(lab.raw, "test", 3)
        path = path_of(lab.raw, sid)
        send(lab.raw, path, "initialize")
        send(lab.raw, path, "tools/call", name="echo", arguments={"text": "hi"})
        send(lab.raw, path, "tools/call", name="reward", arguments={"value": 0.5, "finished": True})
        lab.raw.post("/delete", sid=sid)
    record = lab.record()
    assert (record.outcome, record.reward, record.rewards) == (Scored(), 0.5, (None, 0.5))
    prompt, first, echo, *_ = record.messages
    assert isinstance(prompt, UserMessage)
    assert isinstance(first, AgentMessage)
    assert [(call.name, call.input) for call in first.calls] == [("echo", {"text": "hi"})]
    assert isinstance(echo, ToolMessage)
    assert echo.blocks == [TextBlock(text="hi")]


def test_the_record_of_a_fork_begins_with_that_of_the_first_session(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        sid = by_index(lab.raw, "test", 3)
        lab.raw.get("/lab/prompt", sid=sid)
        lab.raw.call(sid, "reward", {"value": 0.25})
        (fork,) = lab.raw.post("/-/fork", {"n": 1}, sid=sid).json()["sids"]
        lab.raw.call(sid, "reward", {"value": 8, "finished": True})
        lab.raw.call(fork, "reward", {"value": 0.5, "finished": True})
        lab.raw.post("/delete", sid=sid)
        lab.raw.post("/delete", sid=fork)
    first, second = lab.records()
    assert (first.session, second.session) == (sid, fork)
    assert (first.rewards, second.rewards) == ((0.25, 8.0), (0.25, 0.5))
    assert second.task == first.task
    assert second.messages[:3] == first.messages[:3]
    assert first.id != second.id


def test_a_fork_is_charged_for_what_it_begins_with_until_it_ends(folder: Path) -> None:
    with recording(folder, [Lab], most_bytes=50_000) as lab:
        sid = lab.raw.session()
        lab.raw.call(sid, "echo", {"text": "x" * 10_000})
        (fork,) = lab.raw.post("/-/fork", {"n": 1}, sid=sid).json()["sids"]
        called(("echo", {"text": "x" * 5_000}))(lab.raw)  # over 40 of 50 KB are held
        counted(lab, 0, 1)
        for each in (sid, fork):
            lab.raw.post("/delete", sid=each)
        counted(lab, 2, 1)
        called(("echo", {"text": "x" * 5_000}))(lab.raw)
        counted(lab, 3, 1)


class Secretive(Lab):
    """Its tasks have what is private, and one has what JSON cannot express."""

    private_fields: ClassVar[Any] = ["answer"]

    @classmethod
    def list_tasks(cls, split: str) -> list[Any]:
        return [{"n": 0, "answer": "sesame"}, {"n": 1, "answer": "sesame", "more": object()}]


@pytest.mark.parametrize("keep_private", [False, True])
def test_a_task_by_index_is_recorded_as_it_is_listed_unless_private_fields_are_kept(
    folder: Path, keep_private: bool
) -> None:
    with recording(folder, [Secretive], keep_private=keep_private) as lab:
        for index in (0, 1):
            body = {"env_name": "secretive", "split": "test", "index": index}
            assert lab.raw.post("/create", body, sid=f"task-{index}").status == 200
            assert lab.raw.get("/secretive/prompt", sid=f"task-{index}").status == 200  # its setup has ended
            assert lab.raw.post("/delete", sid=f"task-{index}").status == 200
    first, second = lab.records()
    private = {"answer": "sesame"} if keep_private else {}
    assert (first.task.index, first.task.spec) == (0, {"n": 0, **private})
    assert (second.task.index, second.task.spec) == (1, None)
    assert keep_private or b"sesame" not in (folder / "episodes.jsonl").read_bytes()


def test_the_task_of_a_forks_record_is_as_the_client_gave_it(folder: Path) -> None:
    class Changing(Lab):
        def setup(self) -> None:
            cast(dict[str, Any], self.task_spec)["changed"] = True

    with recording(folder, [Changing]) as lab:
        sid = lab.raw.session("changing", {"id": "x"})
        lab.raw.get("/changing/prompt", sid=sid)
        (fork,) = lab.raw.post("/-/fork", {"n": 1}, sid=sid).json()["sids"]
        for each in (sid, fork):
            lab.raw.post("/delete", sid=each)
    assert [record.task.spec for record in lab.records()] == [{"id": "x"}, {"id": "x"}]


def called(*calls: tuple[str, dict[str, object]]) -> Callable[[Raw], None]:
    """An episode of these calls, which its client ends."""

    def play(raw: Raw) -> None:
        sid = raw.session()
        for name, given in calls:
            raw.call(sid, name, given)
        raw.post("/delete", sid=sid)

    return play


def only_asked(raw: Raw) -> None:
    sid = raw.session()
    raw.get("/lab/prompt", sid=sid)
    raw.post("/delete", sid=sid)


def never_ended(raw: Raw) -> None:
    raw.call(raw.session(), "reward", {"value": 1.0})


def finished_and_forgotten(raw: Raw) -> None:
    raw.call(raw.session(), "reward", {"value": 1.0, "finished": True})


def deleted_while_a_call_runs(raw: Raw) -> None:
    sid = raw.session(task={"id": "stopped"})
    thread = threading.Thread(target=raw.call, args=(sid, "stay", {}))
    thread.start()
    assert Lab.gates["stopped.held"].wait(20)
    raw.post("/delete", sid=sid)
    thread.join()


def failed_setup(raw: Raw) -> None:
    sid = raw.session(task={"fail": "setup"})
    raw.get("/lab/prompt", sid=sid)
    raw.post("/delete", sid=sid)


GONE = Failed("infrastructure", "model", "SessionLost", "Server is shutting down")
BOOM = Failed("environment", "call", "ToolFailed", "Tool execution failed: x", may_have_run=True)


@pytest.mark.parametrize(
    ("play", "outcome", "reward"),
    [
        (called(("reward", {"value": 2.0})), Scored(), 2.0),
        (called(("echo", {"text": "x"})), Unscored(), None),
        (only_asked, Unscored(), None),
        (called(("reward", {"finished": True})), Unscored(), None),
        (called(("reward", {"value": 1.0}), ("boom", {"text": "x"})), BOOM, None),
        (called(("boom", {"text": "x"}), ("reward", {"value": 1.0})), Scored(), 1.0),
        (called(("refuse", {"text": "no"})), Unscored(), None),
        (never_ended, GONE, None),
        (finished_and_forgotten, Scored(), 1.0),
        (
            deleted_while_a_call_runs,
            Failed("infrastructure", "call", "SessionLost", "Session deleted", may_have_run=True),
            None,
        ),
        (
            failed_setup,
            Failed("environment", "opening", "ServerFailed", "Environment setup failed: no setup today, "),
            None,
        ),
    ],
)
def test_the_outcome_is_what_the_server_can_know(
    folder: Path, play: Callable[[Raw], None], outcome: Outcome, reward: float | None
) -> None:
    with recording(folder, [Lab]) as lab:
        play(lab.raw)
    assert (lab.record().outcome, lab.record().reward) == (outcome, reward)


def test_a_session_that_its_client_forgets_has_failed(folder: Path) -> None:
    with recording(folder, [Lab], limits=Limits(idle_seconds=0.1)) as lab:
        sid = lab.raw.session()
        lab.raw.call(sid, "reward", {"value": 1.0})
        wait_until(lambda: lab.counts()[0] == 1, "one is written")
        assert lab.record().outcome == Failed("infrastructure", "model", "SessionLost", "Session expired")


def test_a_prompt_that_was_given_at_the_second_request_is_no_failure(folder: Path) -> None:
    class Stuttering(Lab):
        asked = 0

        def get_prompt(self) -> Blocks:
            Stuttering.asked += 1
            if Stuttering.asked == 1:
                raise ValueError("no words")
            return [TextBlock(text="words")]

    with recording(folder, [Stuttering]) as lab:
        sid = lab.raw.session("stuttering")
        assert [lab.raw.get("/stuttering/prompt", sid=sid).status for _ in range(2)] == [500, 200]
        lab.raw.post("/delete", sid=sid)
        page = lab.raw.get("/-/metrics").body
    record = lab.record()
    assert record.outcome == Unscored()
    assert record.messages == (UserMessage([TextBlock(text="words")]),)
    assert b'ors_episodes_total{environment="stuttering",outcome="unscored"} 1' in page


def test_a_failed_prompt_is_the_environments_failure(folder: Path) -> None:
    class Speechless(Lab):
        def get_prompt(self) -> list[TextBlock]:  # type: ignore[override]
            raise RuntimeError("no words")

    with recording(folder, [Speechless]) as lab:
        sid = lab.raw.session(env="speechless")
        lab.raw.get("/speechless/prompt", sid=sid)
        lab.raw.post("/delete", sid=sid)
    message = "Environment failed in get_prompt: no words"
    assert lab.record().outcome == Failed("environment", "prompt", "ServerFailed", message)


def test_a_tool_that_is_stuck_fails_its_episode_in_the_call(folder: Path) -> None:
    with recording(folder, [Lab], limits=Limits(tool_seconds=0.05)) as lab:
        sid = lab.raw.session(task={"id": "stuck"})
        lab.raw.call(sid, "hold", {})
        lab.raw.post("/delete", sid=sid)
        Lab.gates["stuck.hold"].set()
    outcome = lab.record().outcome
    assert isinstance(outcome, Failed)
    assert (outcome.who, outcome.stage, outcome.may_have_run) == ("environment", "call", True)


def test_a_refused_call_is_a_message_with_its_reason(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        called(("refuse", {"text": "not now"}))(lab.raw)
    refusal = lab.record().messages[-1]
    assert isinstance(refusal, ToolMessage)
    assert (refusal.ok, refusal.reason, refusal.blocks) == (False, "mood", [TextBlock(text="not now")])


def test_calls_that_overlap_are_of_one_message(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        sid = lab.raw.session(task={"id": "overlap"})
        both = [threading.Thread(target=lab.raw.call, args=(sid, "meet", {"name": n})) for n in "ab"]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        lab.raw.call(sid, "echo", {"text": "alone"})
        lab.raw.post("/delete", sid=sid)
    sizes = [len(each.calls) for each in lab.record().messages if isinstance(each, AgentMessage)]
    assert sizes == [2, 1]


def test_a_secret_of_a_session_is_nowhere_in_the_run(folder: Path) -> None:
    secret = 'sk-9"never/recorded'
    header = base64.b64encode(json.dumps({"key": {"value": secret}}).encode()).decode()
    with recording(folder, [Lab]) as lab:
        sid = lab.raw.post("/create_session").json()["sid"]
        body = {"env_name": "lab", "task_spec": {"n": secret, "id": "s"}}
        lab.raw.post("/create", body, sid=sid, headers={"X-Secrets": header})
        lab.raw.get("/lab/prompt", sid=sid)
        lab.raw.call(sid, "show_secrets", {})
        lab.raw.call(sid, "echo", {"text": f"it is {secret}", secret: 1})
        lab.raw.call(sid, "refuse", {"text": secret})
        lab.raw.call(sid, "secret", {})
        lab.raw.post("/delete", sid=sid)
    record = lab.record()
    assert len(record.rewards) == 4
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"***" in written
    assert b"never" not in written


@pytest.mark.parametrize("secret", ["blocks", "output", "text", "type", "user", "echo"])
def test_a_secret_that_is_a_word_of_the_protocol_does_not_spoil_the_record(folder: Path, secret: str) -> None:
    header = base64.b64encode(json.dumps({"key": {"value": secret}}).encode()).decode()
    with recording(folder, [Lab]) as lab:
        sid = lab.raw.post("/create_session").json()["sid"]
        body = {"env_name": "lab", "task_spec": {"id": "s"}}
        lab.raw.post("/create", body, sid=sid, headers={"X-Secrets": header})
        lab.raw.get("/lab/prompt", sid=sid)
        lab.raw.call(sid, "echo", {"text": f"the {secret}"})
        lab.raw.post("/delete", sid=sid)
    result = lab.record().messages[-1]
    assert isinstance(result, ToolMessage)
    assert (result.name, result.blocks) == ("echo", [TextBlock(text="the ***")])


def test_a_session_that_needs_too_much_memory_is_dropped_and_counted_and_its_calls_succeed(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(folder, [Lab], most_bytes=20_000) as lab, caplog.at_level(logging.WARNING):
        for _ in range(2):
            sid = lab.raw.session()
            for _ in range(3):
                text = "x" * 10_000
                assert (
                    lab.raw.call(sid, "echo", {"text": text}).result()["output"]["blocks"][0]["text"] == text
                )
            lab.raw.post("/delete", sid=sid)
        called(("reward", {"value": 1.0}))(lab.raw)
        counted(lab, 1, 2)
    assert lab.record().rewards == (1.0,)
    assert [r.message for r in caplog.records if "dropped" in r.message] == [
        "episodes waiting to be recorded take over 0 MB: further ones are dropped",
        "1 episodes recorded; 2 were dropped",
    ]


def test_a_folder_that_cannot_be_written_any_more_is_said_once_and_never_fails_a_call(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(folder, [Lab]) as lab, caplog.at_level(logging.WARNING):
        shutil.rmtree(folder)
        folder.write_text("in the way")
        called(("reward", {"value": 1.0}))(lab.raw)
        called(("reward", {"value": 2.0}))(lab.raw)
        counted(lab, 0, 2)
        assert sum("cannot be written" in record.message for record in caplog.records) == 1
        folder.unlink()
        called(("reward", {"value": 3.0}))(lab.raw)
        counted(lab, 1, 2)
    assert lab.record().reward == 3.0


def test_servers_that_record_into_one_folder_write_a_file_each(folder: Path) -> None:
    play = called(("reward", {"value": 1.0}))
    with recording(folder, [Lab]) as one, recording(folder, [Lab]) as other:
        for lab in (one, other, one):
            play(lab.raw)
    assert len(one.records()) == 3
    assert len(list(folder.glob("episodes*.jsonl"))) == 2


def test_a_run_that_cannot_be_opened_says_why(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json"):
        SessionRecorder(folder, INFO)


def test_a_session_under_an_id_that_was_used_before_is_an_episode_of_its_own(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        for value in (1.0, 2.0):
            lab.raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid="mine")
            lab.raw.call("mine", "reward", {"value": value})
            lab.raw.post("/delete", sid="mine")
    assert [record.reward for record in lab.records()] == [1.0, 2.0]


def test_nothing_watches_a_session_that_has_ended(folder: Path) -> None:
    with recording(folder, [Lab]) as lab:
        sid = lab.raw.session()
        watched = app_of(lab.server).shared.observers.watched
        assert list(watched) == [sid]
        lab.raw.post("/delete", sid=sid)
        assert watched == {}


def test_without_a_recorder_nothing_is_watched() -> None:
    server = Server([Lab])
    with serving(server) as url:
        Raw(url).session()
        assert app_of(server).shared.observers.watched == {}
        assert b"ors_records_total{" not in Raw(url).get("/-/metrics").body


def test_a_watching_inspector_and_a_recorder_do_not_disturb_each_other(folder: Path) -> None:
    with recording(folder, [Lab], inspector=True) as lab:
        sid = lab.raw.session()
        connection = lab.raw.connection()
        connection.request("GET", f"/-/api/calls/{sid}")
        feed = connection.getresponse()
        lab.raw.call(sid, "reward", {"value": 1.0})
        lab.raw.post("/delete", sid=sid)
        seen = b""
        while b"event: ended" not in seen:
            seen += feed.read1(65536)
        connection.close()
        wait_until(lambda: not app_of(lab.server).shared.observers.watched, "nobody watches")
    assert lab.record().reward == 1.0
