"""verifiers' own run of episodes on our environments, with a model by a script behind its interception."""

import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from verifiers.v1.runtimes import SubprocessConfig

from tests.support.training_environment import hunt_elsewhere

Reply = tuple[str, dict[str, Any]] | str
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
        call = None if isinstance(reply, str) else {"name": reply[0], "arguments": json.dumps(reply[1])}
        message: dict[str, Any] = {"role": "assistant", "content": reply if call is None else None}
        if call is not None:
            id = f"call_{len(self.server.requests)}"
            message["tool_calls"] = [{"id": id, "type": "function", "function": call}]
        reason = "stop" if call is None else "tool_calls"
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
    limits = {key: options.pop(key) for key in ("max_turns",) if key in options}
    where = {"base_url": url, "environment": options.pop("environment", "hunt"), "split": split}
    config = vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": "ors_tasks", **where, "reward": "sum", **options},
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


@pytest.mark.parametrize("bad", ["crash", "shrug"])
async def test_an_episode_without_reward_is_an_error_and_has_no_score(
    model: Model, url: str, bad: str
) -> None:
    trace = await played(model, url, [(bad, {})])
    assert not trace.ok
    assert trace.has_error
    assert not any(trace.rewards.values())
    assert "has no reward" in trace.last_error.message


async def test_a_setup_that_fails_is_an_error(model: Model, url: str) -> None:
    trace = await played(model, url, [], split="broken")
    assert not trace.ok
    assert "the setup is broken" in trace.last_error.message
    assert model.requests == []


async def test_a_server_that_is_killed_is_an_error(model: Model) -> None:
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
