"""Discovery endpoints, without a session."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from ors import Environment, Server, TextBlock, ToolOutput, tool
from ors.types import Blocks, JSONObject, Split
from tests.requirements import proves
from tests.support.environments import Lab, said
from tests.support.live_server import serving
from tests.support.raw_http import Raw


@proves("tools.shared-only", "tools.exact-keys")
def test_tools_lists_shared_tools_with_exactly_three_keys(raw: Raw) -> None:
    tools = {tool["name"]: tool for tool in raw.get("/lab/tools").json()["tools"]}
    assert all(list(tool) == ["name", "description", "input_schema"] for tool in tools.values())
    assert tools["nothing"] == {"name": "nothing", "description": "Takes nothing.", "input_schema": None}
    assert tools["echo"]["input_schema"]["required"] == ["text"]
    assert "hint" not in tools


@proves("task-tools.specific")
def test_task_tools_adds_the_task_specific_ones(raw: Raw) -> None:
    shared = raw.get("/lab/tools").json()["tools"]
    combined = raw.get("/lab/task_tools", sid=raw.session()).json()["tools"]
    assert combined[: len(shared)] == shared
    assert [tool["name"] for tool in combined[len(shared) :]] == ["hint"]
    assert raw.call(raw.session(), "hint").result()["ok"] is True


@proves("task-tools.override-stands")
def test_an_override_stands_for_the_task_specific_part(raw: Raw) -> None:
    one = raw.session("other", {"kind": "a"})
    two = raw.session("other", {"kind": "b"})
    names = [[t["name"] for t in raw.get("/other/task_tools", sid=s).json()["tools"]] for s in (one, two)]
    assert names == [["always", "pick"], ["always", "made_up"]]
    assert raw.call(one, "pick", env="other").result()["ok"] is True
    assert raw.call(two, "pick", env="other").result()["reason"] == "not_found"
    assert raw.call(two, "made_up", env="other").result()["reason"] == "not_found"


@proves("task-tools.listed")
def test_an_author_may_serve_tools_without_methods() -> None:
    class Custom(Lab):
        async def _call_tool(self, name: str, input: JSONObject) -> Any:
            if name == "made_up":
                return said(f"custom {dict(input)}")
            return await super()._call_tool(name, input)

    with serving(Server([Custom])) as url:
        raw = Raw(url)
        sid = raw.session("custom")
        output = raw.call(sid, "made_up", {"a": 1}, env="custom").result()["output"]
        assert output["blocks"][0]["text"] == "custom {'a': 1}"
        assert raw.call(sid, "echo", {"text": "x"}, env="custom").result()["ok"] is True
        assert raw.call(sid, "echo", {}, env="custom").result()["reason"] == "input_validation"
        assert raw.call(sid, "nope", {}, env="custom").result()["reason"] == "not_found"


@proves("task.env-name")
def test_tasks_carry_the_environments_name(raw: Raw) -> None:
    task = {"n": 1, "split": "train"}
    assert raw.post("/lab/task", {"split": "train", "index": 1}).json() == {"task": task, "env_name": "lab"}
    answer = raw.post("/LAB/task_range", {"split": "train", "start": 1, "stop": 2}).json()
    assert answer == {"tasks": [task], "env_name": "lab"}
    assert raw.post("/lab/tasks", {"split": "train"}).json()["env_name"] == "lab"


@proves("task.out-of-range", "task.negative")
@pytest.mark.parametrize("index", [-1, 5, 10**12])
def test_an_index_out_of_range_is_400(raw: Raw, index: int) -> None:
    answer = raw.post("/lab/task", {"split": "train", "index": index})
    assert answer.status == 400
    assert "Invalid index" in answer.detail
    assert raw.post("/create", {"split": "train", "index": index}, sid="out").status == 400
    assert raw.post("/ping", sid="out").status == 404


@proves("range.slice", "range.clamp")
@pytest.mark.parametrize(
    ("start", "stop"),
    [(None, None), (1, 3), (-2, None), (None, -1), (3, 1), (0, 99), (-99, 2), (99, 100), (5, None)],
)
def test_ranges_follow_slices_and_clamp(raw: Raw, start: int | None, stop: int | None) -> None:
    body = {"split": "train", "start": start, "stop": stop}
    tasks = raw.post("/lab/task_range", body).json()["tasks"]
    assert [task["n"] for task in tasks] == list(range(5))[start:stop]


def test_an_invalid_split_is_400_everywhere(raw: Raw) -> None:
    for path, more in [("tasks", {}), ("num_tasks", {}), ("task", {"index": 0}), ("task_range", {})]:
        answer = raw.post(f"/lab/{path}", {"split": "nope", **more})
        assert answer.status == 400
        assert "Invalid split" in answer.detail
    assert raw.post("/create", {"split": "nope", "index": 0}, sid="nope").status == 400


class Endless(Environment):
    """Has tasks by index only."""

    asked: ClassVar[list[int]] = []

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def num_tasks(cls, split: str) -> int:  # type: ignore[override]
        return 1_000_000

    @classmethod
    def get_task(cls, split: str, index: int) -> JSONObject:  # type: ignore[override]
        cls.asked.append(index)
        return {"seed": index}

    def get_prompt(self) -> Blocks:
        return [TextBlock(text=f"seed {self.task_spec['seed']}")]

    @tool
    def guess(self, number: int) -> ToolOutput:
        """Guess."""
        return said(str(number))


@proves("tasks.not-listed")
def test_tasks_by_index_only() -> None:
    with serving(Server([Endless])) as url:
        raw = Raw(url)
        answer = raw.post("/endless/tasks", {"split": "train"})
        assert answer.status == 400
        assert "index-based API" in answer.detail
        assert raw.post("/endless/num_tasks", {"split": "train"}).json() == {"num_tasks": 1_000_000}
        assert raw.post("/endless/task", {"split": "train", "index": 999_999}).json()["task"] == {
            "seed": 999_999
        }
        assert raw.post("/endless/task", {"split": "train", "index": 1_000_000}).status == 400
        last = raw.post("/endless/task_range", {"split": "train", "start": -2}).json()["tasks"]
        assert last == [{"seed": 999_998}, {"seed": 999_999}]
        assert raw.post("/create", {"split": "train", "index": 7}, sid="endless").status == 200
        assert raw.get("/endless/prompt", sid="endless").json()[0]["text"] == "seed 7"
        assert len(Endless.asked) == 4


@proves("discovery.classmethods")
def test_async_classmethods_are_served_like_sync_ones(raw: Raw) -> None:
    assert raw.get("/other/splits").json() == [{"name": "train", "type": "train"}]
    assert raw.post("/other/tasks", {"split": "train"}).json()["tasks"] == [{"kind": "a"}, {"kind": "b"}]
    assert raw.post("/other/num_tasks", {"split": "train"}).json() == {"num_tasks": 2}
    assert raw.post("/other/task", {"split": "train", "index": 1}).json()["task"] == {"kind": "b"}


@proves("discovery.classmethods")
def test_caches_are_never_inherited() -> None:
    class Child(Lab):
        @classmethod
        def list_tasks(cls, split: str) -> list[JSONObject]:
            return [{"child": True}]

    with serving(Server([Lab, Child])) as url:
        raw = Raw(url)
        for name, count in [("lab", 5), ("child", 1), ("lab", 5)]:
            assert raw.post(f"/{name}/num_tasks", {"split": "train"}).json() == {"num_tasks": count}
            assert len(raw.post(f"/{name}/tasks", {"split": "train"}).json()["tasks"]) == count
        assert raw.post("/child/task", {"split": "train", "index": 0}).json()["task"] == {"child": True}


@proves("discovery.classmethods")
def test_tasks_are_listed_once_however_many_ask() -> None:
    class Counted(Lab):
        listed: ClassVar[list[str]] = []
        gate: ClassVar[threading.Event] = threading.Event()

        @classmethod
        def list_tasks(cls, split: str) -> list[JSONObject]:
            cls.listed.append(split)
            assert cls.gate.wait(20)
            return [{"n": n} for n in range(100)]

    with serving(Server([Counted])) as url, ThreadPoolExecutor(8) as pool:
        raw = Raw(url)
        first = [pool.submit(raw.post, "/counted/task", {"split": "train", "index": n}) for n in range(8)]
        Counted.gate.set()
        assert [future.result().json()["task"] for future in first] == [{"n": n} for n in range(8)]
        raw.post("/counted/task_range", {"split": "train"})
        raw.post("/counted/tasks", {"split": "train"})
        raw.post("/counted/tasks", {"split": "test"})
        assert Counted.listed == ["train", "test"]


def test_a_listing_that_failed_is_asked_for_again() -> None:
    class Flaky(Lab):
        tries: ClassVar[list[str]] = []

        @classmethod
        def list_tasks(cls, split: str) -> list[JSONObject]:
            cls.tries.append(split)
            if len(cls.tries) == 1:
                raise OSError("the disk is away")
            return [{"n": 1}]

    with serving(Server([Flaky])) as url:
        raw = Raw(url)
        answer = raw.post("/flaky/tasks", {"split": "train"})
        assert answer.status == 500
        assert "the disk is away" in answer.detail
        assert raw.post("/flaky/tasks", {"split": "train"}).json()["tasks"] == [{"n": 1}]


@proves("splits.types")
def test_splits_are_strings_or_splits() -> None:
    class Named(Lab):
        @classmethod
        def list_splits(cls) -> list[Split | str]:
            return ["train", "validation", "test", "hard", Split(name="gold", type="test")]

    with serving(Server([Named])) as url:
        splits = Raw(url).get("/named/splits").json()
    assert [(split["name"], split["type"]) for split in splits] == [
        ("train", "train"),
        ("validation", "validation"),
        ("test", "test"),
        ("hard", "validation"),
        ("gold", "test"),
    ]


@pytest.mark.parametrize(
    ("listed", "said_of_it"),
    [({"a": 1}, "not dict"), ("abc", "not str"), ([{"n": 1}, "x"], "number 1 is str")],
)
def test_tasks_that_are_no_list_of_objects_are_told_so(listed: Any, said_of_it: str) -> None:
    strange = type("Strange", (Lab,), {"list_tasks": classmethod(lambda cls, split: listed)})
    with serving(Server([strange])) as url:
        answer = Raw(url).post("/strange/tasks", {"split": "train"})
    assert answer.status == 500
    assert "Strange.list_tasks" in answer.detail
    assert said_of_it in answer.detail


def test_tasks_from_a_generator_are_kept() -> None:
    class Yielding(Lab):
        @classmethod
        def list_tasks(cls, split: str) -> Any:
            yield from ({"n": n} for n in range(3))

    with serving(Server([Yielding])) as url:
        raw = Raw(url)
        for _ in range(2):
            assert len(raw.post("/yielding/tasks", {"split": "train"}).json()["tasks"]) == 3
        assert raw.post("/yielding/num_tasks", {"split": "train"}).json() == {"num_tasks": 3}


def test_what_an_environment_does_not_support_is_400() -> None:
    class Bare(Lab):
        @classmethod
        def list_tasks(cls, split: str) -> list[JSONObject]:
            raise NotImplementedError

    with serving(Server([Bare])) as url:
        raw = Raw(url)
        for path, more in [("tasks", {}), ("num_tasks", {}), ("task", {"index": 0}), ("task_range", {})]:
            answer = raw.post(f"/bare/{path}", {"split": "train", **more})
            assert answer.status == 400
            assert "not supported" in answer.detail


@proves("task.second-names")
@pytest.mark.parametrize("served", ["raw", "alone"])
def test_tasks_are_served_under_both_names_of_the_standard(
    served: str, request: pytest.FixtureRequest
) -> None:
    raw: Raw = request.getfixturevalue(served)
    for name, body in (("task", {"index": 1}), ("task_range", {"start": 0, "stop": 2}), ("task", {})):
        bodies = {"split": "train", **body}
        first, second = (raw.post(f"/lab/{prefix}{name}", bodies) for prefix in ("", "get_"))
        assert (second.status, second.body) == (first.status, first.body)
        assert first.status == (200 if body else 400)
        assert raw.post(f"/get_{name}", bodies).headers["location"] == f"/lab/get_{name}"
        assert raw.get(f"/LAB/get_{name}").status == 405
