"""Answers that come from another server, piece by piece."""

from abc import ABC, abstractmethod
from typing import Any, Protocol

from ors.server.requests import Request


class Sink(Protocol):
    """Where a relayed answer goes: the connection of the client that asked."""

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """The whole answer at once."""

    def head(self, status: int, headers: bytes) -> None:
        """An answer begins; its length is not known."""

    def part(self, data: bytes) -> None:
        """The next bytes of it."""

    def end(self, data: bytes) -> None:
        """The last bytes of it."""

    def broken(self) -> None:
        """It ends before it is complete, and nothing can be said any more."""

    def settle(self, request: Request, outcome: Any) -> None:
        """The answer is found at home after all: what `take` would have given."""


class Elsewhere(Protocol):
    """A server of this machine that takes clients' connections over."""

    def give(self, *connections: int) -> bool:
        """Gives it the connections with these file descriptors, all or none; False if it takes none now."""


class Relay(ABC):
    """An answer from elsewhere, for as long as its client is there."""

    @property
    def elsewhere(self) -> Elsewhere | None:
        """Who gives the answer, if the client's connection could go there itself."""
        return None

    @property
    def ends(self) -> bool:
        """Whether the answer comes to an end, however long it takes."""
        return True

    @abstractmethod
    def begin(self, sink: Sink) -> None:
        """Asks, and sends the answer to `sink` as it comes."""

    @abstractmethod
    def pause(self) -> None:
        """The client reads slower than the answer comes."""

    @abstractmethod
    def resume(self) -> None:
        """It has caught up."""

    @abstractmethod
    def leave(self) -> None:
        """The client has gone. A call goes on: the client may come back for it."""


class Neighbours(Protocol):
    """The other servers, as far as this one needs to know of them."""

    def elsewhere(self, request: Request) -> Any:
        """What gives the answer if another server has it, as `take` would; None if it is this one's."""

    def new_session_id(self) -> str:
        """An id that leads to the server that should have the next session."""


class Switch:
    """The outcome of a request to speak frames instead of HTTP from now on."""


SWITCH = Switch()
