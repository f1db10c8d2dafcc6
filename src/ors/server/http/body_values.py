"""How many values a JSON body has, told before it is parsed: a byte of it may become eighty in memory."""

from pydantic_core import from_json

from ors._json import loads
from ors.errors import BadRequest, ORSError, TooLarge

SMALL_BODY = 64 * 1024
"""A body up to this is parsed without a look at it."""
MOST_VALUES = 2**20
HEAVY = 8
"""Values that a list, an object or a key counts as: each takes that much more time and memory."""
VALUE_BYTES = 64
"""Memory of a value once it is parsed, roughly."""
LIGHT_VALUES = 2**15
"""A body of so many values is parsed on the event loop, in a few milliseconds."""
LIGHT_BYTES = 2**20
"""A longer body is not even looked at there."""

_BEGINNING, _SLICE = 4 * 2**20, 64 * 1024
_REST = bytes(set(range(256)) - set(b'",:[{'))


def parsed(body: bytes, count: int = 0) -> tuple[object, ORSError | None]:
    """The JSON value of a body, or what is wrong with it; `count` is the number of its values, if many."""
    if count > MOST_VALUES:
        return None, _too_many(body)
    try:
        return loads(body), None
    except ValueError:
        return None, _no_json()


def _too_many(body: bytes) -> ORSError:
    """The error for too many values; if the first ones are nested too deeply, the error for that."""
    try:
        from_json(body[:SMALL_BODY], allow_partial=True)
    except ValueError:
        return _no_json()
    most = f"{MOST_VALUES:,} values; a list, an object or a key counts as {HEAVY}"
    return TooLarge(f"The request body has over {most}", reason="limit")


def _no_json() -> BadRequest:
    return BadRequest("The request body is not valid JSON, or nested too deeply")


def is_light(body: bytes) -> bool:
    """Whether a body is short and has few values, even if those in its strings count. Takes a millisecond."""
    return len(body) <= LIGHT_BYTES and _counted(body, 0, len(body)) <= LIGHT_VALUES


def values(body: bytes) -> int:
    """The number of values of a JSON text, or a greater one up to `MOST_VALUES`.

    If there are too many in its beginning, the rest is not looked at.
    """
    found = _values(body[:_BEGINNING])
    return found if found > MOST_VALUES or len(body) <= _BEGINNING else _values(body)


def _values(body: bytes) -> int:
    found = _counted(body, 0, len(body))
    if found <= MOST_VALUES or b'"' not in body:
        return found
    # Some of it is inside of strings. In JSON, a backslash is too.
    kept = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _REST)
    found, inside = 0, False
    for at in range(0, len(kept), _SLICE):
        parts = kept[at : at + _SLICE].split(b'"')
        outside = b"".join(parts[inside::2])
        found += _counted(outside, 0, len(outside))
        if found > MOST_VALUES:
            break
        inside ^= len(parts) % 2 == 0
    return found


def _counted(text: bytes, start: int, end: int) -> int:
    heavy = text.count(b"[", start, end) + text.count(b"{", start, end) + text.count(b":", start, end)
    return HEAVY * heavy + text.count(b",", start, end)
