"""Connections that move between workers while requests are pipelined, cut at every place."""

import json
import random
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.attack.conftest import Scale, Tally
from tests.attack.fronts import Front, front
from tests.attack.steps import Steps
from tests.attack.wire import Answered, answers

pytestmark = pytest.mark.xdist_group("attack-moves")

MOVE_AFTER = 16
"""After so many requests in a row for another worker, a connection moves to it."""


def call(sid: str, name: str, *more: str) -> bytes:
    """A call whose answer has its name."""
    body = json.dumps({"name": "note", "input": {"name": name}}).encode()
    return post("/ground/call", body, f"X-Session-ID: {sid}", *more)


def post(path: str, body: bytes, *more: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def disguised(sid: str, name: str) -> bytes:
    """A request whose body is itself a call, which must not run."""
    return post("/ground/num_tasks", call(sid, name))


def told(answer: Answered) -> str:
    """The name in the answer to a call, or its status."""
    if answer.status != 200:
        return str(answer.status)
    data = "".join(line[6:] for line in answer.body.decode().split("\n") if line.startswith("data: {"))
    return str(json.loads(data)["output"]["blocks"][0]["text"])


def tried(where: Front, sid: str, mark: str, cut: int | None, count: int = MOVE_AFTER) -> list[str]:
    """So many calls, a disguised one behind them of which `cut` bytes come with them, and one call more."""
    names = [f"{mark}.{n}" for n in range(count)]
    hidden, last = disguised(sid, f"{mark}.smuggled"), call(sid, f"{mark}.last", "Connection: close")
    cut = len(hidden) - len(call(sid, f"{mark}.smuggled")) if cut is None else cut % len(hidden)
    with Steps(where.raw.host, where.raw.port) as steps:
        steps.send(b"".join(call(sid, name) for name in names) + hidden[:cut])
        steps.until(count)
        steps.send(hidden[cut:] + last)
        given = [told(answer) for answer in answers(steps.rest())]
    assert given == [*names, "400", f"{mark}.last"], (cut, given)
    return [*names, f"{mark}.last"]


def test_a_connection_moves_only_between_requests(tmp_path: Path, scale: Scale, tally: Tally) -> None:
    chosen = random.Random(scale.seed)
    cuts: Sequence[int | None] = [None] * 12 + [chosen.randrange(400) for _ in range(scale.of(24, 600))]
    with front("workers", tmp_path) as where, ThreadPoolExecutor(4) as pool:

        def one(of: tuple[int, int | None]) -> list[str]:
            number, cut = of
            return tried(where, where.sids[number % 2], f"m{number}", cut)

        done = [pool.submit(one, of) for of in enumerate(cuts)]
        wrong = [error for error in (each.exception() for each in done) if error is not None]
        ran = where.ran()
        smuggled = [name for name in ran if name.endswith("smuggled")]
        assert not smuggled, f"{len(smuggled)} bodies ran as requests; {len(wrong)} of {len(done)} went wrong"
        assert not wrong, f"{len(wrong)} of {len(done)}: {wrong[0]}"
        assert sorted(ran) == sorted(name for each in done for name in each.result())
        assert "Traceback" not in where.log()
    tally("moves under pipelining", f"{len(cuts)} connections, {len(ran):,} calls: each once, no body ran")


def test_a_connection_is_handed_over_only_between_requests(
    tmp_path: Path, scale: Scale, tally: Tally
) -> None:
    rounds, clients = scale.of(1, 6), 4
    over = threading.Event()
    with front("workers", tmp_path) as where, ThreadPoolExecutor(clients) as pool:
        sids = where.sids

        def play(number: int) -> list[str]:
            chosen, names, n = random.Random(f"{scale.seed}.{number}"), [], 0
            while not over.is_set():
                mark, n = f"h{number}.{n}", n + 1
                names += tried(where, sids[n % 2], mark, chosen.randrange(400), chosen.randrange(1, 20))
            return names

        playing = [pool.submit(play, number) for number in range(clients)]
        for _ in range(rounds):
            before = len(where.ran())
            where.processes[0].send_signal(signal.SIGHUP)
            while len(where.ran()) < before + 400 and not any(each.done() for each in playing):
                where.raw.get("/health")
        over.set()
        wanted = sorted(name for each in playing for name in each.result())
        assert sorted(where.ran()) == wanted
    tally("hand-overs under pipelining", f"{rounds} reloads, {len(wanted):,} calls: each once, no body ran")
