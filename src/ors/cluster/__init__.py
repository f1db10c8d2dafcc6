"""Many servers behind one address: any of them takes any request, and the session id names the server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ors.cluster.servers import RouterServer as RouterServer

__all__ = ["RouterServer"]


def __getattr__(name: str) -> Any:
    # On demand: workers and hosts need no router.
    if name not in __all__:
        raise AttributeError(f"module 'ors.cluster' has no attribute {name!r}")
    return getattr(import_module("ors.cluster.servers"), name)
