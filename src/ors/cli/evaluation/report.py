"""The end of an evaluation: its figures, and what they mean for the exit code."""

from dataclasses import dataclass

from ors.cli.errors import shown_path
from ors.rollouts.records import Estimate, Run, summarize


@dataclass(frozen=True)
class Verdict:
    """Whether an evaluation passes."""

    code: int = 0
    why: str = ""


def verdict(run: Run, *, fail_under: float | None, max_failed: float) -> Verdict:
    """Judges a run: 3 if too many episodes failed for infrastructure, 1 if the mean reward is too low."""
    lost = sum(entry.is_lost for entry in run.entries)
    if lost > max_failed * len(run.entries):
        again = f"ors eval --resume {shown_path(run.folder)}"
        return Verdict(3, f"{lost:,} of {len(run.entries):,} episodes failed for infrastructure; again: {again}")
    mean = summarize(run.entries).reward
    if fail_under is not None and (mean is None or mean.mean < fail_under):
        shown = "there is no reward" if mean is None else f"the mean reward is {mean.mean:.4g}"
        return Verdict(1, f"{shown}, and --fail-under is {fail_under:g}")
    return Verdict()


def interval(estimate: Estimate | None) -> str:
    """A mean with the half of its interval, for people."""
    if estimate is None:
        return "-"
    reach = "" if estimate.high is None else f" ± {estimate.high - estimate.mean:.3f}"
    return f"{estimate.mean:.3f}{reach}"


def amount(count: int) -> str:
    """A large number in three digits: 12.3k, 4.56M."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
