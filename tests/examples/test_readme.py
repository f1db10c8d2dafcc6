"""The Python blocks of the README, run in their order."""

import re
import subprocess
import sys
import types
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from ors import Server
from tests.support.commands import ORS
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


def test_a_server_run_from_python_prints_what_ors_serve_prints(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(ENVIRONMENT.replace(".run()", ".run(port=0)"))
    banners = [
        banner([sys.executable, "doubling.py"], tmp_path),
        banner([*ORS, "serve", "doubling.py", "--port", "0"], tmp_path),
    ]
    assert banners[0] == banners[1]
    assert banners[0][:2] == ["Inspector: URL/-/", "Serving on URL (stop with Ctrl-C)"]


def banner(command: list[str], folder: Path) -> list[str]:
    """The lines that a server prints up to what to try."""
    printed: list[str] = []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(re.sub(r"http://127.0.0.1:\d+", "URL", line.rstrip()))
            if line.startswith("Try: "):
                break
        process.terminate()
    return printed


def test_the_client_of_the_readme_prints_what_its_comments_say(doubling: types.ModuleType) -> None:
    printed = StringIO()
    with serving(Server([doubling.Doubling])) as url, redirect_stdout(printed):
        exec(CALL.replace("http://127.0.0.1:8080", url), {})
    assert printed.getvalue().splitlines() == re.findall(r"print\(.*  # (.*)$", CALL, re.MULTILINE)


WITH_FIXTURE = """
import ors.testing

async def test_that_a_fixture_arrives(tmp_path):
    assert tmp_path.exists()
"""
WITHOUT = ("-p", "no:asyncio")
WITH = ("-o", "asyncio_default_fixture_loop_scope=function")


def pytest_prints(folder: Path, *words: str) -> str:
    """What pytest prints about a folder, without the plugins that only take time here."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
    ]
    return subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("words", [WITHOUT, WITH], ids=["without pytest-asyncio", "with pytest-asyncio"])
def test_the_test_of_the_readme_is_run_by_pytest_as_it_stands(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(ENVIRONMENT)
    (tmp_path / "test_doubling.py").write_text(TEST)
    (tmp_path / "test_wrong.py").write_text(TEST.replace("42", "43"))
    (tmp_path / "test_fixture.py").write_text(WITH_FIXTURE)
    printed = pytest_prints(tmp_path, *words)
    assert "1 failed, 2 passed" in printed, printed
    assert "FAILED test_wrong.py::test_the_right_answer_is_rewarded - AssertionError" in printed


def test_async_tests_of_packages_that_do_not_use_ours_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_fixture.py").write_text(WITH_FIXTURE.replace("import ors.testing", ""))
    assert "async def functions are not natively supported" in pytest_prints(tmp_path, *WITHOUT)


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
