"""A connection that sends in steps and counts the answers in between."""

import re
import socket
from typing import Self

_END = re.compile(rb"HTTP/1\.1 \d{3} ")


class Steps:
    """Bytes go when they are told to; what comes is kept."""

    def __init__(self, host: str, port: int) -> None:
        self._end = socket.create_connection((host, port), 20)
        self._end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def send(self, data: bytes) -> None:
        self._end.sendall(data)

    def until(self, count: int) -> None:
        """Waits for so many answers, the last of which has at least begun."""
        while len(_END.findall(self._heard)) < count:
            part = self._end.recv(65536)
            assert part, f"it ended after {self._heard[-300:]!r}"
            self._heard += part

    def rest(self) -> bytes:
        """All that came, up to the end."""
        while part := self._end.recv(65536):
            self._heard += part
        return self._heard
