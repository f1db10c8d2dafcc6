"""Rollouts of the log that have not ended: when they are written, and what happens to broken ones."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ors.recording.open_rollouts import ABANDONED_SECONDS, QUIET_SECONDS, OpenRollouts


class Written:
    """Takes rollouts that have ended, and fails if the test says so."""

    def __init__(self) -> None:
        self.rollouts: list[tuple[str, int]] = []
        self.error: Exception | None = None

    def __call__(self, rollout: str, events: Any) -> None:
        if self.error is not None:
            raise self.error
        self.rollouts.append((rollout, len(events)))


def aged(folder: Path, rollout: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder / f"{rollout}.jsonl", (then, then))


def test_a_rollout_is_written_when_it_is_quiet_and_finished_or_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Written()
    rollouts = OpenRollouts(tmp_path / "open", written)
    assert rollouts.sweep() == 0  # there is no folder yet
    for name in ("fresh", "quiet", "finished", "abandoned"):
        rollouts.add(name, [{"number": 1}, {"number": 2}])
    monkeypatch.setattr("ors.recording.open_rollouts.is_finished", lambda events: len(events) == 3)
    rollouts.add("finished", [{"number": 3}])
    for name, seconds in (
        ("quiet", QUIET_SECONDS + 5),
        ("finished", QUIET_SECONDS + 5),
        ("abandoned", ABANDONED_SECONDS + 5),
    ):
        aged(tmp_path / "open", name, seconds)
    assert rollouts.sweep() == 2
    assert sorted(written.rollouts) == [("abandoned", 2), ("finished", 3)]
    assert rollouts.sweep() == 0  # the quiet one is not read again before it changes
    assert rollouts.sweep(everything=True) == 2
    assert list((tmp_path / "open").iterdir()) == []


def test_a_rollout_that_cannot_be_written_now_is_kept_and_a_broken_one_is_put_aside(tmp_path: Path) -> None:
    written = Written()
    rollouts = OpenRollouts(tmp_path, written)
    rollouts.add("one", [{"number": 1}])
    written.error = OSError("the disk is full")
    with pytest.raises(OSError, match="full"):
        rollouts.sweep(everything=True)
    written.error = None
    assert rollouts.sweep(everything=True) == 1
    rollouts.add("two", [{"number": 1}])
    written.error = ValueError("no sense in it")
    with pytest.raises(ValueError, match="no sense"):
        rollouts.sweep(everything=True)
    assert [path.name for path in tmp_path.iterdir()] == ["two.broken"]
    written.error = None
    assert rollouts.sweep(everything=True) == 0
