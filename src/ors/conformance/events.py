"""Strict reader of W3C event streams that keeps every byte."""

import json
from dataclasses import dataclass, field
from typing import Any

from ors.conformance.http import Head
from ors.conformance.requirements import Violation


@dataclass(frozen=True)
class RawEvent:
    name: str
    data: str
    raw: bytes
    at: float
    """Time of its last byte, on the clock of the event loop."""


@dataclass
class EventReader:
    """Turns bytes into events, and records comments with their arrival time."""

    events: list[RawEvent] = field(default_factory=list)
    comments: list[tuple[float, bytes]] = field(default_factory=list)
    body: bytes = b""
    _line: bytearray = field(default_factory=bytearray)
    _block: bytearray = field(default_factory=bytearray)
    _after_cr: bool = False

    def feed(self, data: bytes, now: float) -> None:
        if not self.body and data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        self.body += data
        for byte in data:
            if byte == 0x0A and self._after_cr:
                self._block.append(byte)
                self._after_cr = False
                continue
            self._after_cr = byte == 0x0D
            self._block.append(byte)
            if byte in (0x0A, 0x0D):
                self._take(bytes(self._line), now)
                self._line.clear()
            else:
                self._line.append(byte)

    def _take(self, line: bytes, now: float) -> None:
        if line.startswith(b":"):
            self.comments.append((now, line))
        if line == b"":
            self._dispatch(now)

    def _dispatch(self, now: float) -> None:
        raw = bytes(self._block).lstrip(b"\r\n")
        self._block.clear()
        name, data = "", []
        for line in lines_of(raw):
            key, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if key == b"event":
                name = _text(value, raw)
            elif key == b"data":
                data.append(_text(value, raw))
        if data:
            self.events.append(RawEvent(name or "message", "\n".join(data), raw, now))

    @property
    def unfinished(self) -> bytes:
        return bytes(self._block).strip(b"\r\n")


def lines_of(raw: bytes) -> list[bytes]:
    return raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _text(value: bytes, raw: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Violation(f"an event is not UTF-8: {error}", raw) from None


@dataclass
class RawStream:
    head: Head
    events: list[RawEvent]
    comments: list[tuple[float, bytes]]
    body: bytes
    unfinished: bytes = b""
    started: float = 0.0
    ended: float = 0.0
    arrivals_after_last: int = 0
    """Number of reads between the last event and the end of the body."""

    @property
    def seen(self) -> bytes:
        return self.head.raw.split(b"\r\n", 1)[0] + b"\r\n...\r\n\r\n" + self.body

    @property
    def task_id(self) -> str:
        for event in self.events:
            if event.name == "task_id":
                return event.data
        raise Violation("no task_id event", self.seen)

    @property
    def pieces(self) -> list[RawEvent]:
        return [event for event in self.events if event.name in ("chunk", "end")]

    def value(self) -> dict[str, Any]:
        if not any(event.name == "end" for event in self.events):
            raise Violation("the call did not finish with an end event", self.seen)
        try:
            value = json.loads("".join(event.data for event in self.pieces))
        except ValueError as error:
            raise Violation(f"the pieces do not make JSON: {error}", self.seen) from None
        if not isinstance(value, dict):
            raise Violation("the result is not an object", self.seen)
        return value

    def output(self) -> dict[str, Any]:
        value = self.value()
        if value.get("ok") is not True or not isinstance(value.get("output"), dict):
            raise Violation('no {"ok": true, "output": {...}}', self.seen)
        return dict(value["output"])

    def text(self) -> str:
        blocks = self.output().get("blocks")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise Violation("the output has no list of blocks", self.seen)
        return "".join(str(block["text"]) for block in blocks if "text" in block)

    def error(self) -> str:
        for event in self.events:
            if event.name == "error":
                return event.data
        raise Violation("no error event", self.seen)
