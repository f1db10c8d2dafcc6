"""A host and a router as Ray runs them, but in this process."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ors.cluster.hosting import HostInfo
from ors.limits import Limits
from tests.support.environments import Lab
from tests.support.raw_http import Raw
from tests.support.ray_cluster import clustered, until
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from ors.cluster.ray.actors import Host

Rows = Callable[[], list[HostInfo]]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("default"),
]
NAMESPACE = "actors"


@pytest.fixture(scope="module")
def directory() -> Iterator[Any]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ors-kit[ray]'")
    from ors.cluster.ray.deployment import ActorPlan

    with clustered(nodes=1):
        yield ActorPlan([Lab], {}, "127.0.0.1", 0, False, 0.1, 0, {}, {}, NAMESPACE).directory()


@pytest.fixture
def rows(directory: Any) -> Rows:
    import ray

    return lambda: ray.get(directory.hosts.remote(), timeout=60)


@contextmanager
def host(slot: int) -> Iterator["Host"]:
    from ors.cluster.ray.actors import Host

    made = Host(slot, [Lab], {"limits": Limits(grace_seconds=0.1)}, "127.0.0.1", False, NAMESPACE)
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def router() -> Iterator[Raw]:
    from ors.cluster.ray.actors import RouterActor

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = RouterActor("127.0.0.1", port, Limits(), "", (), NAMESPACE)
    try:
        assert made.pid() == os.getpid()
        yield Raw(f"http://127.0.0.1:{port}")
    finally:
        made.stop()


def new_session(raw: Raw) -> str:
    sid = str(raw.post("/create_session").json()["sid"])
    assert raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid=sid).status == 200
    return sid


def test_a_server_that_fails_after_its_start_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ors-kit[ray]'")
    from ors.cluster.ray.actors import _started

    up, over = threading.Event(), threading.Event()

    def run() -> None:
        up.set()
        assert over.wait(20)
        raise OSError("the disk is full")

    running = _started(run, up)
    over.set()
    with pytest.raises(OSError, match="the disk is full"):
        running.result(20)
    wait_until(lambda: "the disk is full" in caplog.text)


def test_a_host_and_a_router_meet_through_the_directory(directory: Any, rows: Rows) -> None:
    import ray

    with host(4) as made:
        (row,) = until(rows)
        assert (row, made.pid()) == (made.info(), os.getpid())
        with router() as raw:
            assert until(lambda: ray.get(directory.routers.remote(), timeout=60)) == {row.node: raw.url}
            assert until(lambda: new_session(raw)).startswith("0004")
            with host(5):
                until(lambda: new_session(raw).startswith("0005"))
        with pytest.raises(ConnectionRefusedError):
            raw.get("/health")
    with pytest.raises(ConnectionRefusedError):
        Raw(row.url).get("/health")


def test_a_host_that_retires_counts_its_sessions_and_takes_no_new_ones(rows: Rows) -> None:
    with host(6) as made:
        raw = Raw(made.info().url)
        sid = new_session(raw)
        assert made.retire() == 1
        assert until(lambda: [row.sessions for row in rows() if row.retiring]) == [1]
        assert raw.post("/create", {"env_name": "lab", "task_spec": {}}, sid="mine").status == 503
        assert made.retire(False) == 1
        assert raw.call(sid, "nothing").result()["ok"] is True
        assert raw.post("/delete", sid=new_session(raw)).status == 200
