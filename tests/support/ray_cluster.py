"""A real Ray cluster of three raylets on this machine, for tests."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.support.call_ledger import Place
from tests.support.raw_http import Raw
from tests.support.waiting import wait_until, written
from tests.support.worker_command import alive

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

    from ors.cluster.ray import Deployment, HostInfo

MEMORY = 80 * 2**20
# Ray's own defaults take a minute to notice that a node is gone.
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 4,
}


def until(what: Callable[[], Any]) -> Any:
    """Waits until `what()` is true; returns its value."""
    found: list[Any] = []

    def holds() -> bool:
        with suppress(OSError):
            found[:] = [what()]
        return any(found)

    wait_until(holds, written(what))
    return found[0]


def gone(pid: int) -> None:
    """Waits until a process has ended."""
    until(lambda: not alive(pid))


@contextmanager
def clustered(nodes: int = 3) -> Iterator["Cluster"]:
    """A head and more nodes; this process is connected to them."""
    import ray
    from ray.cluster_utils import Cluster

    head: dict[str, Any] = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": MEMORY}
    made = Cluster(initialize_head=True, head_node_args={**head, "_system_config": HEALTH})
    try:
        for _ in range(nodes - 1):
            add_node(made)
        ray.init(address=made.address, namespace="ors", logging_level="ERROR", log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def add_node(cluster: "Cluster", gpus: int = 0) -> Any:
    """Adds a node. Ray believes the number of GPUs, and prefers other nodes for actors without any."""
    return cluster.add_node(num_cpus=1, num_gpus=gpus, object_store_memory=MEMORY)


def raylet(node: Any) -> int:
    """The process of a node's raylet."""
    return int(node.all_processes["raylet"][0].process.pid)


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def titled(title: str) -> int:
    """The one process of that name, of those that this one has started. One that was killed may linger."""

    def found() -> list[int]:
        return [pid for pid in family(os.getpid()) if _title(pid).startswith(title)]

    until(lambda: len(found()) == 1)
    return found()[0]


def _title(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


@contextmanager
def frozen(pids: list[int]) -> Iterator[None]:
    """Stops these processes with SIGSTOP until the block ends."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue


class Fleet:
    """A deployment in the cluster, with shortcuts for tests."""

    def __init__(self, cluster: "Cluster", deployment: "Deployment") -> None:
        self.cluster = cluster
        self.deployment = deployment

    def look(self) -> Any:
        """What the directory knows, also of its next incarnation."""
        import ray

        return ray.get(self.deployment._ray.directory.state.remote(), timeout=60)

    @property
    def rows(self) -> "list[HostInfo]":
        return self.deployment.hosts()

    def row(self, slot: int) -> "HostInfo":
        return next(row for row in self.rows if row.slot == slot)

    def pid(self, slot: int) -> int:
        return self.process(self.deployment.actor(slot))

    def process(self, actor: Any) -> int:
        """The process of an actor, also of its next incarnation."""
        import ray

        return int(ray.get(actor.pid.remote(), timeout=60))

    def place(self, actor: Any) -> Place:
        """The slot and incarnation of a host."""
        import ray

        row = ray.get(actor.info.remote(), timeout=60)
        return row.slot, row.incarnation

    def settled(self, count: int = 3) -> "list[HostInfo]":
        """Waits until this many hosts are up, none of them retiring, each linked to all others."""
        until(lambda: len(self.rows) == count and not any(row.retiring for row in self.rows))
        until(lambda: all(self.linked(row, count) for row in self.rows))
        return self.rows

    def linked(self, row: "HostInfo", count: int) -> bool:
        text = Raw(row.url).get("/-/metrics").body.decode()
        return text.count("ors_calls_running{") == count

    def session(self, one: Raw, slot: int, env: str = "lab") -> str:
        """A new session on that host, created through that server."""
        return str(until(lambda: self._session(one, slot, env)))

    def _session(self, one: Raw, slot: int, env: str) -> str:
        answer = one.post("/create_session")
        sid = str(answer.json()["sid"]) if answer.status == 200 else ""
        if not sid or int(sid[:4], 16) != slot:
            return ""
        created = one.post("/create", {"env_name": env, "task_spec": {}}, sid=sid)
        return sid if created.status == 200 else ""

    def away(self, slot: int) -> "HostInfo":
        """A host on another node than that one's."""
        node = self.row(slot).node
        return next(row for row in self.rows if row.node != node)

    def on_worker(self) -> "tuple[HostInfo, Any]":
        """A host on a node that is not the head, and that node."""
        nodes = {node.node_id: node for node in self.cluster.worker_nodes}
        row = next(row for row in self.rows if row.node in nodes)
        return row, nodes[row.node]

    def moved(self, away_from: "HostInfo") -> None:
        """Waits until three hosts are up on other nodes than that one's.

        Ray restarts the lost one in its slot. If that takes over ten seconds, as when its lease waits at a
        full node, the deployment starts another one, in another slot.
        """
        until(lambda: sum(row.node != away_from.node for row in self.rows) == 3)

    def back(self, was: "HostInfo") -> "HostInfo":
        """The next incarnation of a host, once it is up."""
        return next(
            iter(until(lambda: [r for r in self.rows if r.slot == was.slot and r.url != was.url])), was
        )
