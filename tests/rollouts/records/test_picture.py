"""The picture of a run."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from ors.rollouts import EpisodeRecord, Truncated
from ors.rollouts.records import RunInfo, RunWriter, draw, read_run
from tests.support.episode_records import LOST, episode

SVG = "{http://www.w3.org/2000/svg}"


def texts(folder: Path, *records: EpisodeRecord) -> list[str]:
    with RunWriter.create(folder, RunInfo()) as writer:
        for record in records:
            writer.append(record)
    path = draw(read_run(folder))
    assert path == folder / "picture.svg"
    return [each.text or "" for each in ElementTree.parse(path).iter(f"{SVG}text")]


def test_a_picture_shows_outcomes_rewards_and_splits(tmp_path: Path) -> None:
    found = texts(
        tmp_path / "<a & b>",
        episode(0, 1.0),
        episode(1, 0.0),
        episode(2, 0.0, split="train"),
        episode(3, None, outcome=LOST),
        episode(4, 0.5, outcome=Truncated("turns")),
    )
    assert found[0] == "<a & b>"
    assert found[1] == "mean reward 0.375 [0.04586, 0.8822], 5 episodes of 5 tasks, 1 failed (left out)"
    assert {"scored 3", "truncated 1", "failed 1", "test", "train", "0.5, 3 episodes"} <= set(found)


@pytest.mark.parametrize(
    "rewards", [[], [None], [0.0], [-3.0, -3.0], [1e300, -1e300], [5.0], [1.7e308] * 3, [1.7e308, -1.7e308]]
)
def test_any_rewards_can_be_drawn(rewards: list[float | None], tmp_path: Path) -> None:
    found = texts(tmp_path, *(episode(n, reward, split="a\0b") for n, reward in enumerate(rewards)))
    assert ("No episode has a reward." in found) == (not rewards)


def test_a_new_picture_replaces_the_old_one(tmp_path: Path) -> None:
    assert "1 episode of 1 task" in " ".join(texts(tmp_path, episode(0)))
    with RunWriter.open(tmp_path) as writer:
        writer.append(episode(1))
    assert "2 episodes of 2 tasks" in draw(read_run(tmp_path)).read_text()
