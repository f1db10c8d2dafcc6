"""Many servers behind one address: any of them takes any request, and the session id names the server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ors.cluster.proxy_configs import haproxy as haproxy
    from ors.cluster.proxy_configs import nginx as nginx
    from ors.cluster.router_server import RouterServer as RouterServer

__all__ = ["RouterServer", "haproxy", "nginx"]


def __getattr__(name: str) -> Any:
    # On demand: workers and hosts need no router, and a printed configuration no server.
    if name not in __all__:
        raise AttributeError(f"module 'ors.cluster' has no attribute {name!r}")
    module = "ors.cluster.router_server" if name == "RouterServer" else "ors.cluster.proxy_configs"
    return getattr(import_module(module), name)
