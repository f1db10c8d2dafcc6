"""Workers: server processes on this machine, and their supervisor."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ors.cluster.local.messages import WorkerConfig

if TYPE_CHECKING:
    from ors.cluster.local.spawn import listeners, take
    from ors.cluster.local.supervisor import Policy, Supervisor
    from ors.cluster.local.worker import Worker

__all__ = [
    "Policy",
    "Supervisor",
    "Worker",
    "WorkerConfig",
    "listeners",
    "take",
]

_MODULES = {"Policy": "supervisor", "Supervisor": "supervisor", "Worker": "worker"}


def __getattr__(name: str) -> Any:
    # On demand: a supervisor loads no server, and a single server no supervisor.
    if name not in __all__:
        raise AttributeError(f"module 'ors.cluster.local' has no attribute {name!r}")
    return getattr(import_module(f"ors.cluster.local.{_MODULES.get(name, 'spawn')}"), name)
