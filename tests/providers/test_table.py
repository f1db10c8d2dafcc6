"""The table of providers: a new one is a module and a name."""

from pathlib import Path

from ors.providers import MODEL_NAMES, PROVIDERS, api_of
from tests.support.copied_tree import changed, copied, python

MODULE = """
from dataclasses import replace

from ors.providers import openai_chat

API = replace(openai_chat.API, base_url="https://api.mistral.ai/v1", key_variables=("MISTRAL_API_KEY",))
"""
USE = """
from ors.client import ToolSpec, convert_tools, parse_tool_call
from ors.rollouts.agents import resolve

(tool,) = convert_tools([ToolSpec(name="look", description="", input_schema=None)], "mistral")
call = {"id": "1", "function": {"name": "look", "arguments": "{}"}}
read = parse_tool_call(call, "mistral")
print(tool["function"]["name"], read.name, resolve("mistral:large", api_key="sk-1"))
"""


def test_openai_is_the_responses_api_as_a_format_and_chat_completions_as_a_model() -> None:
    assert api_of("openai").path("m") == "/responses"
    assert api_of(MODEL_NAMES["openai"]).path("m") == "/chat/completions"
    assert api_of(MODEL_NAMES["openai-responses"]) is api_of("openai")
    assert set(MODEL_NAMES.values()) == set(PROVIDERS)


def test_a_new_provider_is_one_file_and_one_name(tmp_path: Path) -> None:
    providers = copied(tmp_path) / "providers"
    (providers / "mistral.py").write_text(MODULE)
    changed(providers / "__init__.py", '"openrouter"]', '"openrouter", "mistral"]')
    assert python(tmp_path, USE) == "look look <ModelAgent mistral:large>\n"
