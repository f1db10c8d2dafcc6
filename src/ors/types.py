"""The wire models of the Open Reward Standard, shared by server and client."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, assert_never

from pydantic import BaseModel, Field, RootModel, StrictInt, model_validator
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from ors._rewards import REWARD_COMPONENTS, RewardSpec, is_component, named_rewards, reward_components

__all__ = [
    "Block",
    "Blocks",
    "CreateSession",
    "ForkSession",
    "GetTask",
    "GetTaskRange",
    "ImageBlock",
    "JSONObject",
    "JSONValue",
    "ListTasks",
    "ListToolsOutput",
    "NumTasks",
    "RewardSpec",
    "RunToolError",
    "RunToolOutput",
    "RunToolSuccess",
    "Split",
    "SplitType",
    "TerminalToolSpec",
    "TextBlock",
    "ToolCall",
    "ToolOutput",
    "ToolSpec",
    "described",
    "is_component",
    "reward_components",
    "text_and_images",
]

JSONValue = TypeAliasType("JSONValue", Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None)
"""Anything that JSON can say."""
JSONObject = Mapping[str, JSONValue]
"""A JSON object, such as a task."""

# Models that authors create forbid unknown fields, so that `finshed=True` is an error.
# Models that clients send ignore them (PROTOCOL: unknown body keys).


class TextBlock(BaseModel, extra="forbid"):
    """A piece of text in a prompt or in a tool's output."""

    text: str
    detail: JSONObject | None = None
    type: Literal["text"] = "text"

    def __init__(self, text: str, **more: Any) -> None:
        more["text"] = text
        # What BaseModel's constructor does: calling that one too would take 0.2 µs of every call.
        self.__pydantic_validator__.validate_python(more, self_instance=self)

    # pydantic's mark: without it, every validation would call the constructor.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


class ImageBlock(BaseModel, extra="forbid"):
    """A base64-encoded image in a prompt or in a tool's output."""

    data: str
    mimeType: str
    detail: JSONObject | None = None
    type: Literal["image"] = "image"

    @classmethod
    def of(cls, source: Any, *, detail: JSONObject | None = None) -> Self:
        """Makes a block of a PIL image, an array, a path, or the bytes of a PNG, JPEG, WebP or GIF file.

        An array holds uint8: height x width for grey, and a third axis of 3 for RGB or 4 for RGBA.

        Raises:
            ValueError: the image is of no known kind. TypeError: the source is something else.
            OSError: the file cannot be read.
        """
        from base64 import b64encode  # late, as few processes make images

        from ors._images import encoded

        content, mime = encoded(source)
        return cls(data=b64encode(content).decode(), mimeType=mime, detail=detail)


Block = TextBlock | ImageBlock
"""Every kind of block. A new kind is added here."""

# A list, not a Sequence: pydantic validates it in 60% of the time, and accepts any sequence as well.
Blocks = TypeAliasType("Blocks", list[Block])
"""A prompt, or the content of a tool's output."""


def described(blocks: Sequence[Block]) -> str:
    """All blocks as text, one below the other. Those that are none are named."""
    return "\n".join(map(_described, blocks))


def _described(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case ImageBlock():
            return f"[image of type {block.mimeType}]"
        case _:
            assert_never(block)


def text_and_images(blocks: Sequence[Block]) -> tuple[str, list[ImageBlock]]:
    """The text of all blocks, one below the other, and their images."""
    texts: list[str] = []
    images: list[ImageBlock] = []
    for block in blocks:
        match block:
            case TextBlock():
                texts.append(block.text)
            case ImageBlock():
                images.append(block)
            case _:
                assert_never(block)
    return "\n".join(texts), images


class ToolOutput(BaseModel, extra="forbid"):
    """The return value of a tool: blocks for the agent, the reward, and whether the episode is finished.

    `rewards` names the parts of the reward, such as `{"correct": 1.0, "format": 0.2}`. Their sum is the
    reward, unless `reward` is given too.
    """

    blocks: Blocks
    metadata: JSONObject | None = None
    reward: float | None = None
    finished: bool = False

    def __init__(
        self,
        blocks: Blocks | str,
        metadata: JSONObject | None = None,
        reward: float | None = None,
        finished: bool = False,
        rewards: Mapping[str, float] | None = None,
        **more: Any,  # refused, with a message that names it
    ) -> None:
        more["blocks"] = [TextBlock(blocks)] if isinstance(blocks, str) else blocks
        if metadata is not None:
            more["metadata"] = metadata
        if rewards:
            named, total = named_rewards(rewards)
            reward = total if reward is None else reward
        if reward is not None:
            more["reward"] = reward
        if finished is not False:
            more["finished"] = finished
        self.__pydantic_validator__.validate_python(more, self_instance=self)
        if rewards:  # past pydantic, which would take 2 µs to check them again
            parts = {REWARD_COMPONENTS: named}
            self.__dict__["metadata"] = {**metadata, **parts} if metadata else parts
            self.__pydantic_fields_set__.add("metadata")

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @property
    def rewards(self) -> dict[str, float]:
        """The named rewards, which travel in `metadata`; empty if there are none."""
        return reward_components(self.metadata) if self.metadata else {}


class RunToolSuccess(BaseModel, extra="forbid"):
    """The envelope of a call whose tool returned."""

    ok: Literal[True] = True
    output: ToolOutput


class RunToolError(BaseModel, extra="forbid"):
    """The envelope of a call that was refused; the agent can try again."""

    ok: Literal[False] = False
    error: str
    reason: str | None = None


class RunToolOutput(RootModel[RunToolSuccess | RunToolError]):
    """The result of a call, as the `chunk` and `end` events carry it."""

    root: RunToolSuccess | RunToolError = Field(discriminator="ok")


class ToolSpec(BaseModel, extra="forbid"):
    """A tool as agents see it."""

    name: str
    description: str
    input_schema: JSONObject | None = None


class TerminalToolSpec(BaseModel, extra="forbid"):
    """The tool that ends an episode with the agent's last message, which goes into `arg`.

    Not in the specification: openreward 0.1.157 has it, and existing environments use it.
    """

    name: str
    arg: str | None = None
    description: str = ""

    def as_tool(self) -> ToolSpec:
        """The same as an ordinary tool, which takes the message as a string, or nothing."""
        schema: JSONObject | None = None
        if self.arg is not None:
            message = {"type": "string", "description": "The agent's last message."}
            schema = {"type": "object", "properties": {self.arg: message}, "required": [self.arg]}
        return ToolSpec(name=self.name, description=self.description, input_schema=schema)


class ListToolsOutput(BaseModel, extra="forbid"):
    """The answer of `/{env}/tools` and `/{env}/task_tools`."""

    tools: list[ToolSpec]
    terminal_tool: TerminalToolSpec | None = None
    required_secrets: list[str] | None = None
    reward_range: tuple[float, float] | None = None
    reward_components: dict[str, str] | None = None


SplitType = Literal["train", "validation", "test"]


class Split(BaseModel, extra="forbid"):
    """A named set of tasks."""

    name: str
    type: SplitType


class ToolCall(BaseModel):
    """The body of `/{env}/call`."""

    name: str
    input: JSONObject
    task_id: str | None = None


class CreateSession(BaseModel):
    """The body of `/create`: a task, either whole or by split and index."""

    env_name: str | None = None
    task_spec: JSONObject | None = None
    split: str | None = None
    index: StrictInt | None = None
    secrets: Mapping[str, str] | None = Field(default=None, repr=False)
    toolset_name: SkipJsonSchema[str | None] = None
    """openreward 0.1.167: tools that its client asks for, beside those of the environment."""

    @model_validator(mode="after")
    def check_task_source(self) -> Self:
        """Checks that the task has one source, and that it is complete."""
        if (self.split is None) != (self.index is None):
            raise ValueError("split and index must be given together")
        if (self.task_spec is None) == (self.split is None):
            raise ValueError("give either task_spec or split and index")
        return self


MOST_FORKS = 1024
"""Sessions that one fork makes, at most."""


class ForkSession(BaseModel):
    """The body of `/-/fork`: how many new sessions to make."""

    n: StrictInt = Field(ge=1, le=MOST_FORKS)


class ListTasks(BaseModel):
    """The body of `/{env}/tasks`."""

    split: str


class NumTasks(BaseModel):
    """The body of `/{env}/num_tasks`."""

    split: str


class GetTask(BaseModel):
    """The body of `/{env}/task`."""

    split: str
    index: StrictInt


class GetTaskRange(BaseModel):
    """The body of `/{env}/task_range`."""

    split: str
    start: StrictInt | None = None
    stop: StrictInt | None = None
