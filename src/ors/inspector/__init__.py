"""The inspector: a page to look at a server from a browser, and a way to it for servers that have none."""

from ors.inspector.standin import StandIn

__all__ = ["StandIn"]
