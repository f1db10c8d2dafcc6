"""Named rewards: what a name and a value may be, how they are read, and what an environment declares."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite
from typing import Any

from pydantic_core import SchemaValidator, ValidationError
from pydantic_core.core_schema import dict_schema, float_schema, str_schema

REWARD_COMPONENTS = "reward_components"
"""The key of a result's metadata that holds named rewards. Other packages use it too."""
MOST_COMPONENTS = 64
"""Named rewards of one result, at most."""
LONGEST_COMPONENT = 64
"""Characters of the name of a reward, at most."""
_USUAL = SchemaValidator(  # checks and copies in less time than a loop
    dict_schema(
        str_schema(strict=True, max_length=LONGEST_COMPONENT, pattern=r"^([^\p{C}\p{Z}]| )+$"),
        float_schema(strict=True, allow_inf_nan=False),
        max_length=MOST_COMPONENTS,
    )
)
_NOT_A_NAME = f"is not a name: use 1 to {LONGEST_COMPONENT} printable characters"


class NamedRewards(dict[str, float]):
    """Named rewards that have been checked."""

    __slots__ = ()


def reward_components(metadata: Mapping[str, Any] | None) -> dict[str, float]:
    """The named rewards in the metadata of any server's result. Whatever else is there is left out."""
    found = metadata.get(REWARD_COMPONENTS) if metadata else None
    if type(found) is NamedRewards:
        return found
    if not isinstance(found, Mapping) or len(found) > MOST_COMPONENTS:
        return {}
    try:
        usual: dict[str, float] = _USUAL.validate_python(found)
    except ValidationError:
        return {name: float(each) for name, each in found.items() if is_component(name) and is_finite(each)}
    return usual


def is_component(name: object) -> bool:
    """Whether this can be the name of a reward."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_COMPONENT and name.isprintable()


def is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except (TypeError, ValueError, OverflowError):  # not a number, or beyond all floats
        return False


def named_rewards(rewards: Mapping[str, float]) -> tuple[NamedRewards, float]:
    """The rewards that an author names, and their sum. Raises ValueError if one is not allowed."""
    try:
        named = NamedRewards(_USUAL.validate_python(rewards))
    except ValidationError:  # numbers of other kinds, if not a fault
        if fault := _fault(rewards):
            raise ValueError(f"rewards: {fault}") from None
        named = NamedRewards({name: float(value) for name, value in rewards.items()})
    try:
        return named, fsum(named.values())
    except OverflowError:
        raise ValueError("rewards: their sum is too large for a number") from None


def _fault(rewards: Any) -> str:
    if not isinstance(rewards, Mapping):
        return f"give a dictionary of names and numbers, such as {{'correct': 1.0}}, not {rewards!r:.100}"
    if len(rewards) > MOST_COMPONENTS:
        return f"{len(rewards)} names are too many; the limit is {MOST_COMPONENTS}"
    for name, value in rewards.items():
        if not is_component(name):
            return f"{name!r:.100} {_NOT_A_NAME}"
        if not is_finite(value):
            return f"{name!r} is {value!r:.100}, not a finite number"
    return ""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """What an environment declares of its rewards."""

    range: tuple[float, float] | None = None
    """The least and the highest reward of an episode; None if it is not declared."""
    components: Mapping[str, str] = field(default_factory=dict)
    """The names of its rewards, each with a sentence about it."""

    @classmethod
    def of(cls, bounds: Any, components: Any) -> "RewardSpec":
        """Reads a declaration: `reward_range` and `reward_components` of a class. Raises ValueError."""
        if bounds is not None and not _is_range(bounds):
            raise ValueError(f"reward_range: {bounds!r:.100} is not (least, highest), such as (0, 1)")
        components = components or {}
        if not isinstance(components, Mapping):
            wanted = "names and sentences, such as {'correct': 'Whether the answer is right.'}"
            raise ValueError(f"reward_components: give {wanted}, not {components!r:.100}")
        if (count := len(components)) > MOST_COMPONENTS:
            raise ValueError(f"reward_components: {count} are too many; the limit is {MOST_COMPONENTS}")
        for name, sentence in components.items():
            if not is_component(name):
                raise ValueError(f"reward_components: {name!r:.100} {_NOT_A_NAME}")
            if not isinstance(sentence, str) or not sentence.strip():
                raise ValueError(f"reward_components: {name!r} needs a sentence, not {sentence!r:.100}")
        return cls(None if bounds is None else (float(bounds[0]), float(bounds[1])), dict(components))

    def misfit(self, total: float, last: float, names: Iterable[str]) -> str:
        """What contradicts the declaration in an episode; empty if nothing does.

        Of its rewards, the sum or the last one must be in the range: whoever plays chooses which counts.
        """
        if self.range is not None:
            least, highest = self.range
            if not (least <= round(total, 9) <= highest or least <= last <= highest):
                return f"the reward {total:g} is outside reward_range ({least:g}, {highest:g})"
        unknown = [name for name in names if name not in self.components] if self.components else []
        return f"the reward {unknown[0]!r} is not in reward_components" if unknown else ""


def _is_range(given: Any) -> bool:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or len(given) != 2:
        return False
    return all(map(is_finite, given)) and given[0] < given[1]
