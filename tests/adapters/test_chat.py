"""Tools in the form of chat templates."""

from typing import Any

from ors.adapters.chat import by_tools, tool_schemas
from ors.types import ToolSpec


def tool(**properties: Any) -> ToolSpec:
    described = {key: {"default": value} for key, value in properties.items()}
    schema: dict[str, Any] = {"type": "object", "properties": described}
    return ToolSpec(name="guess", description="Guesses.", input_schema=schema)


def test_episodes_with_the_same_tools_share_what_is_made_of_them() -> None:
    made = []

    @by_tools
    def count(schemas: list[dict[str, Any]]) -> int:
        made.append(schemas)
        return len(schemas)

    assert [count([tool(a=1)]), count((tool(a=1),)), count([tool(a=1), tool()])] == [1, 1, 2]
    assert len(made) == 2


def test_tools_that_differ_by_a_type_only_are_not_the_same() -> None:
    found = [tool_schemas([tool(a=value)]) for value in (1, True, 1.0, "1")]
    defaults = [each["function"]["parameters"]["properties"]["a"]["default"] for (each,) in found]
    assert [type(each) for each in defaults] == [int, bool, float, str]
