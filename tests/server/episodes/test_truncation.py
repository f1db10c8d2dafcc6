"""Tools that allow it have long results cut to fit the limit, instead of failing."""

from collections.abc import Iterator
from typing import Any

import pytest

from ors import Limits, Server, TextBlock, ToolOutput, tool
from ors.server.episodes.result import cut
from ors.types import Blocks
from tests.support.environments import Lab
from tests.support.live_server import serving
from tests.support.raw_http import Raw

LIMIT = 1000


class Wordy(Lab):
    @tool(truncate=True)
    def recite(self, texts: list[str], metadata: str = "") -> ToolOutput:
        """Says each text, and ends the episode."""
        blocks: Blocks = [TextBlock(text=text) for text in texts]
        return ToolOutput(blocks=blocks, reward=0.5, finished=True, metadata={"given": metadata})


@pytest.fixture(scope="module")
def raw() -> Iterator[Raw]:
    with serving(Server([Wordy], limits=Limits(result_bytes=LIMIT))) as url:
        yield Raw(url)


def recited(raw: Raw, *texts: str, **given: str) -> dict[str, Any]:
    answer = raw.call(raw.session("wordy"), "recite", {"texts": texts, **given}, env="wordy")
    output: dict[str, Any] = answer.result()["output"]
    return output


def test_a_long_text_loses_its_end_and_says_so(raw: Raw) -> None:
    output = recited(raw, "The end is near. " * 1000)
    (block,) = output["blocks"]
    kept, _, marker = block["text"].partition("\n… ")
    assert marker == f"[cut: {len(kept)} of 17000 characters are shown]"
    assert kept
    assert ("The end is near. " * 1000).startswith(kept)
    assert (output["reward"], output["finished"]) == (0.5, True)


def test_the_longest_texts_are_cut_and_the_others_stay(raw: Raw) -> None:
    texts = [block["text"] for block in recited(raw, "short", "a" * 5000, "b" * 4000)["blocks"]]
    assert texts[0] == "short"
    assert "of 5000 characters" in texts[1]
    assert "of 4000 characters" in texts[2]


def test_a_result_that_fits_is_whole(raw: Raw) -> None:
    assert recited(raw, "x" * 700)["blocks"][0]["text"] == "x" * 700


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600", '"', "\x01"])
def test_what_is_left_fits_whatever_its_characters_take_as_json(letter: str) -> None:
    output = ToolOutput(blocks=[TextBlock(text=letter * 3000)])
    assert LIMIT // 2 < len(cut(output, LIMIT)) <= LIMIT


def test_a_result_that_is_too_long_without_its_text_fails(raw: Raw) -> None:
    given = {"texts": ["x"], "metadata": "m" * LIMIT}
    answer = raw.call(raw.session("wordy"), "recite", given, env="wordy")
    assert answer.error() == "Tool execution failed: the result is over 1000 bytes even without its text"
