"""The search of tasks, on the server's side."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from ors import Server
from ors.server.admin.environments import MOST_FOUND
from ors.types import JSONObject
from tests.support.environments import Lab
from tests.support.in_process_cluster import linked_servers, routing
from tests.support.live_server import serving
from tests.support.raw_http import Raw

MANY = 20_000


class Library(Lab):
    """Twenty thousand tasks, of which few are special."""

    private_fields = ["answer"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        tasks: list[JSONObject] = [{"n": n, "answer": f"hidden-{n}"} for n in range(MANY)]
        tasks[19_998] = {"title": 'Straße "Größe"\nzwei', "answer": "x"}
        tasks[10_000] = {"title": "STRASSE", "deep": [{"a": {"b": ["naïve"]}}]}
        return tasks


class Counted(Lab):
    """Tasks that are made one by one, and refused beyond the last."""

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return 64

    @classmethod
    async def get_task(cls, split: str, index: int) -> JSONObject:
        if index >= 64:
            raise IndexError
        return {"n": f"number {index}"}


class Endless(Lab):
    """Tasks that nobody counts."""

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        raise NotImplementedError

    @classmethod
    async def get_task_range(cls, split: str, start: int | None = None, stop: int | None = None) -> Any:
        return [{"n": n} for n in range(start or 0, min(stop or 40, 40))]


@pytest.fixture(scope="module")
def library() -> Iterator[Raw]:
    with serving(Server([Library, Counted, Endless])) as url:
        yield Raw(url)


def searched(raw: Raw, environment: str, text: str, **more: Any) -> list[int]:
    """The indices of all tasks that are found, by as many requests as it takes."""
    found, start = [], 0
    while start is not None:
        path = f"/-/api/tasks?environment={environment}&split=train&text={quote(text)}&from={start}"
        told = raw.get(path, **more).json()
        assert told["next"] is None or told["next"] > start
        found += [each["index"] for each in told["tasks"]]
        start = told["next"]
    return found


@pytest.mark.parametrize(
    ("text", "indices"),
    [
        ("strasse", [10_000, 19_998]),
        ('"grösse"\nzwei', [19_998]),
        ("NAÏVE", [10_000]),
        ("17777", [17_777]),
        ("nothing like it", []),
        ('{"n"', []),
    ],
)
def test_all_tasks_are_searched(library: Raw, text: str, indices: list[int]) -> None:
    assert searched(library, "library", text) == indices


def test_private_fields_cannot_be_found_out_by_searching() -> None:
    with serving(Server([Library], api_keys=["one=secret-1", "two=secret-2 private"])) as url:
        raw = Raw(url)
        assert searched(raw, "library", "hidden-9", headers={"X-API-Key": "secret-1"}) == []
        path = "/-/api/tasks?environment=library&split=train&text=hidden-9"
        assert raw.get(path, headers={"X-API-Key": "secret-2"}).json()["tasks"][0]["index"] == 9


def test_a_request_finds_a_few_and_says_where_to_go_on(library: Raw) -> None:
    told = library.get("/-/api/tasks?environment=library&split=train&text=1").json()
    assert len(told["tasks"]) == MOST_FOUND
    assert told["total"] == MANY
    assert told["next"] == told["tasks"][-1]["index"] + 1
    rest = library.get(f"/-/api/tasks?environment=library&split=train&text=1&from={told['next']}").json()
    assert rest["tasks"][0]["index"] > told["tasks"][-1]["index"]


def test_tasks_that_are_made_one_by_one_are_searched(library: Raw) -> None:
    assert searched(library, "counted", "NUMBER 63") == [63]
    assert searched(library, "counted", "") == list(range(64))


def test_tasks_that_nobody_counts_are_searched(library: Raw) -> None:
    assert searched(library, "endless", "39") == [39]


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("environment=nothing&split=train", 404, "No such environment"),
        ("environment=library&split=nothing", 400, "the splits are"),
        ("environment=library&split=train&from=x", 400, "from: expected a number"),
        (f"environment=library&split=train&text={'x' * 1001}", 400, "at most 1000 characters"),
    ],
)
def test_a_wrong_search_is_refused_in_words(library: Raw, query: str, status: int, told: str) -> None:
    answer = library.get(f"/-/api/tasks?{query}")
    assert answer.status == status
    assert told in answer.body.decode()


def test_tasks_are_searched_through_a_router(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        linked_servers(2, tmp_path_factory.mktemp("links"), [Counted]) as pair,
        routing([one.raw.url for one in pair]) as router,
    ):
        assert searched(router, "counted", "number 63") == [63]
