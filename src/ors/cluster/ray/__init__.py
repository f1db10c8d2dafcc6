"""Servers as Ray actors: placed, watched and restarted by Ray, which no request goes through."""

from collections.abc import Mapping, Sequence
from typing import Any

import ray

from ors import Environment
from ors.cluster.autoscale import Bounds
from ors.cluster.directory import Row
from ors.cluster.ray.actors import ActorPlan
from ors.cluster.ray.deployment import Deployment
from ors.cluster.ray.heartbeat import directory

__all__ = ["Deployment", "Row", "deploy", "directory"]

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
    fronts: int = 0,
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

    There are `hosts` of them at first, then between `min_hosts` and `max_hosts` by load (without these, as
    many as at first): one for each `sessions_per_host`, fewer again when that was enough for `calm_seconds`;
    those that go end with their last session, or after `drain_seconds`. `fronts` routers stand at `port`, one
    a node. `host` is the address to listen on; without it, that of each node, which needs `api_keys` or
    `insecure`. `num_cpus`, `num_gpus`, `resources` and `runtime_env` are each host's; `options` are the
    Server's own. Of deployments in one cluster, each has a `namespace`.

    Raises:
        RuntimeError: this process is not connected to a cluster.
        ValueError: there is a deployment in that namespace, or a number is none that can be.
        ray.exceptions.RayError: a host cannot be started; the text says why.
    """
    if not ray.is_initialized():  # or Ray would start a cluster of its own, on this machine
        raise RuntimeError("Not connected to a Ray cluster: call ray.init(address=...) first")
    where = (host, port, insecure, num_cpus, num_gpus, resources or {}, runtime_env or {}, namespace)
    plan = ActorPlan(environments, options, *where)
    least, most = _around(hosts, min_hosts, max_hosts)
    bounds = Bounds(least, most, sessions_per_host, calm_seconds, drain_seconds)
    deployment = Deployment(plan, bounds, fronts)
    deployment.start(hosts)
    return deployment


def _around(hosts: int, min_hosts: int | None, max_hosts: int | None) -> tuple[int, int]:
    least = hosts if min_hosts is None else min_hosts
    most = hosts if max_hosts is None else max_hosts
    if not 1 <= least <= hosts <= most:
        raise ValueError(
            f"hosts must be between min_hosts and max_hosts: {hosts} is not in {least} to {most}"
        )
    return least, most
