"""A body that drips for as long as it may: apart from the others, since it takes minutes."""

import socket
import time
from pathlib import Path

import pytest

from tests.attack.conftest import Tally
from tests.attack.fronts import front

DRIP_SECONDS = 120
"""A body whose bytes drip is given up by then."""


@pytest.mark.attack
def test_a_body_that_drips_is_given_up(tmp_path: Path, tally: Tally) -> None:
    began = time.monotonic()
    with (
        front("server", tmp_path) as where,
        socket.create_connection((where.raw.host, where.raw.port)) as end,
    ):
        end.sendall(b"POST /create HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n")
        end.settimeout(1.0)
        while time.monotonic() - began < DRIP_SECONDS:
            try:
                end.send(b"x")
                end.recv(100)  # an answer, or the end
                break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            raise AssertionError(f"it is still read after {DRIP_SECONDS} s")
        assert where.healthy()
    tally("a body of a byte a second", f"given up after {time.monotonic() - began:.0f} s")
