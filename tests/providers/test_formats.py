import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum, IntEnum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, ValidationError

from ors.errors import ToolCallError
from ors.providers import Provider
from ors.providers.convert import convert_tool_response, convert_tools, parse_tool_call
from ors.providers.messages import ToolInvocation
from ors.types import ToolSpec

# The providers' packages take four seconds to import: where they are used, and in one process.
pytestmark = pytest.mark.xdist_group("providers")

PROVIDERS: tuple[Provider, ...] = get_args(Provider)
JSON_SCHEMA_PROVIDERS: tuple[Provider, ...] = ("openai", "openai-chat", "anthropic", "openrouter")
Object = dict[str, Any]

# ── What tools take: as authors write it ──


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    """A place."""

    x: int
    y: int = 0


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(BaseModel):
    kind: Literal["square"]
    side: float
    corner: Point | None = None


class Plain(BaseModel):
    """The input of a tool."""

    path: str = Field(description="Where to look")
    deep: bool
    limit: int = 10


class Nested(BaseModel):
    start: Point = Field(description="Where it begins")
    stops: list[Point]
    by_name: dict[str, Point] = {}


class Optionals(BaseModel):
    text: str | None = None
    place: Point | None = None
    must: int | None


class Unions(BaseModel):
    either: int | str
    shape: Annotated[Circle | Square, Field(discriminator="kind")]
    many: list[int | Point] = []
    maybe: int | str | None = Field(None, description="One or the other")


class Choices(BaseModel):
    colour: Colour
    level: Level
    mode: Literal["r", "w", ""]
    only: Literal["this"]
    mixed: Literal["a", 1, None]


class Maps(BaseModel):
    counts: dict[str, int]
    anything: Any
    free: dict[str, Any]
    bare: list  # type: ignore[type-arg]
    pair: tuple[int, str]
    unique: set[str] = set()


class Constrained(BaseModel):
    model_config = ConfigDict(extra="forbid")

    n: int = Field(gt=0, lt=10)
    f: float = Field(gt=0.5, multiple_of=0.5)
    s: str = Field(min_length=1, max_length=5, pattern="^a")
    items: list[int] = Field(min_length=1, max_length=3)
    when: datetime
    which: UUID
    title: str = "untitled"


class Tree(BaseModel):
    """A tree."""

    value: int
    children: list["Tree"] = []


class Forest(BaseModel):
    first: Tree
    other: "Forest | None" = None


class Nothing(BaseModel):
    pass


CORPUS: tuple[type[BaseModel], ...] = (
    Plain, Nested, Optionals, Unions, Choices, Maps, Constrained, Tree, Forest, Nothing,
)  # fmt: skip


def tool(schema: Mapping[str, Any] | None, name: str = "look", description: str = "Looks") -> ToolSpec:
    return ToolSpec(name=name, description=description, input_schema=schema)


def parameters(schema: Mapping[str, Any] | None, format: Provider) -> Object:
    [spec] = convert_tools([tool(schema)], format)
    found = spec.get("function", spec)
    parameters = found.get("parameters", found.get("input_schema", {}))
    assert isinstance(parameters, dict)
    return parameters


def properties(model: type[BaseModel], format: Provider) -> Object:
    found = parameters(model.model_json_schema(), format)["properties"]
    assert isinstance(found, dict)
    return found


def nodes(schema: Any) -> Iterator[Object]:
    """A converted schema and all schemas inside it (not what is named in them)."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "patternProperties"):
        for each in schema.get(key, {}).values():
            yield from nodes(each)
    for key in ("items", "additionalProperties", "not", "contains"):
        yield from nodes(schema.get(key))
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for each in schema.get(key, []):
            yield from nodes(each)


def as_json_schema(google: Any) -> Any:
    """A Google schema read as the JSON Schema it stands for."""
    if not isinstance(google, dict):
        return google
    read = {
        key: as_json_schema(value) for key, value in google.items() if key not in ("nullable", "properties")
    }
    if "properties" in google:
        read["properties"] = {name: as_json_schema(each) for name, each in google["properties"].items()}
    if "anyOf" in google:
        read["anyOf"] = [as_json_schema(each) for each in google["anyOf"]]
    return {"anyOf": [read, {"type": "null"}]} if google.get("nullable") else read


# ── Specs, against the providers' own types ──


@pytest.mark.parametrize("model", CORPUS)
def test_openai_takes_the_spec_as_a_function_tool_that_is_not_strict(model: type[BaseModel]) -> None:
    [spec] = convert_tools([tool(model.model_json_schema())], "openai")
    import openai.types.responses

    # Unknown keys would be missing from what the adapter gives.
    assert TypeAdapter(openai.types.responses.FunctionToolParam).validate_python(spec) == spec
    assert spec["strict"] is False


@pytest.mark.parametrize("format", ["openai-chat", "openrouter"])
@pytest.mark.parametrize("model", CORPUS)
def test_chat_completions_takes_the_spec_as_a_tool(model: type[BaseModel], format: Provider) -> None:
    [spec] = convert_tools([tool(model.model_json_schema())], format)
    import openai.types.chat

    adapter = TypeAdapter(openai.types.chat.ChatCompletionFunctionToolParam)
    assert adapter.validate_python(spec) == spec
    assert set(spec) == {"type", "function"}
    assert set(spec["function"]) == {"name", "description", "parameters"}


@pytest.mark.parametrize("model", CORPUS)
def test_anthropic_takes_the_spec_as_a_tool(model: type[BaseModel]) -> None:
    [spec] = convert_tools([tool(model.model_json_schema())], "anthropic")
    import anthropic.types

    validated = TypeAdapter(anthropic.types.ToolParam).validate_python(spec)
    assert dict(validated) == spec
    assert set(spec) == {"type", "name", "description", "input_schema"}
    assert spec["input_schema"]["type"] == "object"


@pytest.mark.parametrize("model", CORPUS)
def test_google_takes_the_spec_as_a_function_declaration(model: type[BaseModel]) -> None:
    [spec] = convert_tools([tool(model.model_json_schema())], "google")
    import google.genai.types as google_types

    declaration = google_types.FunctionDeclaration(**spec)
    again = declaration.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert lowered(again) == spec
    google_types.Tool(function_declarations=[declaration])


def lowered(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: v.lower() if k == "type" and isinstance(v, str) else lowered(v) for k, v in value.items()}
    return [lowered(each) for each in value] if isinstance(value, list) else value


# ── Schemas ──


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("model", CORPUS)
def test_a_converted_schema_is_valid_and_refers_to_nothing(model: type[BaseModel], format: Provider) -> None:
    schema = parameters(model.model_json_schema(), format)
    Draft202012Validator.check_schema(schema)
    for node in nodes(schema):
        assert not {"$ref", "$defs", "title", "allOf", "discriminator"} & node.keys()
    assert not {"anyOf", "oneOf", "enum", "const", "not"} & schema.keys()


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("model", CORPUS)
def test_what_is_required_stays_required_and_nothing_else_does(
    model: type[BaseModel], format: Provider
) -> None:
    asked = {name for name, field in model.model_fields.items() if field.is_required()}
    schema = parameters(model.model_json_schema(), format)
    assert set(schema.get("required", [])) == asked
    assert set(schema.get("properties", {})) == set(model.model_fields)


@pytest.mark.parametrize("format", JSON_SCHEMA_PROVIDERS)
@pytest.mark.parametrize("model", CORPUS)
def test_openai_finds_items_in_arrays_and_properties_in_objects(
    model: type[BaseModel], format: Provider
) -> None:
    for node in nodes(parameters(model.model_json_schema(), format)):
        assert node.get("type") != "array" or "items" in node
        assert node.get("type") != "object" or "properties" in node


@pytest.mark.parametrize("model", CORPUS)
def test_google_gets_only_fields_of_its_schema_each_with_the_type_it_belongs_to(
    model: type[BaseModel],
) -> None:
    belongs = {
        "properties": {"object"}, "required": {"object"}, "items": {"array"}, "minItems": {"array"},
        "maxItems": {"array"}, "enum": {"string"}, "pattern": {"string"}, "minLength": {"string"},
        "maxLength": {"string"}, "minimum": {"number", "integer"}, "maximum": {"number", "integer"},
    }  # fmt: skip
    for node in nodes(parameters(model.model_json_schema(), "google")):
        if "anyOf" in node:
            assert node.keys() == {"anyOf"}
            continue
        if node:
            assert isinstance(node["type"], str)
        for key in node.keys() - {"type", "description", "nullable"}:
            assert key == "format" or node["type"] in belongs[key]
        assert node.get("format") in (None, "date-time")
        assert "" not in node.get("enum", ())
        assert node.get("properties") != {}
        assert node.get("required") != []


SAMPLES: list[BaseModel] = [
    Plain(path="/", deep=True),
    Nested(start=Point(x=1), stops=[Point(x=2)], by_name={"a": Point(x=3)}),
    Optionals(must=None),
    Optionals(must=1, text="t", place=Point(x=1)),
    Unions(either="a", shape=Circle(kind="circle", radius=1), many=[1, Point(x=1)], maybe=None),
    Unions(either=1, shape=Square(kind="square", side=1, corner=Point(x=1)), maybe="a"),
    Choices(colour=Colour.RED, level=Level.HIGH, mode="", only="this", mixed=None),
    Choices(colour=Colour.BLUE, level=Level.LOW, mode="r", only="this", mixed=1),
    Maps(counts={"a": 1}, anything=[1, "a"], free={"a": [None]}, bare=[1, "b"], pair=(1, "a")),
    Maps(counts={}, anything=None, free={}, bare=[], pair=(1, "a"), unique={"a"}),
    Constrained(n=9, f=1.0, s="abc", items=[1], when=datetime(2026, 1, 1), which=UUID(int=1)),
    Tree(value=1, children=[Tree(value=2, children=[Tree(value=3)])]),
    Forest(first=Tree(value=1), other=Forest(first=Tree(value=2))),
    Nothing(),
]


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_the_server_accepts_the_converted_schema_allows(sample: BaseModel, format: Provider) -> None:
    schema = as_json_schema(parameters(type(sample).model_json_schema(), format))
    Draft202012Validator(schema).validate(sample.model_dump(mode="json"))


@pytest.mark.parametrize("format", PROVIDERS)
@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        (Plain, {"path": "/", "deep": "yes"}),
        (Plain, {"deep": True}),
        (Nested, {"start": {"y": 1}, "stops": []}),
        (Nested, {"start": {"x": 1}, "stops": [{"x": "a"}]}),
        (Optionals, {"must": "a"}),
        (Unions, {"either": [], "shape": {"kind": "circle", "radius": 1}}),
        (Unions, {"either": 1, "shape": {"kind": "line"}}),
        (Choices, {"colour": "green", "level": 1, "mode": "r", "only": "this", "mixed": "a"}),
        (Constrained, {"n": 10, "f": 1, "s": "a", "items": [1], "when": "", "which": ""}),
        (Constrained, {"n": 0, "f": 1, "s": "a", "items": [1], "when": "", "which": ""}),
        (Tree, {"value": 1, "children": [1]}),
    ],
)
def test_what_the_server_refuses_the_converted_schema_forbids(
    model: type[BaseModel], wrong: Object, format: Provider
) -> None:
    with pytest.raises(ValidationError):
        model.model_validate_json(json.dumps(wrong), strict=True)
    schema = as_json_schema(parameters(model.model_json_schema(), format))
    assert not Draft202012Validator(schema).is_valid(wrong)


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_recursive_reference_becomes_its_bare_type(format: Provider) -> None:
    children = properties(Tree, format)["children"]
    inner = children["items"]
    assert inner.pop("properties", {}) == {}
    assert inner == {"type": "object", "description": "The same as Tree, described above."}


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_recursive_value_of_no_one_type_becomes_anything(format: Provider) -> None:
    schema = {
        "$defs": {
            "Json": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/Json"}}]}
        },
        "type": "object",
        "properties": {"json": {"$ref": "#/$defs/Json"}, "whole": {"$ref": "#"}},
    }
    converted = as_json_schema(parameters(schema, format))
    Draft202012Validator(converted).validate({"json": ["a", {"b": 1}], "whole": {"json": "a"}})


@pytest.mark.parametrize("format", PROVIDERS)
def test_definitions_that_double_at_every_step_stay_small(format: Provider) -> None:
    defs = {
        f"D{i}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/D{i + 1}"} for side in ("left", "right")},
        }
        for i in range(40)
    } | {"D40": {"type": "string"}}
    converted = parameters({**defs["D0"], "$defs": defs}, format)
    assert len(json.dumps(converted)) < 500_000


@pytest.mark.parametrize("format", PROVIDERS)
def test_definitions_that_all_use_each_other_end(format: Provider) -> None:
    names = [f"D{i}" for i in range(12)]
    linked = {name: {"$ref": f"#/$defs/{name}"} for name in names}
    defs = {name: {"type": "object", "properties": linked} for name in names}
    assert parameters({"type": "object", "properties": linked, "$defs": defs}, format)


@pytest.mark.parametrize("format", PROVIDERS)
def test_a_reference_is_found_by_any_pointer_into_the_schema(format: Provider) -> None:
    schema = {
        "type": "object",
        "definitions": {"a/b": {"type": "integer"}},
        "properties": {
            "one": {"$ref": "#/definitions/a~1b"},
            "two": {"anyOf": [{"type": "boolean"}, {"type": "string"}]},
            "three": {"$ref": "#/properties/two/anyOf/1"},
        },
    }
    found = parameters(schema, format)["properties"]
    assert found["one"] == {"type": "integer"}
    assert found["three"] == {"type": "string"}


@pytest.mark.parametrize(
    "ref", ["#/$defs/Gone", "https://example.com/schema", "#anchor", "#/type/x", 1, "#/$defs/l/9"]
)
def test_a_reference_that_leads_nowhere_is_named(ref: Any) -> None:
    schema = {"type": "object", "$defs": {"l": [1]}, "properties": {"a": {"$ref": ref}}}
    with pytest.raises(ValueError, match=r"Tool 'look': \$ref .* leads nowhere"):
        convert_tools([tool(schema)], "openai")


@pytest.mark.parametrize("format", PROVIDERS)
def test_what_is_said_beside_a_reference_is_kept(format: Provider) -> None:
    start = properties(Nested, format)["start"]
    assert start["description"] == "Where it begins\nA place."
    assert start["required"] == ["x"]


@pytest.mark.parametrize("format", PROVIDERS)
def test_fields_may_be_called_like_keywords_of_schemas(format: Provider) -> None:
    names = ["title", "$ref", "default", "anyOf", "properties", "$defs", "items", "type", "allOf"]
    named = {name: {"type": "string"} for name in names if format != "anthropic" or "$" not in name}
    schema = parameters({"type": "object", "properties": named, "required": list(named)}, format)
    assert schema["properties"] == named
    assert schema["required"] == list(named)


@pytest.mark.parametrize("format", PROVIDERS)
def test_parts_that_hold_all_at_once_are_merged(format: Provider) -> None:
    schema = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"a": {"minLength": 1}, "b": {"type": "integer"}}, "required": ["b"]},
        ]
    }
    assert parameters(schema, format) == {
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 1}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }


class Shape(RootModel[Circle | Square]):
    pass


@pytest.mark.parametrize("format", PROVIDERS)
def test_an_input_of_alternatives_becomes_one_object_that_allows_them_all(format: Provider) -> None:
    schema = parameters(Shape.model_json_schema(), format)
    assert set(schema["properties"]) == {"kind", "radius", "side", "corner"}
    assert schema["required"] == ["kind"]
    validator = Draft202012Validator(as_json_schema(schema))
    validator.validate({"kind": "circle", "radius": 1})
    validator.validate({"kind": "square", "side": 1})
    assert not validator.is_valid({"kind": "line"})


@pytest.mark.parametrize("format", PROVIDERS)
def test_alternatives_of_what_is_required_leave_what_always_is(format: Provider) -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["id"],
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    converted = parameters(schema, format)
    assert converted["required"] == ["id"]
    assert list(converted["properties"]) == ["id", "a", "b"]


@pytest.mark.parametrize("format", PROVIDERS)
def test_an_input_that_is_no_object_is_refused(format: Provider) -> None:
    with pytest.raises(ValueError, match="Tool 'look': its input is described as integer, not as an object"):
        convert_tools([tool({"type": "integer"})], format)


@pytest.mark.parametrize("format", JSON_SCHEMA_PROVIDERS)
@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, Nothing.model_json_schema()])
def test_a_tool_without_input_gets_an_empty_object(schema: Object | None, format: Provider) -> None:
    assert parameters(schema, format) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, Nothing.model_json_schema()])
def test_a_tool_without_input_leaves_googles_parameters_unset(schema: Object | None) -> None:
    assert convert_tools([tool(schema)], "google") == [{"name": "look", "description": "Looks"}]


def test_google_hears_in_the_description_what_its_schema_cannot_say() -> None:
    constrained, choices, maps = (properties(m, "google") for m in (Constrained, Choices, Maps))
    assert constrained["n"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert constrained["f"] == {"type": "number", "description": "exclusiveMinimum: 0.5, multipleOf: 0.5"}
    assert constrained["when"] == {"type": "string", "format": "date-time"}
    assert constrained["which"] == {"type": "string", "description": 'format: "uuid"'}
    assert constrained["title"] == {"type": "string", "description": 'default: "untitled"'}
    assert choices["level"] == {"type": "integer", "description": "enum: [1,2]"}
    assert choices["mode"] == {"type": "string", "description": 'enum: ["r","w",""]'}
    assert maps["counts"] == {"type": "object", "description": 'additionalProperties: {"type":"integer"}'}
    assert maps["pair"]["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}


def test_google_reads_null_as_nullable_and_one_value_as_an_enum() -> None:
    optionals, choices, unions = (properties(m, "google") for m in (Optionals, Choices, Unions))
    assert optionals["text"] == {"type": "string", "nullable": True}
    assert optionals["place"]["nullable"] is True
    assert optionals["place"]["properties"]["x"] == {"type": "integer"}
    assert choices["only"] == {"type": "string", "enum": ["this"]}
    assert choices["mixed"] == {
        "anyOf": [
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": "integer", "description": "enum: [1]", "nullable": True},
        ]
    }
    assert [each["description"] for each in unions["maybe"]["anyOf"]] == ["One or the other"] * 2


def test_google_gets_one_type_where_json_schema_lists_several() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": ["object", "null"], "properties": {"b": {"minimum": 1}}, "required": ["b", "gone"]},
            "c": {"type": ["string", "integer"], "minimum": 1, "pattern": "x"},
            "d": True,
            "e": {"type": "array", "items": [{"type": "string"}]},
            "f": {"type": "null"},
        },
    }
    found = parameters(schema, "google")["properties"]
    inner = {"b": {"type": "number", "minimum": 1}}
    assert found["a"] == {"type": "object", "properties": inner, "required": ["b"], "nullable": True}
    assert found["c"] == {"anyOf": [{"type": "string", "pattern": "x"}, {"type": "integer", "minimum": 1}]}
    assert {each["type"] for each in found["d"]["anyOf"]} == {
        "string",
        "number",
        "boolean",
        "object",
        "array",
    }
    assert found["e"] == {"type": "array", "items": {"type": "string"}}
    assert found["f"] == {"type": "null"}


@pytest.mark.parametrize("format", PROVIDERS)
def test_converting_changes_nothing_of_the_spec(format: Provider) -> None:
    for model in CORPUS:
        spec = tool(model.model_json_schema())
        before = spec.model_dump_json()
        for node in nodes(parameters(spec.input_schema, format)):
            for value in node.values():
                if isinstance(value, list):
                    value.clear()
        assert spec.model_dump_json() == before


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
LEAVES = st.sampled_from(
    [
        {}, {"type": "string", "minLength": 1}, {"type": "integer", "exclusiveMinimum": 0}, {"type": "null"},
        {"type": ["number", "null"]}, {"const": 1}, {"enum": ["a", 2, None]}, {"$ref": "#/$defs/Leaf"},
        {"$ref": "#/$defs/Loop"}, {"$ref": "#"}, {"type": "array"}, {"format": "uri", "type": "string"},
    ]
)  # fmt: skip


def compound(inner: st.SearchStrategy[Object]) -> st.SearchStrategy[Object]:
    named = st.dictionaries(st.sampled_from(["a", "b", "title", "anyOf"]), inner, min_size=1, max_size=3)
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        named.map(lambda p: {"type": "object", "properties": p, "required": [*p][:1]}),
        inner.map(lambda s: {"type": "array", "items": s}),
        inner.map(lambda s: {"type": "object", "additionalProperties": s}),
        st.builds(
            lambda key, s: {key: s}, st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"]), several
        ),
        st.builds(lambda s, value: {**s, "default": value, "title": "T"}, inner, JSON),
    )


SCHEMAS = st.recursive(LEAVES, compound, max_leaves=8)


@given(st.dictionaries(st.sampled_from(["x", "y"]), SCHEMAS, max_size=2), SCHEMAS, st.sampled_from(PROVIDERS))
def test_any_schema_converts_to_a_valid_one(fields: Object, loop: Object, format: Provider) -> None:
    defs = {"Leaf": {"type": "boolean"}, "Loop": loop}
    schema = parameters(
        {"type": "object", "properties": fields, "required": [*fields], "$defs": defs}, format
    )
    Draft202012Validator.check_schema(schema)
    assert set(schema.get("required", [])) == set(fields)
    assert not any(key in node for node in nodes(schema) for key in ("$ref", "$defs", "title", "allOf"))
    if format == "google":
        import google.genai.types as google_types

        google_types.Schema.model_validate(schema)


# ── Names ──


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("openai", "a" * 64, "a" * 65),
        ("openai-chat", "a-b_1", "a.b"),
        ("openrouter", "1", "a b"),
        ("anthropic", "a" * 128, "a" * 129),
        ("google", "_a.b:c-d", "1a"),
        ("anthropic", "a", "a\n"),
    ],
)
def test_a_name_the_provider_would_refuse_is_refused_here(format: Provider, good: str, bad: str) -> None:
    assert convert_tools([tool(None, name=good)], format)
    with pytest.raises(ValueError, match=r"the provider wants a name that matches \^"):
        convert_tools([tool(None, name=bad)], format)


def test_a_property_anthropic_would_refuse_is_refused_here() -> None:
    schema = {"type": "object", "properties": {"filter[id]": {"type": "string"}}}
    with pytest.raises(ValueError, match=r"Tool 'look': property keys should match .* not filter\[id\]"):
        convert_tools([tool(schema)], "anthropic")
    assert convert_tools([tool(schema)], "openai")


@pytest.mark.parametrize("format", PROVIDERS)
def test_an_empty_description_is_left_out(format: Provider) -> None:
    [spec] = convert_tools([tool(None, description="")], format)
    assert "description" not in spec.get("function", spec)


# ── Answers of servers ──


def test_an_answer_without_a_format_gives_the_specs() -> None:
    answer = {"tools": [{"name": "a", "description": "A", "input_schema": {"type": "object"}}]}
    assert convert_tool_response(answer) == [
        ToolSpec(name="a", description="A", input_schema={"type": "object"})
    ]


def test_an_answer_may_lack_keys_and_have_others() -> None:
    answer = {"tools": [{"name": "a"}, {"name": "b", "description": None, "annotations": {}, "title": "B"}]}
    nothing = ToolSpec(name="a", description="", input_schema=None)
    assert convert_tool_response(answer) == [nothing, nothing.model_copy(update={"name": "b"})]


@pytest.mark.parametrize("format", PROVIDERS)
def test_an_answer_with_a_format_gives_what_the_provider_expects(format: Provider) -> None:
    spec = tool(Plain.model_json_schema())
    answer = {"tools": [spec.model_dump()]}
    assert convert_tool_response(answer, format) == convert_tools([spec], format)
    assert convert_tool_response({"tools": []}, format=format) == []


def test_a_tool_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name"):
        convert_tool_response({"tools": [{"description": "A"}]})


def test_an_unknown_format_is_refused_even_without_tools() -> None:
    unknown: Any = "mistral"
    for refused in (
        lambda: convert_tools([], unknown),
        lambda: convert_tool_response({"tools": []}, unknown),
        lambda: parse_tool_call({}, unknown),
    ):
        with pytest.raises(
            ValueError,
            match=r"^Invalid format: 'mistral'; use one of openai, openai-chat, anthropic, .*, openrouter$",
        ):
            refused()


# ── Calls, in the providers' own objects ──

INPUT = {"path": "/", "n": [1, {"deep": None}], "big": 2**70, "text": "é😀"}
ARGUMENTS = json.dumps(INPUT)


def provider_calls() -> list[tuple[Provider, BaseModel]]:
    import anthropic.types
    import google.genai.types as google_types
    import openai.types.chat
    import openai.types.responses

    google_call = google_types.FunctionCall(id="call_1", name="look", args=INPUT)
    return [
        (
            "openai",
            openai.types.responses.ResponseFunctionToolCall(
                type="function_call", id="fc_1", call_id="call_1", name="look", arguments=ARGUMENTS
            ),
        ),
        (
            "openai-chat",
            openai.types.chat.ChatCompletionMessageFunctionToolCall.model_validate(
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}
            ),
        ),
        ("anthropic", anthropic.types.ToolUseBlock(type="tool_use", id="call_1", name="look", input=INPUT)),
        ("google", google_call),
        ("google", google_types.Part(function_call=google_call)),
    ]


@pytest.mark.parametrize("place", range(5))
def test_a_providers_call_gives_name_input_and_id(place: int) -> None:
    format, call = provider_calls()[place]
    expected = ToolInvocation("look", json.loads(ARGUMENTS), "call_1")
    plain = call.model_dump()
    for form in (call, plain, call.model_dump(by_alias=True, exclude_none=True), SimpleNamespace(**plain)):
        assert parse_tool_call(form) == expected
        assert parse_tool_call(form, format) == expected


@pytest.mark.parametrize("place", range(5))
def test_a_call_of_another_provider_is_refused_if_one_is_named(place: int) -> None:
    format, call = provider_calls()[place]
    for other in set(PROVIDERS) - {format, *(["openrouter"] if format == "openai-chat" else [])}:
        with pytest.raises(ValueError, match=f"Not a tool call of {other}"):
            parse_tool_call(call, other)


@pytest.mark.parametrize("given", ["", " ", "{}", "null", None])
def test_a_call_without_arguments_has_an_empty_input(given: str | None) -> None:
    call = {"type": "function", "id": "1", "function": {"name": "look", "arguments": given}}
    assert parse_tool_call(call) == ToolInvocation("look", {}, "1")


def test_a_google_call_may_lack_arguments_and_an_id() -> None:
    import google.genai.types as google_types

    for call in (
        {"name": "look"},
        {"functionCall": {"name": "look"}},
        google_types.FunctionCall(name="look"),
    ):
        assert parse_tool_call(call, "google") == ToolInvocation("look", {}, None)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('{"path": "/', "not valid JSON"),
        ("path=/", "not valid JSON"),
        ('{"n": NaN}', "not valid JSON"),
        ("[1]", "of type array"),
        ('"{}"', "of type string"),
        ("3", "of type integer"),
    ],
)
def test_arguments_that_are_no_json_object_can_be_told_to_the_model(given: str, told: str) -> None:
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": given}
    with pytest.raises(
        ToolCallError, match=f"^The arguments of 'look' are {told}: send a JSON object.$"
    ) as caught:
        parse_tool_call(call)
    assert caught.value.reason == "input_validation"


@pytest.mark.parametrize(
    "other",
    [
        {"type": "custom", "id": "1", "custom": {"name": "look", "input": "x"}},
        {"type": "function_call", "arguments": "{}"},
        {"name": "look", "arguments": "{}"},
        "look",
        None,
    ],
)
def test_what_is_no_tool_call_is_refused(other: Any) -> None:
    with pytest.raises(ValueError, match=r"^Not a tool call of any known provider: "):
        parse_tool_call(other)


def test_what_providers_say_besides_is_no_tool_call() -> None:
    import anthropic.types
    import google.genai.types as google_types

    for other in (
        anthropic.types.TextBlock(type="text", text="hi"),
        anthropic.types.ServerToolUseBlock(type="server_tool_use", id="1", name="web_search", input={}),
        google_types.Part(text="hi"),
    ):
        with pytest.raises(ValueError, match=r"^Not a tool call of any known provider: "):
            parse_tool_call(other)


@given(st.dictionaries(st.text(), JSON))
def test_any_input_survives_the_way_through_json(input: Object) -> None:
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": json.dumps(input)}
    assert parse_tool_call(call).input == input
