"""All sessions over one connection: what it carries, when it is used, and that nobody holds up the others."""

import asyncio
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import uvloop

from ors import Limits, Server, ToolOutput, tool
from ors._protocol import PROMPT, frames
from ors._protocol.link import AskingEnd, FrameWriter
from ors.client import ORS, AsyncORS, AsyncSession, Options, Task
from ors.client.transports import multiplexed
from ors.client.transports.base import Broken
from ors.client.transports.multiplexed import Link, MultiplexedTransport
from ors.errors import AuthenticationError, SessionLost, ToolCallError, ToolFailed, Unavailable
from tests.attack import link
from tests.support import TLS
from tests.support.cutting_proxy import Cutting, listening
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw
from tests.support.scripted_server import Reply, Scripted, scripted


class Repeating(Lab):
    @tool
    async def repeat(self, count: int) -> ToolOutput:
        """Says one letter so many times."""
        return ToolOutput("x" * count)


QUICK = Options(backoff_seconds=0.001, backoff_limit_seconds=0.01, retries=6, rejoins=6)
LONG = 10_000_000


@pytest.fixture(scope="module")
def repeating() -> Iterator[Raw]:
    with serving(Server([Repeating])) as url:
        yield Raw(url)


@pytest.fixture(params=[False, True], ids=["http", "link"])
def options(request: pytest.FixtureRequest) -> Options:
    """Each of both ways."""
    return Options(multiplex=request.param)


def links(client: AsyncORS) -> int:
    transport = client._remote(client.base_url).transport
    return len(transport._links) if isinstance(transport, MultiplexedTransport) else 0


def link_of(client: AsyncORS) -> Link:
    (link,) = client._remote(client.base_url).transport._links.values()  # type: ignore[attr-defined]
    return link  # type: ignore[no-any-return]


def lab(client: AsyncORS, key: str = "") -> AsyncSession:
    return client.environment("lab").session(Task("lab", {"id": key or uuid.uuid4().hex}))


async def test_a_thousand_sessions_share_few_connections(raw: Raw) -> None:
    network = Cutting(raw.url, share=0)
    with listening(network.serve) as through:
        async with AsyncORS(through) as client:
            sessions = [lab(client) for _ in range(1000)]
            await asyncio.gather(*(session.start() for session in sessions))
            outputs = await asyncio.gather(
                *(session.call_tool("echo", {"text": "a"}) for session in sessions)
            )
            await asyncio.gather(*(session.close() for session in sessions))
    assert len(outputs) == 1000
    assert network.connections <= 8


class Written(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self.writes.append(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


async def test_the_first_requests_of_a_turn_leave_at_once_and_the_rest_at_its_end() -> None:
    written, end = Written(), AskingEnd(b"upgrade", 1000)
    end.connection_made(written)
    sent = [frames.frame(frames.LEAVE, number) for number in range(10)]
    for each in sent:
        end.write(each)
    assert written.writes == [b"upgrade", b"".join(sent[:8])]
    await asyncio.sleep(0)
    assert written.writes == [b"upgrade", b"".join(sent[:8]), b"".join(sent[8:])]


async def test_all_answers_of_one_turn_leave_in_one_write() -> None:
    written, end = Written(), FrameWriter(asyncio.get_running_loop())
    end.transport = written
    sent = [frames.frame(frames.END, number) for number in range(100)]
    for each in sent:
        end.write(each)
    assert written.writes == []
    await asyncio.sleep(0)
    assert written.writes == [b"".join(sent)]


# ── When it is used ──────────────────────────────────────────────────────────────────────────────


async def test_a_server_of_ours_gets_one_link(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client, lab(client) as session:
        assert (await session.call_tool("echo", {"text": "a"})).blocks[0].text == "a"  # type: ignore[union-attr]
        assert links(client) == 1


@pytest.mark.parametrize(("served", "asked"), [(0, True), (10, False)])
async def test_either_end_may_switch_it_off(served: int, asked: bool) -> None:
    with serving(Server([Lab], limits=Limits(multiplexed=served))) as url:
        async with AsyncORS(url, options=Options(multiplex=asked)) as client, lab(client) as session:
            assert (await session.call_tool("echo", {"text": "a"})).blocks[0].text == "a"  # type: ignore[union-attr]
            assert links(client) == 0


async def test_the_servers_of_others_never_hear_of_it() -> None:
    async with scripted() as server, AsyncORS(server.url) as client, lab(client):
        pass
    assert {request.path for request in server.requests} == {"/create_session", "/create", "/delete"}


async def test_a_session_of_another_server_goes_by_http(raw: Raw) -> None:
    sid = raw.session()  # an id of the client's own
    network = Cutting(raw.url, share=0)
    with listening(network.serve) as through:
        async with AsyncORS(through) as client, lab(client):
            before = link_of(client)._number
            async with client.environment("lab").attach(sid) as session:
                assert (await session.call_tool("echo", {"text": "a"})).blocks[0].text == "a"  # type: ignore[union-attr]
            assert link_of(client)._number == before


async def test_a_long_request_goes_by_http(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client, lab(client) as session:
        text, before = "y" * 200_000, link_of(client)._number
        assert (await session.call_tool("echo", {"text": text})).blocks[0].text == text  # type: ignore[union-attr]
        assert link_of(client)._number == before


# ── What it carries ──────────────────────────────────────────────────────────────────────────────


async def test_errors_and_their_reasons_are_the_same_on_both_ways(raw: Raw, options: Options) -> None:
    async with AsyncORS(raw.url, options=options) as client, lab(client) as session:
        seen = []
        for name, given in (
            ("refuse", {"text": "no"}),
            ("boom", {"text": "oh"}),
            ("nowhere", {}),
            ("echo", {}),
        ):
            with pytest.raises((ToolCallError, ToolFailed)) as caught:
                await session.call_tool(name, given)
            seen.append((type(caught.value), caught.value.reason))
        assert seen == [
            (ToolCallError, "mood"),
            (ToolFailed, "environment"),
            (ToolCallError, "not_found"),
            (ToolCallError, "input_validation"),
        ]
        raw.post("/delete", sid=session.sid)
        with pytest.raises(SessionLost) as lost:
            await session.call_tool("nothing")
        assert lost.value.reason == "deleted"


async def test_keys_are_checked_on_both_ways(options: Options) -> None:
    with serving(Server([Lab], api_keys=["one=secret-1", "two=secret-2 sessions=1"])) as url:
        async with AsyncORS(url, "wrong", options=options) as client:
            with pytest.raises(AuthenticationError):
                await lab(client).start()
        async with AsyncORS(url, "secret-1", options=options) as client, lab(client) as session:
            async with AsyncORS(url, "secret-2", options=options) as other:
                with pytest.raises(SessionLost):
                    await other.environment("lab").attach(session.sid or "").call_tool("nothing")
            assert links(client) == int(options.multiplex)


async def test_limits_hold_on_both_ways(options: Options) -> None:
    impatient = Options(
        multiplex=options.multiplex, retries=0, rejoins=0, call_seconds=0.5, request_seconds=0.5
    )
    with serving(Server([Lab], limits=Limits(sessions=1, calls=1))) as url:
        async with (
            AsyncORS(url, options=impatient) as client,
            lab(client, key := uuid.uuid4().hex) as session,
        ):
            with pytest.raises(Unavailable) as full:
                await lab(client).start()
            call = asyncio.create_task(session.call_tool("hold"))
            await asyncio.to_thread(Lab.gates[f"{key}.held"].wait, 20)
            with pytest.raises(Unavailable) as busy:
                await session.call_tool("nothing")
            Lab.gates[f"{key}.hold"].set()
            await asyncio.wait([call])
        assert (
            (full.value.status, full.value.reason) == (busy.value.status, busy.value.reason) == (429, "limit")
        )


def test_requests_over_the_limit_of_a_connection_are_refused() -> None:
    body = b'{"name":"hold_async","input":{}}'
    with serving(Server([Lab], limits=Limits(multiplexed=2, grace_seconds=0.1))) as url:
        raw = Raw(url)
        sid = raw.session(task={"id": uuid.uuid4().hex}).encode()
        with link.linked((raw.host, raw.port), link.MULTIPLEXED) as end:
            for number in (1, 2):
                end.sendall(link.call(number, b"/lab/call", sid, b"key%d" % number, body))
            end.sendall(link.request(3, b"POST", b"/ping", [b"x-session-id", sid]))
            assert status(end, 3) == 503
            end.sendall(
                link.frame(link.LEAVE, 1) + link.request(4, b"POST", b"/ping", [b"x-session-id", sid])
            )
            assert status(end, 4) == 200


async def test_no_small_write_waits_for_the_acknowledgement_of_the_last_one(
    repeating: Raw, options: Options
) -> None:
    """Otherwise a result of 256 KB takes 45 ms, as the credit for its last bytes waits in the kernel."""
    async with AsyncORS(repeating.url, options=options) as client:
        await client.environment("repeating").session(Task("repeating", {})).start()
        assert set(of_connections_to(repeating.port, socket.TCP_NODELAY)) == {1}


def of_connections_to(port: int, option: int) -> Iterator[int]:
    """An option of TCP, of each socket of this process that is connected to a port."""
    for name in os.listdir("/proc/self/fd"):
        try:
            one = socket.socket(fileno=int(name))
        except OSError:  # no socket, or closed meanwhile
            continue
        with suppress(OSError):  # it is not connected
            if one.family == socket.AF_INET and one.getpeername()[1] == port:
                yield one.getsockopt(socket.IPPROTO_TCP, option)
        one.detach()


# ── An episode in few exchanges ──────────────────────────────────────────────────────────────────


class Counting(Cutting):
    """Counts how often the client sends something after the server has answered."""

    exchanges = 0
    answered = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection(*self.target.removeprefix("http://").split(":"))

        async def there() -> None:
            while chunk := await reader.read(65536):
                self.exchanges += self.answered
                self.answered = False
                server[1].write(chunk)

        async def back() -> None:
            while chunk := await server[0].read(65536):
                self.answered = True
                writer.write(chunk)

        tasks = [asyncio.create_task(there()), asyncio.create_task(back())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in (writer, server[1]):
                end.transport.abort()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_episode_of_five_steps_takes_six_exchanges(raw: Raw) -> None:
    network, counts = Counting(raw.url), []
    with listening(network.serve) as through:
        async with AsyncORS(through) as client:
            for _ in range(3):
                await client.health()  # the end of the last session was sent before
                before = network.exchanges
                async with lab(client) as session:
                    assert await session.get_prompt()
                    assert await session.list_tools()
                    for n in range(5):
                        await session.call_tool("echo", {"text": str(n)})
                    counts.append(network.exchanges - before)
    # The first client to ask makes the link, and shows what sessions ask before their first call.
    assert counts[1:] == [6, 6], counts


async def test_what_no_session_asks_for_is_not_asked_ahead(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        usual = client._remote(raw.url).usual["lab"]
        for asks, expected in ((True, {PROMPT}), (False, set()), (False, set())):
            async with lab(client) as session:
                if asks:
                    await session.get_prompt()
                await session.call_tool("nothing")
            assert usual == expected


async def test_nothing_is_asked_ahead_over_a_link_that_has_broken(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        async with lab(client) as session:
            await session.get_prompt()
        session = lab(client)
        start = asyncio.create_task(session.start())
        transport = link_of(client).out.transport
        assert transport is not None
        transport.abort()  # the link breaks right after the first step of start()
        async with asyncio.timeout(20):
            await start
            assert await session.get_prompt()
            await session.close()


async def test_the_end_of_a_session_is_waited_for_only_by_close() -> None:
    class Slow(Lab):
        torn, over = threading.Event(), threading.Event()

        def teardown(self) -> None:
            self.torn.wait(20)
            self.over.set()

    with serving(Server([Slow])) as url:
        async with AsyncORS(url) as client:
            env = client.environment("slow")
            async with env.session(Task("slow", {})) as session:
                await session.call_tool("nothing")  # it is set up, and has to be torn down
                sid = session.sid
            assert not Slow.over.is_set()  # nobody has waited for it
            with pytest.raises(SessionLost):  # but it has ended
                await env.attach(sid or "").call_tool("nothing")
            other = await env.session(Task("slow", {})).start()
            await other.call_tool("nothing")
            closing = asyncio.create_task(other.close())
            assert (await asyncio.wait([closing], timeout=0.1))[1]
            Slow.torn.set()
            await closing


async def test_the_end_of_a_session_is_sent_again_when_its_link_breaks(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncORS(raw.url) as client:
        async with lab(client) as session:
            await session.call_tool("nothing")
            monkeypatch.setattr(link_of(client), "write", lambda frame: None)
        link_of(client).cut()
    async with AsyncORS(raw.url) as other:
        with pytest.raises(SessionLost):
            await other.environment("lab").attach(session.sid or "").start()


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_closed_client_leaves_no_link_open_though_the_server_does_not_answer(
    new_loop: Callable[[], asyncio.AbstractEventLoop], tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blocking(Lab):
        blocked, free = threading.Event(), threading.Event()

        @tool
        async def block(self) -> ToolOutput:
            """Blocks the server."""
            self.blocked.set()
            self.free.wait(20)
            return ToolOutput("free")

    async def episode(url: str) -> tuple[Link, Link, list[str | None]]:
        async with AsyncORS(url) as client:
            env = client.environment("blocking")
            session, other = [await env.session(Task("blocking", {})).start() for _ in range(2)]
            running = asyncio.Event()
            staying = asyncio.create_task(session.call_tool("stay", on_task_id=lambda _: running.set()))
            await running.wait()
            first = link_of(client)
            first.data_received(frames.frame(frames.BYE, 0))  # it stays for the call
            blocking = asyncio.create_task(other.call_tool("block"))
            assert await asyncio.to_thread(Blocking.blocked.wait, 20)
            second = link_of(client)
            assert None not in (first.out.transport, second.out.transport)
        staying.cancel()
        blocking.cancel()
        return first, second, [session.sid, other.sid]

    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "cert.pem"))
    files = {"ssl_certfile": str(TLS / "cert.pem"), "ssl_keyfile": str(TLS / "key.pem")} if tls else {}
    with serving(Server([Blocking]), **files) as url:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            first, second, sids = runner.run(episode(url))
        Blocking.free.set()
        assert first is not second
        assert (first.out.transport, second.out.transport) == (None, None)
        with ORS(url) as client:
            for sid in sids:
                client.environment("blocking").attach(sid or "").close()


async def test_a_session_that_is_lost_as_its_link_breaks_is_lost_for_its_call(raw: Raw) -> None:
    async with AsyncORS(raw.url) as client:
        session = await lab(client, key := uuid.uuid4().hex).start()
        call = asyncio.create_task(session.call_tool("hold"))
        await asyncio.to_thread(Lab.gates[f"{key}.held"].wait, 20)
        transport = link_of(client).out.transport
        assert transport is not None
        transport.abort()
        asyncio.get_running_loop().call_soon(session.lose, "the pings failed", "unreachable")
        with pytest.raises(SessionLost, match="the pings failed"):
            await asyncio.wait_for(call, 20)
        Lab.gates[f"{key}.hold"].set()


# ── Nobody holds up the others ───────────────────────────────────────────────────────────────────


async def test_a_long_result_does_not_hold_up_the_others(repeating: Raw) -> None:
    async with AsyncORS(repeating.url) as client:
        env = client.environment("repeating")
        one, other = [await env.session(Task("repeating", {})).start() for _ in range(2)]
        begun = asyncio.Event()
        long = asyncio.create_task(one.call_tool("repeat", {"count": LONG}, on_task_id=lambda _: begun.set()))
        await begun.wait()
        assert not long.done()
        assert (await other.call_tool("echo", {"text": "short"})).blocks[0].text == "short"  # type: ignore[union-attr]
        assert not long.done()
        assert len((await long).blocks[0].text) == LONG  # type: ignore[union-attr]


@pytest.mark.parametrize("multiplex", [False, True], ids=["http", "link"])
@pytest.mark.parametrize("size", [60_000, 1_000_000])
async def test_a_result_over_the_clients_limit_is_refused_and_the_session_goes_on(
    repeating: Raw, multiplex: bool, size: int
) -> None:
    options = Options(answer_bytes=50_000, multiplex=multiplex)
    async with AsyncORS(repeating.url, options=options) as client:
        async with client.environment("repeating").session(Task("repeating", {})) as session:
            with pytest.raises(ToolFailed, match="over this client's limit of 50000 bytes") as refused:
                await session.call_tool("repeat", {"count": size})
            assert refused.value.reason == "limit"
            assert len((await session.call_tool("repeat", {"count": 40_000})).blocks[0].text) == 40_000  # type: ignore[union-attr]
        assert links(client) == multiplex


@pytest.mark.parametrize("size", [65_400, 65_536, 131_072, 1_000_000])
async def test_a_long_result_arrives_whole(repeating: Raw, size: int) -> None:
    told: list[str] = []
    async with AsyncORS(repeating.url) as client:
        session = await client.environment("repeating").session(Task("repeating", {})).start()
        made = await session.call_tool("repeat", {"count": size}, on_task_id=told.append)
        assert made.blocks[0].text == "x" * size  # type: ignore[union-attr]
        assert len(told) == 1


async def test_a_task_id_is_told_once_though_the_link_breaks_within_the_result(repeating: Raw) -> None:
    told: list[str] = []

    def cut(task_id: str) -> None:
        told.append(task_id)
        link_of(client).cut()

    async with AsyncORS(repeating.url, options=QUICK) as client:
        session = await client.environment("repeating").session(Task("repeating", {})).start()
        made = await session.call_tool("repeat", {"count": LONG}, on_task_id=cut)
        assert made.blocks[0].text == "x" * LONG  # type: ignore[union-attr]
    assert len(told) == 1


def test_an_answer_that_nobody_reads_holds_up_no_other(repeating: Raw) -> None:
    raw, sid = repeating, repeating.session("repeating")
    body = json.dumps({"name": "repeat", "input": {"count": LONG}}).encode()
    with link.linked((raw.host, raw.port), link.MULTIPLEXED) as end:
        end.sendall(link.call(1, b"/repeating/call", sid.encode(), b"key", body))
        got = sum(
            len(payload) for kind, _, payload in until(end, 1, frames.WINDOW_BYTES) if kind != link.LOAD
        )
        end.sendall(link.request(2, b"POST", b"/ping", [b"x-session-id", sid.encode()]))
        *more, last = until(end, 2, 1)
        assert link.status(last[2]) == 200
        got += sum(len(payload) for kind, number, payload in more if number == 1)
        assert got < frames.WINDOW_BYTES + 2 * frames.PIECE_BYTES


def status(end: socket.socket, number: int) -> int:
    """The status of a short answer. Frames of other requests may arrive with it."""
    return next(link.status(payload) for _, one, payload in until(end, number, 1) if one == number)


def until(end: socket.socket, number: int, size: int) -> Iterator[tuple[int, int, bytes]]:
    """The frames that arrive, until those of one number have that many bytes."""
    heard = b""
    while size > 0:
        part = end.recv(65536)
        assert part
        found, heard = link.split(heard + part)
        for frame in found:
            size -= len(frame[2]) if frame[1] == number else 0
            yield frame


# ── Servers that lie ─────────────────────────────────────────────────────────────────────────────

HELLO = link.frame(link.HELLO, 0, b'{"prefix":""}')
LIES = {
    "garbage": b"\xff" * 100,
    "a huge length": link.HEADER.pack(2**32 - 1, link.WHOLE, 1),
    "the middle of an answer": link.frame(link.PART, 1, b"x"),
    "the result of what is no call": link.frame(link.RESULT, 1, b"x {}"),
    "half an answer": link.frame(link.HEAD, 1, b"\0"),
    "a greeting that is none": link.frame(link.HELLO, 0, b"hello"),
    "an unknown kind": link.frame(99, 1),
}


class Lying(Scripted):
    """Offers links, and answers the first request on each with a lie."""

    lie = b""
    greets = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(len(b"GET /-/mux"))
        if first != b"GET /-/mux":
            reader._buffer[:0] = first  # type: ignore[attr-defined]
            await super().serve(reader, writer)
            return
        try:
            await reader.readuntil(b"\r\n\r\n")
            if not self.greets:
                return
            writer.write(link.SWITCHED + HELLO)
            await reader.read(1)
            writer.write(self.lie)
            await reader.read()
        finally:
            writer.transport.abort()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_after_a_lie_all_goes_by_http(lie: bytes) -> None:
    lying = Lying()
    lying.lie = lie
    async with scripted(ours=True, script=lying) as server, AsyncORS(server.url, options=QUICK) as client:
        async with lab(client) as session:
            await session.ping()
        assert links(client) <= 1
    assert [request.path for request in server.requests][-1] == "/delete"


async def test_a_link_that_is_always_cut_is_given_up() -> None:
    async with scripted(ours=True) as server, AsyncORS(server.url, options=QUICK) as client:
        server.on("/-/mux", Reply(b"HTTP/1.1 101 Switching", cut=True))
        for _ in range(5):
            await client._remote(server.url).exchange("POST", "/ping", {}, None)
        assert links(client) == 0
    assert len(server.asked("/-/mux")) == 3
    assert len(server.asked("/ping")) == 5


async def test_after_an_outage_a_link_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexed, "PAUSE_SECONDS", 0.0)
    lying = Lying()
    lying.lie, lying.greets = LIES["garbage"], False
    async with scripted(ours=True, script=lying) as server, AsyncORS(server.url, options=QUICK) as client:
        remote = client._remote(server.url)
        for _ in range(5):
            await remote.exchange("POST", "/ping", {}, None)
        assert links(client) == 0
        lying.greets = True
        with pytest.raises(Broken):  # it went over a link, and was answered with a lie
            await remote.exchange("POST", "/ping", {}, None)
        assert links(client) == 1


async def test_a_server_that_does_not_greet_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexed, "GREETING_SECONDS", 0.05)
    async with scripted(ours=True) as server, AsyncORS(server.url, options=QUICK) as client:
        server.on("/-/mux", Reply(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"))
        remote = client._remote(server.url)
        await remote.exchange("POST", "/ping", {}, None)
        await asyncio.gather(*(remote.exchange("POST", "/ping", {}, None) for _ in range(20)))
    assert len(server.asked("/-/mux")) == 1
    assert len(server.asked("/ping")) == 21


async def test_a_link_whose_server_is_silent_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexed, "SILENCE_SECONDS", -1.0)
    monkeypatch.setattr(multiplexed, "LAST_SECONDS", 0.0)
    async with scripted(ours=True, script=Lying()) as server, AsyncORS(server.url) as client:
        remote = client._remote(server.url)
        await remote.exchange("POST", "/ping", {}, None)  # shows that the server is ours
        with pytest.raises(Broken):
            await remote.exchange("POST", "/ping", {}, None)
