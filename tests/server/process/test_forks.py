"""Processes that tools start: they have nothing of the server, and can be ended."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support import SUPPORT
from tests.support.commands import Running, running
from tests.support.raw_http import Raw

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="copies need a POSIX system"),
]

FORKING = str(SUPPORT / "forking_environment.py")
WAYS = [(), ("--workers", "1"), ("--reload",)]


@contextmanager
def served(*words: str) -> Iterator[tuple[Running, Raw]]:
    quick = ("--grace-seconds", "0.2", "--teardown-seconds", "0.2", "--tool-seconds", "20")
    with running("serve", FORKING, "--port", "0", *quick, *words, env={"PYTHONUNBUFFERED": "1"}) as server:
        yield server, Raw(server.line(r"Serving on (http://\S+)")[1])


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with served() as (_, raw):
        yield raw


def told(raw: Raw, tool: str, sid: str | None = None) -> str:
    output = raw.call(sid or raw.session("forking"), tool, {}, env="forking").result()["output"]
    return str(output["blocks"][0]["text"]).strip()


@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_the_port_is_free_after_the_end_whatever_tools_have_left_running(words: tuple[str, ...]) -> None:
    with served(*words) as (server, raw):
        pid = int(told(raw, "leave_a_child"))
        try:
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(40) == 0
            with socket.create_server(("127.0.0.1", raw.port)):
                os.kill(pid, 0)  # it is there still
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
@pytest.mark.parametrize("words", WAYS, ids=" ".join)
def test_a_child_of_a_tool_inherits_nothing_but_the_standard_streams(words: tuple[str, ...]) -> None:
    with served(*words) as (_, raw):
        found = told(raw, "inherited").splitlines()
    assert [line.split()[0] for line in found] == ["0", "1", "2"]
    assert found[0] == "0 /dev/null"


def test_a_child_of_multiprocessing_can_be_terminated(raw: Raw) -> None:
    assert told(raw, "terminate") == str(-signal.SIGTERM)
