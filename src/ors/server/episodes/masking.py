"""Masks secrets in texts, in all their spellings."""

import html
import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from urllib.parse import quote, quote_plus

MASK = "***"
TOO_MUCH = f"{MASK} (a text too long to be searched for secrets)"

_SHORT = 4
"""A secret shorter than this is masked only where it stands alone: hiding every "a" would hide the text."""
_BASE64_LEAST = 6
_OF_URLS = "!$&'()*+,;=:@/?~"
"""Characters that URLs may hold unquoted (RFC 3986, 3.3 and 3.4), or that some libraries leave unquoted."""
_MOST_WORK = 100_000_000
"""Characters to search, at most: this blocks the event loop for about a tenth of a second."""
_WORK_A_SECRET = 100_000
"""Cost of the spellings of a secret, in the same unit."""
_WORK_A_CHARACTER = 500
"""Cost of each of its characters."""
_MOST_PLACES = 20_000
"""Places where secrets are found, at most."""


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without `secrets`, also where they are quoted, escaped, in base64 or in other case."""
    there = {secret for secret in secrets if secret and len(secret) <= len(text)}
    if not there:
        return text
    spans = _spans(_folded(text), there)
    return TOO_MUCH if spans is None else _masked(text, spans)


def _spans(text: str, secrets: Collection[str]) -> list[tuple[int, int]] | None:
    """The places of the secrets, or None if finding all of them would take too long."""
    work = sum(_WORK_A_SECRET + _WORK_A_CHARACTER * len(secret) for secret in secrets)
    if work > _MOST_WORK:
        return None
    spans: list[tuple[int, int]] = []
    places = 0
    for secret in secrets:
        short = len(secret) < _SHORT
        for spelling in {_folded(spelling) for spelling in _spellings(secret)}:
            found = list(islice(_everywhere(text, spelling, 1 if short else len(spelling)), _MOST_PLACES))
            spans += [span for span in found if _is_alone(text, *span)] if short else found
            work += len(text)
            places += len(found)
            if work > _MOST_WORK or places >= _MOST_PLACES:
                return None
    return spans


def _folded(text: str) -> str:
    """`text` in lower case, with every character at its old position."""
    # Only "İ" becomes two characters, and only "Σ" depends on its position.
    return text.lower() if text.isascii() else text.replace("İ", "i").lower().replace("ς", "σ")


def _everywhere(text: str, spelling: str, step: int) -> Iterator[tuple[int, int]]:
    start = text.find(spelling)
    while start >= 0:
        yield start, start + len(spelling)
        start = text.find(spelling, start + step)


def _is_alone(text: str, start: int, end: int) -> bool:
    beside = text[max(start - 1, 0) : start] + text[end : end + 1]
    return not any(character.isalnum() or character == "_" for character in beside)


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    pieces, shown = [], -1  # the end of what is written already
    for start, end in sorted(spans):
        if start > shown:
            pieces += [text[max(shown, 0) : start], MASK]
        shown = max(shown, end)
    return "".join([*pieces, text[max(shown, 0) :]])


def _spellings(secret: str) -> Iterator[str]:
    """The spellings of a secret."""
    yield secret
    yield from _in_urls(secret)
    for escaped in _escaped(secret):
        yield escaped
        yield from _escaped(escaped)  # JSON within JSON, or within a quoted text
    yield html.escape(secret)
    yield html.escape(secret, quote=False)
    if len(secret) >= _SHORT:
        yield from _in_base64(secret.encode("utf-8", "surrogatepass"))


def _in_urls(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "surrogatepass")
    yield quote_plus(data)
    yield quote(data, safe=_OF_URLS)
    yield quote(data)
    yield (whole := quote(data, safe=""))
    yield quote(whole, safe="")


def _escaped(text: str) -> Iterator[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield ascii(text)[1:-1]
    yield repr(text.encode("utf-8", "surrogatepass"))[2:-1]


def _in_base64(data: bytes) -> Iterator[str]:
    """The part that does not depend on the bytes before and after, as in `user:secret`."""
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        same = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        for found in (same, encoded.rstrip("=")) if before == 0 else (same,):
            if len(found) >= _BASE64_LEAST:
                yield found
                yield found.translate({ord("+"): "-", ord("/"): "_"})
