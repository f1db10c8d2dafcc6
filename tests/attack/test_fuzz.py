"""Requests that nobody should send, pipelined and broken, on four front ends."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.hostile import Hostile
from tests.attack.conftest import Scale, Tally
from tests.attack.fronts import NAMES, Front, front, until
from tests.attack.shapes import LAST
from tests.attack.wire import talk

pytestmark = pytest.mark.xdist_group("attack-fuzz")

GROWTH_MB = 100
BATCH = 40
BROKEN = 10
AT_ONCE = 4
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def statuses(where: Front, sent: bytes, half_close: bool = False) -> list[int]:
    """Returns the statuses of all answers to these bytes."""
    heard = talk((where.raw.host, where.raw.port), [sent], half_close=half_close, patience=30)
    return [int(status) for status in _STATUS.findall(heard) if status != b"100"]


def fuzzed(where: Front, hostile: Hostile) -> tuple[int, Counter[int]]:
    """A pipeline of whole requests, then broken ones, each on a connection of its own."""
    waiting, found = [hostile.request() for _ in range(BATCH)], list[int]()
    while waiting:  # whoever is refused before its body is read loses the connection, and comes again
        given = statuses(where, b"".join(waiting) + LAST)
        assert 0 < len(given) <= len(waiting) + 1, f"{len(given)} answers to {waiting!r}"
        assert len(given) == len(waiting) + 1 or given[-1] >= 400, f"{given} to {waiting!r}"
        waiting, found = waiting[len(given) :], found + given
    for _ in range(BROKEN):
        found += statuses(where, hostile.broken(), half_close=True)
    return BATCH + BROKEN, Counter(found)


@pytest.mark.parametrize("name", NAMES)
def test_no_request_harms_a_front_end(name: str, tmp_path: Path, scale: Scale, tally: Tally) -> None:
    rounds = scale.of(4, 150)
    words = ["--sessions", "200", "--tool-seconds", "5"] if name != "asgi" else []
    with front(name, tmp_path, *words) as where, ThreadPoolExecutor(AT_ONCE) as pool:

        def one(number: int) -> tuple[int, Counter[int]]:
            hostile, sent, found = Hostile(scale.seed * 1000 + number), 0, Counter[int]()
            for _ in range(rounds):
                more, given = fuzzed(where, hostile)
                sent, found = sent + more, found + given
            return sent, found

        done = list(pool.map(one, range(AT_ONCE)))
        sent, found = sum(each for each, _ in done), sum((each for _, each in done), Counter[int]())
        assert max(found) < 500, found
        assert where.healthy()
        assert until(lambda: where.megabytes < where.at_first + GROWTH_MB), where.megabytes
        assert "Traceback" not in where.log(), where.log()[-3000:]
    tally(f"fuzzed requests to a {name}", f"{sent:,}: no 5xx, none unanswered, lives")
