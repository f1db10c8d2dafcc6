"""Graders: pure functions that tell whether an answer is right.

What an agent writes never makes them raise or hang; a wrong argument of the author raises ValueError.
"""

import operator
import re
from collections.abc import Callable, Mapping
from math import isclose, isfinite
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from ors._json import dumps, loads
from ors.judges.mathematics import real_values, same
from ors.judges.rubric import unfenced
from ors.schemas.structure import target, type_of, types

_LONGEST = 200_000
"""Characters of an answer in which words, a pattern or JSON are found. In a longer one, nothing is."""
_TAIL = 4000
"""Characters at the end of an answer in which a number, formula or choice is looked for."""
_DEEPEST = 64
_STATED = re.compile(r"(?i:answer)\**\s{0,3}(?:is|:|=)\s{0,3}:?|####")
_NUMBER = re.compile(
    r"(?<![\d./^])(?<!\d\*\*)(?:(?<![\w)])[-+−])?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)?\.?\d+"
    r"(?:[eE][-+]?\d{1,3})?(?![\d/^]|\*\*\d)"
)
_MARKUP = re.compile(r"\\(?:textbf|text|mathrm)|[\\${}*]|(?i:option|choice) ")
_CHOICE = re.compile(r"([(\[]?)([A-Za-z])([)\].:]*)(?:\s+(.*)|$)")
_SECOND = re.compile(r"(?:or|and|/|,|&)(?!\w)")
_SIZES = {"Length": str, "Items": list, "Properties": dict}
_BOUNDS = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_OTHERS = {
    *("title", "description", "default", "examples", "$schema", "$id", "$defs", "definitions", "$comment"),
    *("properties", "additionalProperties", "required", "items", "uniqueItems", "pattern"),  # of other types
}


def exact(answer: str, expected: str) -> bool:
    """Whether both are the same text, except for case and white space."""
    return len(answer) <= len(expected) + _LONGEST and _folded(answer) == _folded(expected)


def contains(answer: str, expected: str) -> bool:
    """Whether the answer contains `expected` as whole words, except for case and white space."""
    words = _folded(expected)
    if not words:
        raise ValueError("expected is empty, which every answer contains")
    whole = rf"(?<!\w){re.escape(words)}(?!\w)"
    return len(answer) <= _LONGEST and re.search(whole, _folded(answer)) is not None


def regex(answer: str, pattern: str) -> bool:
    """Whether the pattern matches somewhere in the answer; `^(?:...)$` matches the whole.

    The engine is Rust's, whose time is linear: it has no look-around and no backreferences. An answer of over
    200,000 characters does not match.

    Raises:
        ValueError: the pattern is not valid there.
    """
    try:
        matcher = TypeAdapter(Annotated[str, Field(pattern=pattern)])
    except SchemaError as error:
        raise ValueError(f"the pattern {pattern!r:.100} is not valid: {error}") from None
    return len(answer) <= _LONGEST and _valid(matcher.validate_python, answer)


def numeric(answer: str | float, expected: float, *, rel_tol: float = 1e-6, abs_tol: float = 0.0) -> bool:
    """Whether the answer gives the number `expected`, within a tolerance as in `math.isclose`.

    The number is the one in the last \\boxed{...}, after the last "####" or "answer is", or else the last in
    the text. A percentage may be meant either way: 50% is 50, and it is 0.5.
    """
    if not isfinite(expected):
        raise ValueError("expected is not a finite number")
    text, stated = _final(str(answer))
    numbers = _NUMBER.findall(text)
    values = real_values(text) or (real_values(numbers[0 if stated else -1]) if numbers else [])
    return any(isclose(value, expected, rel_tol=rel_tol, abs_tol=abs_tol) for value in values)


def math_equal(answer: str, expected: str) -> bool:
    """Whether two answers are the same mathematically: numbers, formulas, tuples, intervals, sets.

    Reads plain text and LaTeX: fractions, powers, roots, percentages, mixed numbers, thousands, units. A unit
    counts if both have one. Formulas are equal if they are so for three positive values of each letter;
    decimals and roots, if they agree to six digits. The answer is looked for as in `numeric`.
    """
    return same(_final(answer)[0], _final(expected)[0])


def multiple_choice(answer: str, expected: str) -> bool:
    """Whether the answer chooses a letter: "B", "(b)", "B. Paris", "The answer is (B)", \\boxed{B}.

    Two letters, as in "A or B", are no choice.
    """
    wanted = expected.strip("()[]. ").upper()
    if len(wanted) != 1 or not wanted.isalpha():
        raise ValueError(f"{expected!r:.100} is not the letter of a choice")
    text, stated = _final(answer)
    for line in (text.rpartition("\n")[2], text):
        if found := _CHOICE.match(_MARKUP.sub("", line).strip()):
            opening, letter, closing, rest = found.groups("")
            if not rest or (
                (opening or closing or (stated and letter.isupper())) and not _SECOND.match(rest)
            ):
                return letter.upper() == wanted
    return False


def json_schema(answer: str, schema: Mapping[str, Any] | type) -> bool:
    """Whether the answer is JSON, in a code fence or not, that fits a JSON Schema or a pydantic type.

    Raises:
        ValueError: the schema has a keyword that is not known here.
    """
    text = unfenced(answer)
    if len(text) > _LONGEST:
        return False
    if not isinstance(schema, Mapping):
        return _valid(TypeAdapter[Any](schema).validate_json, text)
    try:
        value = loads(text)
    except ValueError:
        return False
    try:
        return _Schema(schema).fits(value, schema)
    except RecursionError:
        return False


class _Schema:
    """A JSON Schema. References lead into `root`, the whole of it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root, self._depth = root, 0

    def fits(self, value: Any, schema: Any) -> bool:
        if isinstance(schema, bool):
            return schema
        if self._depth > _DEEPEST:
            raise RecursionError
        self._depth += 1
        kept = all(self._keeps(key, rule, value, schema) for key, rule in schema.items())
        self._depth -= 1
        return kept

    def _keeps(self, key: str, rule: Any, value: Any, schema: Mapping[str, Any]) -> bool:
        match key, value:
            case "type", _:
                number = {"number"} if type(value) in (int, float) else set()
                return not {type_of(value), *number}.isdisjoint(types(schema))
            case (("enum" | "const"), _):
                return dumps(value) in map(dumps, rule if key == "enum" else [rule])
            case "$ref", _:
                return self.fits(value, target(self._root, rule))
            case (("anyOf" | "allOf" | "oneOf"), _):
                count = sum(self.fits(value, each) for each in rule)
                return count == len(rule) if key == "allOf" else count == 1 if key == "oneOf" else count > 0
            case "not", _:
                return not self.fits(value, rule)
            case "properties", dict():
                return all(self.fits(value[name], each) for name, each in rule.items() if name in value)
            case "additionalProperties", dict():
                others = value.keys() - schema.get("properties", {}).keys()
                return all(self.fits(value[name], rule) for name in others)
            case "required", dict():
                return value.keys() >= set(rule)
            case "items", list():
                return all(self.fits(each, rule) for each in value)
            case "uniqueItems", list():
                return not rule or len(set(map(dumps, value))) == len(value)
            case "pattern", str():
                return regex(value, rule)
            case _ if key in _BOUNDS:
                return not isinstance(value, int | float) or bool(_BOUNDS[key](value, rule))
            case _ if key[:3] in ("min", "max") and key[3:] in _SIZES:
                size = len(value) if isinstance(value, _SIZES[key[3:]]) else rule
                return bool(size >= rule if key.startswith("min") else size <= rule)
        if key not in _OTHERS:
            raise ValueError(f"the schema has {key!r}, which is not known here")
        return True


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _valid(validate: Callable[[str], Any], text: str) -> bool:
    try:
        validate(text)
    except ValidationError:
        return False
    return True


def _final(text: str) -> tuple[str, bool]:
    """What a text gives as its answer, and whether it says that this is the answer."""
    text = text[-_TAIL:].strip()
    start, depth = text.rfind("\\boxed{"), 0
    for end in range(start + 6, len(text)) if start >= 0 else ():
        depth += (text[end] == "{") - (text[end] == "}")
        if not depth:
            return text[start + 7 : end].strip(), True
    if stated := list(_STATED.finditer(text)):
        rest = text[stated[-1].end() :].strip().partition("\n")[0]
        return rest.strip("* ").rstrip("."), True
    return text, False
