"""Prompts that clients were given, kept for those who watch their sessions."""

from collections import OrderedDict

KEPT_BYTES = 4 * 2**20
ENTRY_BYTES = 250
"""What an entry takes besides the prompt."""
MOST_BYTES = 2**20
"""A prompt over this is not kept."""


class KeptPrompts:
    """The last prompt of each session, as JSON; beyond a budget, the oldest are dropped.

    Kept, since asking an environment for its prompt again may change the episode.
    """

    def __init__(self) -> None:
        self._by_sid: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, sid: str) -> bytes | None:
        """The prompt of a session, if it was asked for and is kept."""
        return self._by_sid.get(sid)

    def keep(self, sid: str, prompt: bytes) -> None:
        """Keeps the prompt of a session, instead of an earlier one."""
        self.drop(sid)
        if len(prompt) > MOST_BYTES:
            return
        self._by_sid[sid] = bytes(memoryview(prompt))  # a copy: orjson leaves 4 KB reserved behind a result
        self._bytes += len(prompt) + ENTRY_BYTES
        while self._bytes > KEPT_BYTES:
            self.drop(next(iter(self._by_sid)))

    def drop(self, sid: str) -> None:
        """Forgets the prompt of a session."""
        prompt = self._by_sid.pop(sid, None)
        if prompt is not None:
            self._bytes -= len(prompt) + ENTRY_BYTES
