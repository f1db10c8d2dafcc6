"""Graders: pure functions that tell whether an answer is right.

What an agent writes never makes them raise or hang; a wrong argument of the author raises ValueError.
"""

import json
import re
from collections.abc import Callable, Mapping
from math import isclose, isfinite
from typing import Annotated, Any
from unicodedata import normalize

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from ors._json import dumps
from ors.judges.mathematics import real_values, same
from ors.judges.rubric import unfenced
from ors.schemas.structure import target, type_of, types

_LONGEST = 100_000
"""Characters of an answer in which words, a pattern or JSON are found. In a longer one, nothing is."""
_TAIL = 4000
"""Characters at the end of an answer in which a number, formula or choice is looked for."""
_BOX = re.compile(r"\\(?:boxed|fbox)(?:\s*\{|\s+(\w+))")
_STATED = re.compile(
    r"(?i:(?:answer|(?:correct|right|best) (?:option|choice))\**\s{0,3}(?:is|:|=)\s{0,3}:?|<answer>)|####"
)
_NEXT_SENTENCE = re.compile(r"\.\s+(?=[A-Z])")
_NUMBER = re.compile(
    r"(?<![\d./^])(?<!\d\*\*)(?:(?<![\w)])[-+−])?"
    r"(?:(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d++)(?:\.\d++)?|\.\d++)"
    r"(?:[eE][-+]?\d{1,3})?(?![\d/^]|\*\*\d)"
)
_MARKUP = re.compile(r"\\(?:textbf|text|mathrm)|[\\${}*`\"'“”‘’]|(?i:option|choice) ")
_CHOICE = re.compile(r"([(\[]?)([A-Za-z])([)\].:]*)(?:\s+(.*)|$)")
_SECOND = re.compile(r"(?i:or|and)\b|[/,&;]|[(\[][A-Z][)\]]|[A-Z][.)](?:\s|$)")
_SIZES = {"Length": str, "Items": list, "Properties": dict}
_Rule = Callable[[Any, Any, Any, Any], bool]


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
    100,000 characters does not match.

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
    return same(_formula(answer), _formula(expected))


def multiple_choice(answer: str, expected: str) -> bool:
    """Whether the answer chooses a letter: "B", "(b)", "B. Paris", "The answer is (B)", \\boxed{B}.

    Two letters, as in "A or B", are not a choice.
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
        ValueError: the schema has a keyword that is not supported.
    """
    text = unfenced(answer)
    if len(text) > _LONGEST:
        return False
    if not isinstance(schema, Mapping):
        return _valid(TypeAdapter[Any](schema).validate_json, text)
    try:
        value = _parsed(text)
    except (ValueError, RecursionError):
        return False
    root = _parsed(dumps(schema))
    try:
        return _fits(value, root, root)
    except RecursionError:
        return False


def _parsed(text: str | bytes) -> Any:
    """A JSON value, in which equal numbers are the same: 1.0 is 1."""
    return json.loads(text, parse_float=_number, parse_constant=_number)


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return int(number) if number.is_integer() else number


def _fits(value: Any, schema: Any, root: Mapping[str, Any]) -> bool:
    if isinstance(schema, bool):
        return schema
    if unknown := schema.keys() - _RULES.keys() - _NOTES:
        raise ValueError(f"the schema has {min(unknown)!r}, which is not supported")

    def fits(value: Any, rule: Any) -> bool:
        return _fits(value, target(root, rule) if isinstance(rule, str) else rule, root)

    return all(_RULES[key](value, rule, schema, fits) for key, rule in schema.items() if key in _RULES)


def _of(kinds: tuple[type, ...], keeps: _Rule) -> _Rule:
    """A rule for values of some types, which all others keep."""
    return lambda v, r, s, fits: type(v) not in kinds or keeps(v, r, s, fits)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


_NOTES = {"title", "description", "default", "examples", "$schema", "$id", "$defs", "definitions", "$comment"}
# Each takes the value, the rule, the schema around it, and a function that checks a value by a schema.
_RULES: dict[str, _Rule] = {
    "type": lambda v, r, s, fits: type_of(v) in types(s) or (type(v) is int and "number" in types(s)),
    "enum": lambda v, r, s, fits: _text(v) in map(_text, r),
    "const": lambda v, r, s, fits: _text(v) == _text(r),
    "$ref": lambda v, r, s, fits: fits(v, r),
    "not": lambda v, r, s, fits: not fits(v, r),
    "anyOf": lambda v, r, s, fits: any(fits(v, each) for each in r),
    "allOf": lambda v, r, s, fits: all(fits(v, each) for each in r),
    "oneOf": lambda v, r, s, fits: sum(fits(v, each) for each in r) == 1,
    "properties": _of((dict,), lambda v, r, s, fits: all(fits(v[name], r[name]) for name in r if name in v)),
    "additionalProperties": _of(
        (dict,),
        lambda v, r, s, fits: all(fits(v[name], r) for name in v if name not in s.get("properties", ())),
    ),
    "required": _of((dict,), lambda v, r, s, fits: v.keys() >= set(r)),
    "items": _of((list,), lambda v, r, s, fits: all(fits(each, r) for each in v)),
    "uniqueItems": _of((list,), lambda v, r, s, fits: not r or len(set(map(_text, v))) == len(v)),
    "pattern": _of((str,), lambda v, r, s, fits: regex(v, r)),
    **{f"min{what}": _of((kind,), lambda v, r, s, fits: len(v) >= r) for what, kind in _SIZES.items()},
    **{f"max{what}": _of((kind,), lambda v, r, s, fits: len(v) <= r) for what, kind in _SIZES.items()},
    "minimum": _of((int, float), lambda v, r, s, fits: v >= r),
    "maximum": _of((int, float), lambda v, r, s, fits: v <= r),
    "exclusiveMinimum": _of((int, float), lambda v, r, s, fits: v > r),
    "exclusiveMaximum": _of((int, float), lambda v, r, s, fits: v < r),
}


def _folded(text: str) -> str:
    return " ".join(normalize("NFC", text).split()).casefold()


def _valid(validate: Callable[[str], Any], text: str) -> bool:
    try:
        validate(text)
    except ValidationError:
        return False
    return True


def _formula(text: str) -> str:
    found, stated = _final(text)
    return _NEXT_SENTENCE.split(found)[0] if stated else found


def _final(text: str) -> tuple[str, bool]:
    """What a text gives as its answer, and whether it says that this is the answer."""
    text = text[-_TAIL:].strip()
    if boxes := list(_BOX.finditer(text)):
        start, depth = boxes[-1].end(), 1
        if boxes[-1][1]:
            return boxes[-1][1], True
        for end in range(start, len(text)):
            depth += (text[end] == "{") - (text[end] == "}")
            if not depth:
                return text[start:end].strip(), True
    if stated := list(_STATED.finditer(text)):
        rest = text[stated[-1].end() :].partition("</answer>")[0].strip().partition("\n")[0]
        return rest.strip("* ").rstrip("."), True
    return text, False
