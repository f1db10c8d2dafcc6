"""The log: JSON lines, and a queue that drops rather than blocks."""

import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from ors.cli.output.logging import JSONLogLines, TextLines


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def record(text: str, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "ors.server", "levelname": "INFO", "msg": text, **extra})


def test_a_record_is_one_json_object_with_its_extras() -> None:
    line = json.loads(JSONLogLines().format(record("a\nb", session="s1", tool="submit")))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "ors.server",
        "message": "a\nb",
        "session": "s1",
        "tool": "submit",
    }


def test_an_exception_is_in_the_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        given = record("failed", exc_info=(type(error), error, error.__traceback__))
    assert "ValueError: broken" in json.loads(JSONLogLines().format(given))["exception"]


def test_a_full_pipe_drops_lines_and_tells_how_many_when_it_is_read_again(pipe: tuple[int, int]) -> None:
    lines = TextLines(pipe[1], capacity=3)
    lines.setFormatter(JSONLogLines())
    for n in range(50):
        # The pipe holds 64 KB: after that the writer is stuck, the queue fills up, and this must not block.
        lines.emit(record("x" * 10_000, number=n))
    found: list[dict[str, object]] = []
    with open(pipe[0], encoding="utf-8", closefd=False) as reader:
        # The count comes with the next line that is written, be it one that still fits the queue.
        nudge = threading.Thread(target=lines.emit, args=(record("nudge"),))
        while "dropped" not in (found[-1] if found else {}):
            found.append(json.loads(reader.readline()))
            if nudge.ident is None and len(found) > 5:
                nudge.start()
                nudge.join()
        lines.close()
    numbers = [line["number"] for line in found if "number" in line]
    assert numbers == sorted(numbers)  # type: ignore[type-var]
    assert found[-1]["dropped"]
    assert "log lines were dropped" in str(found[-1]["message"])


def test_closing_does_not_wait_for_a_reader_that_is_not_there(pipe: tuple[int, int]) -> None:
    lines = TextLines(pipe[1], capacity=2)
    for _ in range(20):
        lines.emit(record("x" * 10_000))
    lines.close()
