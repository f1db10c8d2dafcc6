"""An answer whose server is still to be found."""

from ors.server.streams import Later


class Asking(Later):
    """Waits for who has the answer, or for the answer itself, and goes on with that."""
