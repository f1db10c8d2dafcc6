"""Copies of environments and toolsets: what is copied, what is shared, what cannot be."""

import asyncio
import copy
import threading
from typing import Any

import pytest

from ors import TextBlock, ToolOutput, Toolset, tool
from ors._authoring.tools import toolset_of
from ors.environment import fork_toolsets, own_fork
from tests.support.board_environment import Board, Notes
from tests.support.environments import said


def made(cls: type[Board] = Board, **task: Any) -> Any:
    env = cls({"n": 1, "list": [1], **task}, {"key": "sk"})
    env.setup()
    return env


async def in_place(fn: Any, /, *args: Any) -> Any:
    return fn(*args)


async def with_toolset(env: Any, toolset: type) -> Any:
    return await toolset_of(env, toolset, in_place)


async def forked(env: Any) -> Any:
    """What the server does, on the loop."""
    copied = env.fork()
    await fork_toolsets(env, copied, in_place)
    return copied


class Sharing(Notes):
    """Keeps an object of its environment."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.moves = env.moves


class Boxed(Notes):
    """Has something that only its own fork() can copy."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.box = threading.Lock()

    async def fork(self, env: Any) -> "Boxed":
        made = type(self)(env)
        made.written = [*self.written, "forked"]
        return made


class Plain:
    """A toolset without a base class and without an environment, as ors-sdk 0.1.0 allows."""

    def __init__(self) -> None:
        self.seen = ["a"]

    @tool
    def look(self) -> ToolOutput:
        """Looks."""
        return said("")


def test_a_copy_shares_nothing_that_changes() -> None:
    env = made()
    env.moves.append("a")
    copied: Any = env.fork()
    assert type(copied) is Board
    assert (copied.moves, copied.task_spec, copied.secrets) == (["a"], env.task_spec, {"key": "sk"})
    assert repr(copied.secrets) == "Secrets(key=***)"
    copied.moves.append("b")
    copied.task_spec["list"].append(2)  # type: ignore[union-attr]
    assert (env.moves, env.task_spec["list"]) == (["a"], [1])


async def test_a_toolset_belongs_to_the_copy_and_what_both_have_is_one_thing_still() -> None:
    env = made()
    (await with_toolset(env, Sharing)).written.append("x")
    copied = await forked(env)
    there = await with_toolset(copied, Sharing)
    assert there.env is copied
    assert there.moves is copied.moves
    assert there.moves is not env.moves
    assert there.written == ["x"]
    assert there is not await with_toolset(env, Sharing)


@pytest.mark.parametrize("shallow", [False, True])
async def test_toolsets_are_copied_also_when_the_author_makes_the_copy(shallow: bool) -> None:
    class Own(Board):
        def fork(self) -> Any:
            return copy.copy(self) if shallow else made(Own)

    env = made(Own)
    first: dict[type, Any] = {cls: await with_toolset(env, cls) for cls in (Notes, Boxed, Plain)}
    for cls in (Notes, Boxed):
        first[cls].written.append("x")
    copied = await forked(env)
    for toolset, one in first.items():
        assert await with_toolset(copied, toolset) is not one
        assert await with_toolset(env, toolset) is one
    notes, boxed = await with_toolset(copied, Notes), await with_toolset(copied, Boxed)
    assert (notes.env, boxed.env) == (copied, copied)
    assert (notes.written, boxed.written) == (["x"], ["x", "forked"])


async def test_a_toolset_with_a_fork_of_its_own_is_never_copied_deeply() -> None:
    env = made()
    (await with_toolset(env, Boxed)).written.append("x")
    copied = await forked(env)
    assert (await with_toolset(copied, Boxed)).written == ["x", "forked"]


async def test_a_toolset_may_build_on_the_copy_that_is_made_by_default() -> None:
    class Counting(Notes):
        def fork(self, env: Any) -> Any:
            copied = super().fork(env)
            copied.written.append("more")
            return copied

    env = made()
    (await with_toolset(env, Counting)).written.append("x")
    copied = await forked(env)
    counting = await with_toolset(copied, Counting)
    assert counting.written == ["x", "more"]
    assert counting.env is copied


async def test_the_class_and_the_attribute_that_cannot_be_copied_are_named() -> None:
    env = made()
    env.back = [env]  # what leads back is not to blame
    env.deep = {"a": [threading.Lock()]}
    with pytest.raises(
        TypeError, match=r"^Board\.deep cannot be copied \(cannot pickle .*\): define fork\(\)"
    ):
        env.fork()

    class Locked(Notes):
        fork = Toolset.fork

    env = made()
    (await with_toolset(env, Locked)).lock = threading.Lock()
    with pytest.raises(TypeError, match=r"^Locked\.lock cannot be copied"):
        env.fork()


def test_a_tool_that_is_called_fork_is_a_tool() -> None:
    class Repository(Board):
        @tool
        def fork(self, name: str) -> ToolOutput:  # type: ignore[override]
            """Forks a repository."""
            return ToolOutput(blocks=[TextBlock(text=name)])

    env = made(Repository)
    assert own_fork(env) is None
    assert own_fork(made()) is None
    asyncio.run(with_toolset(env, Notes))
    assert Board.fork(env).moves == []
