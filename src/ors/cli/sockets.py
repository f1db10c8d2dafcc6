"""Opens the socket to serve on."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from ors.cli.errors import Unreachable


def listener(host: str, port: int) -> socket.socket:
    """Opens a listening socket.

    Raises:
        Unreachable: the address cannot be used; the text says why.
    """
    with in_words(host, port):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)


@contextmanager
def in_words(host: str, port: int) -> Iterator[None]:
    """Explains errors of listening sockets.

    Raises:
        Unreachable: instead of OSError.
    """
    try:
        yield
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = (
            "the port is in use; choose another --port, or 0 for any free one"
            if taken
            else error.strerror or str(error)
        )
        raise Unreachable(f"Cannot listen on {host}:{port}: {why}") from None
