"""The datasets of reasoning-gym: questions from generators, and answers that a scorer checks."""

import re
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from pydantic import ConfigDict, Field, create_model
from reasoning_gym.factory import DATASETS, create_dataset

from ors.environment import Environment, tool
from ors.errors import InvalidEnvironment
from ors.libraries.seeded import OwnRandom, Seeded, seed_of, subclass
from ors.types import JSONObject, ToolOutput

NONSENSE = "?!"
ASKED = "Call the tool submit with the answer alone: text around it makes it wrong."
OURS = ("seed", "size")
"""Settings of a dataset that the splits decide."""


class Dataset(Seeded, Environment):
    """A dataset of reasoning-gym. A task is one question, and the answer is submitted once."""

    reward_range = (0.0, 1.0)

    @classmethod
    def check(cls) -> object:
        return cls._generated(0)

    @classmethod
    def _generated(cls, seed: int) -> tuple[Any, dict[str, Any]]:
        """A dataset that begins with this seed, and its first entry. Not shared: some change when asked."""
        settings = {name: getattr(cls.config, name) for name in type(cls.config).model_fields}
        with OwnRandom(seed):
            data = create_dataset(cls.of, **{**settings, "seed": seed, "size": 1})
            return data, data[0]

    def setup(self) -> None:
        self._data, self._entry = self._generated(seed_of(self.task_spec))

    def get_prompt(self) -> str:
        return f"{self._entry['question']}\n\n{ASKED}"

    @tool
    def submit(self, answer: str) -> ToolOutput:
        """Submit the answer alone, without any text around it. It ends the episode."""
        return ToolOutput("Submitted.", reward=score(self._data, self._entry, answer), finished=True)

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        return [("submit", {"answer": cls._generated(seed_of(task_spec))[1]["answer"]})]


def score(data: Any, entry: dict[str, Any], answer: str) -> float:
    """The score of an answer, from 0 to 1.

    Many scorers give `len(key) / len(answer)` or more to an answer that contains the key, and so reward lists
    of guesses. Here such an answer earns 1 if the scorer takes it as right and it says nothing else ("12.0"
    for "12"), otherwise 0. One scorer takes every answer as right: there only the key is.
    """
    key, answer = entry["answer"], answer.strip()
    if key is not None and answer == key.strip():
        return _scored(data, entry, key)
    if not answer or _scored(data, entry, NONSENSE) == 1.0:
        return 0.0
    if key is None:
        return _scored(data, entry, answer)
    before, found, after = answer.casefold().partition(key.strip().casefold())
    if found and (_scored(data, entry, answer) < 1.0 or re.search(r"[^\W0]", before + after)):
        return 0.0
    return _scored(data, entry, answer)


def _scored(data: Any, entry: dict[str, Any], answer: str) -> float:
    try:
        return min(1.0, max(0.0, float(data.score_answer(answer, entry))))
    except Exception:  # of a scorer that cannot read the answer
        return 0.0


def environment(name: str) -> Any:
    if name not in DATASETS:
        raise InvalidEnvironment(f"reasoning-gym has no dataset {name!r}: see `ors list reasoning_gym:`")
    made = subclass(Dataset, name, of=name, Config=_parameters(name))
    try:
        known = made._generated(0)[1]["answer"] is not None
    except Exception:
        known = True  # it needs parameters
    if not known:
        made.solve = None  # only the scorer knows what is right
    return made


def names() -> list[str]:
    return list(DATASETS)


def _parameters(name: str) -> Any:
    settings = DATASETS[name][1]
    types: dict[str, Any] = get_type_hints(settings)
    known: list[Any] = [each for each in fields(settings) if each.name not in OURS]
    given: dict[str, Any] = {}
    for each in known:
        made = each.default is MISSING
        default = Field(default_factory=each.default_factory) if made else each.default
        given[each.name] = (types[each.name], default)

    class Config(Seeded.Config):
        model_config = ConfigDict(arbitrary_types_allowed=True)

    return create_model("Config", __base__=Config, **given)
