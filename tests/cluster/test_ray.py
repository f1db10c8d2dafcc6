"""Servers as Ray actors, on a real cluster of three raylets."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab import Lab
from tests.raw import Raw

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'ors-kit[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

from ors.cluster.ray import Deployment, Row, deploy  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("default"),
]


def until(what: Callable[[], Any]) -> Any:
    """Asks again and again until it is so; gives what it is."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if found := what():
                return found
        except OSError:
            pass
        time.sleep(0.05)
    raise AssertionError("it is never so")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    # Ray's own defaults take a minute to notice that a node is gone.
    health = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 4,
    }
    head: dict[str, Any] = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
    head["_system_config"] = health
    made = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    ray.init(address=made.address, namespace="ors", logging_level="ERROR", log_to_driver=False)
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.fixture(scope="module")
def hosts(cluster: Any) -> Iterator[Deployment]:
    made = deploy([Lab], hosts=3, host="127.0.0.1", num_cpus=0.3, runtime_env={"env_vars": {"X": "1"}})
    until(lambda: len(made.rows()) == 3)
    until(lambda: all(linked(row, 3) for row in made.rows()))
    try:
        yield made
    finally:
        made.stop()


def linked(row: Row, count: int) -> bool:
    """Whether that host knows all others."""
    text = Raw(row.url).get("/-/metrics").body.decode()
    return text.count("ors_calls_running{") == count


def test_every_host_is_a_door_to_all(hosts: Deployment) -> None:
    rows = hosts.rows()
    assert [row.slot for row in rows] == [0, 1, 2]
    raws = [Raw(row.url) for row in rows]
    sids = [raws[0].post("/create_session").json()["sid"] for _ in range(12)]
    assert {int(sid[:4], 16) for sid in sids} == {0, 1, 2}
    for sid in sids:
        assert raws[1].post("/create", {"task_spec": {}}, sid=sid).status == 200
        assert {raw.call(sid, "nothing").result()["ok"] for raw in raws} == {True}
        assert raws[2].post("/delete", sid=sid).status == 200


def test_a_killed_host_is_told_and_comes_back_as_another(hosts: Deployment) -> None:
    rows = hosts.rows()
    raw = Raw(rows[0].url)
    victim = rows[2]
    pid = ray.get(hosts.hosts[2].pid.remote())
    sid = until(lambda: mine(raw, 2))
    kept = until(lambda: mine(raw, 1))
    with raw.opened(sid, "stay") as call:
        os.kill(pid, signal.SIGKILL)
        assert call.rest().error().startswith("Session lost: ")
    assert raw.call(sid, "nothing").status == 410
    assert raw.call(kept, "nothing").result()["ok"] is True
    back = until(lambda: [row for row in hosts.rows() if row.slot == 2 and row.url != victim.url])
    assert back[0].incarnation > victim.incarnation
    until(lambda: linked(back[0], 3) and linked(rows[0], 3))
    assert Raw(back[0].url).call(kept, "nothing").result()["ok"] is True
    assert raw.post("/ping", sid=sid).status == 410


def test_hosts_are_added_and_taken_away_without_losing_a_session(hosts: Deployment) -> None:
    raw = Raw(hosts.rows()[0].url)
    sid = until(lambda: mine(raw, 1))
    hosts.scale(4)
    until(lambda: len(hosts.rows()) == 4)
    assert raw.call(sid, "nothing").result()["ok"] is True
    hosts.scale(3)
    assert [row.slot for row in hosts.rows()] == [0, 1, 2]
    assert raw.call(sid, "nothing").result()["ok"] is True


def test_a_node_that_dies_loses_its_own_sessions_only_and_its_host_starts_elsewhere(
    cluster: Any, hosts: Deployment
) -> None:
    nodes = {node.node_id: node for node in cluster.worker_nodes}
    rows = hosts.rows()
    victim = next(row for row in rows if row.node in nodes)
    door = Raw(next(row for row in rows if row.node != victim.node).url)
    sid = until(lambda: mine(door, victim.slot))
    with door.opened(sid, "stay") as call:
        cluster.remove_node(nodes[victim.node], allow_graceful=False)
        assert call.rest().error().startswith("Session lost: ")
    assert door.post("/ping", sid=sid).status == 410
    assert until(lambda: any(mine(door, row.slot) for row in rows if row.slot != victim.slot))
    back = until(lambda: [row for row in hosts.rows() if row.slot == victim.slot and row.url != victim.url])
    assert back[0].node != victim.node


def test_a_frozen_host_is_given_up_within_seconds(hosts: Deployment) -> None:
    until(lambda: len(hosts.rows()) == 3)
    rows = hosts.rows()
    pids = ray.get([hosts.hosts[slot].pid.remote() for slot in range(3)])
    door, victim = Raw(rows[0].url), rows[1]
    until(lambda: linked(rows[0], 3))
    sid = until(lambda: mine(door, victim.slot))
    with door.opened(sid, "stay") as call:
        began = time.monotonic()
        os.kill(pids[1], signal.SIGSTOP)
        try:
            assert call.rest().error().startswith("Session lost: ")
        finally:
            os.kill(pids[1], signal.SIGCONT)
    assert time.monotonic() - began < 15


def mine(raw: Raw, slot: int) -> str:
    """A new session on that slot, or nothing."""
    sid = str(raw.post("/create_session").json()["sid"])
    if int(sid[:4], 16) != slot:
        return ""
    return sid if raw.post("/create", {"task_spec": {}}, sid=sid).status == 200 else ""
