"""`python -m examples`, and each example run as a program of its own."""

import runpy
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ors import Server
from tests.support.raw_http import Raw

ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in (ROOT / "examples").glob("*.py") if not path.name.startswith("__"))


SANDBOXED = ["bash", "create", "find", "grep", "insert", "replace", "view", "python", "submit"]


@pytest.fixture(scope="module")
def welcome() -> Iterator[str]:
    """What a running `python -m examples` has printed."""
    command = [sys.executable, "-m", "examples", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and "call_tool" in lines[-1]):
            line = process.stdout.readline()
            assert line, "it ended early"
            lines.append(line)
        yield "".join(lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def pasted(welcome: str, first: str) -> str:
    """The lines from the one that begins with `first` up to the end of their block."""
    block = welcome[welcome.index(f"\n{first}") :]
    return block.split("\n\nThe same")[0].strip() + "\n"


def test_it_says_first_where_the_inspector_is_and_then_what_is_served(welcome: str) -> None:
    lines = welcome.splitlines()
    url = lines[0].removeprefix("Inspector: ").removesuffix("/-/")
    assert lines[1] == f"Serving on {url} (stop with Ctrl-C)"
    assert Raw(url).get("/-/").status == 200
    assert lines[4:10] == [
        "mathqa       train 8, test 4               submit",
        "wordhunt     train 10, test 5              give_up, guess",
        "maze         train 100, large 100          move",
        "openbook     train 3, test 2               read_page, search",
        "countdown    train 1,000,000, test 10,000  submit",
        f"repair       train 2, test 1               {', '.join(SANDBOXED)}",
    ]


@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None, reason="needs bash and curl"
)
def test_the_curl_lines_play_an_episode_when_pasted(welcome: str) -> None:
    script = pasted(welcome, "URL=")
    played = subprocess.run(["bash", "-eu"], input=script, capture_output=True, text=True, timeout=30)
    assert played.returncode == 0, played.stderr
    assert "How many buns are there?" in played.stdout
    assert '"reward":1.0,"finished":true' in played.stdout
    assert played.stdout.count('{"sid":') == 2


def test_the_python_lines_play_an_episode_when_pasted(welcome: str) -> None:
    script = pasted(welcome, "from ors.client")
    played = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, timeout=30)
    assert played.returncode == 0, played.stderr
    assert "How many buns are there?" in played.stdout
    assert "reward=1.0" in played.stdout


@pytest.fixture
def make_run(tmp_path: Path) -> list[str]:
    """`make run` with an environment that is installed already: ours."""
    (tmp_path / "bin").mkdir()
    # A link would be taken for an environment of its own, without our packages.
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / ".runs").touch()
    return ["make", "--no-print-directory", "run", f"VENV={tmp_path}"]


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_run_takes_the_port_that_is_asked_for_and_names_another_if_it_is_taken(
    make_run: list[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = [*make_run, f"PORT={port}"]
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert told.returncode == 2
    assert told.stdout == "", "what comes first is the link to the inspector"
    line = told.stderr.splitlines()[0]
    assert line.startswith(
        f"Cannot serve on 127.0.0.1:{port}: the port is taken. Try another: make run PORT="
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_serves_its_environment_when_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Server] = []
    monkeypatch.setattr(Server, "run", lambda server: served.append(server))
    runpy.run_path(str(path), run_name="__main__")
    assert len(served) == 1


def test_the_examples_are_not_served_to_others() -> None:
    command = [sys.executable, "-m", "examples", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "ORS_API_KEYS" in done.stderr
    assert "Traceback" not in done.stderr
