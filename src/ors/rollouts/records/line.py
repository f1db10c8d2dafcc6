"""One episode as a line of JSON, from the record and back."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, assert_never, get_args

from pydantic import Field, TypeAdapter, ValidationError

from ors._identity import Identity
from ors._json import dumps, loads
from ors.providers.messages import (
    AgentMessage,
    Count,
    Message,
    Number,
    Seconds,
    SystemMessage,
    ToolInvocation,
    ToolMessage,
    Usage,
    UserMessage,
)
from ors.rollouts.episodes.episode import EpisodeRecord, TaskRef
from ors.rollouts.episodes.outcome import Outcome
from ors.rollouts.records.files import BLOB_NAME, Blobs, NewerSchema, RunError
from ors.types import Block, ImageBlock, JSONObject, TextBlock, ToolSpec

T = TypeVar("T")
SCHEMA = 1
LARGEST_IMAGE = 4 * 1024
"""Characters of base64 that stay in the line. A longer image becomes a blob."""
LARGEST_TEXT = 64 * 1024
"""Characters of a text block that stay in the line."""
LARGEST_TASK = 4 * 1024
"""Bytes of JSON of a task by index that stay in the line: the index reads past them."""
BlobName = Annotated[str, Field(pattern=BLOB_NAME)]
_TOOLS = tuple[ToolSpec, ...]
_KINDS: tuple[type[Block], ...] = get_args(Block)
_BLOCK_KEYS = {key for kind in _KINDS for key in kind.model_fields}
_SAME = ("id", "sample", "agent", "outcome", "reward", "rewards", "session", "started", "seconds", "attempts")
"""Fields that a record and its line share."""
_OPTIONAL = ("components", "version", "hash", "program")
"""Such fields that most lines do without."""


@dataclass(frozen=True, slots=True)
class LineTimes:
    """Seconds of each model request and of each call: those of the messages, for tables."""

    model: tuple[Seconds, ...] = ()
    calls: tuple[Seconds, ...] = ()


@dataclass(frozen=True, slots=True)
class Actions:
    """What the agent did, for tables: it tells episodes apart without their messages."""

    calls: Count = 0
    """Calls that the agent made. That of a terminal tool is not its own."""
    characters: Count = 0
    """Characters of its texts and of the inputs of its calls."""
    answer: str | None = None
    """Digest of its answer: the input of the last call that earned a reward or ended the episode, or its last
    text. None if it gave none."""
    sequence: str | None = None
    """Digest of all its calls, or of its answer if it made none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The keys of a line. Blocks of its messages may have a `blob` instead of their content."""

    schema: Literal[1]
    id: Annotated[str, Field(min_length=1, max_length=200)]
    environment: str
    version: str | None = None
    hash: str | None = None
    split: str | None = None
    index: Count | None = None
    sample: Count = 0
    agent: str = ""
    outcome: Annotated[Outcome, Field(discriminator="type")]
    reward: Number | None = None
    rewards: tuple[Number | None, ...] = ()
    components: dict[str, Number] = field(default_factory=dict)
    tokens: Usage = field(default_factory=Usage)
    session: str | None = None
    started: Annotated[Seconds, Field(ge=0)] = 0.0
    seconds: Seconds = 0.0
    attempts: Count = 1
    times: LineTimes = field(default_factory=LineTimes)
    actions: Actions | None = None
    """None in lines of older versions."""
    tools: BlobName | None = None
    task: JSONObject | None = None
    task_blob: BlobName | None = None
    """The same, if it is large."""
    messages: tuple[Annotated[Message, Field(discriminator="role")], ...]
    earlier: tuple[JSONObject, ...] = ()
    """Lines of earlier attempts."""
    program: JSONObject | None = None


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Validates values of a type. Made when it is first needed, which takes milliseconds."""
    return TypeAdapter(kind)


def encode(record: EpisodeRecord, blobs: Blobs, environments: Mapping[str, Identity] = {}) -> bytes:
    """Encodes a record as one line that ends with a newline; its blobs are written first.

    A record that does not know its environment's code gets that of `environments`.

    Raises:
        TypeError, ValueError: the record could not be read again.
        OSError: a blob cannot be written.
    """
    try:
        if record.hash is None and (code := environments.get(record.task.environment)) is not None:
            record = replace(record, version=code.version, hash=code.hash)
        line = dumps(_line(record, blobs)) + b"\n"
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except AttributeError as error:
        raise TypeError(f"a value of the record has the wrong type: {error}") from None
    _, read = checked(line)
    # JSON has null for what is no finite number.
    kept, given = ((each.reward, *each.rewards) for each in (read, record))
    if [each is None for each in kept] != [each is None for each in given]:
        raise ValueError("reward, rewards: each must be a finite number or None")
    return line


def record_json(record: EpisodeRecord) -> dict[str, Any]:
    """A record as JSON: the keys of its line, with everything in it that a run keeps in blobs."""
    found: dict[str, Any] = loads(dumps(_line(record, None)))
    return found


def _line(record: EpisodeRecord, blobs: Blobs | None) -> dict[str, Any]:
    """The keys of a line. Those that tables need come before the messages: the index reads no further."""
    tools: Any = record.tools
    if blobs is not None:
        tools = _put(record.tools, _TOOLS, blobs) if record.tools else None
    keys = {
        "schema": SCHEMA,
        "environment": record.task.environment,
        "split": record.task.split,
        "index": record.task.index,
        **{name: getattr(record, name) for name in _SAME},
        **{name: value for name in _OPTIONAL if (value := getattr(record, name)) not in (None, {})},
        "tokens": record.usage,
        "times": times(record.messages),
        "actions": actions(record.messages),
        "tools": tools,
        **_task(record.task, blobs),
        "messages": [_message(each, blobs) for each in record.messages],
        **({"earlier": [_line(each, blobs) for each in record.earlier]} if record.earlier else {}),
    }
    return {name: keys[name] for name in Line.__slots__ if name in keys}


def times(messages: Sequence[Message]) -> LineTimes:
    return LineTimes(
        tuple(each.seconds for each in messages if isinstance(each, AgentMessage)),
        tuple(each.seconds for each in messages if isinstance(each, ToolMessage)),
    )


def actions(messages: Sequence[Message]) -> Actions:
    made: list[tuple[str, Any]] = []
    pending: list[ToolInvocation] = []
    characters, text, answer = 0, "", None
    for message in messages:
        if isinstance(message, AgentMessage):
            pending, text = list(message.calls), message.text.strip()
            made += [(call.name, call.input) for call in pending]
            characters += len(message.text) + sum(len(dumps(call.input)) for call in pending)
        elif isinstance(message, ToolMessage):
            call = pending.pop(0) if pending else None
            if message.reward is not None or message.finished:
                answer = text if call is None else call.input
    answer = _digest(text if answer is None else answer)
    return Actions(len(made), characters, answer, _digest(made) or answer)


def _digest(value: Any) -> str | None:
    return hashlib.blake2s(dumps(value), digest_size=6).hexdigest() if value else None


def _task(task: TaskRef, blobs: Blobs | None) -> dict[str, Any]:
    """The task as keys of a line. One that was given whole stays there, since the index needs it."""
    if task.spec is None:
        return {}
    if blobs is None or task.is_whole or len(dumps(task.spec)) <= LARGEST_TASK:
        return {"task": task.spec}
    return {"task_blob": _put(task.spec, dict, blobs)}


def _put(value: Any, kind: type, blobs: Blobs) -> str:
    """Writes a value of a type as a blob; returns its name. Raises ValueError if it could not be read."""
    content = dumps(value)
    adapter(kind).validate_python(loads(content))
    return blobs.put(content)


def _message(message: Message, blobs: Blobs | None) -> Any:
    # `__slots__` has the fields in their order. asdict() would copy every value.
    fields = {name: getattr(message, name) for name in message.__slots__}
    match message:
        case SystemMessage():
            pass
        case AgentMessage():
            del fields["native"]
        case UserMessage() | ToolMessage():
            fields["blocks"] = [_block(each, blobs) for each in message.blocks]
        case _:
            assert_never(message)
    return fields


def _block(block: Block, blobs: Blobs | None) -> dict[str, Any]:
    whole = {name: value for name, value in block.__dict__.items() if value is not None}
    content: bytes | None = None
    match block:
        case TextBlock():
            if blobs is not None and len(block.text) > LARGEST_TEXT:
                content = block.text.encode(errors="surrogatepass")
        case ImageBlock():
            if blobs is not None and len(block.data) > LARGEST_IMAGE:
                content = _decoded(block.data)
        case _:
            assert_never(block)
    if blobs is None or content is None:
        return whole
    del whole[_stored(type(block))[0]]
    return {**whole, "blob": blobs.put(content)}


def _stored(kind: type[Block]) -> tuple[str, Callable[[bytes], str]]:
    """The field of a block whose content may be a blob, and how that is read."""
    if issubclass(kind, TextBlock):
        return "text", lambda content: content.decode(errors="surrogatepass")
    if issubclass(kind, ImageBlock):
        return "data", lambda content: base64.b64encode(content).decode()
    assert_never(kind)


def _decoded(data: str) -> bytes | None:
    """The bytes of an image; None if they would not give the same base64 again."""
    try:
        content = base64.b64decode(data, validate=True)
    except ValueError:
        return None
    return content if base64.b64encode(content).decode() == data else None


def decode(line: bytes, blobs: Blobs) -> EpisodeRecord:
    """Reads the record of a line. Unknown keys are ignored."""
    try:
        return _record(parsed(line), blobs)
    except RunError:
        raise
    except ValueError:
        raise RunError("a blob does not hold what the line says") from None


def _record(found: Mapping[str, Any], blobs: Blobs) -> EpisodeRecord:
    read = _read(found, blobs)
    task = read.task if read.task_blob is None else blobs.json(read.task_blob)
    return EpisodeRecord(
        **{name: getattr(read, name) for name in (*_SAME, *_OPTIONAL)},
        task=TaskRef(read.environment, read.split, read.index, task),
        messages=read.messages,
        tools=() if read.tools is None else _tools(read.tools, blobs),
        usage=read.tokens,
        earlier=tuple(_record({**each, "earlier": ()}, blobs) for each in read.earlier),
    )


def _tools(name: str, blobs: Blobs) -> tuple[ToolSpec, ...]:
    """The tools of a blob. Most episodes of a run have the same, which are read once."""
    if blobs.tools[0] != name:
        blobs.tools = name, adapter(_TOOLS).validate_python(blobs.json(name))
    return blobs.tools[1]


def checked(line: bytes) -> tuple[dict[str, Any], Line]:
    """A line as JSON, with references to its blobs, and what is read from it without them."""
    found = parsed(line)
    read = _read(found, None)
    for each in read.earlier:
        _read({**each, "earlier": ()}, None)
    return found, read


def _read(found: Mapping[str, Any], blobs: Blobs | None) -> Line:
    messages = found.get("messages")
    if isinstance(messages, list):
        messages = [_filled(each, blobs) for each in messages]
    return validated({**found, "messages": messages}, Line)


def parsed(text: bytes) -> dict[str, Any]:
    """The JSON object of a line, whose schema this version knows."""
    try:
        found = loads(text)
    except ValueError:
        raise RunError("not valid JSON, or nested too deeply") from None
    if not isinstance(found, dict):
        raise RunError("not a JSON object")
    check_schema(found.get("schema"))
    return found


def check_schema(version: object) -> None:
    """Checks that this version of the package can read a schema."""
    if isinstance(version, int) and version > SCHEMA:
        raise NewerSchema(f"schema {version} is newer than this version of ors can read: update ors")
    if version != SCHEMA:
        raise RunError(f"schema {version!r} is not {SCHEMA}")


def validated(found: Any, kind: Callable[..., T]) -> T:
    """A JSON object as a dataclass."""
    try:
        read: T = adapter(kind).validate_python(found)
        return read
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RunError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _filled(message: Any, blobs: Blobs | None) -> Any:
    """The message with the content of its blobs; without blobs, with nothing in their place."""
    if not isinstance(message, dict):
        return message
    filled = {key: value for key, value in message.items() if key != "native"}
    if isinstance(filled.get("blocks"), list):
        filled["blocks"] = [_filled_block(each, blobs) for each in filled["blocks"]]
    return filled


def _filled_block(block: Any, blobs: Blobs | None) -> Any:
    if not isinstance(block, dict):
        return block
    kept = {key: value for key, value in block.items() if key in _BLOCK_KEYS}
    kind = next((each for each in _KINDS if each.model_fields["type"].default == kept.get("type")), None)
    if isinstance(name := block.get("blob"), str) and kind is not None:
        field, read = _stored(kind)
        kept[field] = read(b"" if blobs is None else blobs.get(name))
    return kept


_BLOB = {"type": "string", "pattern": BLOB_NAME, "description": "Name of the blob with the content."}


def line_schema() -> dict[str, Any]:
    """The JSON Schema of a line of `episodes.jsonl`. Further keys are allowed."""
    schema = adapter(Line).json_schema()
    definitions = schema["$defs"]
    definitions["AgentMessage"]["properties"].pop("native")
    for kind in _KINDS:
        # A blob may stand in the place of its content.
        block, content = definitions[kind.__name__], _stored(kind)[0]
        block["properties"]["blob"] = _BLOB
        block["required"] = [*(name for name in block["required"] if name != content), "type"]
        block["oneOf"] = [{"required": [content]}, {"required": ["blob"]}]
        block.pop("additionalProperties")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"An episode of a run, schema {SCHEMA}",
        **{key: value for key, value in schema.items() if key != "title"},
    }
