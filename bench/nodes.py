"""What dies in a Ray cluster, who sees it and how soon: `python -m bench.nodes`, in about two minutes."""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ors
from bench import machine
from bench.witnesses import Witnesses
from ors.client import AsyncORS
from tests.support.call_ledger import Place
from tests.support.raw_http import Raw
from tests.support.ray_cluster import Fleet, add_node, clustered, family, frozen, raylet, until
from tests.support.traced_environment import Yard

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

HOSTS = 3
NODES = 3
"""Besides the head: at least one has no router, whose death is a row of its own."""
THAWED_SECONDS = 2.0
"""For what a frozen server had been sent before: it must not run what its clients have given up."""


@dataclass(frozen=True, slots=True)
class Victim:
    """What is to die, and which hosts die with it."""

    pids: list[int]
    dead: frozenset[Place]
    node: Any = None
    """Of a node that is gone afterwards."""
    front: str = ""
    """The node of a router."""


def host(fleet: Fleet) -> Victim:
    row, _ = fleet.on_worker()
    return Victim([fleet.pid(row.slot)], frozenset({(row.slot, row.incarnation)}))


def router(fleet: Fleet) -> Victim:
    node, actor = next(iter(fleet.deployment.routers.items()))
    return Victim([fleet.process(actor)], frozenset(), front=node)


def raylet_alone(fleet: Fleet) -> Victim:
    node = lonely(fleet)
    return Victim([raylet(node)], places(fleet, node), node)


def whole_node(fleet: Fleet) -> Victim:
    node = lonely(fleet)
    return Victim(family(raylet(node)), places(fleet, node), node)


def lonely(fleet: Fleet) -> Any:
    """A node with a host and without a router, which is not the head."""
    nodes = {node.node_id: node for node in fleet.cluster.worker_nodes}
    free = nodes.keys() - fleet.deployment.routers.keys()
    while not (found := [nodes[row.node] for row in fleet.rows if row.node in free]):
        row = fleet.rows[0]  # by draining, hosts would be kept from nodes for as long as they live
        os.kill(fleet.pid(row.slot), signal.SIGKILL)
        fleet.back(row)
        fleet.settled(HOSTS)
    return found[0]


def places(fleet: Fleet, node: Any) -> frozenset[Place]:
    return frozenset((row.slot, row.incarnation) for row in fleet.rows if row.node == node.node_id)


def killed(pids: list[int]) -> AbstractContextManager[None]:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return nullcontext()


Death = tuple[Callable[[Fleet], Victim], Callable[[list[int]], AbstractContextManager[None]]]
DEATHS: dict[str, Death] = {
    "a host": (host, killed),
    "a router": (router, killed),
    "the raylet alone": (raylet_alone, killed),
    "a whole node": (whole_node, killed),
    "a whole node frozen": (whole_node, frozen),
    "a host frozen": (host, frozen),
}


async def seen(fleet: Fleet, front: Raw, victim: Victim, traces: Path, name: str) -> dict[str, object]:
    """What clients of the routers see, in seconds since it happened."""
    strike = DEATHS[name][1]
    async with AsyncORS(front.url) as client:
        witnesses = Witnesses(client, front.url, traces, name.replace(" ", "-"))
        await witnesses.begin()
        through = connections(victim.pids[0], front.port) if victim.front else 0
        began = time.perf_counter()
        with strike(victim.pids):
            witnesses.start_fresh()
            back = asyncio.create_task(asyncio.to_thread(as_before, fleet, victim))
            times = await (witnesses.answered() if victim.front else witnesses.told(victim.dead))
            fresh = await witnesses.started()
            restored = await back
        if strike is frozen:
            await asyncio.sleep(THAWED_SECONDS)
        found = await witnesses.account(victim.dead)
    if victim.front:
        found["connections to it"] = through
    return {
        "answered after, s" if victim.front else "told after, s": [
            round(at - began, 3) for at in (times[0], times[-1])
        ],
        "new sessions after, s": [round(at - began, 3) for at in (fresh[0], fresh[-1])],
        "as before after, s": round(restored - began, 2),
        **found,
    }


def filled(cluster: "Cluster") -> None:
    while len(cluster.worker_nodes) < NODES:
        add_node(cluster)


def measured(fleet: Fleet, front: Raw, traces: Path, name: str) -> dict[str, object]:
    """One death, in a cluster that is whole."""
    filled(fleet.cluster)
    settled(fleet, front)
    victim = DEATHS[name][0](fleet)
    settled(fleet, front)
    found = asyncio.run(seen(fleet, front, victim, traces, name))
    if victim.node is not None:
        fleet.cluster.remove_node(victim.node, allow_graceful=False)
    return found


def as_before(fleet: Fleet, victim: Victim) -> float:
    """Waits until there is as much as before, without what died; gives when that is."""
    if victim.front:
        until(lambda: fleet.process(fleet.deployment.routers[victim.front]) not in victim.pids)
    until(lambda: len([r for r in fleet.rows if (r.slot, r.incarnation) not in victim.dead]) >= HOSTS)
    return time.perf_counter()


def connections(pid: int, port: int) -> int:
    """How many clients are connected to a process at that port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    open_there = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"}
    return sum(os.readlink(file) in open_there for file in Path(f"/proc/{pid}/fd").iterdir())


def settled(fleet: Fleet, front: Raw) -> None:
    """Waits until all hosts are up, linked to each other and to the routers."""
    fleet.settled(HOSTS)
    until(lambda: front.get("/-/metrics").body.decode().count("ors_calls_running{") == HOSTS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def good(found: dict[str, object]) -> bool:
    """Whether nothing ran twice, and nothing was lost that lived elsewhere."""
    wrong = ("tools that ran twice", "of them elsewhere", "answered without a run")
    return not any(found[name] for name in wrong)


def main() -> int:
    """Kills and freezes one thing after the other, for real."""
    from ors.cluster.ray import deploy

    print(f"others take {machine.noise_now():.0%} of the machine")
    results = []
    with tempfile.TemporaryDirectory() as folder, clustered() as cluster:
        filled(cluster)
        traces, port = Path(folder) / "traces", free_port()
        deployment = deploy(
            [Yard],
            hosts=HOSTS,
            routers=2,
            port=port,
            host="127.0.0.1",
            num_cpus=0.45,  # two fit on a node: three are never all on one
            limits=ors.Limits(grace_seconds=0.1),
            runtime_env={"env_vars": {"YARD": str(traces)}},
        )
        fleet = Fleet(cluster, deployment)
        try:
            for name in sys.argv[1:] or DEATHS:
                results.append(measured(fleet, Raw(f"http://127.0.0.1:{port}"), traces, name))
                print(name, json.dumps(results[-1], indent=1), flush=True)
        finally:
            deployment.stop()
    return 0 if all(map(good, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
