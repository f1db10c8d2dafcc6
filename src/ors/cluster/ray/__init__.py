"""Servers as Ray actors: Ray places, watches and restarts them; no request goes through Ray."""

from ors.cluster.hosting.backend import HostInfo
from ors.cluster.ray.actors import directory
from ors.cluster.ray.backend import NamespaceInUse
from ors.cluster.ray.deployment import RayDeployment as Deployment
from ors.cluster.ray.deployment import deploy

__all__ = ["Deployment", "HostInfo", "NamespaceInUse", "deploy", "directory"]
