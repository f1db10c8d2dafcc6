"""Servers as Ray actors: Ray places, watches and restarts them; no request goes through Ray."""

from ors.cluster.hosting import HostInfo
from ors.cluster.ray.actors import directory
from ors.cluster.ray.deployment import NamespaceInUse, deploy
from ors.cluster.ray.deployment import RayDeployment as Deployment

__all__ = ["Deployment", "HostInfo", "NamespaceInUse", "deploy", "directory"]
