"""Limits of size and time for request bodies that are still arriving."""

from ors.errors import ResponseError, Unavailable
from ors.limits import ARRIVING_BYTES

BODY_SECONDS = 30.0
"""Time for any body ..."""
LEAST_BYTES_A_SECOND = 8 * 1024
"""... and one more second for this many bytes received, so that long bodies have time and drips do not."""


class ArrivingBodies:
    """Counts the bytes of incomplete bodies over all connections."""

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, count: int) -> None:
        """Counts more bytes.

        Raises:
            Unavailable: the limit is exceeded; the bytes are counted all the same, until they are removed.
        """
        self.bytes += count
        if self.bytes > ARRIVING_BYTES:
            text = f"Arriving request bodies take over {ARRIVING_BYTES} bytes; try again later"
            raise Unavailable(text, retry_after=1, reason="limit")

    def remove(self, count: int) -> None:
        self.bytes -= count


def seconds_for(count: int) -> float:
    """Returns the time for a body of which `count` bytes have arrived."""
    return BODY_SECONDS + count / LEAST_BYTES_A_SECOND


def too_slow() -> ResponseError:
    """The error for a body that takes too long."""
    text = f"The request body comes too slowly: it has {BODY_SECONDS:.0f} s, and 1 s for each "
    return ResponseError(f"{text}{LEAST_BYTES_A_SECOND} bytes", status=408, reason="limit")
