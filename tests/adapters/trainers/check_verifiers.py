"""verifiers' own run of episodes on our environments, with a model by a script behind its interception."""

import asyncio
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig

from ors.adapters import serve, training, verifiers
from ors.client import Options
from ors.rollouts import Failed, play
from tests.support.outcome_cases import Case, check
from tests.support.parameters import SUMS
from tests.support.training_environment import hunt_elsewhere

Reply = tuple[str, dict[str, Any] | str] | str
"""A call with its arguments, also as text; or a message."""


class Cut(str):
    """A message that is cut off at the length limit."""


RIGHT: Reply = ("guess", {"number": 3})
HINT: Reply = ("hint", {})


class Model(ThreadingHTTPServer):
    """Answers Chat Completions with the replies of a script."""

    script: list[Reply]
    requests: list[dict[str, Any]]
    before_reply: Callable[[int], object]


class Completions(BaseHTTPRequestHandler):
    server: Model

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.before_reply(len(self.server.requests))
        self.server.requests.append(body)
        reply = self.server.script.pop(0)
        call = None if isinstance(reply, str) else _call(*reply)
        message: dict[str, Any] = {"role": "assistant", "content": reply if call is None else None}
        if call is not None:
            id = f"call_{len(self.server.requests)}"
            message["tool_calls"] = [{"id": id, "type": "function", "function": call}]
        reason = ("length" if isinstance(reply, Cut) else "stop") if call is None else "tool_calls"
        answer = {
            "id": "a",
            "object": "chat.completion",
            "created": 1,
            "model": "policy",
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        streamed = bool(body.get("stream"))
        data = _stream(answer) if streamed else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _call(name: str, given: dict[str, Any] | str) -> dict[str, str]:
    return {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}


def _stream(answer: dict[str, Any]) -> bytes:
    """The same answer as events: all of the message, then its end."""
    (choice,) = answer["choices"]
    message = choice["message"]
    calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    parts = [{"delta": delta, "finish_reason": None}, {"delta": {}, "finish_reason": choice["finish_reason"]}]
    head = {**answer, "object": "chat.completion.chunk"}
    events = [json.dumps({**head, "choices": [{"index": 0, **part}]}) for part in parts]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


@pytest.fixture
def model() -> Iterator[Model]:
    server = Model(("127.0.0.1", 0), Completions)
    server.script, server.requests, server.before_reply = [], [], lambda turn: None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True, scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The module by whose name verifiers finds the taskset, as the page says."""
    folder = tmp_path_factory.mktemp("plugin")
    text = (
        "from ors.adapters.verifiers import ORSHarness, ORSTaskset\n__all__ = ['ORSHarness', 'ORSTaskset']\n"
    )
    (folder / "ors_tasks.py").write_text(text)
    sys.path.insert(0, str(folder))
    yield "ors_tasks"
    sys.path.remove(str(folder))


async def played(
    model: Model, url: str, script: Sequence[Reply], split: str = "train", index: int = 3, **options: Any
) -> Any:
    """The trace of one episode, run by verifiers."""
    model.script = list(script)
    limits: dict[str, Any] = {key: options.pop(key) for key in ("max_turns", "timeout") if key in options}
    where: dict[str, Any] = {
        "base_url": url,
        "environment": options.pop("environment", "hunt"),
        "split": split,
    }
    config = vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": "ors_tasks", **where, **({"reward": "sum"} | options)},
            "agent": {"runtime": SubprocessConfig().model_dump(), **limits},
        }
    )
    env = vf.SingleAgentEnv(config)
    endpoint = f"http://127.0.0.1:{model.server_address[1]}/v1"
    context = vf.ModelContext(
        model="policy", client=vf.EvalClientConfig(base_url=endpoint, api_key_var="NO_KEY")
    )
    task = next(itertools.islice(env.taskset, index, None))
    async with env.serving():
        episode = await env.run_episode(task, context)
    assert len(episode.traces) == 1, episode.errors
    return episode.traces[0]


async def test_an_episode_has_the_reward_of_the_environment_and_finished_ends_it(
    model: Model, url: str
) -> None:
    trace = await played(model, url, [HINT, RIGHT, RIGHT])
    assert (trace.ok, trace.reward, trace.state.rewards) == (True, 1.25, [0.25, 1.0])
    assert len(model.requests) == 2
    first = model.requests[0]
    assert first["messages"][-1]["content"] == "Guess 3."
    assert "guess" in {tool["function"]["name"] for tool in first["tools"]}


async def test_secrets_come_from_variables(model: Model, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUNT_KEY", "sesame")
    trace = await played(model, url, [RIGHT], environment="locked", secrets=["hunt_key"])
    assert (trace.ok, trace.reward) == (True, 1.0)
    assert model.requests[0]["messages"][-1]["content"] == "sesame: guess 3."


async def test_a_server_with_parameters_is_started_for_it(model: Model) -> None:
    served = serve(SUMS, {"difficulty": 5})
    trace = await played(model, served, [("submit", {"answer": 3 + 5})], environment="sums")
    assert (trace.ok, trace.reward) == (True, 1.0)


@pytest.mark.parametrize("bad", ["crash", "shrug"])
async def test_an_episode_without_reward_is_an_error_and_has_no_score(
    model: Model, url: str, bad: str
) -> None:
    trace = await played(model, url, [(bad, {})], unscored_reward=None)
    assert not trace.ok
    assert trace.has_error
    assert not any(trace.rewards.values())
    assert "has no reward" in trace.last_error.message
    kind = "failed_environment" if bad == "crash" else "unscored"
    assert (trace.metrics["ors/left_out"], trace.metrics[f"ors/{kind}"]) == (1.0, 1.0)
    told = "environment, at the stage 'call', ToolFailed" if bad == "crash" else "is unscored"
    assert told in trace.info["ors"]


def scripted(case: Case) -> list[Reply]:
    """The replies of a case for the model."""
    return [
        (each.call, each.given) if each.call else Cut(each.text) if each.cut else each.text
        for each in case.replies
    ]


def test_every_outcome_counts_as_the_table_says(model: Model, url: str) -> None:
    def play(
        url: str, environment: str, cases: Sequence[Case], options: Mapping[str, Any]
    ) -> Sequence[float | None]:
        async def rewards() -> list[float | None]:
            scripts = [scripted(case) for case in cases]
            traces = [await played(model, url, each, environment=environment, **options) for each in scripts]
            return [trace.reward if trace.ok else None for trace in traces]

        return asyncio.run(rewards())

    check(url, play)


async def test_a_call_that_cannot_be_read_goes_back_to_the_model(model: Model, url: str) -> None:
    trace = await played(model, url, [("guess", '{"number": '), RIGHT])
    assert (trace.ok, trace.reward) == (True, 1.0)
    assert model.requests[1]["messages"][-1]["role"] == "tool"


async def test_an_episode_that_runs_out_of_time_has_what_it_earned(model: Model, url: str) -> None:
    waiting = threading.Event()
    model.before_reply = lambda turn: waiting.wait(60) if turn == 1 else None
    trace = await played(model, url, [HINT, RIGHT], timeout={"rollout": 4.0})
    waiting.set()
    assert (trace.ok, trace.reward, trace.state.outcome) == (True, 0.25, "truncated"), trace.last_error


async def test_an_episode_that_fails_before_the_model_is_asked_is_played_again(
    model: Model, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    async def lost_at_first(*args: Any, **arguments: Any) -> Any:
        attempts.append(args)
        record = await play(*args, **arguments)
        lost = Failed("infrastructure", "opening", "SessionLost", "the server is gone")
        return record if len(attempts) > 1 else replace(record, outcome=lost, reward=None)

    monkeypatch.setattr(verifiers, "play", lost_at_first)
    trace = await played(model, url, [], split="broken")
    assert len(attempts) == 2
    assert "the setup is broken" in trace.last_error.message
    attempts.clear()
    trace = await played(model, url, [RIGHT, RIGHT])
    assert (len(attempts), trace.ok) == (1, False)  # its trace has a reply of the model
    assert "the server is gone" in trace.last_error.message


async def test_a_setup_that_fails_is_an_error(model: Model, url: str) -> None:
    trace = await played(model, url, [], split="broken")
    assert not trace.ok
    assert "the setup is broken" in trace.last_error.message
    assert model.requests == []


async def test_a_server_that_is_killed_is_an_error(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = Options(ping_seconds=0.2, ping_failures=2, retries=1)
    monkeypatch.setattr(training, "OPTIONS", impatient)
    with hunt_elsewhere() as (process, address):

        def kill(turn: int) -> None:
            if turn == 1:
                process.kill()
                process.wait()

        model.before_reply = kill
        trace = await played(model, address, [HINT, RIGHT])
    assert not trace.ok
    assert "infrastructure" in trace.last_error.message


async def test_a_limit_of_the_run_truncates_the_episode(model: Model, url: str) -> None:
    trace = await played(model, url, [HINT, HINT, RIGHT], max_turns=2)
    assert (trace.state.outcome, trace.reward) == ("truncated", 0.5)


async def test_the_last_message_goes_to_the_terminal_tool(model: Model, url: str) -> None:
    assert (await played(model, url, ["It is 3."], environment="essay")).reward == 1.0


async def test_images_reach_the_model(model: Model, url: str) -> None:
    await played(model, url, [("look", {}), RIGHT])
    assert "image_url" in json.dumps(model.requests[1]["messages"])


def test_a_taskset_without_a_reduction_says_so(url: str, plugin: str) -> None:
    from ors.adapters.verifiers import ORSTaskset, ORSTasksetConfig

    config = ORSTasksetConfig(id=plugin, base_url=url, environment="hunt", split="train")
    with pytest.raises(ValueError, match="needs reward"):
        next(iter(ORSTaskset(config)))


def test_the_tasks_of_a_split_have_names(url: str, plugin: str) -> None:
    from ors.adapters.verifiers import ORSTaskset, ORSTasksetConfig

    config = ORSTasksetConfig(id=plugin, base_url=url, environment="hunt", split="train", reward="last")
    assert [task.data.name for task in ORSTaskset(config)][:2] == ["hunt/train/0", "hunt/train/1"]
    assert Path(sys.modules[ORSTaskset.__module__].__file__ or "").name == "verifiers.py"


async def test_metrics_have_the_named_rewards(model: Model, url: str) -> None:
    trace = await played(model, url, [HINT, RIGHT], environment="parts")
    assert (trace.reward, trace.metrics["ors/reward/correct"]) == (1.75, 1.0)
    assert trace.metrics["ors/reward/format"] == 0.75
    failed = await played(model, url, [HINT, ("crash", {})], environment="parts")
    assert not any(name.startswith("ors/reward/") for name in failed.metrics)
    cut = await played(model, url, [HINT, HINT, RIGHT], environment="parts", max_turns=2)
    assert (cut.reward, cut.metrics["ors/reward/format"]) == (0.5, 0.5)
