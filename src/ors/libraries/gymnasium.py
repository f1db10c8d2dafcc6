"""The environments of Gymnasium: one tool, `step`, whose rewards add up to the return."""

import json
import math
import re
from contextlib import suppress
from inspect import cleandoc
from typing import Any, ClassVar, Literal

import gymnasium
import numpy
from gymnasium import spaces
from pydantic import ConfigDict

from ors.environment import Environment, tool
from ors.errors import ToolError
from ors.libraries.seeded import Seeded, seed_of, subclass
from ors.types import Block, ImageBlock, ListToolsOutput, TextBlock, ToolOutput, ToolSpec

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NOT_FOR_PLAYERS = re.compile(r"^ *#+ *(Arguments|References|Version History).*", re.MULTILINE | re.DOTALL)
FRAMES = ("rgb_array", "ansi")


class Gym(Seeded, Environment):
    """An environment of Gymnasium. Frames are images where it can render them, or else text."""

    class Config(Seeded.Config):
        model_config = ConfigDict(extra="allow")  # arguments of gymnasium.make
        render_mode: Literal["auto", "rgb_array", "ansi", "none"] = "auto"

    _frames: ClassVar[str | None] = None
    """How frames are rendered."""

    @classmethod
    def startup(cls) -> None:
        wanted = FRAMES if cls.config.render_mode == "auto" else (cls.config.render_mode,)
        cls._frames = next((mode for mode in wanted if cls._renders(mode)), None)

    @classmethod
    def _renders(cls, mode: str) -> bool:
        # Rendering may need packages that the environment itself does not.
        with suppress(Exception):
            env = cls._made(mode)
            try:
                env.reset(seed=0)
                return env.render() is not None
            finally:
                env.close()
        return False

    @classmethod
    def _made(cls, mode: str | None = None) -> Any:
        frames = {"render_mode": mode} if mode else {}
        return gymnasium.make(cls.of, **frames, **(cls.config.model_extra or {}))

    @classmethod
    def check(cls) -> object:
        return cls.list_tools()

    @classmethod
    def list_tools(cls) -> ListToolsOutput:
        env = cls._made()
        env.close()
        action = {"description": str(env.action_space), **_schema(env.action_space)}
        schema: dict[str, Any] = {"type": "object", "properties": {"action": action}, "required": ["action"]}
        step = ToolSpec(name="step", description="Take one action.", input_schema=schema)
        return ListToolsOutput(tools=[step])

    def setup(self) -> None:
        self._env = self._made(self._frames)
        observation, _ = self._env.reset(seed=seed_of(self.task_spec))
        self._first = self._shown(observation)

    def teardown(self) -> None:
        if hasattr(self, "_env"):
            self._env.close()

    def get_prompt(self) -> list[Block]:
        about = NOT_FOR_PLAYERS.sub("", cleandoc(self._env.unwrapped.__doc__ or self.of)).strip()
        asked = f"Play by calling the tool step with an action of {self._env.action_space}, until it is over."
        return [TextBlock(f"{about}\n\n{asked}"), *self._first]

    @tool
    def step(self, action: Any) -> ToolOutput:
        """Take one action."""
        try:
            taken = _cast(self._env.action_space, action)
        except (TypeError, ValueError, OverflowError):
            taken = None
        if taken is None or not self._env.action_space.contains(taken):
            raise ToolError(f"{action!r:.200} is not an action of {self._env.action_space}")
        observation, reward, terminated, truncated, _ = self._env.step(taken)
        how = {"terminated": bool(terminated), "truncated": bool(truncated)}
        over = bool(terminated or truncated)
        return ToolOutput(self._shown(observation), how, reward=float(reward), finished=over)

    def _shown(self, observation: Any) -> list[Block]:
        is_image = getattr(observation, "dtype", None) == numpy.uint8 and len(observation.shape) == 3
        if is_image and observation.shape[2] in (1, 3, 4):
            return [ImageBlock.of(numpy.ascontiguousarray(observation))]
        blocks: list[Block] = [TextBlock(f"Observation: {json.dumps(_plain(observation))}")]
        frame = self._env.render() if self._frames else None
        if isinstance(frame, str):
            blocks.append(TextBlock(ESCAPES.sub("", frame)))
        elif frame is not None:
            blocks.append(ImageBlock.of(numpy.ascontiguousarray(frame)))
        return blocks


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, numpy.ndarray | numpy.generic):
        return _plain(value.tolist())
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _schema(space: Any) -> dict[str, Any]:
    match space:
        case spaces.Discrete():
            first = int(space.start)
            return {"type": "integer", "minimum": first, "maximum": first + int(space.n) - 1}
        case spaces.Text():
            return {"type": "string", "minLength": space.min_length, "maxLength": space.max_length}
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            made: dict[str, Any] = {"type": "number" if space.dtype.kind == "f" else "integer"}
            for length in reversed(space.shape):
                made = {"type": "array", "items": made, "minItems": length, "maxItems": length}
            return made
    raise ValueError(f"actions of the type {type(space).__name__} are not supported")


def _cast(space: Any, value: Any) -> Any:
    """A value as the space has it; an action of another type would be refused."""
    if isinstance(space, spaces.Text):
        return value
    made = numpy.asarray(value, dtype=space.dtype)
    if made.dtype.kind in "iu" and not numpy.array_equal(numpy.asarray(value, dtype=float), made):
        return None  # 1.7 is not the action 1
    return made[()] if isinstance(space, spaces.Discrete) else made


def environment(name: str) -> Any:
    return subclass(Gym, name, of=name)


def names() -> list[str]:
    return list(gymnasium.registry)
