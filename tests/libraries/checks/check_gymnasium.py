"""Gymnasium: actions and observations of all spaces, frames, and how episodes end."""

from base64 import b64decode
from typing import Any

import gymnasium
import numpy
import pytest
from gymnasium import spaces

import ors.testing
from ors import ImageBlock, TextBlock
from ors.client import ToolCallError
from ors.errors import InvalidEnvironment
from ors.libraries import library_environments
from ors.libraries.gymnasium import _cast, _schema

CART = library_environments("gymnasium:CartPole-v1")[0]


def test_what_cannot_be_made_is_left_out_and_named() -> None:
    names = [cls.__name__ for cls in library_environments("gymnasium:")]
    assert {"CartPole-v1", "FrozenLake-v1", "Pendulum-v1", "Blackjack-v1", "Taxi-v4"} <= {*names}
    assert "Ant-v5" not in names
    for name, why in {"Ant-v5": "MuJoCo is not installed", "Nothing-v1": "doesn't exist"}.items():
        with pytest.raises(InvalidEnvironment, match=why):
            library_environments(f"gymnasium:{name}")[0].list_splits()


async def test_an_episode_is_the_one_that_the_library_plays() -> None:
    own: Any = gymnasium.make("CartPole-v1")
    seen, total = [own.reset(seed=1_000_002)[0]], 0.0
    async with ors.testing.session(CART, split="test", index=2) as session:
        blocks = await session.get_prompt()
        while True:
            text, image = blocks[-2:]
            assert isinstance(text, TextBlock)
            numbers = eval(text.text.partition(": ")[2])
            assert numpy.allclose(numbers, seen[-1])
            assert isinstance(image, ImageBlock)
            assert b64decode(image.data).startswith(b"\x89PNG")
            with pytest.raises(ToolCallError, match=r"is not an action of Discrete\(2\)"):
                await session.call_tool("step", {"action": 2})
            observation, reward, terminated, _, _ = own.step(0)
            output = await session.call_tool("step", {"action": 0})
            seen.append(observation)
            total += output.reward or 0.0
            blocks = output.blocks
            assert (output.reward, output.finished) == (reward, terminated)
            if terminated:
                break
    assert output.metadata == {"terminated": True, "truncated": False}
    assert total == len(seen) - 1


async def test_the_time_limit_ends_an_episode_as_truncated() -> None:
    short = library_environments("gymnasium:MountainCar-v0")[0].configured(max_episode_steps=2)
    async with ors.testing.session(short, split="train", index=0) as session:
        await session.call_tool("step", {"action": 1})
        output = await session.call_tool("step", {"action": 1})
    assert output.finished
    assert output.metadata == {"terminated": False, "truncated": True}


async def test_text_frames_have_no_escapes_and_arguments_of_make_are_parameters() -> None:
    lake = library_environments("gymnasium:FrozenLake-v1")[0]
    lake = lake.configured(render_mode="ansi", is_slippery=False, map_name="4x4")
    async with ors.testing.session(lake, split="train", index=0) as session:
        assert "SFFF\nFHFH" in (await session.get_prompt())[-1].text  # type: ignore[union-attr]
        for action in (1, 1, 2, 1, 2, 2):
            output = await session.call_tool("step", {"action": action})
    text = "".join(block.text for block in output.blocks if isinstance(block, TextBlock))
    assert "\x1b" not in text
    assert (output.reward, output.finished) == (1.0, True)


def test_other_kinds_of_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="of the type Dict"):
        _schema(spaces.Dict(a=spaces.Discrete(2)))


class Letters(gymnasium.Env):  # type: ignore[misc]
    """Say a word."""

    action_space = spaces.Text(5)
    observation_space = spaces.Box(0, 255, (4, 6, 3), numpy.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return numpy.zeros((4, 6, 3), numpy.uint8), {}

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return numpy.zeros((4, 6, 3), numpy.uint8), float(action == "hello"), True, False, {}


async def test_words_are_actions_and_pixels_images() -> None:
    gymnasium.register("own/Letters-v0", Letters)
    (cls,) = library_environments("gymnasium:own/Letters-v0")
    assert cls.name() == "own-Letters-v0"
    async with ors.testing.session(cls, split="train", index=0) as session:
        _, image = await session.get_prompt()
        assert isinstance(image, ImageBlock)
        with pytest.raises(ToolCallError, match="is not an action"):
            await session.call_tool("step", {"action": "much too long"})
        assert (await session.call_tool("step", {"action": "hello"})).reward == 1.0


@pytest.mark.parametrize(
    ("space", "right", "wrong"),
    [
        (spaces.Discrete(3, start=2), [2, 4], [1, 5, 2.5, "x", None, [2], 10**30]),
        (spaces.Box(-1, 1, (2,)), [[0.5, -1], [1, 1]], [[0.5], [2, 0], 0.5, "x", [[0, 0]]]),
        (spaces.MultiDiscrete([2, 3]), [[1, 2]], [[2, 0], [1.5, 0], [1]]),
        (spaces.MultiBinary(2), [[0, 1]], [[0, 2], [0]]),
    ],
)
def test_values_of_json_become_actions(space: Any, right: list[Any], wrong: list[Any]) -> None:
    assert _schema(space)["type"] in ("integer", "array")
    assert all(space.contains(_cast(space, value)) for value in right)
    for value in wrong:
        try:
            made = _cast(space, value)
        except (TypeError, ValueError, OverflowError):
            continue
        assert made is None or not space.contains(made)
