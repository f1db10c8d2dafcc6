"""Servers as Ray actors: placed, watched and restarted by Ray, which no request goes through."""

from collections.abc import Mapping, Sequence
from typing import Any

import ray

from ors import Environment
from ors.cluster.bounds import Bounds
from ors.cluster.directory import Row
from ors.cluster.ray.deployment import Deployment
from ors.cluster.ray.plan import DIRECTORY, Plan

__all__ = ["Deployment", "Row", "deploy", "directory"]

DEFAULT_NAMESPACE = "ors"


def deploy(
    environments: Sequence[type[Environment]],
    *,
    hosts: int = 1,
    max_hosts: int | None = None,
    sessions_per_host: int = 100,
    calm_seconds: float = 60.0,
    drain_seconds: float = 3600.0,
    fronts: int = 0,
    port: int = 8080,
    host: str = "",
    insecure: bool = False,
    num_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    namespace: str = DEFAULT_NAMESPACE,
    **options: Any,
) -> Deployment:
    """Starts servers in the Ray cluster that this process is connected to (`ray.init(address=…)`).

    There are at least `hosts` of them, and up to `max_hosts` by load: one for each `sessions_per_host`, fewer
    again when that was enough for `calm_seconds`; those that go end with their last session, or after
    `drain_seconds`. `fronts` routers stand at `port`, one a node. `host` is the address to listen on; without
    it, that of each node, which needs `api_keys` or `insecure`. `num_cpus`, `resources` and `runtime_env` are
    each host's; `options` are the Server's own. Of deployments in one cluster, each has a `namespace`.

    Raises:
        ValueError: there is a deployment in that namespace.
        ray.exceptions.RayError: a host cannot be started; the text says why.
    """
    where = (host, port, insecure, num_cpus, resources or {}, runtime_env or {}, namespace)
    most = max(hosts, max_hosts or hosts)
    bounds = Bounds(hosts, most, sessions_per_host, calm_seconds, drain_seconds)
    deployment = Deployment(Plan(environments, options, *where), bounds, fronts)
    deployment.start()
    return deployment


def directory(namespace: str = DEFAULT_NAMESPACE) -> Any:
    """The directory of what is deployed there, for commands.

    Raises:
        ValueError: nothing is.
    """
    return ray.get_actor(DIRECTORY, namespace=namespace)
