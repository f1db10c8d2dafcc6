"""Masks secrets in texts and values, however they are encoded."""

import html
import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from pydantic import BaseModel

Mask = Callable[[str], str]
MASK = "***"
TOO_MUCH = f"{MASK} (a text too long to be searched for secrets)"

_SHORT = 4
"""A shorter secret is masked only where it stands alone: hiding every "a" would hide the text."""
_BASE64_LEAST = 6
_LAYERS = 3
"""How many layers of encoding are undone: JSON in JSON in a printed text."""
_MOST_WORK = 100_000_000
"""Budget for one text, in characters searched: this blocks the event loop for about a tenth of a second."""
_A_SECRET, _A_CHARACTER, _A_NEEDLE, _A_PLACE, _AN_ESCAPE = 20_000, 100, 2000, 3000, 1500
"""What the rest costs, in the same unit."""

_HEX = "[0-9a-fA-F]"
_MORE = rf"(?:%|\\x)[89abAB]{_HEX}"
_UTF_8 = rf"(?:[cdCD]{_HEX}{_MORE}|[eE]{_HEX}(?:{_MORE}){{2}}|[fF][0-7](?:{_MORE}){{3}}|{_HEX}{{2}})"
_UTF_16 = rf"(?:[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|{_HEX}{{4}})"
_ESCAPE = re.compile(
    rf"%{_UTF_8}|\\(?:x{_UTF_8}|u{_UTF_16}|U000{_HEX}{{5}}|.)"
    rf"|&(?:amp|lt|gt|quot|apos|#\d{{1,7}}|#x{_HEX}{{1,6}});"
)
"""One encoded character: of a URL, of printed bytes or text, of JSON, of HTML."""
_WORD = re.compile("[a-z0-9]+")
_OURS = frozenset(
    ("call", "id", "limit", "mimeType", "name", "native", "role", "stage", "stop", "type", "who")
)
"""Fields of dataclasses and models with fixed words, ids and names; and `native`, which is not recorded."""
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


class _TooMuch(Exception):
    """The budget is spent."""


class _Budget:
    def __init__(self) -> None:
        self._left = _MOST_WORK

    def spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise _TooMuch


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without any line of `secrets`, also where it is quoted, escaped, in base64 or in other case."""
    budget = _Budget()
    try:
        needles = {needle for secret in secrets for needle in _needles(secret, budget)}
        return _masked(text, _spans(text, needles, budget, _LAYERS)) if needles else text
    except _TooMuch:
        return TOO_MUCH


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


def _needles(secret: str, budget: _Budget) -> Iterator[str]:
    """What to search for: each line by itself, since tracebacks indent lines, and authors strip them."""
    budget.spend(_A_SECRET + _A_CHARACTER * len(secret))
    lines = {line.strip() for line in secret.splitlines()} - {""}
    lines = {line for line in lines if any(map(str.isalnum, line))} or lines
    # A key on one line, with "\n" spelled out, is often used decoded.
    decoded = {line.strip() for line in _decoded(secret, budget)[0].splitlines()}
    for line in lines | {line for line in decoded if len(line) >= _SHORT}:
        yield _folded(line)
        yield from map(_folded, _in_base64(line.encode("utf-8", "surrogatepass")))


def _spans(text: str, needles: Collection[str], budget: _Budget, layers: int) -> list[tuple[int, int]]:
    """Where the needles are in `text`, also below so many layers of encoding."""
    folded = _folded(text)
    spans: list[tuple[int, int]] = []
    for needle in needles:
        budget.spend(_A_NEEDLE + 16 * len(text) // min(len(needle), 32))  # longer ones are found faster
        short = len(needle) < _SHORT
        for span in _everywhere(folded, needle, 1 if short else len(needle)):
            budget.spend(_A_PLACE)
            if not short or _is_alone(folded, *span):
                spans.append(span)
    # No encoding changes plain letters and digits: a needle whose longest word is not here is not below.
    below = [needle for needle in needles if max(_WORD.findall(needle), key=len, default="") in folded]
    if layers and below and _ESCAPE.search(text):
        decoded, at = _decoded(text, budget)
        spans += [(at(start), at(end)) for start, end in _spans(decoded, below, budget, layers - 1)]
    return spans


def _folded(text: str) -> str:
    """`text` in lower case, as in a form ("+" for spaces) and in the base64 of URLs; positions stay."""
    text = text.replace("+", " ").replace("-", " ").replace("_", "/")
    # Only "İ" becomes two characters, and only "Σ" depends on its position.
    return text.lower() if text.isascii() else text.replace("İ", "i").lower().replace("ς", "σ")


def _everywhere(text: str, needle: str, step: int) -> Iterator[tuple[int, int]]:
    start = text.find(needle)
    while start >= 0:
        yield start, start + len(needle)
        start = text.find(needle, start + step)


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


def _decoded(text: str, budget: _Budget) -> tuple[str, Callable[[int], int]]:
    """`text` without one layer of encoding, and where each position of that is in `text`."""
    pieces, ours, theirs, last, length = [], [0], [0], 0, 0
    for found in _ESCAPE.finditer(text):
        budget.spend(_AN_ESCAPE)
        pieces += [text[last : found.start()], _character(found[0])]
        length += found.start() - last + 1
        last = found.end()
        ours += [length - 1, length]
        theirs += [found.start(), last]

    def at(position: int) -> int:
        part = bisect_right(ours, position) - 1
        return theirs[part] + position - ours[part]

    return "".join([*pieces, text[last:]]), at


def _character(escape: str) -> str:
    if escape[0] == "&":
        return html.unescape(escape)[:1] or "?"
    if escape[0] == "\\" and len(escape) == 2:
        return _CONTROLS.get(escape[1], escape[1])
    text = escape.replace("%", "\\x").encode().decode("unicode_escape")
    if len(text) == 1:
        return text
    if escape[1] == "u":
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    return text.encode("latin-1").decode("utf-8", "replace")[0]


def _in_base64(data: bytes) -> Iterator[str]:
    """The part that does not depend on the bytes before and after, as in `user:secret`."""
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        same = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        if len(same) >= _BASE64_LEAST:
            yield same
