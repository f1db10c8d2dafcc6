"""Server-sent events (the W3C's event stream format): encoding and decoding."""

from dataclasses import dataclass

PING = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    event: str
    data: str
    more: tuple[tuple[str, str], ...] = ()
    """Fields that the standard does not define; other readers ignore them."""


def encode(event: str, data: str, **more: str) -> bytes:
    """Encodes one event; `more` are fields that the standard does not define.

    `data` is split at every line break that any reader knows (`str.splitlines`), so that no reader takes the
    rest of a line for a field.
    """
    fields = "".join(f"{name}: {value}\n" for name, value in more.items())
    lines = "".join(f"data: {line}\n" for line in data.splitlines()) or "data: \n"
    return f"event: {event}\n{fields}{lines}\n".encode(errors="backslashreplace")


class Decoder:
    """Decodes a stream of bytes, in chunks of any size, into events.

    As the standard says: LF, CR and CRLF end lines, one space after the colon is dropped, a line without a
    colon is a field without a value, comments and unknown fields are ignored, and a blank line completes
    an event.
    """

    __slots__ = ("_begun", "_data", "_event", "_first", "_more", "_skip_lf")

    def __init__(self) -> None:
        self._begun: list[bytes] = []  # pieces of the incomplete line
        self._event = ""
        self._data: list[str] = []
        self._more: list[tuple[str, str]] = []
        self._skip_lf = False
        self._first = True

    def feed(self, chunk: bytes) -> list[Event]:
        if self._skip_lf and chunk:
            self._skip_lf = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if b"\n" not in chunk and b"\r" not in chunk:
            # Joined once, when the line ends: joining a line of 64 MB piece by piece takes seconds.
            self._begun.append(chunk)
            return []
        text = b"".join((*self._begun, chunk))
        if b"\r" in text:
            # A CR at the end may be half of a CRLF: it ends the line, and a following LF is skipped.
            self._skip_lf = text.endswith(b"\r")
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._begun = [rest] if rest else []
        events = []
        for line in lines:
            event = self._line(line)
            if event is not None:
                events.append(event)
        return events

    def _line(self, raw: bytes) -> Event | None:
        if self._first:
            self._first = False
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw:
            event, data, more = self._event, self._data, tuple(self._more)
            self._event, self._data, self._more = "", [], []
            # ors-sdk 0.1.0 and openreward 0.1.167 end /create_session with `data: ` empty, which the
            # standard dispatches too: only an event with no data line at all is dropped.
            return Event(event or "message", "\n".join(data), more) if data else None
        field, _, value = raw.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
        elif field and field not in (b"id", b"retry"):
            self._more.append((field.decode("utf-8", "replace"), value.decode("utf-8", "replace")))
        return None
