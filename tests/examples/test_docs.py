"""Code and commands in the other pages: what can be run is run, and flags and names exist."""

import ast
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import ors.testing
from ors import Environment, JSONObject, Server, TextBlock, ToolOutput, tool
from ors.cli import COMMANDS
from ors.cli import ors as command_line
from tests.examples.test_readme import ROOT, blocks
from tests.support.live_server import serving
from tests.support.raw_http import Raw

PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
FOREIGN = {"--help", "--no-cache-dir"}
"""Flags that no command declares itself."""


class Sum(Environment):
    """What the class of docs/quality.md adds its `solve` to."""

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


def commands() -> dict[str, click.Command]:
    found = {name: command_line.get_command(click.Context(command_line), name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def lines(page: str) -> list[str]:
    """The lines of a page's blocks that call `ors`."""
    found = re.findall(r"^```(?:sh)?\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.splitlines() if line.startswith("ors ")]


def test_every_page_with_python_code_has_a_test_that_runs_it() -> None:
    others = {f"docs/{name}.md" for name in ("conformance", "operations", "quality", "sandbox", "scaling")}
    readme = {"README.md", "docs/environments.md"}  # test_readme.py
    others |= {"CONTRIBUTING.md"}
    assert {page for page in PAGES if blocks(page)} == others | readme


def test_the_quality_page_examines_its_environment() -> None:
    namespace: dict[str, Any] = {"Environment": Sum}
    solution, examination = blocks("docs/quality.md")
    exec(solution, namespace)
    exec(examination, namespace)
    assert namespace["report"].environment == "adder"


def test_the_conformance_page_checks_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("docs/conformance.md")
    namespace: dict[str, Any] = {}
    with serving(Server([Sum])) as url:
        exec(code.replace("http://127.0.0.1:8080", url), namespace)
    assert namespace["report"].of("passed")
    assert capsys.readouterr().out == ""  # nothing has failed


def test_the_sandbox_page_prints_what_its_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    _, alone, graded = blocks("docs/sandbox.md")
    for code in (alone, graded):
        exec(code, {})
        said = re.findall(r"print\(.*  # (.*)$", code, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == said
        assert len(said) == 2


async def test_the_environment_of_the_sandbox_page_rewards_a_sorted_file() -> None:
    namespace: dict[str, Any] = {}
    exec(blocks("docs/sandbox.md")[0], namespace)
    async with ors.testing.session(namespace["Sorted"], split="train", index=0) as session:
        await session.call_tool("bash", {"command": "sort words.txt > sorted.txt"})
        assert (await session.call_tool("submit")).reward == 1.0


def test_the_operations_page_sends_telemetry_to_providers_of_ones_own() -> None:
    (code,) = blocks("docs/operations.md")
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    namespace: dict[str, Any] = {"tracer_provider": tracing, "meter_provider": MeterProvider([reader])}
    exec(code.replace("[…]", "[Sum]"), namespace | {"Sum": Sum}, namespace)
    with serving(namespace["server"]) as url:
        raw = Raw(url)
        assert raw.call(raw.session("sum", {"a": 1, "b": 2}), "submit", {"answer": 3}, env="sum").result()[
            "ok"
        ]
    assert "submit" in str([span.attributes for span in spans.get_finished_spans()])
    assert reader.get_metrics_data() is not None


def test_the_scaling_page_deploys_with_arguments_that_exist() -> None:
    from ors.cluster.ray import Deployment, deploy

    (code,) = blocks("docs/scaling.md")
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
    _, name, *words = shlex.split(line.replace("…", "3"), comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in ("<", ">", "|")), len(words))]
    commands()[name].make_context(name, words)


@pytest.mark.parametrize("page", PAGES)
def test_flags_that_are_named_exist(page: str) -> None:
    options = [each for command in commands().values() for each in command.params]
    known = {flag for each in options for flag in (*each.opts, *each.secondary_opts)}
    named = re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", (ROOT / page).read_text())
    assert set(named) - known - FOREIGN == set()
