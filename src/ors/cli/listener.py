"""A socket to serve on."""

import errno
import socket

from ors.cli.faults import Unreachable

__all__ = ["listener"]


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        Unreachable: it cannot; the text says why.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken; try another --port, or 0 for any" if taken else error.strerror or str(error)
        raise Unreachable(f"Cannot listen on {host}:{port}: {why}") from None
