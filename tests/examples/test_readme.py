"""The Python blocks of the README and of docs/environments.md, run in their order."""

import asyncio
import inspect
import re
import sys
import types
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ors import Environment, Server
from tests.examples.episode import text
from tests.support.live_server import serving
from tests.support.raw_http import Raw

ROOT = Path(__file__).parents[2]


def blocks(name: str) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)


ENVIRONMENT, CALL, TEST = blocks("README.md")


@pytest.fixture
def doubling(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The README's first block, as the file that it says it is."""
    module = types.ModuleType("doubling")
    exec(ENVIRONMENT, module.__dict__)
    monkeypatch.setitem(sys.modules, "doubling", module)
    return module


def test_the_environment_of_the_readme_stays_short(doubling: types.ModuleType) -> None:
    body, main = ENVIRONMENT.split("\n\n\nif __name__")
    assert main.strip().endswith("Server([Doubling]).run()")
    assert len([line for line in body.splitlines() if line.strip()]) <= 18


def test_the_client_of_the_readme_prints_what_its_comments_say(doubling: types.ModuleType) -> None:
    printed = StringIO()
    with serving(Server([doubling.Doubling])) as url, redirect_stdout(printed):
        exec(CALL.replace("http://127.0.0.1:8080", url), {})
    assert printed.getvalue().splitlines() == re.findall(r"print\(.*  # (.*)$", CALL, re.MULTILINE)


def test_the_test_of_the_readme_passes(doubling: types.ModuleType) -> None:
    pytest.importorskip("ors.testing")
    namespace: dict[str, Any] = {}
    exec(TEST, namespace)
    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert len(tests) == 1
    asyncio.run(tests[0]())


def test_links_of_the_pages_lead_somewhere() -> None:
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").glob("*.md"),
    ]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture(scope="module")
def documented() -> dict[str, type[Environment]]:
    """The environments of docs/environments.md."""
    namespace: dict[str, Any] = {"__name__": "documented"}
    for block in blocks("docs/environments.md"):
        exec(block, namespace)
    return {
        name: value
        for name, value in namespace.items()
        if inspect.isclass(value) and issubclass(value, Environment) and value is not Environment
    }


def test_the_documented_environments_work(documented: dict[str, type[Environment]]) -> None:
    assert list(documented) == [
        "Sums",
        "ManySums",
        "Restaurant",
        "Exam",
        "Relay",
        "Essay",
        "SumsWithNotes",
        "Ledger",
        "Sorted",
        "Judged",
    ]
    with serving(Server(list(documented.values()))) as url:
        raw = Raw(url)

        def played(env: str, index: int, tool: str, given: dict[str, Any]) -> dict[str, Any]:
            task = raw.post(f"/{env}/task", {"split": "train", "index": index}).json()["task"]
            result: dict[str, Any] = raw.call(raw.session(env, task), tool, given, env=env).result()
            return result

        assert played("sums", 4, "submit", {"answer": 8})["output"]["reward"] == 1.0
        assert played("manysums", 999_999, "submit", {"answer": 1_999_998})["output"]["reward"] == 1.0
        assert raw.post("/manysums/tasks", {"split": "train"}).status == 400
        assert text(played("restaurant", 0, "order", {"dish": "soup"})["output"]) == "1 x soup"
        assert text(played("restaurant", 0, "pay", {})["output"]) == "Paid, with 10% on top."
        assert text(played("exam", 60, "hint", {})["output"]) == "It is even."
        assert played("exam", 1, "hint", {})["reason"] == "not_found"
        assert text(played("relay", 0, "remote", {})["output"]) == "from elsewhere"
        assert played("relay", 1, "submit", {"answer": 2})["output"]["reward"] == 1.0
        assert text(played("sumswithnotes", 1, "note", {"text": "two"})["output"]) == "two (about 1 + 1)"

        assert text(played("sorted", 0, "count", {})["output"]) == "0 words"
        first = raw.session("ledger", {"question": "1 + 1", "answer": 2})
        raw.call(first, "enter", {"text": "a"}, env="ledger")
        (fork,) = raw.post("/-/fork", {"n": 1}, sid=first).json()["sids"]
        for sid in (fork, first):
            assert text(raw.call(sid, "enter", {"text": "b"}, env="ledger").result()["output"]) == "a, b"
