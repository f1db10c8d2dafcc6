"""Tools as Python methods, whose signatures and docstrings describe them to transformers."""

import json
import re
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from keyword import iskeyword
from typing import Any

_TYPES: dict[Any, Any] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict}


def tool_method(name: str, parameters: Mapping[str, Any], description: str = "") -> Callable[..., Any]:
    """The method of a tool, for a class that has `_call(name, given)`.

    Raises:
        ValueError: the tool or one of its arguments has a name that does not fit.
    """
    properties = parameters.get("properties", {})
    if not name.isidentifier() or name.startswith("_") or name in ("reset", "get_reward"):
        raise ValueError(f"The tool {name!r} cannot be a method of an environment of TRL: rename it")
    for key in properties:
        if not key.isidentifier() or iskeyword(key):
            raise ValueError(f"The argument {key!r} of a tool is not a Python name, as TRL needs: rename it")

    def method(self: Any, **given: Any) -> Any:
        return self._call(name, given)

    required = parameters.get("required", ())
    hints = {key: _hint(schema) for key, schema in properties.items()}
    arguments = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    for key, schema in properties.items():
        default = Parameter.empty if key in required else schema.get("default")
        arguments.append(Parameter(key, Parameter.KEYWORD_ONLY, default=default, annotation=hints[key]))
    method.__name__ = name
    method.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    method.__annotations__ = hints
    method.__doc__ = _docstring(description or name, properties)
    return method


def _hint(schema: Mapping[str, Any]) -> Any:
    """The type hint that the trainer turns into a schema."""
    if schema.get("type") == "array":
        return list[_hint(schema.get("items", {}))]  # type: ignore[misc]
    options = [_hint(each) for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    kind = schema.get("type")
    return options[0] if len(options) == 1 else _TYPES.get(kind if isinstance(kind, str) else None, Any)


def _docstring(description: str, properties: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [re.sub(r"\b(Args|Returns|Raises):", r"\1 -", description)]  # titles of sections
    if properties:
        lines += ["", "Args:"]
    lines += [f"    {name}: {_described(name, each)}" for name, each in properties.items()]
    return "\n".join(lines)


def _described(name: str, schema: Mapping[str, Any]) -> str:
    choices = schema.get("enum", ())
    text = " ".join(str(schema.get("description") or name).split())
    if choices and all(isinstance(each, str) for each in choices):
        text += f" (choices: {json.dumps(choices)})"
    return text
