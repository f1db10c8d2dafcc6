"""Bodies of requests that are still arriving: how much of them is kept, and how long they may take."""

from ors.errors import ResponseError, Unavailable

BODY_SECONDS = 30.0
"""A body may take this long, however short it is ..."""
LEAST_BYTES_A_SECOND = 8 * 1024
"""... and a second more for so many bytes that have come: a long body has its time, a drip has none."""


class ArrivingBodies:
    """The bytes that are kept of bodies before anything is done with them, over all connections."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.bytes = 0

    def add(self, count: int) -> None:
        """Keeps more.

        Raises:
            Unavailable: too much is kept already; it is counted all the same, until it is removed.
        """
        self.bytes += count
        if self.bytes > self._limit:
            text = (
                f"The bodies of all requests that are arriving are over {self._limit} bytes; try again later"
            )
            raise Unavailable(text, retry_after=1, reason="limit")

    def remove(self, count: int) -> None:
        """Keeps less."""
        self.bytes -= count


def seconds_for(count: int) -> float:
    """How long a body may take of which so many bytes have come."""
    return BODY_SECONDS + count / LEAST_BYTES_A_SECOND


def too_slow() -> ResponseError:
    """What is said of a body that takes too long."""
    text = f"The request body comes too slowly: it has {BODY_SECONDS:.0f} s, and 1 s for each "
    return ResponseError(f"{text}{LEAST_BYTES_A_SECOND} bytes", status=408, reason="limit")
