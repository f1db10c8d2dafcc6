"""The way out of a sandbox: a proxy on its loopback that connects to the places of an allow-list only.

The agent opens the socket in the sandbox's own network, and sends it to the server, which answers on it.
"""

import asyncio
import re
import socket
from ipaddress import ip_address

from ors.sandbox.spec import Allow, place

LARGEST_HEAD = 1 << 16
SECONDS = 30.0
"""For the head of a request, and to connect."""
MOST_CONNECTIONS = 64
REQUEST = re.compile(r"([A-Z]+) (?:[Hh][Tt][Tt][Pp]://([^/?#]+)([/?][^#\s]*)?|(\S+)) HTTP/1\.[01]")
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*")
DROPPED = {"host", "connection", "keep-alive", "te", "upgrade", "proxy-connection", "proxy-authorization"}
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Refused(Exception):
    """A status and a reason, for the program that has asked."""


class Egress:
    """The proxy of one sandbox."""

    def __init__(self, allow: Allow) -> None:
        self.allow = allow
        """Can be replaced at any time; connections that are open stay, unless `cut` ends them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, source: socket.socket) -> None:
        """Answers on the listening socket that the agent has sent.

        Raises:
            OSError: it has sent none.
        """
        _, fds, _, _ = socket.recv_fds(source, 1, 1, socket.MSG_DONTWAIT)
        listener = socket.socket(fileno=fds[0] if fds else -1)
        self._server = await asyncio.start_server(self._serve, sock=listener, limit=LARGEST_HEAD)

    def cut(self) -> None:
        """Ends all connections."""
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        """Ends all connections, and takes no further ones."""
        if self._server is not None:
            self._server.close()
        self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer((reader, writer))
        except Refused as refused:
            status, text = refused.args[0], f"sandbox: {refused.args[1]}\n"
            head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
            writer.write((head + text).encode("latin-1", "replace"))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # one side has gone, or the program has sent no whole request
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, client: Streams) -> None:
        if len(self._tasks) > MOST_CONNECTIONS:
            raise Refused("503 Service Unavailable", f"{MOST_CONNECTIONS} connections are open")
        async with asyncio.timeout(SECONDS):
            head = await client[0].readuntil(b"\r\n\r\n")
            target, request, size = understood(head[:-4].decode("latin-1"))
            if target not in self.allow.places:
                raise Refused("403 Forbidden", f"{target} is not on the allow-list")
            reader, writer = await self._connected(target)
        (writer if request else client[1]).write(request or b"HTTP/1.1 200 Connection established\r\n\r\n")
        sending = asyncio.ensure_future(pump(client[0], writer, size))
        sending.add_done_callback(
            lambda done: writer.close() if done.cancelled() or done.exception() else None
        )
        try:
            if request:
                status, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
                client[1].write(status + b"\r\nConnection: close\r\n" + rest)
            await pump(reader, client[1])
        finally:
            sending.cancel()
            writer.close()

    async def _connected(self, target: str) -> Streams:
        """Connects to a place, but to no private address, and to none of this machine, that is not named."""
        host, _, port = target.rpartition(":")
        why = "502 Bad Gateway", f"{target} cannot be reached"
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        except OSError:
            raise Refused(*why) from None
        for address in dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found):
            ip = ip_address(address)
            ip = getattr(ip, "ipv4_mapped", None) or ip
            named = host == "localhost" or place(f"[{ip}]:{port}") in self.allow.places
            private = (
                "403 Forbidden",
                f"{target} has the private address {ip}, which is not on the allow-list",
            )
            if not named and not ip.is_global:
                why = private
                continue
            try:
                reader, writer = await asyncio.open_connection(address, int(port), limit=LARGEST_HEAD)
            except OSError:
                continue
            if named or writer.get_extra_info("sockname")[0] != writer.get_extra_info("peername")[0]:
                return reader, writer
            writer.close()  # a public address of this machine
            why = private
        raise Refused(*why)


def understood(head: str) -> tuple[str, bytes, int | None]:
    """The place that a request asks for; unless it connects, what to send there, and the size of its body.

    Raises:
        Refused: it is not well formed, or can be understood in two ways.
    """
    line, *lines = head.split("\r\n")
    words, fields = REQUEST.fullmatch(line), [HEADER.fullmatch(each) for each in lines]
    if words is None or None in fields or (words[1] == "CONNECT") is (words[4] is None):
        raise Refused("400 Bad Request", "this is a proxy: it takes CONNECT host:port, and http:// URLs")
    pairs = [(field[1].lower(), field[2], field[0]) for field in fields if field]
    known = {name: value for name, value, _ in pairs}
    try:
        target = place(words[4] or (words[2] if re.search(r":\d+$", words[2]) else f"{words[2]}:80"))
    except ValueError as error:
        raise Refused("400 Bad Request", str(error)) from None
    bare = target.rpartition(":")[0]
    size = known.get("content-length", "0")
    twice = any([name for name, _, _ in pairs].count(each) > 1 for each in ("host", "content-length"))
    if twice or known.get("host", bare).lower() not in (bare, target) or not re.fullmatch(r"\d{1,18}", size):
        raise Refused("400 Bad Request", "the headers Host and Content-Length do not fit the request")
    if words[4]:
        return target, b"", None
    if "transfer-encoding" in known:
        raise Refused("411 Length Required", "a body needs a Content-Length")
    path = words[3] or "/"
    kept = [text for name, _, text in pairs if name not in DROPPED]
    host = bare if target.endswith(":80") else target
    start = f"{words[1]} {'/' * path.startswith('?')}{path} HTTP/1.1"
    return (
        target,
        "\r\n".join([start, f"Host: {host}", *kept, "Connection: close", "", ""]).encode("latin-1"),
        int(size),
    )


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int | None = None) -> None:
    """Copies a stream to its end, and ends the other one too; or only so many bytes of it."""
    while size != 0 and (
        data := await reader.read(LARGEST_HEAD if size is None else min(size, LARGEST_HEAD))
    ):
        writer.write(data)
        await writer.drain()
        size = size if size is None else size - len(data)
    if size is None and writer.can_write_eof():
        writer.write_eof()
