"""`ors mcp`, with clients written by hand."""

import json
import os
import re
import signal
import socket
import subprocess
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import hunt_environment
from tests.support.commands import ORS, PATIENCE, refused, run, running, variables
from tests.support.hunt_environment import HINT, RIGHT
from tests.support.raw_http import Raw

HUNT = f"{hunt_environment.__file__}:Hunt"
ESSAY = f"{hunt_environment.__file__}:Essay"


class Client:
    """An MCP client at the other end of the pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.heard: list[str] = []
        self._asked = 0

    def send(self, method: str, **params: Any) -> None:
        assert self.process.stdin is not None
        self._asked += 1
        message = {"jsonrpc": "2.0", "id": self._asked, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, **params: Any) -> Any:
        assert self.process.stdout is not None
        self.send(method, **params)
        self.heard.append(self.process.stdout.readline())
        answer = json.loads(self.heard[-1])
        assert answer["id"] == self._asked
        return answer.get("result", answer.get("error"))

    def call(self, name: str, **given: Any) -> str:
        result = self.ask("tools/call", name=name, arguments=given)
        return " ".join(block["text"] for block in result["content"])

    def leave(self) -> None:
        """Closes both pipes, as the end of a client does."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.stdin = self.process.stdout = None

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return self.process.returncode, out, err


@contextmanager
def client(*words: str) -> Iterator[Client]:
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen([*ORS, "mcp", *words], env=variables(), text=True, **pipes)
    try:
        yield Client(process)
    finally:
        process.kill()
        process.communicate()


def read(outcome: Path) -> Any:
    return json.loads(outcome.read_text())


def test_an_episode_is_played_on_standard_input_and_output(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--index", "1", "--outcome", str(outcome)) as agent:
        begun = agent.ask("initialize", protocolVersion="2025-06-18")
        assert begun["instructions"] == "Call hint, then submit what it says."
        names = [each["name"] for each in agent.ask("tools/list")["tools"]]
        assert set(names) == {"hint", "wait", "fail", "submit"}
        assert agent.call("hint") == "It is 5."
        assert "answer" in agent.call("submit")  # is missing: the agent may try again
        assert not outcome.exists()
        assert "The episode is over" in agent.call("submit", answer="5")
        assert read(outcome)["rewards"] == [HINT, None, RIGHT]  # was there before the agent knew
        assert "episode is over" in agent.call("hint")
        assert agent.process.poll() is None
        code, out, err = agent.end()  # which closes its input
    assert (code, out) == (0, "")
    found = read(outcome)
    assert found["outcome"] == {"type": "scored"}
    assert found["reward"] == HINT + RIGHT
    assert (found["split"], found["index"]) == ("train", 1)
    assert not any(word in line for line in agent.heard for word in ("reward", str(HINT), str(RIGHT)))
    assert "Outcome" not in err


def test_nobody_else_can_use_the_server_of_a_target() -> None:
    with client(HUNT) as agent:
        assert "hint" in str(agent.ask("tools/list"))
        (child,) = Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
        raw = Raw(f"http://127.0.0.1:{port(child)}")
        asked = (raw.get("/list_environments"), raw.get("/-/sessions"), raw.post("/create_session"))
        assert [answer.status for answer in asked] == [401, 401, 401]
        assert b"ORS_API_KEYS=" not in Path(f"/proc/{child}/environ").read_bytes()


def port(pid: str) -> int:
    """The port on which a process listens."""
    sockets = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (found,) = [row[1] for row in rows if f"socket:[{row[9]}]" in sockets and row[3] == "0A"]
    return int(found.partition(":")[2], 16)


def test_messages_may_all_be_there_at_once(tmp_path: Path) -> None:
    calls = [("hint", {}), ("submit", {"answer": "4"})]
    messages = [
        {"jsonrpc": "2.0", "id": name, "method": "tools/call", "params": {"name": name, "arguments": given}}
        for name, given in calls
    ]
    given = "\n".join(["no JSON", "", *map(json.dumps, messages)])
    done = subprocess.run(
        [*ORS, "mcp", HUNT], input=given, env=variables(), capture_output=True, text=True, timeout=PATIENCE
    )
    answers = {each["id"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert answers[None]["error"]["code"] == -32700
    assert set(answers) == {None, "hint", "submit"}
    outcome = json.loads(done.stderr.partition("Outcome: ")[2])
    assert outcome["rewards"] == [HINT, RIGHT]
    assert "messages" not in outcome
    assert done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_outcome_so_far(tmp_path: Path, number: signal.Signals) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--outcome", str(outcome)) as agent:
        agent.call("hint")
        agent.process.send_signal(number)
        assert agent.process.wait(PATIENCE) == 0
    assert read(outcome)["rewards"] == [HINT]
    assert read(outcome)["outcome"] == {"type": "scored"}


def test_a_signal_during_a_call_does_not_wait_for_it(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--outcome", str(outcome)) as agent:
        agent.call("hint")
        agent.send("tools/call", name="wait", arguments={})
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(PATIENCE) == 0
    assert read(outcome)["rewards"] == [HINT]


def test_a_signal_during_a_call_prints_the_outcome_where_there_is_no_file() -> None:
    with client(HUNT) as agent:
        agent.call("hint")
        agent.send("tools/call", name="wait", arguments={})
        agent.process.send_signal(signal.SIGTERM)
        agent.process.wait(PATIENCE)
        _, _, err = agent.end()
    assert json.loads(err.partition("Outcome: ")[2])["rewards"] == [HINT]


def test_the_outcome_is_safe_when_the_agent_hears_of_the_end(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--outcome", str(outcome)) as agent:
        agent.call("submit", answer="4")
        agent.process.kill()
        agent.process.wait()
        assert read(outcome)["reward"] == RIGHT


def test_an_agent_that_leaves_at_once_has_an_outcome_too(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--outcome", str(outcome)) as agent:
        assert agent.end()[0] == 0
    assert read(outcome)["outcome"] == {"type": "unscored"}
    assert read(outcome)["reward"] is None


def test_an_agent_that_is_killed_during_a_call_has_an_outcome_too(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--outcome", str(outcome)) as agent:
        agent.call("hint")
        agent.send("tools/call", name="wait", arguments={})
        agent.leave()
        assert agent.process.wait(PATIENCE) == 0
    assert read(outcome)["rewards"] == [HINT]


def test_an_outcome_that_cannot_be_written_is_on_standard_error(tmp_path: Path) -> None:
    folder = tmp_path / "removed"
    folder.mkdir()
    with client(HUNT, "--outcome", str(folder / "outcome.json")) as agent:
        agent.call("hint")
        folder.rmdir()
        agent.call("submit", answer="4")
        _, _, err = agent.end()
    assert "No such file" in err
    assert json.loads(err.partition("Outcome: ")[2])["reward"] == HINT + RIGHT


def test_an_outcome_in_a_folder_that_is_not_there_is_refused_before_the_episode(tmp_path: Path) -> None:
    refusal = refused("mcp", HUNT, "--outcome", str(tmp_path / "missing" / "outcome.json"))
    assert "--outcome" in refusal.err
    assert "there is no folder" in refusal.err


def test_the_only_tool_may_be_one_that_takes_the_last_message(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(ESSAY, "--outcome", str(outcome)) as agent:
        assert [each["name"] for each in agent.ask("tools/list")["tools"]] == ["grade"]
        assert "The episode is over" in agent.call("grade", message="4")
        assert read(outcome)["reward"] == RIGHT


def test_an_episode_that_cannot_begin_tells_the_client_and_the_user() -> None:
    with client(HUNT, "--index", "77") as agent:
        assert "2 tasks" in agent.ask("initialize", protocolVersion="2025-06-18")["message"]
        agent.process.wait(PATIENCE)  # it ends by itself
        code, _, err = agent.end()
    assert code == 3
    assert "Error: The episode failed (infrastructure): Invalid index" in err


def test_an_environment_that_fails_ends_the_episode(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with client(HUNT, "--outcome", str(outcome)) as agent:
        agent.send("tools/call", name="fail", arguments={})
        agent.process.wait(PATIENCE)  # it ends by itself
        code, out, err = agent.end()
    assert json.loads(out)["result"]["isError"] is True
    assert read(outcome)["outcome"]["who"] == "environment"
    assert (code, "Error: The episode failed (environment)" in err) == (3, True)


def posted(url: str, method: str, **params: Any) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with opener.open(urllib.request.Request(url, body, headers)) as answer:
        return json.load(answer)["result"]


@pytest.mark.parametrize("agent", ["claude-code", "codex", "gemini", "opencode", "cursor", "other"])
def test_an_agent_gets_a_url_and_its_settings(tmp_path: Path, agent: str) -> None:
    outcome = tmp_path / "outcome.json"
    with running("mcp", HUNT, "--for", agent, "--outcome", str(outcome)) as host:
        url = host.line(r"The episode is at (http://127\.0\.0\.1:\d+/mcp/\S{43})")[1]
        file = host.line(r"^In (\S+):")[1]
        assert posted(url, "initialize")["instructions"] == "Call hint, then submit what it says."
        assert "episode is over" in str(posted(url, "tools/call", name="submit", arguments={"answer": "4"}))
        assert host.process.stdout is not None
        out = host.process.stdout.read()
        host.process.wait(PATIENCE)  # it ends by itself
    toml = "[tools]\nview_image = false\n"  # what a user has in the file may come before
    settings = tomllib.loads(toml + out) if file.endswith(".toml") else json.loads(out)
    assert {"mcp", "mcpServers", "mcp_servers"} & set(settings)
    assert url in re.split(r"['\"]", str(settings))
    assert host.process.returncode == 0
    assert read(outcome)["reward"] == RIGHT
    assert read(outcome)["agent"] == agent


def test_no_url_is_given_out_for_an_episode_that_cannot_begin() -> None:
    done = run("mcp", HUNT, "--index", "9", "--for", "other")
    assert (done.code, done.out) == (3, "")
    assert "the split has 2 tasks" in done.err


def test_a_signal_ends_the_listener_with_the_outcome(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with running("mcp", HUNT, "--for", "codex", "--outcome", str(outcome)) as host:
        url = host.line(r"The episode is at (\S+)")[1]
        posted(url, "tools/call", name="hint")
        assert host.stop(signal.SIGINT).code == 0
    assert read(outcome)["rewards"] == [HINT]


def test_nothing_but_the_address_of_an_episode_answers() -> None:
    with running("mcp", HUNT, "--for", "cursor") as host:
        url = host.line(r"The episode is at (\S+)")[1]
        for wrong in ("/", "/mcp/", "/mcp/x", "/outcome"):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                posted(re.sub(r"/mcp/.*", wrong, url), "tools/list")
            assert refusal.value.code == 404
            refusal.value.close()
        host.stop()


def test_a_client_of_another_kind_is_answered_too() -> None:
    with running("mcp", HUNT, "--for", "other") as host:
        url = urlsplit(host.line(r"The episode is at (\S+)")[1])
        sent = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
        head = f"POST {url.path}/ HTTP/1.0\r\nContent-Length: {len(sent)}\r\n\r\n"  # no parts in its answer
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(head.encode() + sent)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["result"] == {}
        host.stop()


def test_an_unknown_agent_is_refused() -> None:
    assert (
        "'claude-code', 'codex', 'gemini', 'opencode', 'cursor', 'other'"
        in refused("mcp", HUNT, "--for", "vi").err
    )
