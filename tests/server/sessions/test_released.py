"""An environment is released when its session ends, not when the garbage collector happens to run."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

import ors
from ors import Environment, ToolError, ToolOutput, tool
from ors.client import ORS
from ors.errors import ORSError
from ors.limits import Limits
from tests.support.live_server import serving
from tests.support.waiting import wait_until

living: weakref.WeakSet[Environment] = weakref.WeakSet()
made: list[type] = []


class Light(Environment):
    tasks: ClassVar[Any] = {"train": [{"n": 1}]}

    def __init__(self, *args: Any, **others: Any) -> None:
        super().__init__(*args, **others)
        living.add(self)
        made.append(type(self))

    def get_prompt(self) -> str:
        return "Use every tool."

    @tool
    async def quick(self) -> ToolOutput:
        return ToolOutput("ok")

    @tool
    def threaded(self) -> ToolOutput:
        return ToolOutput("ok", reward=1.0, finished=True)

    @tool
    def mistaken(self) -> ToolOutput:
        raise ToolError("not like that")

    @tool
    async def broken(self) -> ToolOutput:
        raise RuntimeError("a fault of the environment")


class Heavy(Light):
    async def setup(self) -> None: ...

    def teardown(self) -> None: ...


class FailingSetup(Light):
    def setup(self) -> None:
        raise RuntimeError("no setup")


class FailingPrompt(Light):
    def get_prompt(self) -> str:
        raise RuntimeError("no prompt")


class FailingTeardown(Light):
    def teardown(self) -> None:
        raise RuntimeError("no teardown")


SERVED = (Light, Heavy, FailingSetup, FailingPrompt, FailingTeardown)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    made.clear()
    yield
    gc.enable()


@pytest.mark.parametrize("multiplexed", [0, 8])
@pytest.mark.parametrize(
    ("cls", "tools"),
    [
        *(
            (cls, tools)
            for cls in (Light, Heavy)
            for tools in ("", "quick", "threaded", "mistaken", "broken")
        ),
        *((cls, "quick mistaken threaded") for cls in SERVED),
    ],
)
@pytest.mark.usefixtures("no_collector")
def test_an_environment_is_released_with_its_session(
    cls: type[Environment], tools: str, multiplexed: int
) -> None:
    server = ors.Server(SERVED, limits=Limits(multiplexed=multiplexed))
    with serving(server) as url, ORS(url) as client:
        with suppress(ORSError), client.environment(cls.name()).session(split="train", index=0) as session:
            with suppress(ORSError):
                session.get_prompt()
            for each in tools.split():
                with suppress(ORSError):
                    session.call_tool(each)
        assert made == [cls]
        wait_until(lambda: not living)
