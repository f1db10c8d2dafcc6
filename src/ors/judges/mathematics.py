"""Mathematical equivalence of short answers, plain or in LaTeX: parsed, never run, and bounded in time."""

import ast
import cmath
import operator as op
import re
from fractions import Fraction
from hashlib import sha256
from unicodedata import normalize

Number = Fraction | complex
_LONGEST = 500
"""Characters of an answer. A longer one is no formula."""
_MOST_BITS, _POINTS = 4096, 3
_FUNCTIONS = {"sqrt": cmath.sqrt, "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "ln": cmath.log}
_CONSTANTS = {"pi": complex(cmath.pi), "e": complex(cmath.e), "i": 1j}
_OPERATORS = {ast.Add: op.add, ast.Sub: op.sub, ast.Mult: op.mul, ast.Div: op.truediv}
_WORDS = "|".join(_FUNCTIONS)
_GROUP = r"\{([^{}]*)\}"
_CHARACTERS = {**dict.fromkeys(map(ord, "×·⋅"), "*"), **dict.fromkeys(map(ord, "−–"), "-")}
_CHARACTERS |= {ord("÷"): "/", ord("⁄"): "/", ord("√"): "\\sqrt", ord("π"): "\\pi"}
_CHARACTERS |= {ord("∞"): "\\infty", ord("∪"): "\\cup", ord("±"): "\\pm"}
# Before characters become their plain forms.
_CHARACTER_SPELLINGS = [
    (r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))", ""),  # thousands
    (r"(?<=\d)(?=[¼-¾⅐-⅞])", " "),
    (r"([⁰¹²³⁴-⁹⁺⁻]+)", r"^{\1}"),
]
_SPELLINGS = [
    (
        r"(?<!\\)\\[()\[\]!,;: ]|\\(?:left|right|displaystyle)(?![a-z])|\^\{?\\circ\}?|\\?[$€£]|[°~]",
        "",
    ),
    (r"\\cdot|\\times|(?<=\d) ?[xX] ?(?=10\^)", "*"),
    (r",?\s*(?:\b(?:or|and)\b|\\text\{ *(?:or|and) *\}|\\cup(?![a-z]))", ","),
    (r"\*\*", "^"),
    (r"\\%| ?percent", "%"),
    (r"(?<![a-zA-Z\\])pi(?![a-zA-Z])", r"\\pi"),
    (r"(?<![a-zA-Z\\])(?:infinity|inf|oo)(?![a-zA-Z])", r"\\infty"),
    (r"\{,\}|(?<=\d),(?=\d{3}(?!\d))(?![^(\[]*[)\]])", ""),  # thousands, but not in (1,200)
    (r"(?<![\d.])0+(?=\d)", ""),
    (r"\\[dtc]frac", r"\\frac"),
    (r"(\\frac|\\sqrt|\})\s+(?=\{)", r"\1"),
    (r"\\frac\s*(\d|[a-zA-Z]|\\pi)", r"\\frac{\1}"),
    (r"(\\frac\{[^{}]*\})\s*(\d|[a-zA-Z]|\\pi)", r"\1{\2}"),
    (r"\\sqrt\s*(\d+)", r"\\sqrt{\1}"),
]
_TEXT = re.compile(r"\\(?:text|mathrm|mbox)" + _GROUP)
_UNIT = re.compile(
    r"(.*[\d)}])(?:\s*" + _TEXT.pattern + r"|\s((?!sqrt|or\b|and\b)[A-Za-z]{2}[A-Za-z /]*))(?:\^\{?[23]\}?)?"
)
_NAME = re.compile(r"[a-zA-Z](?:\([a-z]\))?\s*(?:=|\\in)\s*(?=.)")
# From the inside out, until none is left; a whole number before a fraction is a mixed number.
_STRUCTURES = [
    (r"(?<![\d.^])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}", r"(\1+\2/\3)"),
    (rf"\\frac{_GROUP}{_GROUP}", r"((\1)/(\2))"),
    (rf"\\sqrt\[(\d+)\]{_GROUP}", r"((\2)^(1/\1))"),
    (rf"\\?({_WORDS})\s*(?:{_GROUP}|(\d+|[a-zA-Z]|\\[a-zA-Z]+)(?!\w))", r"\1(\2\3)"),
    (r"\^" + _GROUP, r"^(\1)"),
    (r"^(\d+) (\d+/\d+)$", r"(\1+\2)"),
]
_NO_FORMULA = re.compile(rf"(?<![\\a-zA-Z])(?!(?:{_WORDS})\()[a-zA-Z]{{3}}|^[a-zA-Z]{{2}}$|\d\s+\d")
"""A word, since anagrams are not equal; or two numbers."""
_TOKEN = re.compile(
    rf"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|\\?(?:{_WORDS})(?=\()|\\[a-zA-Z]+|[a-zA-Z]|\*\*|[-+*/()]"
)


def same(first: str, second: str) -> bool:
    """Whether two answers are the same number, formula, tuple, interval or set."""
    (one, unit), (other, other_unit) = _plain(first), _plain(second)
    if not one or (unit and other_unit and unit != other_unit):
        return False
    try:
        return _equal(one, other) or _joined(one + unit) == _joined(other + other_unit)
    except OverflowError:  # beyond all floats
        return False


def real_values(text: str) -> list[float]:
    """The numbers that a text may stand for: two for a percentage, none for anything else."""
    plain = _plain(text)[0]
    try:
        values = [complex(value) for value in _values(plain) if _values(plain, point=1) == _values(plain)]
    except OverflowError:
        return []
    return [value.real for value in values if not value.imag]  # the same at both points: it has no letters


def _plain(text: str) -> tuple[str, str]:
    """The answer in one spelling, and its unit; nothing if it is too long."""
    if len(text) > _LONGEST:
        return "", ""
    for pattern, spelling in _CHARACTER_SPELLINGS:
        text = re.sub(pattern, spelling, text)
    text = normalize("NFKC", text).translate(_CHARACTERS)
    for pattern, spelling in _SPELLINGS:
        text = re.sub(pattern, spelling, text)
    text, unit = text.strip().rstrip(".").strip(), ""
    if found := _UNIT.fullmatch(text):
        text, unit = found[1], (found[2] or found[3] or "").strip().lower().rstrip("s.")
    return _TEXT.sub(r"\1", text), unit


def _equal(one: str, other: str) -> bool:
    if _joined(one).lower() == _joined(other).lower():
        return True
    if one.endswith("%") and other.endswith("%"):
        one, other = one.rstrip("%"), other.rstrip("%")
    names = [found[0] for each in (one, other) if (found := _NAME.match(each))]
    if len({_joined(name) for name in names}) == 1:  # "x =", on one side or on both
        one, other = (_NAME.sub("", each, count=1) for each in (one, other))
    (kind, parts), (other_kind, others) = _parts(one), _parts(other)
    if kind != other_kind or len(parts) != len(others):
        return False
    if len(parts) == 1:
        return all(_close(one, other, point) for point in range(_POINTS))
    if kind:
        return all(map(_equal, parts, others))
    for part in parts:  # in any order
        if not (equals := [each for each in others if _equal(part, each)]):
            return False
        others.remove(equals[0])
    return True


def _joined(text: str) -> str:
    """The text without white space, except between digits."""
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def _parts(text: str) -> tuple[str, list[str]]:
    """The brackets around a tuple or interval, and its parts. Sets and single values have none."""
    text = text.strip().replace("\\{", "{").replace("\\}", "}")
    enclosed = text[:1] in tuple("([{") and text[-1:] in tuple(")]}")
    parts = _split(text[1:-1]) if enclosed else []
    if len(parts) > 1:
        return (text[0] + text[-1]).strip("{}"), parts
    parts = _split(text) or [text]
    signs = [("+", "-") if "\\pm" in part else ("",) for part in parts]
    return "", [part.replace("\\pm", sign) for part, both in zip(parts, signs, strict=True) for sign in both]


def _split(text: str) -> list[str]:
    """What is between the commas that are not in brackets; nothing if the brackets do not match."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth < 0:
            return []
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _close(one: str, other: str, point: int) -> bool:
    for a, b in ((a, b) for a in _values(one, point) for b in _values(other, point)):
        if not (isinstance(a, Fraction) and isinstance(b, Fraction)):
            if cmath.isclose(complex(a), complex(b), rel_tol=1e-6, abs_tol=1e-12):
                return True
        # Six digits of a decimal: 0.333333 is a third, but 1000000.5 is not 1000001.
        elif a == b or ("." in one + other and abs(a - b) * 10**6 <= min(Fraction(1), abs(a) + abs(b))):
            return True
    return False


def _values(text: str, point: int = 0) -> list[Number]:
    """What a formula may stand for. Letters have arbitrary positive values, which depend on the point."""
    try:
        value = _value(ast.parse(_as_python(text.rstrip("% ")), mode="eval").body, point)
        return [value / 100, value] if text.endswith("%") else [value]
    except (ArithmeticError, LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        return []


def _as_python(text: str) -> str:
    """The formula in Python's syntax, with every multiplication written out."""
    before = ""
    while text != before and len(text) <= 2 * _LONGEST:
        before = text
        for pattern, structure in _STRUCTURES:
            text = re.sub(pattern, structure, text)
    if len(text) > 2 * _LONGEST or _NO_FORMULA.search(text):
        raise ValueError("no formula")
    text = _joined(text.replace("{", "(").replace("}", ")").replace("^", "**"))
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != text:
        raise ValueError("no formula")
    made, after_value = "", False
    for token in (each.lstrip("\\") for each in tokens):
        is_name = token[0].isalpha() and token not in _FUNCTIONS
        made += "*" * (after_value and token[0] not in "+-*/)") + "v_" * is_name + token
        after_value = is_name or token[0] in ".0123456789)"
    return made


def _value(node: ast.AST, point: int) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(repr(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, point)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand, point)
        case ast.BinOp(left=left, op=sign, right=right):
            combine = _power if isinstance(sign, ast.Pow) else _OPERATORS[type(sign)]
            return combine(_value(left, point), _value(right, point))
        case ast.Call(func=ast.Name(id=name), args=[argument]):
            return _FUNCTIONS[name](complex(_value(argument, point)))
        case ast.Name(id=name):
            digest = sha256(f"{name} {point}".encode()).digest()
            return _CONSTANTS.get(name[2:], complex(0.5 + digest[0] / 128 + digest[1] / 2**15))
    raise ValueError("no formula")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent) <= _MOST_BITS:
            return base ** int(exponent)
    return complex(complex(base) ** complex(exponent))
