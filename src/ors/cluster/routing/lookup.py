"""Finds the server of a request before forwarding it."""

from ors.server.http.streams import Later


class Lookup(Later):
    """A request whose server is still looked for."""
