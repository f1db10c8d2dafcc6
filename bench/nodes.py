"""What dies in a Ray cluster, who sees it and how soon: `python -m bench.nodes`, in about two minutes."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ors
from bench import machine
from tests.cluster.fleet import Fleet, add_node, clustered, family, frozen, raylet, until
from tests.lab import Lab
from tests.raw import Raw

Death = Callable[[Fleet, Any, Any], AbstractContextManager[None]]


def host(fleet: Fleet, row: Any, node: Any) -> AbstractContextManager[None]:
    os.kill(fleet.pid(row.slot), signal.SIGKILL)
    return nullcontext()


def raylet_alone(fleet: Fleet, row: Any, node: Any) -> AbstractContextManager[None]:
    os.kill(raylet(node), signal.SIGKILL)
    return nullcontext()


def whole_node(fleet: Fleet, row: Any, node: Any) -> AbstractContextManager[None]:
    for pid in family(raylet(node)):
        os.kill(pid, signal.SIGKILL)
    return nullcontext()


def frozen_host(fleet: Fleet, row: Any, node: Any) -> AbstractContextManager[None]:
    return frozen([fleet.pid(row.slot)])


def frozen_node(fleet: Fleet, row: Any, node: Any) -> AbstractContextManager[None]:
    return frozen(family(raylet(node)))


DEATHS: dict[str, tuple[Death, bool]] = {
    "a host": (host, False),
    "the raylet alone": (raylet_alone, True),
    "a whole node": (whole_node, True),
    "a host frozen": (frozen_host, False),
    "a whole node frozen": (frozen_node, True),
}


def seen(fleet: Fleet, death: Death) -> dict[str, object]:
    """What a client of another node sees, in seconds since it happened."""
    row, node = fleet.on_worker()
    other = fleet.away(row.slot)
    door = Raw(other.url)
    sid, kept = fleet.session(door, row.slot), fleet.session(door, other.slot)
    with door.opened(sid, "stay") as call:
        began = time.perf_counter()
        with death(fleet, row, node):
            told = call.rest().error()
            found: dict[str, object] = {"told": told, "after, s": round(time.perf_counter() - began, 3)}
            fresh = fleet.session(door, other.slot)
            assert door.call(fresh, "nothing").result()["ok"] is True
            found["a new session, s"] = round(time.perf_counter() - began, 3)
            assert door.call(kept, "nothing").result()["ok"] is True
            until(lambda: len([r for r in fleet.rows if r.url != row.url]) == 3)
            found["as many hosts as before, s"] = round(time.perf_counter() - began, 2)
    for each in (kept, fresh):
        door.post("/delete", sid=each)
    if node.node_id not in {row.node for row in fleet.rows}:
        fleet.cluster.remove_node(node, allow_graceful=False)
    return found


def main() -> None:
    """Kills and freezes one thing after the other, for real."""
    from ors.cluster.ray import deploy

    print(f"others take {machine.noise_now():.0%} of the machine")
    with clustered() as cluster:
        limits = ors.Limits(grace_seconds=0.1)
        deployment = deploy([Lab], hosts=3, host="127.0.0.1", num_cpus=0.45, limits=limits)
        fleet = Fleet(cluster, deployment)
        try:
            for name, (death, takes_node) in DEATHS.items():
                while takes_node and len(cluster.worker_nodes) < 2:
                    add_node(cluster)
                fleet.settled()
                print(name, json.dumps(seen(fleet, death)), flush=True)
        finally:
            deployment.stop()


if __name__ == "__main__":
    main()
