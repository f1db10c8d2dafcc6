"""The way out of a sandbox: a proxy on its loopback that connects to the places of an allow-list only.

The agent opens the socket in the sandbox's own network, and sends it to the server, which answers on it.
"""

import asyncio
import re
import socket
import sys
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Protocol

from ors.sandbox.spec import Allow, place

LARGEST = 1 << 16
"""Bytes of a request's head, and of a piece of what follows."""
SECONDS = 30.0
"""For the head of a request, and to connect."""
MOST_CONNECTIONS = 64
UNICAST, TRANSLATED = ip_network("2000::/3"), ip_network("64:ff9b::/96")
"""The internet's addresses of IPv6, and those that a gateway translates to IPv4."""
REQUEST = re.compile(
    r"(?:CONNECT (\S+)|(?!CONN)([A-Z]+) (?i:http)://([^\s/?#:]+|\[\S+\])(:\d+)?([/?][^\s#]*)?) HTTP/1\.[01]"
)
OWN = re.compile(rb"[A-Z]+ /")
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
DROPPED = {"host", "connection", "keep-alive", "te", "upgrade", "proxy-connection", "proxy-authorization"}


class Relay(Protocol):
    """Takes connections for the proxy itself."""

    async def connected(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serves one, whose first bytes have been read."""


class Refused(Exception):
    """A status and a reason, for the program that has asked."""


class Egress:
    """The proxy of one sandbox."""

    def __init__(self, allow: Allow) -> None:
        self.allow = allow
        """Can be replaced at any time; connections that are open stay, unless `cut` ends them."""
        self.relay: Relay | None = None
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._server: asyncio.Server | None = None

    async def open(self, source: socket.socket) -> None:
        """Answers on the listening socket that the agent has sent.

        Raises:
            OSError: it has sent none.
        """
        _, fds, _, _ = socket.recv_fds(source, 1, 1, socket.MSG_DONTWAIT)
        listener = socket.socket(fileno=fds[0] if fds else -1)
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=LARGEST)

    def cut(self) -> None:
        """Ends all connections."""
        for task in self._tasks:
            _ = task and task.cancel()

    def close(self) -> None:
        """Ends all connections, and takes no further ones."""
        if self._server is not None:
            self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.current_task())
        try:
            await self._answer(reader, writer)
        except Refused as refused:
            status, text = refused.args[0], f"sandbox: {refused.args[1]}\n"
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
            writer.write((head + text).encode("latin-1", "replace"))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the program has gone, or sent no whole request
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) > MOST_CONNECTIONS:
            raise Refused("503 Service Unavailable", f"{MOST_CONNECTIONS} connections are open")
        async with asyncio.timeout(SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            relay = self.relay if OWN.match(head) else None
            if relay is None:
                target, request, size = understood(head[:-4].decode("latin-1"))
                if target not in self.allow.places:
                    raise Refused("403 Forbidden", f"{target} is not on the allow-list")
                there, out = await self._connected(target)
        if relay is not None:
            await relay.connected(head, reader, writer)
            return
        try:
            (out if request else writer).write(request or b"HTTP/1.1 200 Connection established\r\n\r\n")
            more = b"Connection: close\r\n" if request else b""
            await asyncio.gather(pump(reader, out, size), pump(there, writer, more=more))
        finally:
            out.close()

    async def _connected(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connects to an address of a place that is public, but not this machine's, or named by the list."""
        host, _, port = target.rpartition(":")
        with suppress(OSError, UnicodeError):  # UnicodeError: no name can be like that
            loop = asyncio.get_running_loop()
            for found in await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM):
                ip = ip_address(str(found[4][0]).partition("%")[0])
                ip = getattr(ip, "ipv4_mapped", None) or ip
                named = host == "localhost" or place(f"[{ip}]:{port}") in self.allow.places
                with suppress(OSError):
                    if named or public(ip):
                        there, out = await asyncio.open_connection(str(ip), int(port), limit=LARGEST)
                        if named or out.get_extra_info("sockname")[0] != out.get_extra_info("peername")[0]:
                            return there, out
                        out.close()
        why = "it does not answer, or has a private address that is not on the allow-list"
        raise Refused("502 Bad Gateway", f"{target} cannot be reached: {why}")


def public(ip: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the internet."""
    if ip in TRANSLATED:
        ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.is_global and (ip.version == 4 or ip in UNICAST)


def understood(head: str) -> tuple[str, bytes, int]:
    """The place that a request asks for; what to send there, and the size of its body, unless it connects.

    Raises:
        Refused: it is not well formed, or can be understood in two ways.
    """
    line, *lines = head.split("\r\n")
    words, fields = REQUEST.fullmatch(line), [found for each in lines if (found := HEADER.fullmatch(each))]

    def values(name: str) -> list[str]:
        return [field[2].lower() for field in fields if field[1].lower() == name]

    try:
        if words is None or len(fields) < len(lines) or values("transfer-encoding"):
            raise ValueError("this proxy takes CONNECT host:port, and http:// URLs with a Content-Length")
        target = place(words[1] or words[3] + (words[4] or ":80"))
        bare = target.rpartition(":")[0]
        hosts, sizes = values("host") or [bare], values("content-length") or ["0"]
        if len(hosts + sizes) > 2 or hosts[0] not in (bare, target) or not sizes[0].isdecimal():
            raise ValueError("Host or Content-Length does not fit the request")
        size = int(sizes[0])
    except ValueError as error:
        raise Refused("400 Bad Request", str(error)) from None
    if words[1]:
        return target, b"", sys.maxsize
    path = words[5] or "/"
    start = f"{words[2]} {'/' * path.startswith('?')}{path} HTTP/1.1"
    kept = [field[0] for field in fields if field[1].lower() not in DROPPED]
    whole = [start, f"Host: {bare if target.endswith(':80') else target}", *kept, "Connection: close", "", ""]
    return target, "\r\n".join(whole).encode("latin-1"), size


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int = sys.maxsize, more: bytes = b""
) -> None:
    """Copies so many bytes of a stream, and its end if it comes first. `more` follows the first line."""
    try:
        if more:
            writer.write(await reader.readline() + more)
        while size and (data := await reader.read(min(size, LARGEST))):
            writer.write(data)
            await writer.drain()
            size -= len(data)
        if size:
            writer.write_eof()
    except (OSError, ValueError):
        writer.close()
