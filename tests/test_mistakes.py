"""The commonest mistakes of an author: each is told with its place and what to do."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ors import Environment, Server, TextBlock, ToolOutput, Toolset, tool
from ors.errors import InvalidEnvironment, ORSError
from ors.testing import client
from ors.toolsets import Bash
from tests.test_environment import Basic


class Good(Basic):
    @tool
    def act(self) -> str:
        """Acts."""
        return "done"


def made(**members: Any) -> type[Environment]:
    return type("Made", (Good,), members)


def of_class(function: Callable[..., Any]) -> Any:
    return classmethod(function)


class Plain:
    """No type that JSON has."""


def no_self() -> ToolOutput: ...  # type: ignore[empty-body]
def self_forgotten(answer: int) -> ToolOutput: ...  # type: ignore[empty-body]
def unknown_type(self: Any, where: Plain) -> ToolOutput: ...  # type: ignore[empty-body]
def undefined(self: Any, where: "Missing") -> ToolOutput: ...  # type: ignore[name-defined,empty-body]  # noqa: F821
def without_arguments(self: Any) -> None: ...


class Looking(Toolset):
    @tool
    def look(self) -> str:
        """Looks."""
        return "nothing"


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"act": tool(no_self)}, "Made.act: the first parameter of a method is `self`, but it has none"),
        ({"act": tool(self_forgotten)}, "first parameter of a method is `self`, but its first is 'answer'"),
        ({"act": tool(unknown_type)}, "use types that JSON has, or pydantic models"),
        (
            {"act": tool(undefined)},
            "'Missing' is not defined; import it in this module, outside `if TYPE",
        ),
        ({"toolsets": Looking}, "Made.toolsets is a list of classes, as in [MyToolset]"),
        ({"toolsets": [Looking(None)]}, "Made.toolsets holds classes"),
        ({"__init__": without_arguments}, "Made.__init__ must take task_spec and secrets"),
        ({"setup": lambda self, config: None}, "Made.setup must be defined as setup(self)"),
        ({"get_prompt": lambda: ["x"]}, "Made.get_prompt must be defined as get_prompt(self)"),
        ({"teardown": lambda self, error: None}, "Made.teardown must be defined as teardown(self)"),
        ({"list_tasks": of_class(lambda cls: [])}, "must be defined as list_tasks(cls, split)"),
        ({"get_task": of_class(lambda cls, index: {})}, "must be defined as get_task(cls, split, index)"),
        ({"num_tasks": of_class(lambda cls: 3)}, "must be defined as num_tasks(cls, split)"),
        ({"list_tasks": lambda self, split: []}, "Made.list_tasks must be a @classmethod"),
        ({"list_splits": of_class(lambda cls: "train")}, "in a list such as ['train'], not 'train'"),
        ({"list_splits": of_class(lambda cls: None)}, "in a list such as ['train'], not None"),
        ({"list_splits": of_class(lambda cls: 5)}, "in a list such as ['train'], not 5"),
        ({"list_splits": of_class(lambda cls, kind: ["train"])}, "must be defined as list_splits(cls)"),
    ],
)
def test_a_mistake_in_a_class_is_told_when_the_server_is_built(members: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidEnvironment) as caught:
        Server([made(**members)])
    assert told in str(caught.value)
    assert str(caught.value).startswith("Made.")


BASE_NAMES = [name for name in dir(Environment) if not name.startswith("_")]


@pytest.mark.parametrize("name", [*BASE_NAMES, "task_spec", "secrets"])
def test_a_tool_must_not_take_a_name_of_the_base_class(name: str) -> None:
    def act(self: Any) -> str:
        """Acts."""
        return "done"

    told = (
        " is a list of"
        if name == "toolsets"
        else f": environments already use the name '{name}'; rename the tool"
    )
    with pytest.raises(InvalidEnvironment, match=f"Made.{name}{told}"):
        Server([made(**{name: tool(act)})])


def test_a_tool_of_a_toolset_may_be_overridden_but_not_its_own_hooks() -> None:
    class Bolder(Bash):
        @tool
        def bash(self, command: str) -> ToolOutput:  # type: ignore[override]
            """Runs it."""
            return ToolOutput(command)

    class Forked(Toolset):
        @tool
        def fork(self) -> str:  # type: ignore[override]
            """Forks."""
            return "done"

    assert Server([made(toolsets=[Bolder])])
    with pytest.raises(InvalidEnvironment, match=r"Forked\.fork: environments already use the name 'fork'"):
        Server([made(toolsets=[Forked])])


def test_a_property_is_no_tool() -> None:
    with pytest.raises(TypeError, match="@tool marks a method, not a property: remove @property"):
        tool(property(lambda self: "x"))  # type: ignore[call-overload]


class Mistaken(Good):
    """Makes a different mistake for each task and tool."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "none", "number", "texts", "object"]

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        return {"train": [{}], "number": 5, "texts": ["one"], "object": [{"good": 1, "bad": object()}]}.get(
            split
        )

    def __init__(self, task_spec: Any, secrets: Any) -> None:
        """Forgets its base class."""

    def get_prompt(self) -> Any:
        return {"text": "What is 1 + 1?"}

    @tool
    def task(self) -> str:
        """Reads the task."""
        return str(self.task_spec)

    @tool
    async def awaited(self) -> str:
        """Forgets an await."""
        return asyncio.sleep(0, "text")  # type: ignore[return-value]

    @tool
    def blocks(self) -> ToolOutput:
        """Makes a wrong output."""
        return ToolOutput(blocks=5, finised=True)  # type: ignore[arg-type]

    @tool
    def text(self) -> ToolOutput:
        """Makes a wrong block."""
        return ToolOutput(blocks=[TextBlock(text=5)])  # type: ignore[arg-type]

    @tool
    def metadata(self) -> ToolOutput:
        """Gives metadata that are no JSON."""
        return ToolOutput(blocks=[], metadata={"seen": object()})  # type: ignore[dict-item]


async def test_a_mistake_in_a_method_is_told_when_it_runs() -> None:
    async with client(Mistaken) as connected:
        env = connected.environment("mistaken")

        async def told(work: Any) -> str:
            with pytest.raises(ORSError) as caught:
                await work
            return str(caught.value)

        assert "Mistaken.list_tasks returned None for this split" in await told(env.num_tasks("none"))
        assert "must return a list of tasks, not int" in await told(env.num_tasks("number"))
        assert "number 0 is str" in await told(env.num_tasks("texts"))
        for asked in (
            env.list_tasks("object"),
            env.get_task("object", 0),
            env.get_task_range("object", 0, 1),
        ):
            assert "Mistaken: tasks must be JSON, but bad is not" in await told(asked)
        async with env.session(split="train", index=0) as session:
            assert "such as [TextBlock(text=...)], not dict" in await told(session.get_prompt())
            for name, words in {
                "task": "__init__ must call super().__init__(task_spec, secrets)",
                "awaited": "is an `await` missing?",
                "blocks": "ToolOutput: blocks: Input should be a valid list; finised: Extra inputs",
                "text": "TextBlock: text: Input should be a valid string",
                "metadata": "ToolOutput: metadata.seen: JSON cannot express this value",
            }.items():
                assert words in await told(session.call_tool(name))
