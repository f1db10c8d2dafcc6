"""The states of a connection, and the changes between them: one table for requests, one for answers.

Reading, by the parser:

           first byte       headers end        body ends
    IDLE ────────────▶ HEAD ───────────▶ BODY ───────────▶ IDLE
                                          │ the body takes more than one read, or waits for 100 Continue
                                          ├─────────▶ ADMITTED ──────▶ IDLE
                                          └▶ ASKING ────▲ or, if the body was complete ──▶ IDLE
    any of them ──▶ ENDED: nothing further is read

Answering, by the connection:

           a request          it takes time          its end
    FREE ─────────────▶ TAKEN ─────────────▶ STREAMING ─────▶ FREE
     │ ▲                  └──────── answered at once ──────────▲
     │ └─ its turn ─┐
     ├───────────▶ NEXT    a pipelined request waits for the next turn of the event loop
     └───────────▶ REFUSED ──▶ CLOSING
    any of them ──▶ CLOSING ──▶ CLOSED, or at once CLOSED: the client has left, or speaks another protocol

In REFUSED, CLOSING and CLOSED, reading has ENDED. It also ends before a refusal that waits behind answers.
"""

import enum


class Reading(enum.Enum):
    """What has arrived of a request."""

    IDLE = "idle"
    """Nothing."""
    HEAD = "head"
    """A part of its line and headers, or line breaks before them."""
    BODY = "body"
    """Its headers. The rest is expected in the same read."""
    ASKING = "asking"
    """Its headers. Nothing is read until it is known who sends it."""
    ADMITTED = "admitted"
    """A part of its body. The bytes count for the server's limit, and have a deadline."""
    ENDED = "ended"


class Answering(enum.Enum):
    """What has been sent of an answer."""

    FREE = "free"
    """No request is being answered."""
    NEXT = "next"
    """A queued request is answered in the next turn of the event loop."""
    TAKEN = "taken"
    """Nothing."""
    STREAMING = "streaming"
    """The beginning of an answer of unknown length."""
    REFUSED = "refused"
    """The last answer, to a request that cannot be read; what its client still sends is dropped."""
    CLOSING = "closing"
    """Everything: the transport sends what is left, and closes."""
    CLOSED = "closed"
    """The transport is gone."""


# Globals, since `Reading.IDLE` takes CPython 3.11 0.14 µs.
IDLE, HEAD, BODY, ASKING, ADMITTED, ENDED = Reading
FREE, NEXT, TAKEN, STREAMING, REFUSED, CLOSING, CLOSED = Answering

READING: dict[Reading, frozenset[Reading]] = {
    IDLE: frozenset({HEAD, ENDED}),
    HEAD: frozenset({BODY, ENDED}),
    BODY: frozenset({IDLE, ASKING, ADMITTED, ENDED}),
    ASKING: frozenset({IDLE, ADMITTED, ENDED}),
    ADMITTED: frozenset({IDLE, ENDED}),
    ENDED: frozenset(),
}

ANSWERING: dict[Answering, frozenset[Answering]] = {
    FREE: frozenset({TAKEN, NEXT, REFUSED, CLOSING, CLOSED}),
    NEXT: frozenset({FREE, CLOSING, CLOSED}),
    TAKEN: frozenset({FREE, STREAMING, CLOSING, CLOSED}),
    STREAMING: frozenset({FREE, CLOSING, CLOSED}),
    REFUSED: frozenset({CLOSING, CLOSED}),
    CLOSING: frozenset({CLOSED}),
    CLOSED: frozenset(),
}
