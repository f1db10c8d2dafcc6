"""Public means listed; a light import stays light."""

import importlib
import subprocess
import sys

import pytest

import ors

# What ors-sdk 0.1.0 exports from `ors`.
REFERENCE = {
    *("Environment", "Server", "tool", "Toolset", "__version__", "JSONObject", "JSONValue"),
    *("Blocks", "CreateSession", "ImageBlock", "ListToolsOutput", "Split", "TextBlock", "ToolCall"),
    *("RunToolError", "RunToolOutput", "RunToolSuccess", "ToolOutput", "ToolSpec"),
}


def test_everything_listed_is_there() -> None:
    assert ors.__all__ == sorted(ors.__all__)
    assert [name for name in ors.__all__ if getattr(ors, name, None) is None] == []
    assert REFERENCE - set(ors.__all__) == set()


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nope"):
        _ = ors.nope


@pytest.mark.parametrize(
    "module", ["ors.environment", "ors.errors", "ors.schemas", "ors.types", "ors.server"]
)
def test_modules_list_what_is_public(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import ors", ["uvicorn", "aiohttp", "ors.server", "ors.client", "starlette"]),
        ("from ors import Environment, tool", ["asyncio", "uvicorn", "aiohttp", "ors.server"]),
        ("from ors.client import ORS", ["uvicorn", "ors.server", "ors._authoring.tools", "ors.cluster"]),
        ("from ors import Server", ["uvicorn", "aiohttp", "prometheus_client"]),
        (
            "import ors.cli.commands.look, ors.cli.commands.look",
            ["ors.server", "ors._authoring.tools", "uvicorn", "aiohttp"],
        ),
    ],
)
def test_a_light_import_loads_no_more_than_it_needs(statement: str, absent: list[str]) -> None:
    code = f"{statement}\nimport sys\nprint([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
