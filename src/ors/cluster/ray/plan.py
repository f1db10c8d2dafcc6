"""How hosts and routers are made, and where they may be."""

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
from ors.cluster.directory import Directory
from ors.cluster.ray.front import Front
from ors.cluster.ray.host import Host
from ors.server.access import Keys

DIRECTORY = "ors-directory"
# An actor without any CPU is placed anywhere, whatever is asked for.
_SMALL: dict[str, Any] = {"num_cpus": 0.01, "max_restarts": -1, "max_task_retries": -1}
# With Ray's own memory of the cluster, without which nothing could be placed either.
_ON_HEAD = {"node:__internal_head__": 0.001}


@dataclass(frozen=True, slots=True)
class Plan:
    """What `deploy` was asked for."""

    environments: Sequence[type[Environment]]
    options: Mapping[str, Any]
    host: str
    port: int
    insecure: bool
    num_cpus: float
    resources: Mapping[str, float]
    runtime_env: Mapping[str, Any]
    namespace: str

    def directory(self) -> Any:
        """The one directory of the namespace.

        Raises:
            ValueError: there is one already: two deployments would take each other's hosts for their own.
        """
        known = ray.remote(Directory).options(
            name=DIRECTORY, namespace=self.namespace, resources=_ON_HEAD, **_SMALL
        )
        return known.remote()

    def host_actor(self, slot: int, directory: Any, drained: frozenset[str]) -> Any:
        """A host, on any node but the drained ones."""
        where = NodeLabelSchedulingStrategy({"ray.io/node-id": NotIn(*drained)}) if drained else "SPREAD"
        made = ray.remote(Host).options(
            num_cpus=self.num_cpus,
            resources=dict(self.resources),
            runtime_env=dict(self.runtime_env) or None,
            scheduling_strategy=where,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=4,
        )
        return made.remote(
            slot, list(self.environments), dict(self.options), self.host, self.insecure, directory
        )

    def front_actor(self, node: str, directory: Any) -> Any:
        """A router on that node."""
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        made = ray.remote(Front).options(scheduling_strategy=there, max_concurrency=2, **_SMALL)
        secrets = [key.secret for key in Keys(self.options.get("api_keys", ())).by_name.values()]
        limits = self.options.get("limits") or Limits()
        return made.remote(self.host, self.port, limits, secrets[0] if secrets else "", directory)
