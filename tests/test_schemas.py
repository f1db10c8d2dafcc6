import json
import random
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from ors import ToolSpec
from ors.client import convert_tools
from ors.schemas import (
    Inputs,
    emptiest,
    flattened,
    needs_choice,
    needs_example,
    problems,
    sample,
    signature,
    typed_input,
)


class Inner(BaseModel):
    name: str = Field(min_length=2, max_length=5)
    flags: list[bool] = Field(min_length=1, max_length=3)


class Model(BaseModel):
    count: int = Field(ge=3, le=7)
    part: float = Field(gt=0, lt=1)
    steps: int = Field(multiple_of=5, ge=1, le=50)
    kind: Any = Field(json_schema_extra={"enum": ["a", 2, None]})
    inner: Inner
    others: list[Inner] = Field(default_factory=list, max_length=2)
    maybe: Inner | None = None
    code: str = Field(pattern=r"^[A-Z]{2}-\d{3}$", examples=["AB-123"])
    pair: tuple[int, str]


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []
    twin: "Tree | None" = None


SCHEMAS = [
    Model.model_json_schema(),
    Tree.model_json_schema(),
    {"type": "object", "properties": {"x": {"const": 3}}, "required": ["x"]},
    {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}, "required": ["x", "y"]},
    {"type": "object", "properties": {"x": {"oneOf": [{"type": "string"}, {"type": "array"}]}}},
    {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
    {
        "type": "object",
        "properties": {
            "x": {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 2}
        },
        "required": ["x"],
    },
    {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
    {"type": "object", "properties": {"n": {"type": "number", "exclusiveMaximum": -5}}, "required": ["n"]},
    {
        "type": "object",
        "properties": {
            "narrow": {"type": "number", "minimum": 0.0001, "maximum": 0.01},
            "narrower": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.0005},
        },
        "required": ["narrow", "narrower"],
    },
    {"type": "object", "properties": {"d": {"type": "string", "format": "date"}}, "required": ["d"]},
    {"type": "object", "properties": {"h": {"type": "string", "pattern": "^h+$", "default": "hh"}}},
]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
@given(seed=st.integers(0, 10_000))
@settings(max_examples=60)
def test_made_up_inputs_fit_their_schema(number: int, seed: int) -> None:
    made = Inputs(random.Random(seed)).make(SCHEMAS[number])
    jsonschema.validate(made, SCHEMAS[number])


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_the_emptiest_input_fits_its_schema_too(number: int) -> None:
    jsonschema.validate(emptiest(SCHEMAS[number]), SCHEMAS[number])


def test_the_same_seed_makes_the_same_inputs() -> None:
    schema = Model.model_json_schema()
    made = [Inputs(random.Random(seed)).make(schema) for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def test_a_number_without_bounds_has_either_sign() -> None:
    made = {Inputs(random.Random(seed)).make({"type": "integer"}) > 0 for seed in range(20)}
    assert made == {True, False}


def test_a_tool_that_takes_nothing_gets_an_empty_object() -> None:
    assert Inputs(random.Random(0)).make(None) == emptiest(None) == {}


CODE = {"type": "string", "pattern": "^[0-9]-[0-9]$"}


@pytest.mark.parametrize(
    "rule",
    [
        CODE,
        {"anyOf": [CODE, {"type": "null"}]},
        {"$ref": "#/$defs/code"},
        {"type": "array", "items": CODE},
        {"type": "array", "prefixItems": [CODE], "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"type": "object", "properties": {"x": CODE}}},
        {"type": "string", "pattern": r"^\p{L}$"},
    ],
)
def test_a_pattern_without_an_example_is_known(rule: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": rule}, "$defs": {"code": CODE}}
    assert needs_example(schema)
    shown = json.loads(json.dumps(schema), object_hook=_with_example)
    assert not needs_example(shown)


def _with_example(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "examples": ["1-2"]} if isinstance(schema.get("pattern"), str) else schema


def test_a_parameter_named_pattern_needs_no_example() -> None:
    assert not needs_example({"type": "object", "properties": {"pattern": {"type": "string"}}})


def test_only_numbers_flags_and_choices_need_a_choice() -> None:
    def tool(**rule: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": rule}, "required": ["x"]}

    assert not needs_choice(None)
    assert not needs_choice(tool(type="string"))
    assert not needs_choice(tool(type="array"))
    assert needs_choice(tool(type="integer"))
    assert needs_choice(tool(type="boolean"))
    assert needs_choice(tool(enum=["a", "b"]))
    assert needs_choice(tool(type="string", minLength=1))


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_valid_schemas_have_no_problems(number: int) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[number])
    assert problems(SCHEMAS[number]) == []
    assert problems(None) == []


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "it is not an object"),
        ({"type": "float"}, "$.type is not a JSON Schema type: 'float'"),
        ({"type": "string"}, "it does not describe an object, so no tool call can carry it"),
        ({"type": "object", "properties": []}, "$.properties is not an object of schemas: []"),
        ({"type": "object", "properties": {"x": 3}}, "$.properties.x is not a schema"),
        ({"type": "object", "required": "x"}, "$.required is not a list of names: 'x'"),
        ({"type": "object", "anyOf": []}, "$.anyOf is not a list of schemas: []"),
        ({"$ref": "#/$defs/Nobody"}, "$.$ref leads nowhere: '#/$defs/Nobody'"),
        (
            {"type": "object", "properties": {"x": {"pattern": "["}}},
            "$.properties.x.pattern is not a valid pattern: '['",
        ),
        (
            {"type": "object", "properties": {"x": {"minLength": -1}}},
            "$.properties.x.minLength is not a count: -1",
        ),
        (
            {"type": "object", "properties": {"x": {"maximum": "9"}}},
            "$.properties.x.maximum is not a number: '9'",
        ),
        ({"type": "object", "properties": {"x": {"enum": "ab"}}}, "$.properties.x.enum is not a list: 'ab'"),
    ],
)
def test_what_is_wrong_with_a_schema_is_said_with_its_place(schema: Any, problem: str) -> None:
    assert problems(schema) == [problem]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_a_sample_fits_its_schema_and_is_always_the_same(number: int) -> None:
    made = sample(SCHEMAS[number])
    jsonschema.validate(made, SCHEMAS[number])
    assert made == sample(SCHEMAS[number])


def test_a_sample_takes_what_the_author_shows() -> None:
    properties = {
        "shown": {"type": "string", "examples": ["Paris"]},
        "chosen": {"enum": ["b", "a"]},
        "preset": {"type": "integer", "default": 7},
        "bounded": {"type": "integer", "exclusiveMinimum": 2},
        "left_out": {"type": "string"},
    }
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["shown", "chosen", "preset", "bounded"],
    }
    assert sample(schema) == {"shown": "Paris", "chosen": "b", "preset": 7, "bounded": 3}
    assert sample(None) == sample({"type": "string"}) == {}


DEFINED = {"type": "integer", "minimum": 4}
REFERENCES = [
    ("#/$defs/it", {"$defs": {"it": DEFINED}}),
    ("#/definitions/it", {"definitions": {"it": DEFINED}}),
    ("#/$defs/a~1b%20c", {"$defs": {"a/b c": DEFINED}}),
    ("#/$defs/several/anyOf/1", {"$defs": {"several": {"anyOf": [{"type": "null"}, DEFINED]}}}),
]


@pytest.mark.parametrize(("ref", "root"), REFERENCES)
def test_every_reader_of_schemas_follows_a_reference_the_same_way(ref: str, root: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": ref}}, "required": ["x"], **root}
    spec = ToolSpec(name="t", description="", input_schema=schema)
    assert problems(schema) == []
    assert sample(schema) == {"x": 4}
    assert Inputs(random.Random(0)).make(schema)["x"] >= 4
    assert signature(schema) == ["x: integer"]
    assert typed_input(spec, ["x=5"]) == {"x": 5}
    (converted,) = convert_tools([spec], "anthropic")
    assert converted["input_schema"]["properties"] == {"x": DEFINED}


def test_a_reference_to_itself_ends() -> None:
    assert flattened({"$ref": "#"}, {"$ref": "#"}) == {}
    assert flattened({"$ref": "#/$defs/nobody", "type": "string"}, {}) == {"type": "string"}


def test_a_type_that_contains_itself_is_told_as_far_as_it_goes() -> None:
    nested = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/nested"}}]}
    schema = {"$defs": {"nested": nested}, "properties": {"x": {"$ref": "#/$defs/nested"}}, "required": ["x"]}
    assert signature(schema) == ["x: string|[string|[string|[any]]]"]
