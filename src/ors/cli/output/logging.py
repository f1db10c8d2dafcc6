"""Log lines as text or JSON, written through a bounded queue that drops lines instead of blocking."""

import json
import logging
import os
import queue
import sys
import threading
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error", "critical")
QUEUED_LINES = 10_000
LAST_LINES_SECONDS = 1.0

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JSONLogLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Names with an underscore are internal: Ray adds one to every record.
        more = {key: value for key, value in vars(record).items() if key not in _USUAL}
        line |= {key: value for key, value in more.items() if not key.startswith("_")}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextLines(logging.Handler):
    """Passes lines to a writer thread. If the thread falls behind, lines are dropped and counted.

    A write to a pipe that nobody reads blocks forever. It may block the writer thread, never the server.
    """

    def __init__(self, descriptor: int, capacity: int = QUEUED_LINES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(capacity)
        self._dropped = 0
        self._writer = threading.Thread(target=self._write_all, name="ors-log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record))
        except Exception:
            self.handleError(record)

    def write(self, line: str) -> None:
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Writes the queued lines, unless nobody reads them."""
        try:
            self._lines.put(None, timeout=LAST_LINES_SECONDS)
        except queue.Full:
            return super().close()
        self._writer.join(LAST_LINES_SECONDS)
        return super().close()

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                text = f"{dropped} log lines were dropped, because nothing was reading them"
                record = logging.LogRecord("ors.cli", logging.WARNING, "", 0, text, None, None)
                record.dropped = dropped
                self._write(self.format(record))
            self._write(line)

    def _write(self, line: str) -> None:
        # Not with sys.stderr: if a blocked thread holds its lock, the interpreter crashes on exit.
        rest = memoryview(f"{line}\n".encode(errors="backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                return


def configure(level: str, as_json: bool) -> TextLines:
    """Sends all logging to standard error. The caller closes the returned handler."""
    lines = TextLines(sys.stderr.fileno())
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S")
    lines.setFormatter(JSONLogLines() if as_json else text)
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(level.upper())
    return lines
