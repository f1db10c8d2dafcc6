"""An answer whose server is still to be found."""

from ors.server.http.streams import Later


class Lookup(Later):
    """Waits for who has the answer, or for the answer itself, and goes on with that."""
