"""Real coding agents from npm play episodes, with a scripted model on loopback."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ors.providers import MODEL_NAMES, api_of
from ors.rollouts import EpisodeRecord, Failed, Scored
from ors.rollouts.agents.coding.table import CODING, written
from ors.rollouts.records import read_run
from tests.support import hunt_environment, workshop_environment
from tests.support.coding_agents import installed, installed_for_sandboxes, on_path
from tests.support.commands import ORS, run
from tests.support.hunt_environment import HINT, RIGHT
from tests.support.scripted_model import ScriptedModel, Step, scripted_model

HUNT = f"{hunt_environment.__file__}:Hunt"
ESSAY = f"{hunt_environment.__file__}:Essay"
KEY = "sk-of-these-tests-0123456789"
KEYS = {api_of(MODEL_NAMES[row.provider]).key_variables[-1]: KEY for row in CODING.values()}
PATIENCE = 120
HUNTED: list[Step] = [("hint", {}), ("submit", {"answer": "4"}), "All done."]
AGENTS = pytest.mark.parametrize("name", CODING)
HARMLESS = {"list_mcp_resource_templates", "list_mcp_resources", "read_mcp_resource", "request_user_input"}
"""Tools of Codex that cannot be turned off. None of them reaches files or programs."""

pytestmark = pytest.mark.timeout(900)  # the first test installs the agents


@pytest.fixture(scope="session")
def programs() -> Path:
    return installed()


def base_url(name: str, model: ScriptedModel) -> str:
    return f"{model.url}/v1" if CODING[name].provider.startswith("openai") else model.url


def check_requests(model: ScriptedModel, tools: set[str]) -> None:
    """No request told a reward, or offered any tools but ours."""
    assert model.requests
    for text in ("reward", str(HINT), str(RIGHT), str(HINT + RIGHT)):
        assert text not in model.bodies().lower()
    ours = {name for name in model.offered if any(name.endswith(tool) for tool in tools)}
    assert len(ours) == len(tools)
    assert model.offered - ours <= HARMLESS
    assert model.keys == {KEY}


def evaluated(
    name: str, model: ScriptedModel, programs: Path, out: Path, target: str = HUNT, **env: str
) -> EpisodeRecord:
    words = ["eval", target, "--model", f"{name}:scripted", "--base-url", base_url(name, model)]
    words += ["--tasks", "0", "--out", str(out), "--max-seconds", str(PATIENCE), "--max-failed", "1"]
    run(*words, env={**KEYS, "PATH": on_path(programs), **env}, patience=2 * PATIENCE)
    (record,) = read_run(out).episodes()
    assert KEY not in repr(record)
    return record


@AGENTS
def test_an_agent_plays_an_episode(name: str, programs: Path, tmp_path: Path) -> None:
    with scripted_model(HUNTED) as model:
        record = evaluated(name, model, programs, tmp_path / "run")
    assert record.outcome == Scored()
    assert record.rewards == (HINT, RIGHT)
    calls = [call.name for message in record.messages for call in getattr(message, "calls", ())]
    assert calls == ["hint", "submit"]
    assert record.messages[-1].text == "All done."  # type: ignore[union-attr]
    assert record.program is not None
    assert record.program["exit"] == 0
    assert (record.usage.input_tokens, record.usage.output_tokens) == (30, 15)
    check_requests(model, {"hint", "submit", "wait", "fail"})


@AGENTS
def test_an_agent_hands_in_its_answer_where_that_is_the_only_tool(
    name: str, programs: Path, tmp_path: Path
) -> None:
    with scripted_model([("grade", {"message": "4"}), "All done."]) as model:
        record = evaluated(name, model, programs, tmp_path / "run", ESSAY)
    assert record.rewards == (RIGHT,)
    check_requests(model, {"grade"})


@AGENTS
def test_a_key_that_is_refused_is_a_failure_of_the_model(name: str, programs: Path, tmp_path: Path) -> None:
    with scripted_model(HUNTED, status=401) as model:
        outcome = evaluated(name, model, programs, tmp_path / "run").outcome
    assert isinstance(outcome, Failed)
    assert (outcome.who, outcome.final) == ("model", True)


OUTSIDE = Path(workshop_environment.__file__)
LOOK = f"cat {OUTSIDE}; ls /root /home; echo > /dev/tcp/127.0.0.1/{{port}}; cp wanted.txt word.txt; echo DONE"
"""Looks for the environment's answers, and for the model itself; then does the task."""
SHELLS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "claude-code": lambda line: ("Bash", {"command": f"bash -c '{line}'"}),
    "codex": lambda line: ("exec_command", {"cmd": f"bash -c '{line}'"}),
    "gemini-cli": lambda line: ("run_shell_command", {"command": f"bash -c '{line}'"}),
    "opencode": lambda line: ("bash", {"command": f"bash -c '{line}'", "description": "Does it."}),
}
"""The shell of each agent."""


@pytest.fixture(scope="session")
def shared(programs: Path) -> Iterator[Path]:
    with installed_for_sandboxes(programs) as folder:
        yield folder


@AGENTS
def test_an_agent_works_in_the_sandbox_of_its_episode(
    name: str, programs: Path, shared: Path, tmp_path: Path
) -> None:
    with scripted_model([("submit", {}), "All done."]) as model:
        line = LOOK.format(port=model.url.rpartition(":")[2])
        model.script = [SHELLS[name](line), *model.script]
        target, env = f"{OUTSIDE}:Workshop", {"AGENTS": str(shared)}
        record = evaluated(name, model, programs, tmp_path / "run", target, **env)
    assert record.outcome == Scored()
    assert record.rewards == (workshop_environment.RIGHT,)
    assert record.messages[-1].text == "All done."  # type: ignore[union-attr]
    assert record.program is not None
    assert record.program["exit"] == 0
    assert (record.usage.input_tokens, record.usage.output_tokens) == (30, 15)
    told = model.bodies()
    assert "DONE" in told
    assert "private_fields" not in told
    assert "Connection refused" in told
    assert "reward" not in told.lower()
    assert str(workshop_environment.RIGHT) not in told
    assert model.keys == {KEY}


STDIO: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "claude-code": lambda words: {"mcpServers": {"ors": {"command": words[0], "args": words[1:]}}},
    "codex": lambda words: {
        "mcp_servers": {
            "ors": {
                "command": words[0],
                "args": words[1:],
                "required": True,
                "default_tools_approval_mode": "approve",
            }
        }
    },
    "gemini-cli": lambda words: {
        "mcpServers": {"ors": {"command": words[0], "args": words[1:], "trust": True}}
    },
    "opencode": lambda words: {"mcp": {"ors": {"type": "local", "command": words, "enabled": True}}},
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "work").mkdir(parents=True)
    return tmp_path / "home"


@AGENTS
def test_an_agent_plays_an_episode_on_standard_input(name: str, programs: Path, home: Path) -> None:
    row, outcome = CODING[name], home.parent / "outcome.json"
    server = STDIO[name]([*ORS, "mcp", HUNT, "--index", "0", "--outcome", str(outcome)])
    with scripted_model(HUNTED) as model:
        url = base_url(name, model)
        (home / row.file).parent.mkdir(parents=True, exist_ok=True)
        settings = written(row.settings | row.alone[1] | server, row.file, model="scripted", base_url=url)
        (home / row.file).write_text(settings)
        own = {"HOME": str(home), "TMPDIR": str(home), "PATH": on_path(programs), "NO_PROXY": "127.0.0.1"}
        words = [each.format(model="scripted", home=home) for each in (*row.arguments, *row.alone[0])]
        done = subprocess.run(
            [row.command, *words],
            input="Do the task of the MCP server ors.",
            env={**own, **row.variables, **KEYS, api_of(MODEL_NAMES[row.provider]).url_variable: url},
            cwd=home / "work",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            executable=programs / row.command,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(outcome.read_text())
    assert found["rewards"] == [HINT, RIGHT]
    check_requests(model, {"hint", "submit", "wait", "fail"})
