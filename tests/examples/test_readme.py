"""The Python blocks of the README, run in their order."""

import asyncio
import re
import sys
import types
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ors import Server
from tests.support.live_server import serving

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
        *(ROOT / "docs").rglob("*.md"),
    ]
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
