"""Code and commands in the other pages: what can be run is run, and flags and names exist."""

import ast
import asyncio
import inspect
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ors import Environment, JSONObject, Server, TextBlock, ToolOutput, tool
from ors.cli import COMMANDS
from ors.cli import ors as command_line
from ors.cli.settings import commands_of
from ors.client import ORS
from ors.rollouts import Conversation, TaskRef, Transcript
from ors.rollouts.records import RunInfo, RunWriter, export_run, line_schema, read_run
from tests.examples.test_guides import FOLLOWED
from tests.examples.test_readme import ROOT, blocks
from tests.support.episode_records import episode
from tests.support.live_server import serving
from tests.support.model_provider import ChatAnswers, ResponsesAnswers, providing
from tests.support.parameters import SUMS
from tests.support.provider_types import message_problems
from tests.support.raw_http import Raw
from tests.support.scripted_server import answer

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))),
]
OTHERS = (
    "docs/conformance.md",
    "docs/guides/agents.md",
    "docs/guides/telemetry.md",
    "docs/guides/replay.md",
    "docs/guides/rollouts.md",
    "docs/guides/runs.md",
    "docs/guides/scaling.md",
    "docs/guides/training-adapters.md",
    "docs/guides/training.md",
)
FOREIGN = {
    *("--find-links", "--help", "--no-cache-dir", "--no-deps", "--version", "--wheel-dir"),
    *("--enable-auto-tool-choice", "--jinja", "--tool-call-parser"),  # of model servers
    *("--allowed", "--mcp-config", "--skip-git-repo-check", "--strict-mcp-config", "--tools"),  # of agents
}
"""Flags that no command declares itself."""


class Sum(Environment):
    """What pages call the environment `sum`."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"a": n, "b": n + 2} for n in range(10)]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"What is {self.task_spec['a']} + {self.task_spec['b']}?")]

    @tool
    def submit(self, answer: int) -> ToolOutput:
        """Submit the sum."""
        a, b = self.task_spec["a"], self.task_spec["b"]
        assert isinstance(a, int)
        assert isinstance(b, int)
        return ToolOutput(blocks=[], reward=float(answer == a + b), finished=True)


class Adder(Sum):
    """What pages call the environment of `ors init adder`."""


def commands() -> dict[str, click.Command]:
    found = {name: command_line.get_command(click.Context(command_line), name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def lines(page: str) -> list[str]:
    """The lines of a page's blocks that call `ors`."""
    found = re.findall(r"^```(?:sh)?\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.splitlines() if line.startswith("ors ")]


def test_every_page_with_python_code_has_a_test_that_runs_it() -> None:
    readme = {"README.md"}  # test_readme.py
    assert {page for page in PAGES if blocks(page)} == {*OTHERS, *FOLLOWED, *readme, "CONTRIBUTING.md"}


@pytest.mark.xdist_group("providers")  # whose packages take seconds to import
async def test_the_agents_page_plays_an_episode_with_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    named, local, own, loop = blocks("docs/guides/agents.md")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-12345678")
    namespace: dict[str, Any] = {}
    for code in (named, local, own):
        exec(code, namespace)
    assert repr(namespace["agent"]) == "<ModelAgent openai:Qwen/Qwen3-8B>"
    answers = ResponsesAnswers()
    wrong, right = ([("call_a", "submit", f'{{"answer": {given}}}')] for given in ('"two"', "2"))
    async with providing(answers) as provider:
        provider.on(answers.path, answer(answers(calls=wrong, thought="Hm.")), answer(answers(calls=right)))
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        with serving(Server([Adder])) as url:
            await asyncio.to_thread(exec, loop.replace("http://127.0.0.1:8080", url), namespace)
            task = TaskRef("adder", "train", 0)
            guess = await namespace["Guesser"](2).reply(Conversation(task), [])
            with ORS(url) as client, client.environment("adder").session(split="train", index=0) as session:
                assert session.call_tool(guess.calls[0].name, guess.calls[0].input).reward == 1.0
    assert namespace["output"].reward == 1.0
    assert len(provider.requests) == 2
    assert message_problems("anthropic", namespace["transcript"]) == []
    assert [each["role"] for each in namespace["transcript"]] == ["user", "assistant"] * 2 + ["user"]


def test_the_conformance_page_checks_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("docs/conformance.md")
    namespace: dict[str, Any] = {}
    with serving(Server([Sum])) as url:
        exec(code.replace("http://127.0.0.1:8080", url), namespace)
    assert namespace["report"].of("passed")
    assert capsys.readouterr().out == ""  # nothing has failed


def test_the_rollouts_page_plays_its_episodes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    namespace: dict[str, Any] = {}
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        for n, spec in enumerate(reversed(Adder.list_tasks("train"))):  # an older order
            writer.append(replace(episode(n, n / 10), task=TaskRef("adder", "train", n, spec)))
    export_run(read_run(tmp_path / "run"), "difficulty", tmp_path / "difficulty.jsonl")
    with serving(Server([Adder])) as url:
        for code in blocks("docs/guides/rollouts.md"):
            exec(code.replace("http://127.0.0.1:8080", url), namespace)
        sampler, means = asyncio.run(namespace["known"](tmp_path / "difficulty.jsonl"))
    assert means == {index: (9 - index) / 10 for index in range(10)}
    assert next(sampler).environment == "adder"
    assert "Scored" in capsys.readouterr().out
    assert (namespace["record"].reward, namespace["rewards"]) == (1.0, [1.0] * 40)
    assert (namespace["failures"], namespace["outcomes"]) == ([], ["scored"] * 10)


def test_the_training_page_starts_a_server_with_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("docs/guides/training.md")
    namespace: dict[str, Any] = {}
    exec(code.replace('serve("adder"', f"serve({SUMS!r}").replace('"adder"', '"sums"'), namespace)
    namespace["client"].close()
    assert "'difficulty': 5" in capsys.readouterr().out


@pytest.mark.xdist_group("providers")
async def test_the_page_of_training_adapters_names_what_exists_and_plays_what_needs_no_trainer() -> None:
    codes = blocks("docs/guides/training-adapters.md")
    named = [node for code in codes for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    for node in [node for node in named if (node.module or "").startswith("ors.adapters")]:
        source = ast.parse((ROOT / "src" / f"{(node.module or '').replace('.', '/')}.py").read_text())
        defined = {each.name for each in source.body if isinstance(each, ast.ClassDef)}
        assert {alias.name for alias in node.names} <= defined
    episode_code, stepped = codes[-2:]
    namespace: dict[str, Any] = {}
    answers = ChatAnswers()
    right = answers(calls=[("call_a", "submit", '{"answer": 2}')])
    with serving(Server([Sum])) as url:
        exec(episode_code.replace("http://127.0.0.1:8080", url), namespace)
        async with providing(answers) as provider:
            provider.on(answers.path, answer(right))
            record = await namespace["episode"](f"{provider.url}/v1", "policy", "train", 0)
        await asyncio.to_thread(exec, stepped.replace("http://127.0.0.1:8080", url), namespace)
    assert (record.reward, namespace["stepped"].record.reward) == (1.0, 1.0)


def test_the_telemetry_page_sends_spans_to_a_provider_of_ones_own() -> None:
    (code,) = blocks("docs/guides/telemetry.md")
    spans, tracing = InMemorySpanExporter(), TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    namespace: dict[str, Any] = {"tracer_provider": tracing}
    exec(code.replace("[…]", "[Sum]"), namespace | {"Sum": Sum}, namespace)
    with serving(namespace["server"]) as url:
        raw = Raw(url)
        assert raw.call(raw.session("sum", {"a": 1, "b": 2}), "submit", {"answer": 3}, env="sum").result()[
            "ok"
        ]
    assert "submit" in str([span.attributes for span in spans.get_finished_spans()])


def test_the_page_of_runs_writes_and_reads_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"records": [episode(index, float(index > 0)) for index in range(3)]}
    for code in blocks("docs/guides/runs.md"):
        exec(code, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("3 episodes, mean reward 0.67")
    assert printed[1:] == ["1 3 messages", "2 3 messages"]


def test_the_grader_of_the_page_on_replay_grades_an_episode() -> None:
    (code,) = blocks("docs/guides/replay.md")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    recorded = episode(3)
    call = recorded.messages[1].calls[0]  # type: ignore[union-attr]

    class Adder(namespace["Adder"], Sum):  # type: ignore[misc, valid-type]
        pass

    grade = Adder({"answer": call.input["answer"]}).grade
    assert grade(Transcript(recorded.task, recorded.messages)) == {"correct": 1.0, "short": 0.1}


def test_the_schema_of_a_line_is_on_the_page_of_runs() -> None:
    page = (ROOT / "docs" / "guides" / "runs.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert set(line_schema()["properties"]) == rows


def test_the_scaling_page_deploys_with_arguments_that_exist() -> None:
    from ors.cluster.ray import Deployment, deploy

    (code,) = blocks("docs/guides/scaling.md")
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    named = {node.func.attr: node for node in calls if isinstance(node.func, ast.Attribute)}
    (made,) = [node for node in calls if isinstance(node.func, ast.Name)]
    given = {str(word.arg) for word in made.keywords}
    of_server = set(inspect.signature(Server).parameters)
    assert given - set(inspect.signature(deploy).parameters) - of_server == set()
    assert len(named) > 3
    for name, node in named.items():
        method = inspect.signature(getattr(Deployment, name))
        method.bind(None, *node.args, **{str(word.arg): word for word in node.keywords})


def test_the_example_of_contributing_is_a_test_that_exists() -> None:
    (code,) = blocks("CONTRIBUTING.md")
    decorator, function = code.strip().removesuffix(" ...").splitlines()
    tests = (ROOT / "tests" / "server" / "http" / "test_routes.py").read_text()
    assert f"{decorator}\n{function}\n" in tests


@pytest.mark.parametrize("line", sorted({line for page in PAGES for line in lines(page)}))
def test_a_command_line_has_arguments_that_exist(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    (tmp_path / "runs" / "first").mkdir(parents=True)
    _, name, *words = shlex.split(line.replace("…", "3"), comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in ("<", ">", "|")), len(words))]
    commands()[name].make_context(name, words)


@pytest.mark.parametrize("page", PAGES)
def test_flags_that_are_named_exist(page: str) -> None:
    inner = [each for name, command in commands().items() for each in commands_of(name, command).values()]
    options = [each for command in [*commands().values(), *inner] for each in command.params]
    known = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    named = re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", (ROOT / page).read_text())
    assert set(named) - known - FOREIGN == set()
