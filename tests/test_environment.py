"""Authoring: what becomes a tool, what its schema says, and which mistakes are told."""

import enum
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from ors import Environment, ImageBlock, Server, TextBlock, ToolError, ToolOutput, Toolset, terminal, tool
from ors.environment import Secrets
from ors.errors import InvalidEnvironment, ToolFailed
from ors.testing import session
from ors.types import Blocks, JSONObject, RunToolError, RunToolOutput, RunToolSuccess, TerminalToolSpec
from tests.support.environments import said
from tests.support.live_server import serving
from tests.support.raw_http import Raw


class Basic(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{"n": n} for n in range(3)]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="hi")]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A place."""

    x: int
    y: int = 0


class Strict(BaseModel, strict=True):
    colour: Colour


def with_tool(fn: Callable[..., Any], **more: Any) -> type[Environment]:
    return type("Made", (Basic,), {"act": tool(fn), **more})


async def run(cls: type[Environment], given: JSONObject, name: str = "act") -> RunToolSuccess | RunToolError:
    result = await cls({})._call_tool(name, given)
    assert isinstance(result, RunToolOutput)
    return result.root


def schema(cls: type[Environment]) -> Any:
    (spec,) = cls.list_tools().tools
    return spec.input_schema


async def test_plain_parameters_make_a_schema_and_arrive_checked() -> None:
    def act(
        self: Any,
        answer: Annotated[str, Field(description="The answer.", examples=["4"])],
        colour: Colour,
        where: Point,
        kind: Literal["a", "b"] = "a",
        tries: int = Field(default=3, ge=1),
        *,
        json: list[float] | None = None,
    ) -> ToolOutput:
        """Does it.

        In detail.
        """
        return said(repr((answer, colour, where, kind, tries, json)))

    cls = with_tool(act)
    made = schema(cls)
    assert made["required"] == ["answer", "colour", "where"]
    assert made["properties"]["answer"]["description"] == "The answer."
    assert made["properties"]["answer"]["examples"] == ["4"]
    assert made["properties"]["kind"] == {
        "default": "a",
        "enum": ["a", "b"],
        "title": "Kind",
        "type": "string",
    }
    assert made["properties"]["tries"]["minimum"] == 1
    assert made["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert made["$defs"]["Point"]["properties"]["y"]["default"] == 0
    assert made["properties"]["json"]["default"] is None
    assert cls.list_tools().tools[0].description == "Does it.\n\nIn detail."

    result = await run(cls, {"answer": "x", "colour": "red", "where": {"x": 1}, "json": [1, 2]})
    assert isinstance(result, RunToolSuccess)
    assert result.output.blocks[0].text == repr(("x", Colour.RED, Point(x=1), "a", 3, [1.0, 2.0]))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "named"),
    [({}, "answer"), ({"answer": 5}, "answer"), ({"answer": "x", "anwser": "y"}, "anwser")],
)
async def test_plain_parameters_refuse_what_does_not_fit(given: JSONObject, named: str) -> None:
    def act(self: Any, answer: str) -> ToolOutput:
        """Act."""
        return said(answer)

    result = await run(with_tool(act), given)
    assert isinstance(result, RunToolError)
    assert result.error.startswith("Tool input validation error")
    assert named in result.error
    assert result.reason == "input_validation"


async def test_a_strict_model_is_read_by_the_rules_of_json() -> None:
    def act(self: Any, given: Strict) -> ToolOutput:
        """Act."""
        return said(given.colour.value)

    assert isinstance(await run(with_tool(act), {"colour": "red"}), RunToolSuccess)


async def test_a_model_may_have_any_name_and_a_tool_any_shape() -> None:
    class Shapes(Basic):
        @tool
        @staticmethod
        def static(given: Point) -> ToolOutput:
            """Static."""
            return said(str(given.x))

        @tool
        @classmethod
        def of_class(cls, x: int) -> ToolOutput:
            """Class."""
            return said(cls.__name__ * x)

        @tool
        async def awaited(self, given: "Point") -> ToolOutput:
            """Async."""
            return said(str(given.y))

    env = Shapes({})
    texts = []
    for name in ("static", "of_class", "awaited"):
        result = (await env._call_tool(name, {"x": 1})).root
        assert isinstance(result, RunToolSuccess), result
        texts.append(result.output.blocks[0].text)  # type: ignore[union-attr]
    assert texts == ["1", "Shapes", "0"]


async def test_a_wrapped_tool_keeps_its_schema() -> None:
    def twice(fn: Callable[..., ToolOutput]) -> Callable[..., ToolOutput]:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> ToolOutput:
            fn(*args, **kwargs)
            return fn(*args, **kwargs)

        return inner

    @twice
    def act(self: Any, answer: str) -> ToolOutput:
        """Act."""
        self.times = getattr(self, "times", 0) + 1
        return said(f"{answer} {self.times}")

    cls = with_tool(act)
    assert list(schema(cls)["properties"]) == ["answer"]
    result = await run(cls, {"answer": "x"})
    assert isinstance(result, RunToolSuccess)
    assert result.output.blocks[0].text == "x 2"  # type: ignore[union-attr]


def no_return(self: Any) -> None: ...
def unannotated(self: Any, answer, n: int) -> ToolOutput: ...  # type: ignore[no-untyped-def,empty-body]
def wrong_return(self: Any) -> dict[str, int]: ...  # type: ignore[empty-body]
def optional_return(self: Any) -> str | None: ...
def list_of_texts(self: Any) -> list[str]: ...  # type: ignore[empty-body]
def generator(self: Any) -> Iterator[str]:
    yield "one"


async def stream(self: Any) -> AsyncIterator[str]:
    yield "one"


def missing_return(self): ...  # type: ignore[no-untyped-def]
def starred(self: Any, *words: str) -> ToolOutput: ...  # type: ignore[empty-body]
def keywords(self: Any, **words: str) -> ToolOutput: ...  # type: ignore[empty-body]
def positional(self: Any, word: str, /) -> ToolOutput: ...  # type: ignore[empty-body]
def unresolved(self: Any, word: "Nowhere") -> ToolOutput: ...  # type: ignore[name-defined,empty-body]  # noqa: F821
def unschemed(self: Any, fn: Callable[[int], int]) -> ToolOutput: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "said_of_it"),
    [
        (no_return, "ToolOutput"),
        (wrong_return, "ToolOutput"),
        (optional_return, "its annotation says str | None"),
        (list_of_texts, "its annotation says list[str]"),
        (generator, "is a generator"),
        (stream, "is a generator"),
        (missing_return, "return annotation"),
        (unannotated, "'answer' needs a type annotation"),
        (starred, "words"),
        (keywords, "words"),
        (positional, "word"),
        (unresolved, "Nowhere"),
        (unschemed, "schema"),
    ],
)
def test_a_mistake_in_a_tool_is_told_when_the_server_is_built(fn: Any, said_of_it: str) -> None:
    with pytest.raises(InvalidEnvironment, match=r"Made\.act") as caught:
        Server([with_tool(fn)])
    assert said_of_it in str(caught.value)


@pytest.mark.parametrize("own", [{"guesses": 3}, {1: 2}, 5, property(lambda self: 5), lambda self: 5])
def test_an_attribute_called_limits_may_be_the_authors_own(own: Any) -> None:
    assert Server([type("Made", (Short,), {"limits": own})]).limits


def test_a_limit_that_is_misspelt_is_told() -> None:
    with pytest.raises(
        InvalidEnvironment, match=r"Made\.limits: unknown limit 'tool_second'; valid limits: .*tool_seconds"
    ):
        Server([type("Made", (Short,), {"limits": {"tool_second": 3}})])


class Sugar(Toolset):
    @tool
    def text(self) -> str:
        return "from a toolset"


class Short(Basic):
    toolsets = (Sugar,)

    @tool
    def sync_text(self) -> str:
        return "plain"

    @tool
    async def async_text(self) -> str:
        return "awaited"

    @tool
    async def blocks(self) -> Blocks:
        return [TextBlock(text="one"), ImageBlock(data="", mimeType="image/png")]

    @tool
    def either(self, worth: bool) -> ToolOutput | Sequence[TextBlock]:
        return said("1", reward=1.0) if worth else (TextBlock(text="nothing"),)

    @tool  # type: ignore[type-var]  # the type checker refuses it too
    def unannounced(self) -> dict[str, int]:
        return {"a": 1}

    unannounced.__annotations__["return"] = str

    @tool
    def mixed(self) -> Blocks:
        return [TextBlock(text="one"), "two"]  # type: ignore[list-item]

    @tool
    def nothing(self) -> str:
        return None  # type: ignore[return-value]


async def test_a_tool_may_return_a_string_or_a_list_of_blocks() -> None:
    async with session(Short, {}) as opened:
        for name, texts in {
            "sync_text": ["plain"],
            "async_text": ["awaited"],
            "text": ["from a toolset"],
            "blocks": ["one", None],
        }.items():
            output = await opened.call_tool(name)
            assert [getattr(block, "text", None) for block in output.blocks] == texts
            assert (output.reward, output.finished) == (None, False)
        assert (await opened.call_tool("either", {"worth": True})).reward == 1.0
        nothing = await opened.call_tool("either", {"worth": False})
        assert nothing.blocks == [TextBlock(text="nothing")]
        for name, told in {
            "unannounced": "a value of type dict, but a tool returns a ToolOutput, a str or a list of blocks",
            "mixed": "its item 1 is a value of type str, not a TextBlock",
            "nothing": "returned None, but",
        }.items():
            with pytest.raises(ToolFailed, match=told):
                await opened.call_tool(name)


class Extra(Toolset):
    @tool
    def extra(self) -> ToolOutput:
        """Extra."""
        return said(f"of {type(self.env).__name__}")


class Plain:
    """No Toolset, and takes no environment, as ors-sdk 0.1.0 allows."""

    @tool
    def plain(self) -> ToolOutput:
        """Plain."""
        return said("plain")


def act(self: Any) -> ToolOutput:
    """Act."""
    return said("act")


@pytest.mark.parametrize(
    ("made", "said_of_it"),
    [
        (lambda: Basic, "Basic does not define a method with @tool"),
        (lambda: with_tool(act, list_splits=classmethod(lambda cls: [])), "list_splits"),
        (lambda: with_tool(act, list_splits=classmethod(lambda cls: "train")), "list_splits"),
        (lambda: with_tool(act, list_splits=classmethod(lambda cls: [5])), "list_splits"),
        (lambda: with_tool(act, list_splits=classmethod(lambda cls: ["a", "a"])), "list_splits"),
        (lambda: with_tool(act, list_splits=lambda self: ["a"]), "Made.list_splits must be a @classmethod"),
        (lambda: with_tool(act, list_tasks=lambda self, split: []), "Made.list_tasks must be a @classmethod"),
        (
            lambda: with_tool(act, list_tasks=Environment.__dict__["list_tasks"]),
            "Made does not define list_tasks (or num_tasks and get_task)",
        ),
        (lambda: with_tool(act, toolsets=[Extra, Extra]), "'extra'"),
        (lambda: with_tool(act, toolsets=["Extra"]), "toolsets"),
        (lambda: with_tool(act, extra=tool(act), toolsets=[Extra]), "'extra'"),
        (
            lambda: type("Half", (Environment,), {"act": tool(act)}),
            "Half does not define get_prompt, list_splits, list_tasks (or num_tasks and get_task)",
        ),
    ],
)
def test_a_mistake_in_an_environment_is_told_when_the_server_is_built(
    made: Callable[[], type[Environment]], said_of_it: str
) -> None:
    with pytest.raises(InvalidEnvironment) as caught:
        Server([made()])
    assert said_of_it in str(caught.value)


async def test_toolsets_add_their_tools() -> None:
    class Rich(Basic):
        toolsets = (Extra, Plain)

        def __init__(self, task_spec: JSONObject, secrets: dict[str, str] = {}) -> None:  # noqa: B006
            """Does not call ours, as some authors' do not."""

    assert [spec.name for spec in Rich.list_tools().tools] == ["extra", "plain"]
    env = Rich({})
    for name, text in [("extra", "of Rich"), ("plain", "plain")]:
        result = (await env._call_tool(name, {})).root
        assert isinstance(result, RunToolSuccess)
        assert result.output.blocks[0].text == text  # type: ignore[union-attr]


async def test_a_subclass_inherits_tools_and_may_change_them() -> None:
    parent = with_tool(act)

    class Child(parent):  # type: ignore[misc,valid-type]
        def act(self) -> ToolOutput:
            return said("no longer a tool")

        @tool
        def other(self) -> ToolOutput:
            """Other."""
            return said("other")

    assert [spec.name for spec in parent.list_tools().tools] == ["act"]
    assert [spec.name for spec in Child.list_tools().tools] == ["other"]


async def test_a_tool_error_becomes_a_refusal() -> None:
    def act(self: Any) -> ToolOutput:
        """Act."""
        raise ToolError("no", reason="why")

    assert await run(with_tool(act), {}) == RunToolError(error="no", reason="why")
    assert (await run(with_tool(act), {}, "nope")).reason == "not_found"  # type: ignore[union-attr]


async def test_tasks_are_counted_got_and_sliced() -> None:
    assert await Basic.num_tasks("train") == 3
    assert await Basic.get_task("train", 1) == {"n": 1}
    assert await Basic.get_task_range("train", -2) == [{"n": 1}, {"n": 2}]
    with pytest.raises(IndexError):
        await Basic.get_task("train", 3)


def test_a_tools_timeout_must_be_positive() -> None:
    with pytest.raises(ValueError, match="timeout"):
        tool(timeout=0)


def test_secrets_print_their_names_only() -> None:
    secrets = Secrets(key="hunter2")
    assert f"{secrets} {secrets!r}" == "Secrets(key=***) Secrets(key=***)"
    assert secrets["key"] == "hunter2"


class Ending(Basic):
    @tool
    def look(self) -> ToolOutput:
        """Look."""
        return said("looked")

    @terminal
    @tool
    def submit(self, answer: str) -> ToolOutput:
        """Grades the last message."""
        return said(answer, reward=1.0, finished=True)


async def test_a_terminal_tool_is_hidden_told_apart_and_callable() -> None:
    listed = Ending.list_tools()
    assert [spec.name for spec in listed.tools] == ["look"]
    assert listed.terminal_tool == TerminalToolSpec(
        name="submit", arg="answer", description="Grades the last message."
    )
    assert isinstance(await run(Ending, {"answer": "x"}, "submit"), RunToolSuccess)
    with serving(Server([Ending, with_tool(act)])) as url:
        raw = Raw(url)
        assert raw.get("/ending/tools").json()["terminal_tool"]["arg"] == "answer"
        assert list(raw.get("/made/tools").json()) == ["tools"]
        sid = raw.session("ending")
        assert raw.get("/ending/task_tools", sid=sid).json()["terminal_tool"]["name"] == "submit"


def two_fields(self: Any, a: str, b: str) -> ToolOutput: ...  # type: ignore[empty-body]


def unmarked(self: Any) -> ToolOutput: ...  # type: ignore[empty-body]


def test_a_wrong_terminal_tool_is_told_when_the_server_is_built() -> None:
    wrong = [
        (with_tool(act, end=terminal(tool(two_fields))), "Made.end"),
        (with_tool(act, end=terminal(unmarked)), "@terminal needs @tool"),
        (type("Twice", (Ending,), {"again": Ending.__dict__["submit"]}), "more than one @terminal"),
    ]
    for cls, said_of_it in wrong:
        with pytest.raises(InvalidEnvironment, match=said_of_it):
            Server([cls])
