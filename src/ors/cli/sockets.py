"""A socket to serve on."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from ors.cli.errors import Unreachable

__all__ = ["in_words", "listener"]


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        Unreachable: it cannot; the text says why.
    """
    with in_words(host, port):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)


@contextmanager
def in_words(host: str, port: int) -> Iterator[None]:
    """Says why nobody can listen there.

    Raises:
        Unreachable: instead of the system's own error.
    """
    try:
        yield
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken; try another --port, or 0 for any" if taken else error.strerror or str(error)
        raise Unreachable(f"Cannot listen on {host}:{port}: {why}") from None
