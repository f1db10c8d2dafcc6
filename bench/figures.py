"""The figures of one comparison, round by round, and what they come to."""

from dataclasses import dataclass
from statistics import median

from bench.rows import Row
from bench.servers import Subject


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our figure relative to another one: the median over the rounds, and the spread."""

    middle: float
    low: float
    high: float


class Figures:
    """Values by row and subject, one per round."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Subject, list[float]]] = {}
        self._noise: dict[str, list[float]] = {}

    def add(self, row: str, subject: Subject, value: float, noise: float = 0.0) -> None:
        """Notes one round's value, and how much others took of the machine meanwhile."""
        self._values.setdefault(row, {}).setdefault(subject, []).append(value)
        self._noise.setdefault(row, []).append(noise)

    def noise(self, row: Row | None = None) -> float:
        """What others took of the machine while a row was measured, or all of them."""
        if row is not None:
            return median(self._noise[row.key])
        return median(share for shares in self._noise.values() for share in shares)

    def has(self, row: Row) -> bool:
        """Whether the row was measured."""
        return row.key in self._values

    def middle(self, row: Row, subject: Subject) -> float | None:
        """The median over the rounds."""
        values = self._values.get(row.key, {}).get(subject)
        return median(values) if values else None

    def ratio(self, row: Row, other: Subject) -> Ratio | None:
        """Ours relative to the other's, compared within each round."""
        values = self._values.get(row.key, {})
        pairs = zip(values.get("ours", ()), values.get(other, ()), strict=False)
        ratios = [ours / theirs for ours, theirs in pairs if theirs]
        return Ratio(median(ratios), min(ratios), max(ratios)) if ratios else None

    def misses(self, row: Row) -> list[str]:
        """What the row is meant to reach and does not."""
        missed = []
        for other, target in (("reference", row.reference), ("floor", row.floor)):
            ratio = self.ratio(row, other)  # type: ignore[arg-type]
            if target is None or ratio is None:
                continue
            if ratio.middle < target if row.more_is_better else ratio.middle > target:
                missed.append(f"{ratio.middle:.2f} of the {other}, meant to be {target:g}")
        ours = self.middle(row, "ours")
        if row.at_most is not None and ours is not None and ours > row.at_most:
            missed.append(f"{ours:.2f} {row.unit}, meant to be at most {row.at_most:g}")
        return missed

    def as_json(self) -> dict[str, dict[str, list[float]]]:
        """All values, and the noise, round by round."""
        return {
            key: {"noise": self._noise[key], **{str(subject): found for subject, found in values.items()}}
            for key, values in self._values.items()
        }
