"""The inspector: a web page to look at a server, and a local server of that page for remote servers."""

from ors.inspector.standin import StandIn

__all__ = ["StandIn"]
