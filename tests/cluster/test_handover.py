"""Connections that keep asking another server of the machine: they move there and lose nothing on the way."""

import asyncio
import http.client
import io
import json
import logging
import os
import random
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from ors.cluster.handover import HandoverClient, HandoverServer
from ors.cluster.peers import UNIX
from ors.cluster.servers import MOVE_AFTER
from tests.support import TLS
from tests.support.environments import Lab
from tests.support.in_process_cluster import ServerThread, linked_servers, minted
from tests.support.raw_http import Answer, Raw
from tests.support.waiting import until, wait_until
from tests.support.worker_command import crew


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[ServerThread]]:
    with linked_servers(2, tmp_path, [Lab]) as made:
        yield made


def clients(one: ServerThread) -> int:
    """How many clients are connected."""
    return len(list(one.server.clients))


def told(connection: http.client.HTTPConnection, sid: str, text: str) -> str:
    """What `echo` answers over that connection."""
    body = json.dumps({"name": "echo", "input": {"text": text}})
    connection.request("POST", "/lab/call", body, {"X-Session-ID": sid})
    response = connection.getresponse()
    answer = Answer(response.status, {}, response.read())
    return str(answer.result()["output"]["blocks"][0]["text"])


def test_a_connection_moves_to_the_server_that_it_keeps_asking(pair: list[ServerThread]) -> None:
    sid = minted(pair, 1)
    with closing(pair[0].raw.connection()) as connection:
        for n in range(MOVE_AFTER - 1):
            assert told(connection, sid, f"{n}") == f"{n}"
        assert (clients(pair[0]), clients(pair[1])) == (1, 0)
        used = connection.sock
        for n in range(MOVE_AFTER):
            assert told(connection, sid, f"{n}") == f"{n}"
        assert connection.sock is used
        assert (clients(pair[0]), clients(pair[1])) == (0, 1)
        (moved,) = pair[1].server.clients
        assert moved.spare is not None
        assert not os.get_inheritable(moved.spare)  # no process that a tool starts holds it open


def test_a_connection_that_begins_a_session_on_another_server_moves_at_once(pair: list[ServerThread]) -> None:
    sid = pair[1].server.app.sessions.identity.new_session_id()
    with closing(pair[0].raw.connection()) as connection:
        connection.request("POST", "/create", '{"task_spec": {}}', {"X-Session-ID": sid})
        assert json.loads(connection.getresponse().read()) == {"sid": sid}
        assert told(connection, sid, "x") == "x"
        wait_until(lambda: (clients(pair[0]), clients(pair[1])) == (0, 1))


def test_a_connection_whose_requests_are_for_several_servers_stays(pair: list[ServerThread]) -> None:
    own, other = minted(pair, 0), minted(pair, 1)
    with closing(pair[0].raw.connection()) as connection:
        for _ in range(3):
            for sid in [own, *[other] * (MOVE_AFTER - 1)]:
                assert told(connection, sid, "x") == "x"
        assert (clients(pair[0]), clients(pair[1])) == (1, 0)


@pytest.mark.parametrize("cut", [1, 4, 5, 9, 30, -40, -1])
def test_a_connection_stays_while_a_part_of_the_next_request_has_been_read(
    pair: list[ServerThread], cut: int
) -> None:
    sid = minted(pair, 1)
    with closing(Conversation(pair[0].raw)) as client:
        for n in range(MOVE_AFTER - 1):
            assert client.told(_call(sid, f"{n}")) == f"{n}"
        following = _call(sid, "next")
        assert client.told(_call(sid, "last") + following[:cut]) == "last"
        _let_run(pair)
        assert (clients(pair[0]), clients(pair[1])) == (1, 0)
        assert client.told(following[cut:]) == "next"
        _let_run(pair)
        assert client.told(_call(sid, "later")) == "later"
        assert (clients(pair[0]), clients(pair[1])) == (0, 1)


@pytest.mark.parametrize("cut", [1, 4, 5, 9, 30, -40, -1])
def test_a_server_that_gives_way_keeps_connections_whose_next_request_has_begun(
    pair: list[ServerThread], cut: int
) -> None:
    sid = minted(pair, 0)
    with closing(Conversation(pair[0].raw)) as client:
        following = _call(sid, "next")
        assert client.told(_call(sid, "first") + following[:cut]) == "first"
        _hand_over(pair)
        assert (clients(pair[0]), clients(pair[1])) == (1, 0)
        assert client.told(following[cut:]) == "next"
        _let_run(pair)
        assert client.told(_call(sid, "later")) == "later"
        assert (clients(pair[0]), clients(pair[1])) == (0, 1)


def test_what_was_refused_is_not_given_away_to_be_read_on(pair: list[ServerThread]) -> None:
    sid = minted(pair, 0)
    with closing(Conversation(pair[0].raw)) as client:
        assert client.told(_call(sid, "first") + b"\0 no request \r\n\r\n") == "first"
        assert client.answers.next().status == 400
        _hand_over(pair)
        assert (clients(pair[0]), clients(pair[1])) == (1, 0)


@contextmanager
def _few_files(free: int) -> Iterator[None]:
    """Lets this process open only so many more files."""
    limits, held = resource.getrlimit(resource.RLIMIT_NOFILE), []
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 200, limits[1]))
    try:
        with suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(free):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in held:
            os.close(number)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, a peek does not show file descriptors")
async def test_connections_that_this_process_has_no_descriptors_for_wait_and_are_not_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[socket.socket] = []
    place = str(tmp_path / "link")
    with ExitStack() as stack, caplog.at_level(logging.ERROR):
        stack.enter_context(closing(HandoverServer(place, taken.append)))
        client = stack.enter_context(closing(HandoverClient(place)))
        ends = [stack.enter_context(end) for _ in range(5) for end in socket.socketpair()]
        with _few_files(free=2):
            assert client.give(*(end.fileno() for end in ends[::2]))
            async with asyncio.timeout(20):
                await until(lambda: caplog.records or taken)
            assert taken == []
        async with asyncio.timeout(20):
            await until(lambda: len(taken) == 5)
        assert [record.getMessage() for record in caplog.records] == [
            "Connections from other servers are waiting: this process has too many open files"
        ]
        for given, end in zip(taken, ends[1::2], strict=True):
            with given:
                given.sendall(b"here")
            assert end.recv(9) == b"here"


def _hand_over(pair: list[ServerThread]) -> None:
    (successor,) = pair[0].server.peers
    pair[0].server.loop.call_soon_threadsafe(pair[0].server.forwarding.hand_over, successor)
    _let_run(pair)


def _let_run(pair: list[ServerThread]) -> None:
    """Lets the servers do what they are about to do."""
    for one in pair:
        for _ in range(3):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), one.server.loop).result(20)


def _call(sid: str, text: str) -> bytes:
    """A call of `echo`, as bytes."""
    body = json.dumps({"name": "echo", "input": {"text": text}})
    head = f"POST /lab/call HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: {sid}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def test_a_link_that_is_about_to_begin_stays(pair: list[ServerThread]) -> None:
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(pair[0].address.removeprefix(UNIX))
        while not clients(pair[0]):
            pass
        _hand_over(pair)
        link.sendall(
            b"GET /-/link HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: ors-link\r\n\r\n"
        )
        told = b""
        while b"slot" not in told:
            told += link.recv(65536)
        assert b'"slot":0,' in told


def test_nothing_moves_to_a_server_that_takes_no_new_sessions(pair: list[ServerThread]) -> None:
    sid = minted(pair, 1)
    (peer,) = pair[0].server.peers
    pair[1].server.app.sessions.retiring = True
    while peer.accepts_sessions:
        assert pair[0].raw.post("/ping", sid=sid).status == 200
    with closing(pair[0].raw.connection()) as connection:
        for _ in range(2 * MOVE_AFTER):
            assert told(connection, sid, "x") == "x"
        assert (clients(pair[0]), clients(pair[1])) == (1, 0)


def test_what_is_encrypted_stays(tmp_path: Path) -> None:
    files = {"ssl_certfile": str(TLS / "cert.pem"), "ssl_keyfile": str(TLS / "key.pem")}
    with linked_servers(2, tmp_path, [Lab], tls=files) as made:
        sid = made[1].server.app.sessions.identity.new_session_id()
        trusted = ssl.create_default_context(cafile=files["ssl_certfile"])
        raw = made[0].raw
        with closing(http.client.HTTPSConnection("localhost", raw.port, context=trusted)) as connection:
            connection.request("POST", "/create", b'{"task_spec": {}}', {"X-Session-ID": sid})
            assert connection.getresponse().read()
            for n in range(2 * MOVE_AFTER):
                assert told(connection, sid, f"{n}") == f"{n}"
            assert (clients(made[0]), clients(made[1])) == (1, 0)


def test_random_traffic_over_moving_connections_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    with crew(tmp_path, 3) as made, ThreadPoolExecutor(8) as pool:
        sids = [made.session(slot) for slot in (0, 1, 2, 0, 1, 2)]
        wanted = list(pool.map(lambda seed: _wander(made.raw, sids, random.Random(seed)), range(8)))
        assert sorted(made.traces()) == sorted(name for names in wanted for name in names)


def test_connections_outlive_the_workers_that_are_replaced(tmp_path: Path) -> None:
    replaced = threading.Event()

    def ask(raw: Raw) -> int:
        """Asks over one connection all the while, and a little longer."""
        connection, last = raw.connection(), 20
        connection.connect()
        connection.auto_open = 0
        with closing(connection):
            while last:
                connection.request("GET", "/health")
                response = connection.getresponse()
                assert (response.status, response.read()) == (200, b'{"status":"ok"}')
                last -= replaced.is_set()
        return 1

    with crew(tmp_path, 2) as made, ThreadPoolExecutor(8) as pool:
        silent = [made.raw.connection() for _ in range(300)]
        for each in silent:
            each.connect()
        before = set(made.living())
        asking = [pool.submit(ask, made.raw) for _ in range(8)]
        made.process.send_signal(signal.SIGHUP)
        made.until(lambda: not before & set(made.living()) and len(made.living()) == 2)
        replaced.set()
        assert [each.result(30) for each in asking] == [1] * 8
        for each in silent:
            each.auto_open = 0
            each.request("GET", "/health")
            assert each.getresponse().read() == b'{"status":"ok"}'
            each.close()


def _wander(raw: Raw, sids: Sequence[str], dice: random.Random) -> list[str]:
    """Asks one session for a while, then another, over one connection; gives the names of its calls."""
    names: list[str] = []
    label = f"{dice.random()}"
    with closing(Conversation(raw)) as client:
        ahead, pipelined, sent = 0, *_batch(dice.choice(sids), label, 0, dice)
        for _ in range(25):
            sid = dice.choice(sids)
            for _ in range(dice.randrange(3 * MOVE_AFTER)):
                names += pipelined
                following = _batch(sid, label, len(names), dice)
                more = dice.choice((0, 0, 0, 1, 5, 150))  # the next request has begun to arrive
                client.socket.sendall(sent[ahead:] + following[1][:more])
                for _ in pipelined:
                    assert client.answers.next().result()["ok"] is True
                ahead, pipelined, sent = more, *following
    return names


class Answers(io.BufferedReader):
    """Answers one after the other over one connection."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection.makefile("rb", buffering=0))

    def next(self) -> Answer:
        response = http.client.HTTPResponse(self)  # type: ignore[arg-type]
        response.begin()
        return Answer(response.status, {}, response.read())

    def makefile(self, mode: str) -> "Answers":
        return self

    def close(self) -> None:
        """The end of an answer is not the end of all."""


class Conversation:
    """One connection, over which bytes are sent as they are given."""

    def __init__(self, raw: Raw) -> None:
        self.socket = socket.create_connection((raw.host, raw.port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = Answers(self.socket)

    def told(self, sent: bytes) -> str:
        """What the next answer says, when these bytes have been sent."""
        self.socket.sendall(sent)
        return str(self.answers.next().result()["output"]["blocks"][0]["text"])

    def close(self) -> None:
        self.answers.detach().close()
        self.socket.close()


def _batch(sid: str, label: str, first: int, dice: random.Random) -> tuple[list[str], bytes]:
    """The names of a few calls behind each other, and what is to be sent for them."""
    names = [f"{label}-{first + n}" for n in range(dice.choice((1, 1, 1, 3)))]
    slow = dice.random() < 0.02  # long enough for its stream to open before the end
    sent = b""
    for name in names:
        given = {"name": name, "seconds": 0.03} if slow else {"name": name}
        body = json.dumps({"name": "wait" if slow else "note", "input": given}).encode()
        body += b" " * dice.choice((0, 0, 0, 100_000))
        head = f"POST /yard/call HTTP/1.1\r\nHost: localhost\r\nX-Session-ID: {sid}\r\n"
        sent += f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return names, sent
