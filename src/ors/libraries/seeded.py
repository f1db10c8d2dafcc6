"""What libraries of generated tasks share: a task is a seed, and random numbers belong to one episode."""

import random
import sys
import threading
from types import new_class
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from ors.environment import Environment
from ors.errors import InvalidEnvironment
from ors.types import JSONObject

FIRST = {"train": 0, "test": 1_000_000}
"""The first seed of each split."""


class Seeded:
    """Splits and tasks of an environment whose task is a seed. `of` names it in its library."""

    of: ClassVar[str]
    config: ClassVar[Any]

    class Config(BaseModel):
        size: int = Field(default=1_000, ge=1, le=FIRST["test"], description="Tasks of each split.")

    _checked: ClassVar[Any] = None
    """The parameters that were tried."""

    @classmethod
    def check(cls) -> object:
        """Tries whether it can be played with its parameters: raises what is wrong."""
        return None

    @classmethod
    def list_splits(cls) -> list[str]:
        if cls._checked is not cls.config:
            try:
                cls.check()
            except Exception as error:
                name, why = f"{cls.__module__.rpartition('.')[2]}:{cls.of}", " ".join(str(error).split())
                raise InvalidEnvironment(f"{name} cannot be played here: {why:.300}") from error
            cls._checked = cls.config
        return list(FIRST)

    @classmethod
    async def num_tasks(cls, split: str) -> int:
        return int(cls.config.size)

    @classmethod
    async def get_task(cls, split: str, index: int) -> JSONObject:
        return {"seed": FIRST[split] + index}


def subclass(cls: type[Environment], name: str, **attributes: Any) -> Any:
    made = "".join(character if character not in "/?#% :" else "-" for character in name)
    space = {"__module__": cls.__module__, "__doc__": cls.__doc__, **attributes}
    space["_library"] = cls.__module__.rpartition(".")[2]
    return new_class(made, (cls,), exec_body=lambda body: body.update(space))


def seed_of(task: JSONObject) -> int:
    seed = task.get("seed")
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"a task is {{'seed': NUMBER}} with a number from 0 to 2**32 - 1, not {dict(task)}")
    return seed


class OwnRandom:
    """The state of the global random numbers of `random` and numpy, for one episode: `with own: …`.

    Some libraries use them, and episodes run at the same time: so one at a time, each from its own state.
    """

    _turn: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, seed: int) -> None:
        self._mine: Any = None
        with self:
            random.seed(seed)
            if numpy := sys.modules.get("numpy.random"):
                numpy.seed(seed)

    def __enter__(self) -> None:
        self._turn.acquire()
        self._others = _states()
        if self._mine is not None:
            _restore(self._mine)

    def __exit__(self, *_: object) -> None:
        self._mine = _states()
        _restore(self._others)
        self._turn.release()


def _states() -> tuple[Any, Any]:
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), numpy and numpy.get_state()


def _restore(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy.random"].set_state(states[1])
