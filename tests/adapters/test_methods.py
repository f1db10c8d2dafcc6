"""Tools as Python methods."""

import inspect

import pytest

from ors.adapters.chat import tool_method


def parameters(*names: str) -> dict[str, object]:
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}, "required": ["a"]}


@pytest.mark.parametrize("name", ["two-words", "_hidden", "reset", "get_reward"])
def test_a_tool_that_cannot_be_a_method_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"The tool '{name}' cannot be a method .*: rename it"):
        tool_method(name, parameters("a"))


@pytest.mark.parametrize("name", ["two-words", "class", "1st"])
def test_an_argument_that_is_not_a_python_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"The argument '{name}' .* not a Python name.*: rename it"):
        tool_method("guess", parameters("a", name))


def test_arguments_are_keywords_with_the_schemas_types_and_defaults() -> None:
    signature = inspect.signature(tool_method("guess", parameters("a", "b")))
    assert str(signature) == "(self, *, a: int, b: int = None)"
