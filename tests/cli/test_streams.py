"""Commands whose standard streams were closed by whoever started them."""

import os
import re
import signal
import socket
import subprocess

import pytest

from tests.support import SUPPORT
from tests.support.commands import ORS, PATIENCE, variables
from tests.support.raw_http import Raw

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")]

CLINGING = str(SUPPORT / "hanging_environment.py")
ALL = "0<&- 1>&- 2>&-"
CLOSED = {"0<&-": (1, 2), "1>&-": (2,), "2>&-": (1,), ALL: ()}


def started(closed: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *ORS, *words],
        env=variables({"PYTHONUNBUFFERED": "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize("words", [("list", CLINGING), ("--help",)])
def test_a_command_works_without_a_stream(closed: str, words: tuple[str, ...]) -> None:
    process = started(closed, *words)
    out, err = process.communicate(timeout=PATIENCE)
    whole = subprocess.run(
        [*ORS, *words], env=variables(), capture_output=True, timeout=PATIENCE, check=False
    )
    assert process.returncode == whole.returncode
    assert "bug in ors" not in out + err
    assert bool(out) == (1 in CLOSED[closed])


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        *((closed, ()) for closed in CLOSED),
        (ALL, ("--workers", "1")),
        (ALL, ("--reload",)),
    ],
)
def test_a_server_works_without_a_stream(closed: str, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free_port = listener.getsockname()[1]
    process = started(closed, "serve", CLINGING, "--port", str(free_port), *words)
    try:
        raw = Raw(f"http://127.0.0.1:{free_port}")
        while not served(raw):
            assert process.poll() is None, process.communicate()
        assert raw.call(raw.session("clinging"), "briefly", env="clinging").result()["ok"]
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert bool(re.search("Serving on", out)) == (1 in CLOSED[closed])


def served(raw: Raw) -> bool:
    try:
        return raw.get("/health").status == 200
    except OSError:
        return False
