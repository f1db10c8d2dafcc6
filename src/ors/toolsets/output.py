"""Output for an agent: text of a bounded length."""

LONGEST = 16_000
"""Most characters of one result."""


def shortened(text: str, longest: int = LONGEST) -> str:
    """Cuts a long text in the middle, and says how much is missing."""
    if len(text) <= longest:
        return text
    half = longest // 2
    missing = text[half:-half]
    lines = missing.count("\n")
    return f"{text[:half]}\n[… {len(missing):,} characters, {lines:,} lines left out …]\n{text[-half:]}"


class Bounded:
    """Output of which the first and the last part are kept."""

    def __init__(self, part: int = LONGEST * 4) -> None:
        self._part = part
        self._first, self._last = bytearray(), bytearray()
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = self._part - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        del self._last[: -self._part]

    def text(self) -> str:
        """The kept output, as text of a bounded length."""
        missing = self.size - len(self._first) - len(self._last)
        note = f"\n[… {missing:,} bytes left out …]\n".encode() if missing else b""
        return shortened((self._first + note + self._last).decode(errors="replace"))
