"""A connection follows its tables of states, whatever its client, its reader and the server do."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ors.errors import AuthenticationError
from ors.server.connections.context import KEEP_ALIVE_SECONDS, LAST_READ_SECONDS, REQUEST_SECONDS
from ors.server.connections.states import ANSWERING, CLOSED, CLOSING, ENDED, FREE, READING, REFUSED, Answering
from ors.server.http.answers import STREAM, Answer
from tests.support.piped_connection import LONG, Client, Transition, checked_states, get, post

EXPECT = "Expect: 100-continue"
MESSAGES = {
    "short": get("/short"),
    "long": get("/long"),
    "held": get("/held"),
    "broken": get("/broken"),
    "broken later": get("/broken/later"),
    "post": post("/posted", b"y" * 50),
    "chunks": get("/chunks", "Transfer-Encoding: chunked") + b"3\r\nyyy\r\n3\r\nyyy\r\n0\r\nX: y\r\n\r\n",
    "expect": post("/expected", b"y" * 50, EXPECT),
    "last": get("/last", "Connection: close"),
    "old": get("/old").replace(b"1.1", b"1.0"),
    "HEAD": get("/head").replace(b"GET", b"HEAD"),
    "line break": b"\r\n",
    "garbage": b"\0 garbage\r\n\r\n",
    "too large": post("/large", b"", EXPECT).replace(b"Length: 0", b"Length: 10001"),
    "wish": get("/wish", "Connection: Upgrade", "Upgrade: h2c"),
    "other protocol": get("/other", "Connection: Upgrade", "Upgrade: other") + b"its bytes",
}


class Play:
    """A client, and the moves of everybody who has to do with its connection."""

    def __init__(self, coming: bytes) -> None:
        self.client = Client()
        self._coming = coming
        self._known: asyncio.Future[int] | None = None

    @property
    def open(self) -> bool:
        return not self.client.pipe.closed and self.client.connection.state is not CLOSED

    def send(self, count: int) -> None:
        if self.open and self.client.pipe.reading:
            part, self._coming = self._coming[:count], self._coming[count:]
            if part:
                self.client.send(part)

    def send_all(self) -> None:
        self.send(len(self._coming))

    def read(self) -> None:
        if self.open:
            self.client.pipe.read()

    def stop_reading(self) -> None:
        """The client is slow, or catches up: the transport tells so at any time."""
        if self.open:
            self.client.pipe.unread += len(LONG)
            self.client.pipe.tell()

    def leave(self) -> None:
        """The client sends its end: the event loop closes, and says so."""
        self.client.pipe.close()
        self.lose()

    def lose(self) -> None:
        if self.client.connection.state is not CLOSED:
            self.client.connection.connection_lost(None)

    def answer(self) -> None:
        if (sink := self.client.app.held.sink) is not None:
            self.client.app.held.sink = None
            sink.answer(Answer(200, b"held"))

    def begin_stream(self) -> None:
        if (sink := self.client.app.held.sink) is not None:
            if self.client.connection.state is Answering.TAKEN:
                sink.head(200, STREAM, b"first")
            else:
                sink.part(b"more")

    def end_stream(self) -> None:
        if self.client.app.held.sink is not None and self.client.connection.state is Answering.STREAMING:
            sink, self.client.app.held.sink = self.client.app.held.sink, None
            sink.end(b"last")

    def ask(self) -> None:
        """From now on, it takes a while to find out who sends a request."""
        self._known = self._known or asyncio.get_running_loop().create_future()
        self.client.app.asking = self._known

    def admit(self) -> None:
        if self._known is not None:
            self._known.set_result(10_000)
        self._known = self.client.app.asking = None

    def turn_away(self) -> None:
        if self._known is not None:
            self._known.set_exception(AuthenticationError("no key"))
            self._known.exception()  # nobody may wait for it
        self._known = self.client.app.asking = None

    def wait(self, seconds: float) -> None:
        self.client.clock.now += seconds
        self.client.connection.sweep(self.client.clock.now)

    def wait_for_refused(self) -> None:
        self.wait(LAST_READ_SECONDS + 1)

    def wait_for_request(self) -> None:
        self.wait(REQUEST_SECONDS + 1)

    def wait_long(self) -> None:
        self.wait(KEEP_ALIVE_SECONDS + 1)

    def retire(self) -> None:
        self.client.context.leaving = True

    def shut_down(self) -> None:
        self.client.connection.shutdown()

    def hand_over(self) -> None:
        if self.client.connection.spare is not None:
            self.client.connection.abort()

    async def make(self, move: str) -> None:
        """Makes a move. A number sends so many bytes; "turn" lets the event loop turn."""
        if move == "turn":
            await asyncio.sleep(0)
        elif move.isdecimal():
            self.send(int(move))
        else:
            done: Callable[[], None] = getattr(self, move)
            done()

    async def settle(self) -> None:
        """Lets everybody do what they still owe."""
        self.admit()
        for _ in range(100):
            self.read()
            self.answer()
            self.end_stream()
            await asyncio.sleep(0)


MOVES = [
    *("turn", "send_all", "read", "stop_reading", "leave", "lose", "answer", "begin_stream", "end_stream"),
    *("ask", "admit", "turn_away", "wait_for_refused", "wait_for_request", "wait_long"),
    *("retire", "shut_down", "hand_over"),
]
moves = st.sampled_from(MOVES) | st.integers(1, 200).map(str)
# Most sequences should not be over after their first move.
harmless = st.sampled_from(["turn", "send_all", "read", "answer", "begin_stream", "ask", "admit"])
sequences = st.lists(moves | harmless | st.integers(1, 200).map(str), min_size=1, max_size=30)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(list(MESSAGES)), min_size=1, max_size=8), sequences)
def test_whatever_happens_only_transitions_of_the_tables_happen(names: list[str], made: list[str]) -> None:
    asyncio.run(_played(b"".join(MESSAGES[name] for name in names), made))


async def _played(coming: bytes, made: list[str]) -> None:
    play = Play(coming)
    connection = play.client.connection
    for move in made:
        await play.make(move)
        if connection.state in (REFUSED, CLOSING, CLOSED):
            assert connection.parser.state is ENDED
    await play.settle()
    if play.open and connection.state is not REFUSED:
        assert (connection.state, play.client.pipe.reading) == (FREE, True)  # nothing hangs
    play.lose()
    await asyncio.gather(*play.client.app.tasks)
    assert play.client.context.arriving.bytes == 0


SCRIPTS: dict[str, tuple[list[str], list[str]]] = {
    "a request at once": (["short"], ["send_all"]),
    "a stream": (["held"], ["send_all", "begin_stream", "end_stream"]),
    "a client that leaves": ([], ["lose"]),
    "a client that leaves during its headers": (["post"], ["10", "leave"]),
    "a client that leaves during its body": (["post"], ["send_all", "60", "leave"]),
    "a client that leaves before its answer": (["held"], ["send_all", "leave"]),
    "a client that leaves during its answer": (["held"], ["send_all", "begin_stream", "leave"]),
    "a client that leaves when it was refused": (["garbage"], ["send_all", "leave"]),
    "a client that leaves as its next request is about to be answered": (
        ["held", "short"],
        ["send_all", "answer", "leave"],
    ),
    "a refused client that stays": (["garbage"], ["send_all", "wait_for_refused", "wait_for_refused"]),
    "a body in two parts": (["post"], ["70", "send_all"]),
    "a body in two parts, the second of which does not come": (
        ["post"],
        ["70", "wait_for_request", "wait_for_request"],
    ),
    "a body over the limit": (["too large"], ["send_all"]),
    "a sender who becomes known": (["post"], ["ask", "70", "admit", "turn", "turn", "send_all"]),
    "a sender who turns out unknown": (["post"], ["ask", "70", "turn_away", "turn", "turn"]),
    "a body that is complete before its sender is known": (["expect"], ["ask", "send_all", "admit", "turn"]),
    "a queued request": (["held", "short"], ["send_all", "answer", "turn"]),
    "the end of the server before a queued request": (
        ["held", "short"],
        ["send_all", "answer", "shut_down"],
    ),
    "the end of the server between requests": ([], ["shut_down", "lose"]),
    "the last answer": (["last"], ["send_all"]),
    "a bug in an answer that has begun": (["broken later"], ["send_all"]),
    "another protocol": (["other protocol"], ["send_all"]),
    "a move to another process": (["short"], ["send_all", "read", "hand_over"]),
}


def test_every_transition_of_the_tables_happens(transitions: set[Transition]) -> None:
    for names, made in SCRIPTS.values():
        asyncio.run(_played(b"".join(MESSAGES[name] for name in names), made))
    tables = (ANSWERING, READING)
    possible = {(before, after) for table in tables for before, ends in table.items() for after in ends}
    assert possible - transitions == set()


async def test_a_change_that_no_table_has_raises() -> None:
    with pytest.raises(AssertionError, match="CLOSED, FREE"), checked_states():
        _reopen(Client())


def _reopen(client: Client) -> None:
    client.connection.connection_lost(None)
    with suppress(AssertionError):  # as an event loop would
        client.connection.state = FREE
