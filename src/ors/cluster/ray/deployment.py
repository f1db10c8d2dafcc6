"""Deploys hosts in a Ray cluster, with routers in front of them."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

from ors import Environment, Limits
from ors.cluster.hosting import (
    SILENCE_SECONDS,
    TICK_SECONDS,
    BackendClosed,
    BackendUnavailable,
    Bounds,
    Deployment,
    Directory,
    HostInfo,
    Targets,
)
from ors.cluster.ray.actors import DIRECTORY, Host, RouterActor
from ors.server.sessions.admission import Keys

log = logging.getLogger("ors.cluster")

ANSWER_SECONDS = 2.0
"""A host that has not answered by then is asked again later."""
STOP_SECONDS = 60.0
WARNING_SECONDS = 15.0
"""How often a start that waits for resources is logged."""
LEAST_CPUS = 0.01
"""Ray places an actor without any CPU anywhere, whatever else it asks for."""
_SMALL: dict[str, Any] = {"num_cpus": LEAST_CPUS, "max_restarts": -1, "max_task_retries": -1}
# Beside Ray's own record of the cluster, without which nothing could be placed either.
_ON_HEAD = {"node:__internal_head__": 0.001}


class NamespaceInUse(ValueError):
    """The namespace has a deployment already; two would mix up their hosts."""


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """The arguments of `deploy` that actors are made from."""

    environments: Sequence[type[Environment]]
    options: Mapping[str, Any]
    host: str
    port: int
    insecure: bool
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    runtime_env: Mapping[str, Any]
    namespace: str

    def __post_init__(self) -> None:
        if not ray.is_initialized():  # or Ray would start a new cluster on this machine
            raise RuntimeError("Not connected to a Ray cluster: call ray.init(address=...) first")
        if self.num_cpus < LEAST_CPUS:
            raise ValueError(f"num_cpus must be at least {LEAST_CPUS}: Ray puts hosts without CPUs anywhere")

    def directory(self) -> Any:
        """Starts the one directory of the namespace. Raises NamespaceInUse: there is one already."""
        known = ray.remote(Directory).options(
            name=DIRECTORY, namespace=self.namespace, resources=_ON_HEAD, **_SMALL
        )
        try:
            return known.remote()
        except ValueError:
            raise NamespaceInUse(f"there is a deployment in the namespace {self.namespace!r}") from None

    def host_actor(self, slot: int, avoid: frozenset[str]) -> Any:
        where = NodeLabelSchedulingStrategy({"ray.io/node-id": NotIn(*avoid)}) if avoid else "SPREAD"
        made = ray.remote(Host).options(
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus or None,  # zero would hide the GPUs that are there
            resources=dict(self.resources),
            runtime_env=dict(self.runtime_env) or None,
            scheduling_strategy=where,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=4,
        )
        return made.remote(
            slot, list(self.environments), dict(self.options), self.host, self.insecure, self.namespace
        )

    def router_actor(self, node: str) -> Any:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        made = ray.remote(RouterActor).options(scheduling_strategy=there, max_concurrency=2, **_SMALL)
        secrets = [key.secret for key in Keys(self.options.get("api_keys", ())).by_name.values()]
        limits = self.options.get("limits") or Limits()
        origins = tuple(self.options.get("cors_origins", ()))
        key = secrets[0] if secrets else ""
        return made.remote(self.host, self.port, limits, key, origins, self.namespace)


class RayBackend:
    """Runs hosts and routers in the Ray cluster that this process is connected to."""

    def __init__(self, plan: ActorPlan, routers: int) -> None:
        self._plan = plan
        self.directory = plan.directory()
        self._router_count = routers
        self.hosts: dict[int, Any] = {}
        """Ray's handles of the hosts, by slot."""
        self.routers: dict[str, Any] = {}
        """Ray's handles of the routers, by node."""
        self._ending: dict[int, Any] = {}  # by slot: ready once the host has ended
        self._targets = Targets()

    # ── The seam ─────────────────────────────────────────────────────────────────────────────────

    def start(self, slot: int, avoid: frozenset[str]) -> None:
        self.hosts[slot] = self._plan.host_actor(slot, avoid)

    def list(self) -> tuple[Sequence[HostInfo], Targets]:
        """Returns what the directory knows; a restarted one gets the operators' targets again."""
        if not ray.is_initialized():  # or Ray would start another cluster, on this machine
            raise BackendClosed("Not connected to a Ray cluster")
        try:
            known = self.directory.state.remote(self._targets)
            hosts, self._targets = ray.get(known, timeout=SILENCE_SECONDS)
        except ray.exceptions.RayError as error:
            raise BackendUnavailable(str(error)) from error
        return hosts, self._targets

    def drain(self, slot: int) -> int | None:
        try:
            sessions: int = ray.get(self.hosts[slot].retire.remote(), timeout=ANSWER_SECONDS)
        except ray.exceptions.RayActorError:
            return 0
        except ray.exceptions.GetTimeoutError:
            return None
        return sessions

    def undrain(self, slot: int) -> None:
        self.hosts[slot].retire.remote(False)

    def stop(self, slot: int) -> bool:
        if slot not in self._ending:
            self._ending[slot] = self.hosts[slot].stop.remote()
        if not ray.wait([self._ending[slot]], timeout=0)[0]:
            return False
        ray.kill(self.hosts.pop(slot))
        self.directory.forget.remote(slot)
        del self._ending[slot]
        return True

    def close(self) -> None:
        """Ends the routers, waits for the hosts that are ending, and kills what is left."""
        ending = [router.stop.remote() for router in self.routers.values()] + [*self._ending.values()]
        if ending:
            ray.wait(ending, num_returns=len(ending), timeout=STOP_SECONDS)
        for actor in [*self.routers.values(), *self.hosts.values(), self.directory]:
            ray.kill(actor)

    # ── What only Ray has ────────────────────────────────────────────────────────────────────────

    def wait_until_started(self) -> None:
        """Waits for all hosts. Raises ray.exceptions.RayError: one cannot be started."""
        starting = waiting = [host.info.remote() for host in self.hosts.values()]
        while waiting:
            _, waiting = ray.wait(starting, num_returns=len(starting), timeout=WARNING_SECONDS)
            if waiting:
                missing = f"{len(waiting)} of {len(starting)} hosts are not up yet"
                log.warning("%s: does the cluster have the resources for them?", missing)
        ray.get(starting)

    def router_urls(self) -> dict[str, str]:
        found: dict[str, str] = ray.get(self.directory.routers.remote())
        return found

    def place_routers(self) -> None:
        """Keeps one router on each of as many nodes as were asked for; a lost node is replaced."""
        nodes = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
        for node in self.routers.keys() - set(nodes):
            ray.kill(self.routers.pop(node))
        for node in nodes:
            if len(self.routers) < self._router_count and node not in self.routers:
                self.routers[node] = self._plan.router_actor(node)


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
