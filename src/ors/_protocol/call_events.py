"""Server-sent events (the W3C's event stream format), and those of a call: encoding and decoding."""

from dataclasses import dataclass

PING_COMMENT = b": ping\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    event: str
    data: str
    more: tuple[tuple[str, str], ...] = ()
    """Fields that the standard does not define; other readers ignore them."""


def encode_event(event: str, data: str, **more: str) -> bytes:
    """Encodes one event; `more` are fields that the standard does not define.

    `data` is split at every line break that any reader knows (`str.splitlines`), so that no reader takes the
    rest of a line for a field.
    """
    fields = "".join(f"{name}: {value}\n" for name, value in more.items())
    lines = "".join(f"data: {line}\n" for line in data.splitlines()) or "data: \n"
    return f"event: {event}\n{fields}{lines}\n".encode(errors="backslashreplace")


class EventDecoder:
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


# ── The events of a call ─────────────────────────────────────────────────────────────────────────


CHUNK_BYTES = 4096
_TASK_ID = b"event: task_id\ndata: "
_CHUNK = b"event: chunk\ndata: "
_END = b"event: end\ndata: "
_ERROR = b"event: error\n"
_NEVER_STRIPPED = bytes(range(0x21, 0x7F))
_LINE_SEPARATORS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)


UNKNOWN_TASK_ID = "unknown task_id"
"""The `error` event for a task id that the session does not know."""

RESULT_GONE = "result no longer kept"
"""The `error` event of a call whose result is no longer kept."""

SESSION_OVER = ("Session lost", "Session deleted", "Session expired")
"""An `error` event that begins with one of these ends the session, not only the call."""


def task_id_event(task_id: str) -> bytes:
    """The first event of every call, with the id for rejoining it."""
    return _TASK_ID + task_id.encode() + b"\n\n"


def error_event(message: str, reason: str = "") -> bytes:
    """The last event of a call without a result. `reason` is for programs."""
    return encode_event("error", message, reason=reason) if reason else encode_event("error", message)


def result_events(ending: bytes) -> bytes:
    """The events after `task_id`. `ending` is a result as compact JSON, or the `error` event.

    Every reader gets the same text: no piece begins or ends with white space, which some strip, and none
    contains a character that some take for a line end.
    """
    if ending[:1] == b"e":  # no JSON begins so
        return ending
    # Searching one byte is forty times faster than three, and as a number ten times faster than as bytes,
    # which `in` first tries to convert to a number.
    if 0xE2 in ending or 0xC2 in ending:
        ending = one_line(ending)
    if len(ending) <= CHUNK_BYTES:
        return _END + ending + b"\n\n"
    return _regular_parts(ending) or b"".join(_parts(ending))


def one_line(text: bytes) -> bytes:
    """Compact JSON, with every character escaped that some reader takes for a line end."""
    for raw, escaped in _LINE_SEPARATORS:
        text = text.replace(raw, escaped)
    return text


def ending_error(ending: bytes) -> tuple[str, str | None] | None:
    """The message and the reason of an ending that is an `error` event; None if it is a result."""
    if not ending.startswith(_ERROR):
        return None
    reader = CallReader()
    reader.feed(ending)
    return reader.error or "", reader.reason


def _regular_parts(text: bytes) -> bytes | None:
    """The events of a long text that can be cut at every `CHUNK_BYTES`, as nearly all can; else None."""
    # By a few operations on the whole text: 1 MB takes 40 µs, cut by cut 90 µs.
    edges = text[CHUNK_BYTES - 1 :: CHUNK_BYTES] + text[CHUNK_BYTES::CHUNK_BYTES]
    if edges.translate(None, _NEVER_STRIPPED):
        return None
    view = memoryview(text)
    pieces: list[bytes | memoryview] = [
        view[at : at + CHUNK_BYTES] for at in range(0, len(text), CHUNK_BYTES)
    ]
    pieces[-2:] = [b"".join((pieces[-2], b"\n\n", _END, pieces[-1], b"\n\n"))]
    pieces[0] = _CHUNK + pieces[0]
    return (b"\n\n" + _CHUNK).join(pieces)


def _parts(text: bytes) -> list[bytes | memoryview]:
    view = memoryview(text)  # its slices copy nothing: allocating a megabyte costs more than all the rest
    parts: list[bytes | memoryview] = []
    start = 0
    lead = b""  # the first character of this piece, if it had to be escaped
    while len(text) - start + len(lead) > CHUNK_BYTES:
        end = start + CHUNK_BYTES - len(lead)
        # Usually the text can be cut right here: checking first saves a function call per piece.
        if (0x20 < text[end] < 0x7F and 0x20 < text[end - 1] < 0x7F) or (end := _plain_cut(text, end)):
            parts += (_CHUNK, lead, view[start:end], b"\n\n")
            start, lead = end, b""
            continue
        piece, start, next_lead = _escaped_cut(text, start, start + CHUNK_BYTES - len(lead) - 5)
        parts += (_CHUNK, lead, piece, b"\n\n")
        lead = next_lead
    parts += (_END, lead, view[start:], b"\n\n")
    return parts


def _plain_cut(text: bytes, limit: int) -> int:
    # Nearly every text has two adjacent ASCII characters, neither a space, within a few bytes.
    for end in range(limit, limit - 64, -1):
        if 0x20 < text[end] < 0x7F and 0x20 < text[end - 1] < 0x7F:
            return end
    return 0


def _escaped_cut(text: bytes, start: int, end: int) -> tuple[bytes, int, bytes]:
    # The last character may grow by 5 bytes when it is escaped.
    while text[end] & 0xC0 == 0x80:
        end -= 1
    before = text[end - 4 : end].decode(errors="ignore")[-1]
    after = text[end : end + 4].decode(errors="ignore")[0]
    piece = text[start:end]
    if _stripped(before):
        piece = piece[: -len(before.encode())] + _escape(before)
    if _stripped(after):
        return piece, end + len(after.encode()), _escape(after)
    return piece, end, b""


def _stripped(character: str) -> bool:
    return character.isspace() or character == "\ufeff"  # JavaScript's trim() strips it too


def _escape(character: str) -> bytes:
    return b"\\u%04x" % ord(character)


class CallReader:
    """Reads the stream of one call: feed it bytes until it is `done`.

    Then `result` is the result as JSON text, or `error` is the message of the `error` event.
    """

    __slots__ = ("_decoder", "_pieces", "done", "error", "reason", "result", "task_id")

    def __init__(self) -> None:
        self._decoder = EventDecoder()
        self._pieces: list[str] = []
        self.done = False
        """Whether the last event has arrived."""
        self.task_id: str | None = None
        self.result: str | None = None
        self.error: str | None = None
        self.reason: str | None = None

    def feed(self, chunk: bytes) -> bool:
        """Reads the next bytes; returns whether the call is done."""
        for event in self._decoder.feed(chunk):
            if self.done:
                break
            if event.event == "task_id":
                self.task_id = event.data.strip()
            elif event.event == "chunk":
                self._pieces.append(event.data)
            elif event.event == "end":
                self._pieces.append(event.data)
                self.result, self.done = "".join(self._pieces), True
            elif event.event == "error":
                self.error, self.done = event.data, True
                self.reason = dict(event.more).get("reason")
        return self.done
