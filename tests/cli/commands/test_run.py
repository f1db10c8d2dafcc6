"""`ors run`: a program that was written for openreward runs unchanged, and says in one line what it lacks."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ors.client import ORS, Options
from ors.errors import AuthenticationError, ORSError, ServerFailed, Unavailable
from tests.support import SUPPORT
from tests.support.commands import Running, run, running
from tests.support.waiting import wait_until

SOURCE = SUPPORT / "openreward_program.py"
TASKS = [{"country": "France", "capital": "Paris"}]
SECRETS = {"openai_api_key": "sk-test"}
AT_ONCE = Options(retries=0)
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
OURS = """
from ors import Environment, Limits, Server, tool

class Own(Environment):
    tasks = {"train": [{}]}
    def get_prompt(self): return "?"
    @tool
    def end(self) -> str: return "done"

Server([Own], limits=Limits(sessions=0), api_keys=["file"]).run("127.0.0.1", 0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(SOURCE, tmp_path / "server.py")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tasks.json").write_text(json.dumps(TASKS))
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    with running("run", "server.py", "--data", "data", "--port", "0", cwd=folder) as server:
        yield server


def played(url: str, tool: str) -> tuple[float | None, bool]:
    with ORS(url) as client:
        env = client.environment("capitals")
        with env.session(split="train", index=0, secrets=SECRETS) as session:
            assert "France" in str(session.get_prompt())
            done = session.call_tool(tool, {"answer": "Paris"})
            return done.reward, done.finished


@needs_bwrap
def test_a_program_plays_to_a_reward_with_a_folder_as_its_data(server: Running) -> None:
    url = server.url()
    assert url.startswith("http://127.0.0.1:")  # not 0.0.0.0, which the file says: there is no API key
    assert played(url, "submit") == (1.0, True)
    assert played(url, "said") == (1.0, True)
    assert not os.path.exists("/orwd_data")


@needs_bwrap
def test_a_signal_reaches_the_server_in_the_mount_namespace_which_ends_its_sessions(
    server: Running, folder: Path
) -> None:
    with (
        suppress(ORSError),
        ORS(server.url(), options=AT_ONCE) as client,
        client.environment("capitals").session(split="train", index=0, secrets=SECRETS) as session,
    ):
        session.get_prompt()
        assert not (folder / "ended").exists()
        assert server.stop().code == 0
    assert (folder / "ended").exists()


@needs_bwrap
def test_the_server_in_the_mount_namespace_dies_with_the_command(server: Running) -> None:
    port = int(server.url().rpartition(":")[2])
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()

    def refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    wait_until(refused)


@needs_bwrap
def test_workers_in_the_mount_namespace_ask_for_the_key(folder: Path) -> None:
    words = ("run", "server.py", "--data", "data", "--port", "0", "--workers", "2")
    with running(*words, cwd=folder, env={"ORS_API_KEYS": "hidden"}) as server:
        url = server.url()
        with ORS(url, "hidden") as client:
            assert client.list_environments() == ["capitals"]
        with ORS(url) as client, pytest.raises(AuthenticationError):
            client.list_environments()


def test_data_without_bubblewrap_says_what_to_do(folder: Path) -> None:
    done = run("run", "server.py", "--data", "data", cwd=folder, env={"PATH": "/nowhere"})
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert "apt install bubblewrap" in done.err
    assert "ln -s FOLDER /orwd_data" in done.err


@pytest.mark.parametrize("words", [(), ("--workers", "2")])
def test_no_tasks_are_said_at_the_start_with_the_option_that_helps(
    folder: Path, words: tuple[str, ...]
) -> None:
    env = {"PROGRAM_SPLITS": "train test"}
    with running("run", "server.py", "--port", "0", *words, cwd=folder, env=env) as server:
        line = server.errors("no tasks").string
    assert line == ("capitals has no tasks in any split; pass --data FOLDER, which becomes /orwd_data\n")


def test_an_error_of_list_tasks_names_the_path_and_the_option(folder: Path) -> None:
    words = ("--port", "0", "--return-errors", "exception")  # the file says "none"
    with running("run", "server.py", "fail", *words, cwd=folder) as server:
        line = server.errors("pass --data").string
    assert "No such file or directory: '/orwd_data/tasks.json'; pass --data FOLDER" in line


def test_what_no_option_sets_is_as_the_file_says(folder: Path) -> None:
    with (
        running("run", "server.py", "fail", "--port", "0", cwd=folder) as server,
        ORS(server.url()) as client,
        pytest.raises(ServerFailed, match=r"^Environment failed in list_tasks$"),
    ):
        client.environment("capitals").num_tasks("train")


def test_options_win_over_the_arguments_of_a_file_written_for_ors(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OURS)
    with (
        running("run", "own.py", cwd=tmp_path) as server,
        ORS(server.url(), "file", options=AT_ONCE) as client,
        pytest.raises(Unavailable),
    ):
        client.environment("own").session("train", 0).start()
    with running("run", "own.py", "--api-key", "flag", "--sessions", "1", cwd=tmp_path) as server:
        with (
            ORS(url := server.url(), "flag") as client,
            client.environment("own").session("train", 0) as session,
        ):
            assert session.call_tool("end", {}).finished is False
        with ORS(url, "file") as client, pytest.raises(AuthenticationError):
            client.list_environments()


def test_a_module_runs_as_python_would_run_it(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "parts.py").write_text(
        "from openreward.environments import Environment\nNAME = 'x'\n"
    )
    (folder / "package" / "__main__.py").write_text(
        "import sys\nfrom .parts import NAME\nprint(NAME, __name__, sys.argv[1:], flush=True)\n"
    )
    done = run("run", "-m", "package", "--", "--own", cwd=folder)
    assert done.out == "x __main__ ['--own']\n"
    assert done.code == 3
    assert done.err == "Error: package ended without calling run() of a Server\n"


@pytest.mark.parametrize(
    ("requirements", "advice"),
    [
        (None, "pip install some_missing_package"),
        ("some-missing-package>=1\n", "pip install -r requirements.txt"),
    ],
)
def test_a_missing_package_is_one_line(folder: Path, requirements: str | None, advice: str) -> None:
    if requirements is not None:
        (folder / "requirements.txt").write_text(requirements)
    done = run("run", "server.py", "import", cwd=folder)
    lacks = "server.py needs the package 'some_missing_package', which is not installed"
    assert (done.code, done.err) == (3, f"Error: {lacks}: {advice}\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("raise RuntimeError('a fault')", "Cannot run x.py: RuntimeError: a fault (x.py:1)"),
        ("open('/orwd_data/a')", "'/orwd_data/a' (x.py:1); pass --data FOLDER, which becomes /orwd_data"),
        (
            "from openreward.environments import GroupScore",
            "openreward.environments.GroupScore is not offered",
        ),
    ],
)
def test_a_program_that_raises_is_one_line(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "x.py").write_text(line)
    done = run("run", "x.py", cwd=tmp_path)
    assert (done.code, done.err.count("\n")) == (3, 1)
    assert said in done.err


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run("run", "x.py", cwd=tmp_path)
    assert (done.code, done.err) == (3, "Error: No such file or folder: x.py\n")


@pytest.mark.parametrize("name", ["get_messages", "score_group"])
def test_a_method_that_is_not_offered_is_refused_by_name(folder: Path, name: str) -> None:
    with open(folder / "server.py", "a") as file:
        file.write(f"    Capitals.{name} = lambda self: []\n    Server([Capitals])\n")
    done = run("run", "server.py", "served", cwd=folder)
    assert (done.code, f"Capitals.{name}: ors does not offer {name}" in done.err) == (3, True)


def test_with_the_real_package_installed_the_user_says_which(folder: Path) -> None:
    (folder / "site" / "openreward").mkdir(parents=True)
    (folder / "site" / "openreward" / "__init__.py").write_text("print('the real one')")
    (folder / "x.py").write_text("import openreward; print(openreward.__version__)")
    env = {"PYTHONPATH": str(folder / "site")}
    done = run("run", "x.py", cwd=folder, env=env)
    assert (done.code, "--openreward ours" in done.err, "--openreward installed" in done.err) == (
        2,
        True,
        True,
    )
    assert run("run", "x.py", "--openreward", "ours", cwd=folder, env=env).out == "0.1.167\n"
    assert "the real one" in run("run", "x.py", "--openreward", "installed", cwd=folder, env=env).out
    done = run("run", "x.py", "--openreward", "installed", "--port", "1", cwd=folder, env=env)
    assert (done.code, done.err) == (2, "Error: --port has no effect on the real openreward: remove it\n")
