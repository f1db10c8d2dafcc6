"""All sessions over one connection, where the server is ours too; HTTP where it is not."""

import asyncio
import math
from collections.abc import Callable, Mapping
from urllib.parse import unquote
from weakref import WeakSet

from ors._json import loads
from ors._protocol import (
    API_KEY,
    PREFIX_CHARS,
    SERVER_VERSION,
    SESSION_ID,
    frames,
    new_session_id,
)
from ors._protocol.link import AskingEnd, Window
from ors.client.transports.base import HeaderFields, Incoming, Response, running_loop
from ors.client.transports.connection import detect_silence
from ors.client.transports.http import DirectTransport
from ors.client.transports.options import Options
from ors.errors import BadRequest

OnTaskId = Callable[[str], None]

FIRST_SECONDS = 5.0
"""How long other requests wait for the first answer, which shows whether the server is ours."""
SILENCE_SECONDS, LAST_SECONDS = 10.0, 1.0
"""A link is cut when its server has sent nothing for that long, and then nothing after one more request."""
GREETING_SECONDS = 5.0
"""How long a server may take to offer a link."""
MAX_FAILURES, PAUSE_SECONDS = 3, 30.0
"""After so many attempts in a row that broke, or one without an answer, all goes by HTTP for that long."""
_OF_HTTP = frozenset({API_KEY, "Accept-Encoding", "Content-Type", "User-Agent"})  # sent once, or never


class MultiplexedTransport:
    """Sends requests to a server over one link for each API key, if it offers links; else by HTTP.

    The first request goes by HTTP: its answer shows whether the server is ours. Others never hear of links.
    """

    def __init__(self, http: DirectTransport, options: Options) -> None:
        self._http = http
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: dict[str, Link] = {}  # by API key
        self._made: WeakSet[Link] = WeakSet()  # also those that only finish their last requests
        self._by_http: dict[str, float] = {}  # until when no link is tried, by API key
        self._ours: bool | None = None
        self._first: asyncio.Future[None] | None = None  # while the first request waits for its answer
        self._linking = asyncio.Lock()
        self._failures = 0

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request; returns when the status and headers of the response have arrived."""
        link = self.link_up(headers, running_loop()) or await self._link(headers)
        answer = None if link is None else link.ask(method, path, headers, body or b"")
        if answer is not None:
            return await answer.arrived()
        if self._ours is None:
            return await self._send_first(method, path, headers, body)
        return await self._http.send(method, path, headers, body)

    def link_up(self, headers: Mapping[str, str], loop: asyncio.AbstractEventLoop) -> "Link | None":
        """The link for a request with these headers, if it is there already."""
        link = self._links.get(headers.get(API_KEY, ""))
        return link if link is not None and link.is_up and self._loop is loop else None

    async def close(self) -> None:
        """Closes all connections. Requests that are still sent, as to delete a session, go by HTTP."""
        self._ours = False
        self._links = {}
        for link in self._made:
            link.cut()  # a TLS connection that is closed outlives its event loop
        await self._http.close()

    async def _send_first(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        if self._first is not None:
            await asyncio.wait({self._first}, timeout=FIRST_SECONDS)
            known = self._ours is not None
            return await (self if known else self._http).send(method, path, headers, body)
        self._first = first = running_loop().create_future()
        try:
            response = await self._http.send(method, path, headers, body)
            if self._ours is None:
                self._ours = SERVER_VERSION in response.headers
            return response
        finally:
            self._first = None
            first.set_result(None)

    async def _link(self, headers: Mapping[str, str]) -> "Link | None":
        """A link for a request that has none, if one can be made."""
        loop = running_loop()
        if self._loop is not loop:
            self._move_to(loop)
        key = headers.get(API_KEY, "")
        link = self._links.get(key)
        if link is not None and link.is_garbled:
            self._by_http[key] = math.inf
        if not self._ours or loop.time() < self._by_http.get(key, 0):
            return None
        async with self._linking:
            # Perhaps the request before this one has made it, or has just been refused.
            link = self.link_up(headers, loop)
            known = link is not None or loop.time() < self._by_http.get(key, 0)
            return link if known else await self._make(loop, key)

    async def _make(self, loop: asyncio.AbstractEventLoop, key: str) -> "Link | None":
        asked = {API_KEY: key} if key else {}
        asked |= {"Connection": "Upgrade", "Upgrade": frames.CLIENTS.decode()}
        head = self._http.head("GET", frames.PATHS[frames.CLIENTS], asked, None)
        link = Link(head, self._options.answer_bytes, self._http.buffer)
        await self._http.connected(self._http.with_protocol(loop, link))
        self._made.add(link)
        self._failures += 1
        try:
            async with asyncio.timeout(min(self._options.connect_seconds, GREETING_SECONDS)):
                offered = await link.greeted
        except TimeoutError:
            offered, self._failures = None, MAX_FAILURES
        except BaseException:
            link.cut()
            raise
        if offered:
            self._failures = 0
            self._links[key] = link
            return link
        link.cut()
        if offered is False:
            self._by_http[key] = math.inf
        elif self._failures >= MAX_FAILURES:
            self._by_http[key], self._failures = loop.time() + PAUSE_SECONDS, 0
        return None

    def _move_to(self, loop: asyncio.AbstractEventLoop) -> None:
        # A script may call asyncio.run() more than once, and connections end with their loop.
        self._loop = loop
        self._links, self._by_http = {}, {}
        self._made = WeakSet()
        self._ours = self._first = None
        self._linking = asyncio.Lock()


class Link(AskingEnd, asyncio.BufferedProtocol):
    """One connection for many requests."""

    def __init__(self, upgrade: bytes, longest: int, buffer: memoryview) -> None:
        super().__init__(upgrade, longest + frames.PIECE_BYTES)
        self._longest = longest
        self._buffer = buffer
        self.is_up = True
        """Whether requests can be sent."""
        self._prefix = ""
        self._makes_ids = False
        self.is_garbled = False
        """Whether something arrived that is no frame of ours."""
        self._doubt: asyncio.TimerHandle | None = None
        self.greeted: asyncio.Future[bool | None] = self._loop.create_future()
        """Whether the server offers links; None if the connection broke, or it is not now."""

    def new_sid(self) -> str:
        """An id for a new session of this server; empty if only the server can make one."""
        return self._prefix + new_session_id()[PREFIX_CHARS:] if self._prefix and self._makes_ids else ""

    # ── Requests ─────────────────────────────────────────────────────────────────────────────────

    def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> "Answer | None":
        """Sends a request, if the link is up, a frame holds it, and its session is reached over this link."""
        if not self._fits(headers.get(SESSION_ID, self._prefix), body):
            return None
        path, _, query = target.partition("?")
        number = self.next_number()
        try:
            given = {
                name.lower().encode(): value.encode("latin-1")
                for name, value in headers.items()
                if name not in _OF_HTTP
            }
            frame = frames.request_frame(number, (method, unquote(path), query.encode(), given, body))
        except (BadRequest, UnicodeEncodeError):
            return None  # HTTP says what is wrong
        return self._sent(number, frame, Answer(self, number, self._loop))

    def call(
        self, path: bytes, sid: str, key: str, body: bytes, on_task_id: OnTaskId | None
    ) -> "Answer | None":
        """Sends a tool call, as `ask` does."""
        if not self._fits(sid, body):
            return None
        number = self.next_number()
        frame = frames.call_frame(number, path, sid.encode("latin-1"), key.encode(), body)
        return self._sent(number, frame, Answer(self, number, self._loop, self._longest, on_task_id))

    def _fits(self, sid: str, body: bytes) -> bool:
        # A proxy may lead links and requests to different servers.
        return self.is_up and sid.startswith(self._prefix) and len(body) < frames.LONGEST_OF_CLIENT

    def _sent(self, number: int, frame: bytes, answer: "Answer") -> "Answer | None":
        if len(frame) > frames.LONGEST_OF_CLIENT:
            return None
        self.pending[number] = answer
        self.write(frame)
        if self._doubt is None and self._loop.time() - self.heard > SILENCE_SECONDS:
            self._doubt = self._loop.call_later(LAST_SECONDS, self._cut_if_silent)
        return answer

    def _cut_if_silent(self) -> None:
        self._doubt = None
        if self._loop.time() - self.heard > SILENCE_SECONDS:
            self.cut()

    # ── Called by the event loop ─────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        detect_silence(transport.get_extra_info("socket"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_up = False
        if not self.greeted.done():
            self.greeted.set_result(None)
        if self._doubt is not None:
            self._doubt.cancel()
        super().connection_lost(exc)

    def _misunderstood(self, error: Exception) -> None:
        self.is_garbled = True
        super()._misunderstood(error)

    def _refused(self, head: bytes) -> None:
        if not self.greeted.done():
            self.greeted.set_result(None if head[9:10] == b"5" else False)
        super()._refused(head)

    def close(self) -> None:
        self.is_up = False
        super().close()

    def cut(self) -> None:
        self.is_up = False
        super().cut()

    def _told(self, kind: int, number: int, payload: bytes) -> None:
        if kind == frames.HELLO:
            hello = loads(payload)
            self._prefix = str(hello.get("prefix", "")) if isinstance(hello, dict) else ""
            if not self.greeted.done():
                self.greeted.set_result(True)
        elif kind == frames.LOAD:
            self._makes_ids = payload == frames.ACCEPTS
        else:
            self.is_up = self.is_up and kind != frames.BYE
            super()._told(kind, number, payload)


class Answer(Incoming):
    """One answer as it arrives. `begun` has the result of a call, or None if another answer has begun."""

    _head = b""
    _window: Window | None = None
    heard = 0.0
    """When a part of the result was last received."""
    is_too_long = False
    """Whether the result is longer than the client reads."""
    _size = 0  # of the result, as far as it has been received

    def __init__(
        self,
        link: Link,
        number: int,
        loop: asyncio.AbstractEventLoop,
        longest: int = 0,
        on_task_id: OnTaskId | None = None,
    ) -> None:
        super().__init__(loop)
        self._link = link
        self._number = number
        self._longest = longest  # how long the result of a call may be; 0 if it is no call
        self._on_task_id = on_task_id

    @property
    def headers(self) -> HeaderFields:
        """The headers; most answers are read without them."""
        fields = HeaderFields()
        for line in self._head.decode("latin-1").split("\r\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields

    def close(self) -> None:
        if not self._complete and not self.broken:
            self._complete = True
            self._link.write(frames.frame(frames.LEAVE, self._number))
            self._link.done(self._number)

    def _taken(self, size: int) -> None:
        self._window = self._window or Window(self._link.write, self._number)
        self._window.read(size)

    # ── Called by the link ───────────────────────────────────────────────────────────────────────

    def take(self, kind: int, payload: bytes) -> None:
        if kind in (frames.RESULT, frames.PART) and self._longest and not self.status:
            self._take_result(payload, last=kind == frames.RESULT)
            return
        if (self.status > 0) is not (kind in (frames.PART, frames.END)) or self._size:
            raise ValueError(f"a frame of kind {kind} before or after its turn")
        if kind in (frames.WHOLE, frames.HEAD):
            self.status, self._head, payload = frames.read_answer(payload)
            self.begin()
        elif kind not in (frames.PART, frames.END):
            raise ValueError(f"a frame of the unknown kind {kind}")
        last = kind in (frames.WHOLE, frames.END)
        if last:
            self._link.done(self._number)
        self.add(payload, last=last)

    def _take_result(self, payload: bytes, *, last: bool) -> None:
        if not self._size:
            task_id, _, payload = payload.partition(b" ")
            self._size = 1
            if self._on_task_id is not None:
                self._on_task_id(task_id.decode("latin-1"))
        self._size += len(payload)
        self.is_too_long = self._size > self._longest
        if last:
            self._link.done(self._number)
            self._complete = True
            payload = b"".join((*self._chunks, payload)) if self._chunks else payload
        if self.begun.done():
            return
        if last or self.is_too_long:
            self.begun.set_result(None if self.is_too_long else payload)
        else:
            self._chunks.append(payload)
            self.heard = self._link.heard
            self._taken(len(payload))

    def lost(self) -> None:
        self.lose("the connection broke")
