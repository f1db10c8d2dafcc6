"""What a tool takes and what it returns: its definition, and checks of its results."""

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from ors._json import dumps, problems
from ors.errors import InvalidEnvironment, ToolError
from ors.types import Block, TextBlock, ToolOutput, ToolSpec

Returned = ToolOutput | str | Sequence[Block]
"""What an author's tool may return."""
Run = Returned | Awaitable[Returned]
"""The same of a tool that may be `async def`."""

ALLOWED = "a tool returns a ToolOutput, a str or a list of blocks"
_BLOCKS = get_args(Block)


def check_annotation(where: str, function: Any, hints: dict[str, Any]) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        wrong = f" is a generator: {ALLOWED}, all at once; replace `yield` with `return`"
    elif "return" not in hints:
        wrong = ": a tool needs a return annotation, such as `-> ToolOutput` or `-> str`"
    elif not _allowed(hints["return"]):
        wrong = f": {ALLOWED}, but its annotation says {_shown(hints['return'])}"
    else:
        return
    raise InvalidEnvironment(where + wrong)


def _allowed(hint: Any) -> bool:
    value = getattr(hint, "__value__", hint)  # of an alias, such as Blocks
    origin, parts = get_origin(value), get_args(value)
    if origin in (Union, UnionType):
        return all(map(_allowed, parts))
    if origin is Annotated:
        return _allowed(parts[0])
    if origin in (list, tuple, Sequence):
        return all(part is ... or _is_block(part) for part in parts)
    return inspect.isclass(value) and issubclass(value, ToolOutput | str)


def _is_block(hint: Any) -> bool:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return all(inspect.isclass(part) and issubclass(part, _BLOCKS) for part in parts)


def _shown(hint: Any) -> str:
    return hint.__name__ if inspect.isclass(hint) and not get_args(hint) else repr(hint)


def checked(name: str, output: Any) -> ToolOutput:
    if isinstance(output, ToolOutput):
        return output
    if isinstance(output, str):
        return ToolOutput(blocks=[TextBlock(text=output)])
    if not isinstance(output, list | tuple):
        raise TypeError(f"{name!r} returned {_kind(output)}, but {ALLOWED}{_missing(output)}")
    for number, block in enumerate(output):
        if not isinstance(block, _BLOCKS):
            wrong = f"item {number} is {_kind(block)}, not a TextBlock or an ImageBlock"
            raise TypeError(f"{name!r} returned a list, but its {wrong}")
    return ToolOutput(blocks=list(output))


def _missing(output: Any) -> str:
    if inspect.iscoroutine(output):
        output.close()  # otherwise Python warns that it was never awaited
        return "; is an `await` missing?"
    return "; is a `return` missing?" if output is None else ""


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


# ── The definition of a tool ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ToolDef:
    spec: ToolSpec
    shared: bool
    concurrent: bool
    timeout: float | None
    truncate: bool
    toolset: type | None
    terminal: bool
    is_async: bool
    direct: bool
    """Whether `function(env, ...)` is the whole call: a shared tool, defined on the class itself."""
    validator: Any  # SchemaValidator, or one of a plugin of pydantic; None without an input
    """The model's validator, cached: the lookup by its class takes 0.15 µs."""
    fields: tuple[tuple[str, str], ...] | None
    """Parameters and their fields of the model; None if the tool takes the model itself."""

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any] | BaseModel | None:
        if self.validator is None:
            return None
        try:
            value: BaseModel = self.validator.validate_python(given)
        except ValidationError:
            value = self._read_as_json(self.validator, given)
        if self.fields is None:
            return value
        arguments = {}  # by a loop, since CPython 3.11 calls a comprehension as a function
        for parameter, field in self.fields:
            arguments[parameter] = getattr(value, field)
        return arguments

    def _read_as_json(self, validator: Any, given: Mapping[str, Any]) -> BaseModel:
        try:
            # The input was JSON, so the rules for JSON apply: a strict model accepts dates as strings.
            return validator.validate_json(dumps(given))  # type: ignore[no-any-return]
        except ValidationError as error:
            text = f"Tool input validation error: {problems(error, root='input')}"
            raise ToolError(text, reason="input_validation") from None


def define(owner: type, name: str, raw: Any, toolset: type | None) -> ToolDef:
    function = getattr(raw, "__func__", raw)  # the function in a classmethod or staticmethod
    where = f"{owner.__name__}.{name}"
    real = inspect.unwrap(function)
    try:
        hints = get_type_hints(real, include_extras=True)
    except Exception as error:
        how = "import it in this module, outside `if TYPE_CHECKING`"
        raise InvalidEnvironment(f"{where}: its annotations cannot be resolved: {error}; {how}") from error
    parameters = list(inspect.signature(real).parameters.values())
    if not isinstance(raw, staticmethod):
        parameters = _after_self(where, parameters, hints)
    check_annotation(where, real, hints)
    model, fields = _input_model(where, parameters, hints)
    spec = ToolSpec(
        name=name,
        description=(inspect.getdoc(getattr(owner, name)) or "").strip(),
        input_schema=_schema(where, model),
    )
    shared, is_async = setting(raw, "_env_tool_shared", True), inspect.iscoroutinefunction(function)
    return ToolDef(
        spec=spec,
        shared=shared,
        concurrent=setting(raw, "_env_tool_concurrent", False),
        timeout=setting(raw, "_env_tool_timeout", None),
        truncate=setting(raw, "_env_tool_truncate", False),
        toolset=toolset,
        terminal=setting(raw, "_env_tool_terminal", False),
        is_async=is_async,
        direct=shared and toolset is None and type(raw) is FunctionType,
        validator=None if model is None else model.__pydantic_validator__,  # complete, since the schema is
        fields=fields,
    )


def _after_self(
    where: str, parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> list[inspect.Parameter]:
    first = parameters[0].name if parameters else None
    if first is None or (first not in ("self", "cls") and hints.get(first, Any) is not Any):
        found = "it has none" if first is None else f"its first is {first!r}"
        raise InvalidEnvironment(f"{where}: the first parameter of a method is `self`, but {found}")
    return parameters[1:]


def _input_model(
    where: str, parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> tuple[type[BaseModel] | None, tuple[tuple[str, str], ...] | None]:
    if not parameters:
        return None, None
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidEnvironment(f"{where}: a tool takes named parameters only, not {parameter}")
        if parameter.name not in hints:
            raise InvalidEnvironment(f"{where}: the parameter {parameter.name!r} needs a type annotation")
    only = hints[parameters[0].name]
    takes_model = len(parameters) == 1 and inspect.isclass(only) and issubclass(only, BaseModel)
    if takes_model and parameters[0].kind is not inspect.Parameter.KEYWORD_ONLY:
        return only, None
    return _model_of_parameters(where, parameters, hints)


def _model_of_parameters(
    where: str, parameters: list[inspect.Parameter], hints: dict[str, Any]
) -> tuple[type[BaseModel], tuple[tuple[str, str], ...]]:
    # The alias is the parameter's name. The field has another one, since a parameter may be called `json` or
    # `_x`, and a field of a model may not.
    fields = tuple((parameter.name, f"p{number}") for number, parameter in enumerate(parameters))
    definitions: dict[str, Any] = {
        field: _field(parameter, hints[parameter.name])
        for parameter, (_, field) in zip(parameters, fields, strict=True)
    }
    title = where.rpartition(".")[2]
    try:
        model = create_model(title, __config__=ConfigDict(extra="forbid", title=title), **definitions)
    except Exception as error:
        why = f"{str(error).partition('. ')[0]}; use types that JSON has, or pydantic models"
        raise InvalidEnvironment(f"{where}: no input model can be made of its parameters: {why}") from error
    return model, fields


def _field(parameter: inspect.Parameter, hint: Any) -> tuple[Any, Any]:
    default = parameter.default
    if isinstance(default, FieldInfo):  # `tries: int = Field(default=3, ge=1)`
        return Annotated[hint, default], Field(alias=parameter.name)
    if default is inspect.Parameter.empty:
        return hint, Field(alias=parameter.name)
    return hint, Field(default=default, alias=parameter.name)


def _schema(where: str, model: type[BaseModel] | None) -> dict[str, Any] | None:
    if model is None:
        return None
    try:
        return model.model_json_schema()
    except Exception as error:
        raise InvalidEnvironment(f"{where}: no JSON schema can be made of its input: {error}") from error


def setting(raw: Any, name: str, default: Any) -> Any:
    # On the function, or on the classmethod or staticmethod around it: both orders of decorators work.
    return getattr(raw, name, getattr(getattr(raw, "__func__", None), name, default))
