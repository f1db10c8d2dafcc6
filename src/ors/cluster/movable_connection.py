"""A client's connection that another process of this machine can take over."""

import socket
from typing import NamedTuple

from ors.cluster.link.handover import HandoverTarget
from ors.server.connections.connection import Connection


class Streak(NamedTuple):
    """The server that gave the last answers of a connection, and how many in a row."""

    server: HandoverTarget
    length: int


class MovableConnection(Connection):
    """Knows whether it is idle to the byte, and who gave its last answers."""

    streak: Streak | None = None

    def on_message_begin(self) -> None:
        """Notes the first byte of a request, which may follow another one in the same read."""
        self._reading = self._in_headers = True

    def detach(self) -> None:
        """Closes it in this process only: another process has the client's connection now."""
        self.abort()

    @property
    def spare(self) -> int | None:
        """The file descriptor, if nothing is under way and another process could take the client over."""
        transport = None if self._parser is None else self._transport  # refused clients are not read
        if self._busy or self._waiting or self._reading or transport is None or transport.is_closing():
            return None
        if transport.get_write_buffer_size() or transport.get_extra_info("ssl_object") is not None:
            return None
        end = transport.get_extra_info("socket")  # a link comes over a unix socket, and stays
        return None if end.family == socket.AF_UNIX else int(end.fileno())
