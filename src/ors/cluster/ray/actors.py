"""How the actors of hosts, routers and the directory are made and placed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

from ors import Environment, Limits
from ors.cluster.hosting.backend import Directory
from ors.cluster.ray.heartbeat import DIRECTORY
from ors.cluster.ray.host import Host
from ors.cluster.ray.router import RouterActor
from ors.server.sessions.api_keys import Keys

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
            raise ValueError(f"num_cpus must be {LEAST_CPUS} or more: Ray places what needs none anywhere")

    def directory(self) -> Any:
        """Starts the one directory of the namespace.

        Raises:
            NamespaceInUse: there is one already.
        """
        known = ray.remote(Directory).options(
            name=DIRECTORY, namespace=self.namespace, resources=_ON_HEAD, **_SMALL
        )
        try:
            return known.remote()
        except ValueError:
            raise NamespaceInUse(f"there is a deployment in the namespace {self.namespace!r}") from None

    def host_actor(self, slot: int, avoid: frozenset[str]) -> Any:
        """Starts a host, on any node but these."""
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
