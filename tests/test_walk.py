"""How many functions of ours one tool call passes through, from the client to the tool and back."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import ors
from ors import Environment, Server, TextBlock, ToolOutput, tool
from ors.client import AsyncORS, Options
from tests.support.in_process_cluster import linked_servers, routing
from tests.support.live_server import serving

SOURCE = str(Path(ors.__file__).parent)
CALLS = 20
"""The shortest of so many walks counts: a timer may ring during one."""

pytestmark = pytest.mark.untraced  # a tracer would take the profiler's place


class Quick(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        return [{}]

    def get_prompt(self) -> list[TextBlock]:
        return []

    @tool
    async def submit(self, answer: str) -> ToolOutput:
        """Submits."""
        return ToolOutput(blocks=[TextBlock(text=answer)], reward=1.0)


class Walk:
    """The functions that were called, by file and name."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            self.seen.add((code.co_filename, code.co_qualname))


@contextmanager
def walking() -> Iterator[Walk]:
    """Profiles this thread, and those that are started in the block."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def direct(_: Path) -> Iterator[str]:
    with serving(Server([Quick])) as url:
        yield url


@contextmanager
def through_a_router(folder: Path) -> Iterator[str]:
    with linked_servers(1, folder, [Quick]) as (one,), routing([one.raw.url]) as router:
        yield router.url


async def shortest_walk(walk: Walk, url: str, options: Options) -> set[tuple[str, str]]:
    walks = []
    async with AsyncORS(url, options=options) as client:
        environment = client.environment("quick")
        (task,) = await environment.list_tasks("train")
        async with environment.session(task) as session:
            for _ in range(CALLS):
                walk.seen = set()
                await session.call_tool("submit", {"answer": "4"})
                walks.append(walk.seen)
    return min(walks, key=len)


@pytest.mark.parametrize(
    ("server", "multiplex", "functions", "files"),
    [
        (direct, False, 100, 29),
        (direct, True, 78, 27),
        (through_a_router, False, 133, 37),
        (through_a_router, True, 112, 33),
    ],
)
async def test_a_call_passes_through_few_functions(
    server: Callable[[Path], Iterator[str]], multiplex: bool, functions: int, files: int, tmp_path: Path
) -> None:
    with walking() as walk, server(tmp_path) as url:  # type: ignore[attr-defined]
        seen = await shortest_walk(walk, url, Options(multiplex=multiplex))
    assert len(seen) <= functions
    assert len({file for file, _ in seen}) <= files
