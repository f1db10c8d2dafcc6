"""Return values of tools: a ToolOutput, a string, or a list of blocks."""

import inspect
from collections.abc import Awaitable, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from ors.errors import InvalidEnvironment
from ors.types import Block, ImageBlock, TextBlock, ToolOutput

Returned = ToolOutput | str | Sequence[Block]
"""What an author's tool may return."""
Run = Returned | Awaitable[Returned]
"""The same of a tool that may be `async def`."""

ALLOWED = "a tool returns a ToolOutput, a str or a list of blocks"
_BLOCKS = (TextBlock, ImageBlock)


def check_annotation(where: str, function: Any, hints: dict[str, Any]) -> None:
    """Checks the return annotation of a tool.

    Raises:
        InvalidEnvironment: there is none, it allows other values, or the function is a generator.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidEnvironment(
            f"{where} is a generator: {ALLOWED}, all at once; replace `yield` by `return`"
        )
    if "return" not in hints:
        raise InvalidEnvironment(
            f"{where}: a tool needs a return annotation, such as `-> ToolOutput` or `-> str`"
        )
    if not _allowed(hints["return"]):
        raise InvalidEnvironment(f"{where}: {ALLOWED}, but its annotation says {_shown(hints['return'])}")


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
    """Makes a ToolOutput of what the tool `name` returned.

    Raises:
        TypeError: it returned something else than a ToolOutput, a string or a list of blocks.
    """
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
