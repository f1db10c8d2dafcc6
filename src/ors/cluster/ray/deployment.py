"""The deployment that `deploy` returns: hosts in a Ray cluster, with routers before them."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from ors.cluster.hosting.deployment import TICK_SECONDS, Bounds, Deployment
from ors.cluster.ray.backend import RayBackend

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
