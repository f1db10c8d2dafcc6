"""Masks secrets in texts and values, in their usual spellings."""

import html
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus

from pydantic import BaseModel

Mask = Callable[[str], str]
MASK = "***"
TOO_MUCH = f"{MASK} (a text too long to be searched for secrets)"

_SHORT = 4
"""A shorter secret is masked only where it stands alone: hiding every "a" would hide the text."""
_BASE64_LEAST = 6
_MOST_SECRET_CHARS, _A_SECRET = 200_000, 100
_MOST_SEARCHED = 64_000_000
_MOST_PLACES = 30_000
"""Bounds for one text, so that a search blocks the event loop for about a tenth of a second at most."""

_WORD = re.compile("[a-z0-9]+")
_OURS = frozenset(
    ("call", "id", "limit", "mimeType", "name", "native", "role", "stage", "stop", "type", "who")
)
"""Fields of dataclasses and models with fixed words, ids and names; and `native`, which is not recorded."""
_BOTH_QUOTES = "'\""
"""Before a text, it makes Python print both kinds of quotes as it does in any longer text."""
_ONCE: tuple[Mask, ...] = (
    quote,
    lambda text: quote(text, safe="!$&'()*+,;=:@/?~"),  # as a browser does
    quote_plus,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: ascii(text)[1:-1],
    lambda text: ascii(_BOTH_QUOTES + text)[4:-1],
    lambda text: repr(text.encode())[2:-1],
    lambda text: repr((_BOTH_QUOTES + text).encode())[5:-1],
    html.escape,
)
_NESTED: tuple[Mask, ...] = (
    lambda text: quote(text, safe=""),
    lambda text: json.dumps(text)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr(_BOTH_QUOTES + text)[4:-1],
)
"""Spellings that are also found inside one another, such as JSON in JSON."""


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without any line of `secrets`, also where it is quoted, escaped, in base64 or in other case."""
    given = list(secrets)
    if sum(len(secret) + _A_SECRET for secret in given) > _MOST_SECRET_CHARS:
        return TOO_MUCH
    folded = _folded(text)
    needles = {needle for secret in given for line in _lines(secret) for needle in _needles(line, folded)}
    if len(text) * len(needles) > _MOST_SEARCHED:
        return TOO_MUCH
    found = [*islice((span for needle in needles for span in _everywhere(folded, needle)), _MOST_PLACES + 1)]
    if len(found) > _MOST_PLACES:
        return TOO_MUCH
    spans = [span for span in found if span[1] - span[0] >= _SHORT or _is_alone(folded, *span)]
    return _masked(text, spans) if spans else text


def masked(value: Any, mask: Mask | None) -> Any:
    """A copy of JSON, dataclasses or models, with `mask` applied to their texts and keys."""
    if mask is None:
        return value
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask(key): masked(each, mask) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked(each, mask) for each in value)
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: masked(v, mask) for name, v in value if name not in _OURS})
    if is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.name not in _OURS)
        return replace(value, **{name: masked(getattr(value, name), mask) for name in names})
    return value


def _lines(secret: str) -> set[str]:
    """Each line by itself, since tracebacks indent lines, and authors strip them."""
    lines = {line.strip() for line in secret.splitlines()} - {""}
    lines = {line for line in lines if any(map(str.isalnum, line))} or lines
    # A key on one line, with "\n" spelled out, is often used decoded.
    decoded = {line.strip() for line in secret.replace("\\r", "").replace("\\n", "\n").splitlines()}
    return lines | {line for line in decoded if len(line) >= _SHORT}


def _needles(line: str, folded: str) -> Iterator[str]:
    """The spellings of a line that may be in a text."""
    yield _folded(line)
    line = line.encode(errors="replace").decode()  # half a character has no other spelling
    # No spelling but base64 changes plain letters and digits.
    if max(_WORD.findall(_folded(line)), key=len, default="") in folded:
        nested = {line, *(spell(line) for spell in _NESTED)}
        nested |= {spell(spelled) for spell in _NESTED for spelled in nested}
        yield from map(_folded, nested | {spell(line) for spell in _ONCE})
    yield from map(_folded, _in_base64(line.encode()))


def _in_base64(data: bytes) -> Iterator[str]:
    """The part that does not depend on the bytes before and after, as in `user:secret`."""
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        same = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        if len(same) >= _BASE64_LEAST:
            yield same


def _folded(text: str) -> str:
    """`text` in lower case, as in a form ("+" for spaces) and in the base64 of URLs; positions stay."""
    text = text.replace("+", " ").replace("-", " ").replace("_", "/")
    # Only "İ" becomes two characters, and only "Σ" depends on its position.
    return text.lower() if text.isascii() else text.replace("İ", "i").lower().replace("ς", "σ")


def _everywhere(text: str, needle: str) -> Iterator[tuple[int, int]]:
    start = text.find(needle)
    while start >= 0:
        yield start, start + len(needle)
        start = text.find(needle, start + 1 if len(needle) < _SHORT else start + len(needle))


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
