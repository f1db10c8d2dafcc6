"""The cached task lists of an environment class."""

import asyncio
import pickle
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from ors._authoring.declared import Listing
from ors.types import JSONObject
from tests.support.waiting import until


class Numbers:
    """Lists tasks once `gate` is open; counts how often."""

    gate = threading.Event()
    asked: list[str] = []
    tasks: Any = [{"n": 1}]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[JSONObject]:
        cls.asked.append(split)
        cls.gate.wait(20)
        if isinstance(cls.tasks, Exception):
            raise cls.tasks
        return cls.tasks  # type: ignore[no-any-return]


@pytest.fixture
def numbers() -> Iterator[type[Numbers]]:
    Numbers.gate.clear()
    Numbers.asked.clear()
    Numbers.tasks = [{"n": 1}]
    yield Numbers
    Numbers.gate.set()


async def until_asked(numbers: type[Numbers]) -> None:
    await until(lambda: numbers.asked)


async def test_concurrent_requests_from_several_loops_list_once(numbers: type[Numbers]) -> None:
    listing = Listing(numbers)
    first = asyncio.create_task(listing.tasks("train"))
    await until_asked(numbers)
    elsewhere = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(listing.tasks("train"))))
    assert listing.known("train") is None
    numbers.gate.set()
    assert await first == await elsewhere == await listing.tasks("train") == [{"n": 1}]
    assert numbers.asked == ["train"]
    assert listing.known("train") == [{"n": 1}]


async def test_a_cancelled_first_request_does_not_fail_the_others(numbers: type[Numbers]) -> None:
    listing = Listing(numbers)
    first = asyncio.create_task(listing.tasks("train"))
    await until_asked(numbers)
    second = asyncio.create_task(listing.tasks("train"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    numbers.gate.set()
    assert await second == [{"n": 1}]
    assert numbers.asked == ["train"]


async def test_a_failure_is_not_cached(numbers: type[Numbers]) -> None:
    listing = Listing(numbers)
    numbers.gate.set()
    numbers.tasks = OSError("no disk")
    with pytest.raises(OSError, match="no disk"):
        await listing.tasks("train")
    numbers.tasks = iter([{"n": 2}])
    assert await listing.tasks("train") == await listing.tasks("train") == [{"n": 2}]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("abc", "Numbers.list_tasks must return a list of tasks, not str"),
        ({"a": 1}, "not dict"),
        ([{}, 3], "a task must be a dictionary or a model, but number 1 is int"),
    ],
)
async def test_a_value_that_is_not_a_list_of_tasks_is_refused(
    numbers: type[Numbers], tasks: Any, message: str
) -> None:
    numbers.gate.set()
    numbers.tasks = tasks
    with pytest.raises(TypeError, match=message):
        await Listing(numbers).tasks("train")


async def test_a_pickled_listing_lists_again(numbers: type[Numbers]) -> None:
    numbers.gate.set()
    listing = Listing(numbers)
    await listing.tasks("train")
    assert pickle.loads(pickle.dumps(listing)).known("train") is None
