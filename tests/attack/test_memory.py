"""Memory of real server processes under clients that do not finish, or do not read."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.attack.conftest import Scale, Tally
from tests.attack.fronts import KEY, WORKERS, Front, front
from tests.attack.link import stuffed
from tests.attack.wire import talk

pytestmark = pytest.mark.xdist_group("attack-memory")

GROWTH_MB = 100
UNFINISHED_MB = 300
"""Memory that incomplete bodies may hold in one process; with keys, since without one none is kept."""
BODY_BYTES = 31 * 2**20
BODY_COPIES = 3
"""Times that a complete body may be in memory."""


@contextmanager
def clients(where: Front, count: int) -> Iterator[list[socket.socket]]:
    """So many connections."""
    with ExitStack() as stack:
        address = (where.raw.host, where.raw.port)
        yield [stack.enter_context(socket.create_connection(address, 20)) for _ in range(count)]


def begun(where: Front, path: str, *lines: str) -> bytes:
    """A request whose body is one byte short of its length."""
    key = [f"X-API-Key: {where.key}"] if lines == ("key",) else []
    head = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {BODY_BYTES}", *key]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + b"x" * (BODY_BYTES - 1)


@pytest.mark.parametrize("name", ["server", "workers"])
def test_bodies_without_a_key_are_not_kept(name: str, tmp_path: Path, scale: Scale, tally: Tally) -> None:
    count = scale.of(10, 60)
    with (
        front(name, tmp_path, key=KEY) as where,
        clients(where, count) as ends,
        ThreadPoolExecutor(10) as pool,
    ):
        data = begun(where, "/create")
        sent = sum(pool.map(lambda end: stuffed(end, data, 20), ends))
        grown = where.grown(2)
        assert where.healthy()
        assert grown < GROWTH_MB, f"{grown:.0f} MB for {count} bodies, {sent >> 20} MB of them sent"
    tally(f"bodies of 31 MiB without a key to a {name}", f"{count} at once, {grown:+.0f} MB")


@pytest.mark.parametrize("name", ["server", "workers", "router"])
def test_bodies_that_do_not_end_have_a_bound(name: str, tmp_path: Path, scale: Scale, tally: Tally) -> None:
    count = scale.of(30, 60)
    with (
        front(name, tmp_path, key=KEY) as where,
        clients(where, count) as ends,
        ThreadPoolExecutor(10) as pool,
    ):
        data = begun(where, "/create", "key")
        list(pool.map(lambda end: stuffed(end, data, 20), ends))
        grown = where.grown(2)
        assert where.healthy()
        assert grown < UNFINISHED_MB * (WORKERS if name == "workers" else 1), (
            f"{grown:.0f} MB for {count} bodies"
        )
    tally(f"bodies of 31 MiB that do not end, to a {name}", f"{count} at once, {grown:+.0f} MB")


SMALL_CONTAINERS = {"lists": b"[],", "objects": b"{},", "keys": b'"":0,'}


@pytest.mark.parametrize("name", ["server", "workers", "asgi"])
@pytest.mark.parametrize("unit", SMALL_CONTAINERS.values(), ids=SMALL_CONTAINERS)
def test_bodies_of_small_containers_cost_their_own_size(
    name: str, unit: bytes, tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    count = scale.of(2, 4)
    many = (unit * (30 * 2**20 // len(unit)))[:-1]
    inner = b"{%b}" % many if unit.startswith(b'"') else b"[%b]" % many
    with front(name, tmp_path) as where, ThreadPoolExecutor(count) as pool:
        body = b'{"env_name":"ground","task_spec":{"a":%b}}' % inner
        asked = [pool.submit(where.raw.post, "/create", body, sid=f"small-{n}") for n in range(count)]
        waits = []
        while not all(each.done() for each in asked):
            began = time.monotonic()
            assert where.raw.get("/health").status == 200
            waits.append(time.monotonic() - began)
        assert {each.result().status for each in asked} <= {413, 503}
        grown = where.grown(1)
        assert where.healthy()
        assert grown < BODY_COPIES * count * 30 + GROWTH_MB, f"{grown:.0f} MB"
    tally(
        f"30 MiB of small containers to a {name}",
        f"{count} at once, {grown:+.0f} MB, others waited {1000 * max(waits, default=0.0):.0f} ms",
    )


@pytest.mark.parametrize("name", ["server", "router"])
def test_pipelines_whose_answers_are_not_read_cost_little(
    name: str, tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    count, deep = scale.of(5, 20), 2000
    with front(name, tmp_path) as where, clients(where, count) as ends, ThreadPoolExecutor(10) as pool:
        body = json.dumps({"split": "train"})
        one = f"POST /ground/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        list(pool.map(lambda end: stuffed(end, one.encode() * deep, 20), ends))
        grown = where.grown(3)
        assert where.healthy()
        assert grown < GROWTH_MB, f"{grown:.0f} MB"
    tally(
        f"clients of a {name} that do not read",
        f"{count} with {deep:,} answers of 50 KB each, {grown:+.0f} MB",
    )


def test_half_requests_of_many_clients_cost_little(tmp_path: Path, scale: Scale, tally: Tally) -> None:
    count = scale.of(200, 900)
    with front("server", tmp_path) as where, clients(where, count) as ends:
        for end in ends:
            end.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"x" * 50_000)
        grown = where.grown(2)
        assert where.healthy()
        assert grown < GROWTH_MB, f"{grown:.0f} MB"
    tally("half requests of 50 KB", f"{count} at once, {grown:+.0f} MB")


def test_requests_after_all_that_are_answered(tmp_path: Path) -> None:
    with front("server", tmp_path) as where, clients(where, 20) as ends:
        for number, end in enumerate(ends):
            end.sendall(
                b"POST /create HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" + b"x" * number
            )
        ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert talk((where.raw.host, where.raw.port), [ask]).startswith(b"HTTP/1.1 200 ")
