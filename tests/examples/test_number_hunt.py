"""The number hunts of examples/training."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from examples.training import curve
from examples.training.number_hunt import BigNumberHunt, NumberHunt
from ors import Server
from tests.examples.episode import Episode, text
from tests.support.live_server import serving
from tests.support.raw_http import Raw

HUNTS = [NumberHunt, BigNumberHunt]


@pytest.fixture(scope="module")
def hunts() -> Iterator[Raw]:
    with serving(Server(HUNTS)) as url:
        yield Raw(url)


@pytest.mark.parametrize("hunt", HUNTS)
def test_the_splits_have_other_ranges_and_all_their_numbers(hunt: type[NumberHunt]) -> None:
    train, test = (hunt.list_tasks(split) for split in ("train", "test"))
    assert not {task["high"] for task in train} & {task["high"] for task in test}
    assert len(train) + len(test) == sum(hunt.largest)
    assert {task["number"] for task in train} == set(range(1, max(hunt.largest) + 1))


@pytest.mark.parametrize("hunt", HUNTS)
def test_halving_the_range_always_wins(hunts: Raw, hunt: type[NumberHunt]) -> None:
    name = hunt.name().lower()
    for index in range(0, len(hunt.list_tasks("test")), 5):
        game = Episode(hunts, name, "test", index)
        low, high, guesses = map(int, re.findall(r"\d+", game.prompt()[0]["text"]))
        assert guesses == hunt.guesses
        output = {"finished": False}
        while not output["finished"]:
            middle = (low + high) // 2
            output = game.call("guess", number=middle)
            low, high = (middle + 1, high) if text(output) == "higher" else (low, middle - 1)
        assert (text(output), output["reward"]) == ("found", 1.0)


def test_the_last_wrong_guess_ends_the_hunt_without_a_reward(hunts: Raw) -> None:
    index = next(at for at, task in enumerate(NumberHunt.list_tasks("train")) if task["number"] != 1)
    game = Episode(hunts, "numberhunt", "train", index)
    outputs = [game.call("guess", number=1) for _ in range(NumberHunt.guesses)]
    assert {text(output) for output in outputs} == {"higher"}
    assert [output["reward"] for output in outputs] == [None] * 4 + [0.0]
    assert [output["finished"] for output in outputs] == [False] * 4 + [True]


def test_a_guess_out_of_range_is_refused_and_costs_no_guess(hunts: Raw) -> None:
    game = Episode(hunts, "numberhunt", "test", 0)
    for number in (0, 17, -3):
        assert "is not between 1 and" in game.refused("guess", number=number)["error"]
    assert not game.call("guess", number=1)["finished"] or NumberHunt.list_tasks("test")[0]["number"] == 1


def test_a_curve_is_a_table_and_a_picture(tmp_path: Path) -> None:
    rows = [
        curve.Row(step, 2.0 * step, step / 10, step / 20 if step % 2 else None, 1.0, 480, 0, 3, 2000)
        for step in range(1, 5)
    ]
    curve.write(rows, tmp_path)
    assert curve.read(tmp_path / "curve.csv") == [(2.0, 0.1), (4.0, 0.2), (6.0, 0.3), (8.0, 0.4)]
    drawn = ElementTree.parse(tmp_path / "curve.svg").getroot()
    lines = [each.attrib["points"].split() for each in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert [len(points) for points in lines] == [4, 2]
    assert lines[0][-1] == "700.0,208.0"
    assert str(rows[1]) == "step    2     4.0 s  reward 0.200  entropy 1.00  3 truncated"
