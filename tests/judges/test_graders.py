"""Graders, by the answer formats of published benchmarks, and by input that means harm."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

from ors.judges import contains, exact, json_schema, math_equal, multiple_choice, numeric, regex


@pytest.mark.parametrize(
    ("answer", "expected", "right"),
    [
        ("Paris", "Paris", True),
        ("  paris\n", "Paris", True),
        ("New   York", "new york", True),
        ("STRASSE", "straße", True),
        ("cafe\u0301", "CAFÉ", True),
        ("Paris.", "Paris", False),
        ("", "", True),
        ("", "Paris", False),
    ],
)
def test_exact_forgives_case_and_white_space_only(answer: str, expected: str, right: bool) -> None:
    assert exact(answer, expected) is right


def test_contains_finds_whole_words() -> None:
    assert contains("It is in New\nYork, I think.", "new york")
    assert contains("(42)", "42")
    assert not contains("concatenate", "cat")
    assert not contains("The answer is 142.", "42")
    assert not contains("42 " + "x" * 100_000, "42")  # as documented
    with pytest.raises(ValueError, match="expected is empty"):
        contains("anything", " ")


def test_patterns_take_linear_time_and_say_what_they_cannot() -> None:
    assert regex("id: AB-12", r"[A-Z]{2}-\d+")
    assert not regex("x AB-12", r"^[A-Z]{2}-\d+$")
    assert regex("ß", "(?i)ẞ")
    assert not regex("a" * 90_000 + "b", r"^(a+)+$")  # hangs for ever in `re`
    assert not regex("a" * 90_000, r"(a|aa)+(a|aa)+(a|aa)+b")
    for pattern in (r"(?=a)", r"(a)\1", "(", "(a{1000}){1000}"):
        with pytest.raises(ValueError, match="is not valid"):
            regex("a", pattern)


NUMBERS = [
    ("42", 42),
    ("She has 3 + 4 = <<3+4=7>>7 left.\n#### 1,234", 1234),  # GSM8K
    ("Natalia sold 48/2 = 24 clips.\n#### 72", 72),
    (r"Thus $\boxed{3.5}$.", 3.5),  # MATH
    (r"\boxed{\frac{1}{2}}", 0.5),
    ("The final answer is 12 because 3 and 4 make it.", 12),
    ("So the answer is: **17**.", 17),
    ("The total is 42", 42),
    ("It costs $1,234.56.", 1234.56),
    ("3/4", 0.75),
    ("50%", 50),
    ("50%", 0.5),
    ("1.2e3", 1200),
    ("3\\times10^8", 3e8),
    ("−7", -7),
    (".5", 0.5),
    ("5 cm", 5),
    ("x = 5", 5),
    ("about 5-6 hours", 6),
    ("1.5 x 10^3", 1500),
    ("1.5×10³", 1500),
    ("２½", 2.5),
    ("<think>2 + 2</think><answer>\n4\n</answer>\n100 points", 4),
    (0.1 + 0.2, 0.3),
    (7, 7),
]


@pytest.mark.parametrize(("answer", "expected"), NUMBERS)
def test_numbers_are_found_as_benchmarks_write_them(answer: Any, expected: float) -> None:
    assert numeric(answer, expected)
    assert not numeric(answer, 2 * expected + 1)


def test_numbers_have_a_tolerance() -> None:
    assert not numeric("3.14", 3.14159)
    assert numeric("3.14", 3.14159, rel_tol=0.01)
    assert numeric("0.001", 0.0, abs_tol=0.01)
    assert not numeric("0.001", 0.0)
    for expected in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="finite"):
            numeric("1", expected)


@pytest.mark.parametrize(
    "answer", ["nan", "inf", "-inf", "", "five", "x", "1/0", "(1,2)", "9**9**9", "1e999"]
)
@pytest.mark.parametrize("expected", [0.0, 1.0, 9.0, 12.0])
def test_what_is_no_number_equals_none(answer: str, expected: float) -> None:
    assert not numeric(answer, expected)


SAME = [
    ("1/2", "0.5"),
    (r"\frac12", r"\dfrac{1}{2}"),
    (r"\frac1{72}", "1/72"),
    (r"$\boxed{\frac{3}{4}}$", "0.75"),
    (r"The answer is \boxed{2\sqrt{3}}.", r"\sqrt{12}"),
    (r"\sqrt2", "2^{1/2}"),
    (r"\sqrt[3]{27}", "3"),
    ("50\\%", "0.5"),
    ("50%", "50"),
    ("1,234", "1234"),
    ("1{,}000", "1000"),
    (r"\$18", "18"),
    ("18 dollars", "18"),
    ("5 cm", r"5\text{ cm}"),
    (r"12\text{ square units}", "12"),
    (r"90^\circ", "90"),
    ("x=5", "5"),
    ("y = 2x+3", "y=3+2x"),
    ("(x+1)^2", "x^2 + 2x + 1"),
    ("(x+1)(x-1)", "x^2-1"),
    (r"\frac{x}{2}", "0.5x"),
    (r"\frac{\sqrt{3}}{2}", r"\sqrt{3}/2"),
    (r"1\frac{1}{2}", "3/2"),
    ("1 1/2", "1.5"),
    (r"e^{i\pi}", "-1"),
    ("3+4i", "4i+3"),
    (r"4\pi", "12.566371"),
    ("2**10", "1024"),
    ("-2^2", "-4"),
    ("3²", "9"),
    (r"6.02\times10^{23}", "6.02 * 10^23"),
    ("2^{2000}", "4^{1000}"),
    (r"-\frac{1}{3}", "-0.333333"),
    (r"\sin\frac{\pi}{6}", "1/2"),
    ("(1, 2)", r"\left( 1, \frac{4}{2} \right)"),
    (r"[1,\infty)", r"[1, \infty)"),
    (r"\{1,2\}", r"\{2,1\}"),
    ("2, -2", "-2,2"),
    (r"\text{east}", "East"),
    ("007", "7"),
    ("xy/2", "yx/2"),
    ("pi r^2", r"\pi r^2"),
    (r"2\frac{x}{3}", "2x/3"),
    (r"x^2 \frac{1}{2}", "x^2/2"),
    ("5%", "5%"),
    ("(1,2),(3,4)", "(3,4), (1,2)"),
    (r"\frac {1} {2}", "½"),
    (r"\frac\pi4", r"\frac{\pi}{4}"),
    (r"\boxed 42", "The final answer is $42$. I hope it is correct."),  # MATH, Minerva
    ("<answer>42</answer>", r"\fbox{42}"),
    ("1\u202f234\u00a0567", "1234567"),
    ("2½", "5/2"),
    ("10⁻³", "1e-3"),
    ("－７", "-7"),
    (r"5\,\text{m}", "5 m"),
    ("€20", "£20"),
    (r"\pm 2", "-2, 2"),
    ("x = 1 ± √5", r"1-\sqrt{5} \text{ or } 1+\sqrt{5}"),
    ("x = 1 or x = 2", "1,2"),
    ("1, 2, and 3", r"\{3, 2, 1\}"),
    (r"(-\infty, 2) \cup (3, \infty)", "(3, oo) ∪ (-oo, 2)"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
]
DIFFERENT = [
    ("1/3", "0.33"),
    ("1000000.5", "1000001"),
    ("1/1000001", "1/1000000"),
    ("5", "-5"),
    ("5 cm", "5 km"),
    ("(1,2)", "(2,1)"),
    ("[1,2]", "(1,2)"),
    ("(1,200)", "1200"),
    ("1,2", "1,2,3"),
    ("2,2,1", "2,1,1"),
    ("x=5", "y=5"),
    ("2x", "x"),
    ("x", "y"),
    (r"\infty", "1"),
    ("nan", "0"),
    ("1/0", "1/0.0"),
    ("", "0"),
    ("5 or 6", "5"),
    ("__import__('os')", "0"),
    ("listen", "silent"),
    ("no", "on"),
    ("1 1/2", "11/2"),
    ("1 2", "12"),
    ("50%", "5000%"),
    ("5 or ten", "5"),
    (r"2\frac{x}{3}", "2 + x/3"),
    (r"\pm 2", "2"),
    ("2²", "22"),
    ("2½", "21/2"),
    (r"(1,2) \cup (3,4)", "(1,2)"),
    ("1 and 2", "1"),
    ("-oo", "oo"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    ("The answer is 5. It is 6.", "6"),
]


@pytest.mark.parametrize(("answer", "expected"), SAME)
def test_equal_mathematics_is_equal(answer: str, expected: str) -> None:
    assert math_equal(answer, expected)
    assert math_equal(expected, answer)


@pytest.mark.parametrize(("answer", "expected"), DIFFERENT)
def test_different_mathematics_is_different(answer: str, expected: str) -> None:
    assert not math_equal(answer, expected)
    assert not math_equal(expected, answer)


CHOICES = [
    *("B", "b", "(B)", "(b)", "B.", "B)", "[B]", "**B**", "B. Paris", "B) Paris", "B: Paris", "(b) Paris"),
    *(
        "The answer is (B).",
        "the correct answer is: B",
        "So the answer is (B) because A is wrong.",
    ),  # MMLU-Pro, BBH
    *("Answer: B", "Answer: $B$", "**Answer:** B", "**Final Answer**: (B)", "Answer: B) Paris"),  # GPQA
    *(r"\boxed{B}", r"\boxed{\text{B}}", r"$\boxed{\textbf{(B) }}$", "Answer: Option B", "The answer is b."),
    *("It must be Paris.\n\nB", "The answer is A? No.\nAnswer: B"),
    *(
        "<answer>B</answer>",
        "The correct option is B",
        "`B`",
        '"B"',
        "The answer is B. The other option is A.",
    ),
]
NO_CHOICE = [
    *(
        "A",
        "",
        "BB",
        "A or B",
        "B or C",
        "A, B",
        "B, C",
        "A/B",
        "The answer is A or B",
        "The answer is B and C",
    ),
    *("The answer is not B", "either B or C", "Better ask somebody", "The answer is b lue", "(A) (B)"),
    *("(B) (C)", "The answer is B. Or C.", "B. C. D.", "B; C"),
]


@pytest.mark.parametrize("answer", CHOICES)
def test_a_choice_is_found_as_benchmarks_write_it(answer: str) -> None:
    assert multiple_choice(answer, "B")
    assert multiple_choice(answer, "(b)")
    assert not multiple_choice(answer, "A")


@pytest.mark.parametrize("answer", NO_CHOICE)
def test_no_choice_and_two_choices_are_wrong(answer: str) -> None:
    assert not multiple_choice(answer, "B")


def test_the_expected_choice_must_be_a_letter() -> None:
    with pytest.raises(ValueError, match="not the letter"):
        multiple_choice("A", "Paris")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 150},
        "score": {"type": ["number", "null"]},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 1]}, "maxItems": 2, "uniqueItems": True},
        "child": {"$ref": "#"},
        "one": {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
        "all": {"allOf": [{"type": "string"}, {"not": {"const": "no"}}]},
        "any": {"anyOf": [{"type": "boolean"}, {"type": "object", "minProperties": 1}]},
    },
    "required": ["name"],
    "additionalProperties": False,
}
VALUES: list[Any] = [
    {"name": "a"},
    {"name": ""},
    {"name": "A"},
    {},
    [],
    "a",
    {"name": "a", "more": 1},
    *({"name": "a", "age": age} for age in (0, 149, 150, -1, 1.5, True, "1", None)),
    *({"name": "a", "score": score} for score in (1, 1.5, None, True, "1")),
    *(
        {"name": "a", "tags": tags}
        for tags in ([], ["a"], ["c"], ["a", "b"], ["a", "a"], ["a", "b", 1], [True], "a")
    ),
    *({"name": "a", "child": child} for child in ({"name": "b"}, {}, {"name": "b", "child": {"name": 1}})),
    *({"name": "a", "one": one} for one in (1, 5, 5.5, 1.5, "x")),
    *({"name": "a", "all": each} for each in ("yes", "no", 1)),
    *({"name": "a", "any": each} for each in (True, {}, {"x": 1}, 1)),
]


@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_json_is_checked_as_jsonschema_does(value: Any) -> None:
    expected = jsonschema.Draft202012Validator(SCHEMA).is_valid(value)
    assert json_schema(json.dumps(value), SCHEMA) is expected
    assert json_schema(f"```json\n{json.dumps(value, indent=1)}\n```", SCHEMA) is expected


EQUAL: list[tuple[dict[str, Any], Any]] = [
    *(({"type": "integer"}, value) for value in (1.0, 1.5, 1e300, True)),
    *(({"const": 1}, value) for value in (1.0, True, 1.5)),
    *(
        ({"enum": [[1], {"a": 0, "b": [2]}]}, value)
        for value in ([1.0], [True], {"b": [2], "a": 0.0}, {"a": 0})
    ),
    *(
        ({"uniqueItems": True}, value)
        for value in ([1, 1.0], [1, True], [{"a": 1, "b": 2}, {"b": 2, "a": 1}])
    ),
    *(({"minimum": 2}, value) for value in (True, False, 1, 2.0)),
]


@pytest.mark.parametrize(("schema", "value"), EQUAL, ids=json.dumps)
def test_json_values_are_equal_as_the_standard_says(schema: dict[str, Any], value: Any) -> None:
    expected = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert json_schema(json.dumps(value), schema) is expected


def test_json_is_checked_by_a_pydantic_type() -> None:
    class Person(BaseModel):
        name: str

    assert json_schema('{"name": "a"}', Person)
    assert not json_schema('{"name": 1}', Person)
    assert not json_schema("{'name': 'a'}", Person)
    assert not json_schema('Here: {"name": "a"}', SCHEMA)
    assert not json_schema('{"name": NaN}', SCHEMA)
    assert not json_schema("1", {"$ref": "#"})
    with pytest.raises(ValueError, match="'dependentSchemas', which is not supported"):
        json_schema("{}", {"dependentSchemas": {}})


GRADERS: list[Callable[[str], bool]] = [
    lambda answer: exact(answer, "x y"),
    lambda answer: contains(answer, "x y"),
    lambda answer: regex(answer, "(x+x+)+y$"),
    lambda answer: numeric(answer, 0.125),
    lambda answer: math_equal(answer, "1/8"),
    lambda answer: math_equal("8", answer),
    lambda answer: multiple_choice(answer, "Q"),
    lambda answer: json_schema(answer, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}),
    lambda answer: json_schema(answer, dict[str, int]),
]
HOSTILE = {
    "long": "x" * 10_000_000,
    "digits": "9" * 10_000_000,
    "digits and no number": "9" * 10_000_000 + "^",
    "brackets": "(" * 10_000_000,
    "lists": "[" * 10_000_000,
    "braces": r"\boxed{" * 1_000_000,
    "spaces": " " * 10_000_000,
    "commas": "1," * 5_000_000,
    "thousands": "1," + "111," * 4000 + "x",
    "nested lists": "[" * 100_000 + "1" + "]" * 100_000,
    "nested lists that fit": "[" * 150 + "]" * 150,
    "a large list": "[" + "1," * 45_000 + "1]",
    "signs": "-" * 499,
    "nested": "(" * 200 + "1" + ")" * 200,
    "a tower": "9**9**9**9",
    "a tower in LaTeX": "9^{9^{9^{9}}}",
    "powers": "9^999*" * 70 + "1",
    "fractions": r"\frac{1}{" * 55,
    "division by zero": "1/(1-1)",
    "not a number": "nan",
    "infinity": "1e999999",
    "null": "\x00" * 1000,
    "half a character": "\ud800" * 1000,
    "a program": "__import__('os').system('true')",
    "letters": "a" * 499,
    "sets": "{" * 200 + "1" + "}" * 200,
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_answer_makes_a_grader_raise_or_hang(answer: str) -> None:
    assert [grade(answer) for grade in GRADERS] == [False] * len(GRADERS)
