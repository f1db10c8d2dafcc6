"""Servers as Ray actors: Ray places, watches and restarts them; no request goes through Ray."""

from collections.abc import Mapping, Sequence
from typing import Any

from ors import Environment
from ors.cluster.hosting.backend import HostInfo
from ors.cluster.hosting.deployment import Bounds
from ors.cluster.ray.actors import ActorPlan, NamespaceInUse
from ors.cluster.ray.backend import RayBackend
from ors.cluster.ray.deployment import RayDeployment as Deployment
from ors.cluster.ray.heartbeat import directory

__all__ = ["Deployment", "HostInfo", "NamespaceInUse", "deploy", "directory"]

DEFAULT_NAMESPACE = "ors"


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
) -> Deployment:
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
    return Deployment(RayBackend(plan, routers), bounds).start(hosts)


def _around(hosts: int, min_hosts: int | None, max_hosts: int | None) -> tuple[int, int]:
    least = hosts if min_hosts is None else min_hosts
    most = hosts if max_hosts is None else max_hosts
    if not 1 <= least <= hosts <= most:
        raise ValueError(
            f"hosts must be between min_hosts and max_hosts: {hosts} is not in {least} to {most}"
        )
    return least, most
