"""A terminal that is closed: `ors serve` ends as at Ctrl-C, and environments clean up."""

import os
import signal
import sys
from pathlib import Path

import pytest

from ors.client import ORS
from tests.support.commands import ORS as COMMAND
from tests.support.commands import Terminal, environment_code, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no SIGHUP here")

CODE = "import os, pathlib\n\nHERE = pathlib.Path(__file__).parent\n\n" + environment_code(
    "Tidy",
    """
    @tool
    def pid(self) -> ToolOutput:
        "The process."
        return ToolOutput(blocks=[], metadata={"pid": os.getpid()})

    def teardown(self):
        (HERE / "teardown").write_text(str(os.getpid()))

    @classmethod
    def shutdown(cls):
        (HERE / f"shutdown-{os.getpid()}").touch()
    """,
)


@pytest.fixture
def tidy(tmp_path: Path) -> str:
    (tmp_path / "tidy.py").write_text(CODE)
    return "tidy.py"


def ended(folder: Path) -> list[str]:
    """The hooks that ran, once a session was torn down."""
    return sorted(path.name.partition("-")[0] for path in folder.iterdir() if path.suffix != ".py")


def opened(url: str) -> tuple[ORS, int]:
    client = ORS(url)
    session = client.environment("tidy").session(split="train", index=0).start()
    return client, int(str((session.call_tool("pid").metadata or {})["pid"]))


def test_a_hangup_ends_the_server_and_its_sessions_are_torn_down(tidy: str, tmp_path: Path) -> None:
    with running("serve", tidy, "--port", "0", cwd=tmp_path) as server:
        client, _ = opened(server.url())
        done = server.stop(signal.SIGHUP)
        client.close()
    assert done.code == 0, done.err
    assert {"teardown", "shutdown"} <= set(ended(tmp_path))


def test_a_server_under_nohup_goes_on(tidy: str, tmp_path: Path) -> None:
    ignoring = "import os, signal, sys; signal.signal(1, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", ignoring, *COMMAND]
    with running("serve", tidy, "--port", "0", cwd=tmp_path, command=command) as server:
        url = server.url()
        server.process.send_signal(signal.SIGHUP)
        client, _ = opened(url)
        client.close()
        assert server.stop().code == 0


@pytest.mark.long
def test_a_worker_that_is_hung_up_tears_its_sessions_down(tidy: str, tmp_path: Path) -> None:
    with running("serve", tidy, "--port", "0", "--workers", "2", cwd=tmp_path) as server:
        client, pid = opened(server.url())
        os.kill(pid, signal.SIGHUP)
        wait_until((tmp_path / f"shutdown-{pid}").exists)
        assert (tmp_path / "teardown").read_text() == str(pid)
        client.close()
        assert server.stop().code == 0


@pytest.mark.long
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_closed_terminal_ends_all_processes_and_sessions(
    workers: list[str], tidy: str, tmp_path: Path
) -> None:
    terminal = Terminal("serve", tidy, "--port", "0", *workers, cwd=tmp_path)
    terminal.until("Serving on ")
    url = terminal.until("\n").split()[0]
    client, pid = opened(url)
    terminal.hang_up()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the server has ended")
    client.close()
    assert (tmp_path / "teardown").read_text() == str(pid)
    assert ended(tmp_path).count("shutdown") == (2 if workers else 1)
