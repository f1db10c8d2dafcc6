"""Checks of the stream format."""

import json
import re
from collections.abc import Callable
from typing import Any

from ors.conformance import expect
from ors.conformance.checks import in_session
from ors.conformance.http import Answer, read_events
from ors.conformance.requirements import Violation
from ors.conformance.subject import CheckedSession

CHUNK = 4096
TRIES = 8
"""On a busy machine, data that is sent together may arrive separately."""
TOGETHER_SECONDS = 0.02
SPACES = " \t\u00a0\u3000\ufeff"
MIXED = "x漢 🎉\n\u00a0é"
SEPARATORS = ("\u0085", "\u2028", "\u2029")  # white space for str.split()
_LINE = re.compile(rb"(event|data): |:|\Z")


@in_session("format.events")
async def events(episode: CheckedSession) -> None:
    given = await episode.some()
    events, _, unfinished = read_events(given.body)
    given.fault_if(unfinished or not events, "the last event does not end with a blank line")
    given.fault_if(any(event.name == "message" for event in events), "an event without a type")


@in_session("format.lines")
async def lines(episode: CheckedSession) -> None:
    given = await episode.some()
    given.fault_if(b"\r" in given.body, "lines end with CR")
    for line in given.body.split(b"\n"):
        if not _LINE.match(line):
            raise Violation("a line has another form", line)


@in_session("format.headers")
async def headers(episode: CheckedSession) -> None:
    """These headers are for proxies."""
    given = await episode.some()
    if "no-cache" not in (given.header("cache-control") or "").replace("no-store", "no-cache"):
        raise Violation("no Cache-Control: no-cache", given.raw)
    if given.header("x-accel-buffering") != "no":
        raise Violation("no X-Accel-Buffering: no", given.raw)


@in_session("format.at-once", "probe")
async def at_once(episode: CheckedSession) -> None:
    """Tries several times: on a busy machine, a tool may not return immediately."""
    await episode.get("prompt")
    for _ in range(TRIES):
        given = await episode.call("echo", {"text": "x"})
        if given.header("content-length") is not None:
            return
    raise Violation("no Content-Length", given.raw)


@in_session("format.end-of-body", "probe")
async def end_of_body(episode: CheckedSession) -> None:
    """Looks at a stream that was open for a while."""
    for _ in range(TRIES):
        given = await episode.call("slow", {"seconds": 0.05})
        given.output()
        (last, read), (ended, reads) = given.arrival(given.events[-1].end), given.ended
        if reads == read or ended - last < TOGETHER_SECONDS:
            return
    raise Violation("the end of the body arrived later than the last event", given.seen)


async def _sized(episode: CheckedSession, size: int) -> Answer:
    small = await episode.call("big", {"characters": 100})
    overhead = sum(len(event.data.encode()) for event in small.pieces) - 100
    given = await episode.call("big", {"characters": size - overhead})
    if len("".join(event.data for event in given.pieces).encode()) != size:
        raise Violation("the size of a result does not grow with its text", given.seen)
    return given


@in_session("format.small", "probe")
async def small(episode: CheckedSession) -> None:
    for size in (1000, CHUNK):
        given = await _sized(episode, size)
        if [event.name for event in given.pieces] != ["end"]:
            raise Violation(f"{size} bytes were sent in {len(given.pieces)} pieces", given.seen)


@in_session("format.large", "probe")
async def large(episode: CheckedSession) -> None:
    given = await _sized(episode, CHUNK + 1)
    if [event.name for event in given.pieces] != ["chunk", "end"]:
        raise Violation(f"4097 bytes were sent as {[event.name for event in given.pieces]}", given.seen)


def _check_sizes(given: Answer) -> None:
    given.output()
    longest = max(len(event.data.encode()) for event in given.pieces)
    given.fault_if(longest > CHUNK, f"a piece has {longest} bytes")


@in_session("format.chunk-size", "probe")
async def chunk_size(episode: CheckedSession) -> None:
    _check_sizes(await episode.call("big", {"characters": 50_000}))


@in_session("format.chunk-size-utf8", "probe")
async def chunk_size_utf8(episode: CheckedSession) -> None:
    for character in "漢🎉":
        _check_sizes(await episode.call("big", {"characters": 10_000, "character": character}))


@in_session("format.reassembly", "probe")
async def reassembly(episode: CheckedSession) -> None:
    """Requests a megabyte, and characters of all widths at every possible cut."""
    expect.text(await episode.call("big", {"characters": 1_000_000}), "x" * 1_000_000)
    for shift in range(8):
        text = "-" * shift + MIXED * 2_000
        expect.text(await episode.call("echo", {"text": text}), text)


@in_session("format.no-edge-space", "probe")
async def no_edge_space(episode: CheckedSession) -> None:
    for character in SPACES:
        given = await episode.call("big", {"characters": 10_000, "character": character})
        expect.text(given, character * 10_000)
        for event in given.pieces:
            if event.data != event.data.strip().strip("\ufeff"):
                raise Violation("a piece begins or ends with white space", event.raw[:20] + event.raw[-20:])


@in_session("format.no-separators", "probe")
async def no_separators(episode: CheckedSession) -> None:
    """Sends characters at which str.splitlines() splits."""
    text = "-".join(SEPARATORS)
    given = await episode.call("echo", {"text": text})
    expect.text(given, text)
    if any(character in event.data for event in given.pieces for character in SEPARATORS):
        raise Violation("a line separator is not escaped", given.seen)


@in_session("format.surrogate", "probe")
async def surrogate(episode: CheckedSession) -> None:
    given = await episode.call("surrogate")
    text = given.text()
    if not text.startswith("before ") or not text.endswith(" after"):
        raise Violation("the text around a lone surrogate is lost", given.seen)


def _example(lines: list[str], trimmed: Callable[[str], str]) -> Any:
    """Reads a complete body as the clients in the specification do."""
    buffer = kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = trimmed(line[7:])
        elif line.startswith("data: "):
            data = trimmed(line[6:])
            if kind == "end":
                return json.loads(buffer + data)
            if kind == "chunk":
                buffer += data
    return None


@in_session("format.example-clients", "probe")
async def example_clients(episode: CheckedSession) -> None:
    for characters in (10, 20_000):
        given = await episode.call("big", {"characters": characters})
        body = given.body.decode()
        for client, lines, trimmed in (
            ("Python", body.splitlines(), str),
            ("JavaScript", re.split(r"\r?\n", body), str.strip),
        ):
            try:
                found = _example(lines, trimmed)
            except ValueError as error:
                raise Violation(f"the example in {client} fails: {error}", given.seen) from None
            given.fault_if(found != given.value(), f"the example in {client} reads another result")
