"""One environment at work: its methods are those of its class, and what overlaps with its end is told so."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from ors import Environment, Server, TextBlock, ToolOutput, Toolset, tool
from ors.types import JSONObject, ListToolsOutput
from tests.requirements import proves
from tests.support.live_server import serving
from tests.support.raw_http import Raw


def said(text: str, **kwargs: Any) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], **kwargs)


class Bag(Toolset):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        setattr(self, "bag", "no method")  # noqa: B010

    @tool
    def bag(self, n: int) -> ToolOutput:
        """A tool of a toolset, named like an attribute of its instance."""
        return said(f"bag {n} {type(self).__name__}")


class Hidden(Environment):
    """Each of its methods is named like an attribute of the instance."""

    toolsets: ClassVar[list[type]] = [Bag]
    log: ClassVar[list[str]] = []
    hidden: ClassVar[tuple[str, ...]] = (
        "setup",
        "teardown",
        "get_prompt",
        "list_task_tools",
        "_call_tool",
        "waiting",
        "plain",
        "by_class",
        "without_self",
        "of_task",
    )

    def __init__(self, task_spec: JSONObject, secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        for name in self.hidden:
            setattr(self, name, "no method")

    def setup(self) -> None:
        self.log.append("setup")

    def teardown(self) -> None:
        self.log.append("teardown")

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="A prompt.")]

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def list_task_tools(self) -> ListToolsOutput:
        return ListToolsOutput(tools=self._tools().specs(shared=False))

    @tool
    async def waiting(self, n: int) -> ToolOutput:
        """An `async def`."""
        return said(f"waiting {n} {type(self).__name__}")

    @tool
    def plain(self, n: int) -> ToolOutput:
        """A `def`."""
        return said(f"plain {n} {type(self).__name__}")

    @tool
    @classmethod
    async def by_class(cls, n: int) -> ToolOutput:
        """A class method."""
        return said(f"by_class {n} {cls.__name__}")

    @tool
    @staticmethod
    def without_self(n: int) -> ToolOutput:
        """A static method."""
        return said(f"without_self {n}")

    @tool(shared=False)
    async def of_task(self, n: int) -> ToolOutput:
        """A tool of the task."""
        return said(f"of_task {n} {type(self).__name__}")


class Race(Environment):
    """Two submits, each of which waits until the other is there."""

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text="Submit.")]

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    meeting: ClassVar[threading.Barrier] = threading.Barrier(2)

    @tool(concurrent=True)
    def submit(self) -> ToolOutput:
        """Ends the episode."""
        self.meeting.wait(20)
        return said("over", reward=1, finished=True)


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with serving(Server([Hidden, Race])) as url:
        yield Raw(url)


def test_a_tool_may_be_named_like_an_attribute_of_the_instance(raw: Raw) -> None:
    sid = raw.session("hidden")
    for name, given, told in (
        ("waiting", {"n": 1}, "waiting 1 Hidden"),
        ("plain", {"n": 2}, "plain 2 Hidden"),
        ("by_class", {"n": 3}, "by_class 3 Hidden"),
        ("without_self", {"n": 4}, "without_self 4"),
        ("of_task", {"n": 5}, "of_task 5 Hidden"),
        ("bag", {"n": 6}, "bag 6 Bag"),
    ):
        output = raw.call(sid, name, given, env="hidden").result()["output"]
        assert output["blocks"][0]["text"] == told


def test_an_attribute_of_the_instance_hides_no_method_that_the_server_calls(raw: Raw) -> None:
    Hidden.log.clear()
    sid = raw.session("hidden")
    assert raw.get("/hidden/prompt", sid=sid).json()[0]["text"] == "A prompt."
    names = [tool["name"] for tool in raw.get("/hidden/task_tools", sid=sid).json()["tools"]]
    assert "of_task" in names
    assert raw.post("/delete", sid=sid).status == 200
    assert Hidden.log == ["setup", "teardown"]


@proves("call.finished-overlap")
def test_of_two_submits_that_overlap_the_later_one_is_told_that_it_ran_and_does_not_count(raw: Raw) -> None:
    sid = raw.session("race")
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(raw.call, sid, "submit", env="race") for _ in range(2)]
        first, second = sorted((each.result().result() for each in both), key=lambda result: not result["ok"])
    assert first["output"]["reward"] == 1
    assert second["reason"] == "episode_finished"
    assert second["error"] == (
        "'submit' was run, but another call finished the episode meanwhile: its result does not count"
    )
    late = raw.call(sid, "submit", env="race").result()
    assert late["error"] == "'submit' was not run: the episode has finished"
