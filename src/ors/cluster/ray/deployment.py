"""Deploys hosts in a Ray cluster, with routers in front of them."""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from ors import Environment
from ors.cluster.hosting.deployment import TICK_SECONDS, Bounds, Deployment
from ors.cluster.ray.backend import ActorPlan, RayBackend

DEFAULT_NAMESPACE = "ors"
SIGNAL_SECONDS = 0.2


class RayDeployment(Deployment):
    """Hosts and routers in a Ray cluster, until `stop`."""

    def __init__(self, backend: RayBackend, bounds: Bounds) -> None:
        super().__init__(backend, bounds)
        self._ray = backend

    def urls(self) -> list[str]:
        """Returns where clients may connect: the routers, or the hosts if there are none."""
        return sorted(set(self._ray.router_urls().values())) or [host.url for host in self.hosts()]

    def actor(self, slot: int) -> Any:
        """Returns Ray's handle of a host."""
        return self._ray.hosts[slot]

    @property
    def routers(self) -> dict[str, Any]:
        """Ray's handles of the routers, by node."""
        return dict(self._ray.routers)

    def scale(self, least: int, most: int | None = None) -> None:
        """Sets the number of hosts; with `most`, it follows the load between the two.

        Hosts that are too many take no new sessions and end with their last one, or at the deadline.
        """
        ray.get(self._ray.directory.scale.remote(least, least if most is None else most))

    def drain(self, node: str) -> None:
        """Retires the hosts of a node; others are started elsewhere."""
        ray.get(self._ray.directory.drain.remote(node))

    def undrain(self, node: str) -> None:
        """Allows hosts on that node again."""
        ray.get(self._ray.directory.undrain.remote(node))

    def tick(self, now: float) -> None:
        """Also replaces routers whose node is gone."""
        super().tick(now)
        self._ray.place_routers()

    def _wait_until_up(self, hosts: int) -> None:
        self._ray.wait_until_started()
        self._ray.place_routers()
        ray.get([router.pid.remote() for router in self._ray.routers.values()])
        super()._wait_until_up(hosts)
        while len(self._ray.router_urls()) < len(self._ray.routers):
            time.sleep(TICK_SECONDS / 5)

    def run(self, announce: Callable[[Sequence[str]], None]) -> None:
        """Serves until SIGINT or SIGTERM, then stops. `announce` is called with the URLs for clients."""
        told = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: told.set())
        try:
            announce(self.urls())
            # One of Ray's threads may receive the signal, so this one polls.
            while not told.wait(SIGNAL_SECONDS):
                pass
        finally:
            self.stop()


def deploy(
    environments: Sequence[type[Environment]],
    *,
    hosts: int = 1,
    min_hosts: int | None = None,
    max_hosts: int | None = None,
    sessions_per_host: int = 100,
    calm_seconds: float = 60.0,
    drain_seconds: float = 3600.0,
    routers: int = 0,
    port: int = 8080,
    host: str = "",
    insecure: bool = False,
    num_cpus: float = 1,
    num_gpus: float = 0,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    **options: Any,
) -> RayDeployment:
    """Starts servers in the Ray cluster that this process is connected to (`ray.init(address=…)`).

    At first `hosts` of them; then their number follows the load between `min_hosts` and `max_hosts` (default:
    `hosts`), with `sessions_per_host` as the target: more at once, fewer when fewer were enough for
    `calm_seconds`. A host that is not needed ends with its last session, or after `drain_seconds`. That many
    `routers` listen on `port`, one per node. `host` is the address to listen on; the default, that of each
    node, needs `api_keys` or `insecure`. `num_cpus`, `num_gpus`, `resources` and `runtime_env` apply to each
    host, `options` to its `Server`. Each deployment in a cluster has its own `namespace`.

    Raises:
        RuntimeError: this process is not connected to a cluster.
        ValueError: the namespace has a deployment already, or a number is out of range.
        ray.exceptions.RayError: a host cannot be started; the text says why.
    """
    where = (host, port, insecure, num_cpus, num_gpus, resources or {}, runtime_env or {}, namespace)
    plan = ActorPlan(environments, options, *where)
    bounds = Bounds(*_around(hosts, min_hosts, max_hosts), sessions_per_host, calm_seconds, drain_seconds)
    return RayDeployment(RayBackend(plan, routers), bounds).start(hosts)


def _around(hosts: int, min_hosts: int | None, max_hosts: int | None) -> tuple[int, int]:
    least = hosts if min_hosts is None else min_hosts
    most = hosts if max_hosts is None else max_hosts
    if not 1 <= least <= hosts <= most:
        raise ValueError(
            f"hosts must be between min_hosts and max_hosts: {hosts} is not in {least} to {most}"
        )
    return least, most
