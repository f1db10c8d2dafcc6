"""TextArena: games for one player, and for two against a random player or a model."""

import asyncio
import json
import random
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import ors.testing
from ors.errors import InvalidEnvironment
from ors.libraries import library_environments
from ors.libraries.textarena import MOVE

ALL: Any = {cls.__name__: cls for cls in library_environments("textarena:")}
ALONE = """
2048 Bandit Blackjack Countdown Crosswords Cryptarithm FifteenPuzzle FrozenLake GuessTheNumber LightsOut
LogicPuzzle MarketEntryGame Mastermind Minesweeper PegJump PublicGoodsGame QuantumTicTacToe RushHour
Secretary Set Slitherlink Sokoban SpiteAndMalice Sudoku ThreeCardMonte TowerOfHanoi
"""
PAIRS = ("TicTacToe", "ConnectFour", "KuhnPoker", "IteratedPrisonersDilemma")
Turn = tuple[str, float | None, bool]


async def play(cls: Any, index: int, moves: int = 6) -> list[Turn]:
    """Plays moves that the texts name."""
    choices = random.Random(index)
    turns: list[Turn] = []
    async with ors.testing.session(cls, split="train", index=index) as session:
        text = (await session.get_prompt())[0].text  # type: ignore[union-attr]
        turns.append((text, None, False))
        for _ in range(moves):
            action = choices.choice(MOVE.findall(text) or MOVE.findall(turns[0][0]) or ["[1]"])
            output = await session.call_tool("act", {"action": action})
            text = output.blocks[0].text  # type: ignore[union-attr]
            turns.append((text, output.reward, output.finished))
            if output.finished:
                break
    return turns


@pytest.mark.parametrize("name", [*ALONE.split(), *PAIRS])
async def test_a_game_is_the_same_beside_another_one(name: str) -> None:
    cls = ALL[f"{name}-v0"]
    first, _ = await asyncio.gather(play(cls, 1), play(cls, 2))
    assert first == await play(cls, 1)
    assert len(first) > 1
    assert (first[-1][1] is None) is not first[-1][2]


@pytest.mark.parametrize("name", PAIRS)
async def test_the_random_player_makes_legal_moves(name: str) -> None:
    turns = [turn for index in range(3) for turn in await play(ALL[f"{name}-v0"], index)]
    assert not any("Player 1 attempted an invalid move" in text for text, _, _ in turns)
    assert any("Player 1: " in text for text, _, _ in turns)


class Opponent(BaseHTTPRequestHandler):
    """A model that plays the first move that is left."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert "You are Player 1" in str(asked["messages"][1])
        move = MOVE.findall(str(asked["messages"][-1]))[0]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": move}}
        content = json.dumps(
            {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


async def test_a_model_plays_the_other_side() -> None:
    with HTTPServer(("127.0.0.1", 0), Opponent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        cls = ALL["TicTacToe-v0"].configured(opponent="openai:some-model", opponent_url=url)
        async with ors.testing.session(cls, split="train", index=0) as session:
            for action, reply in (("[4]", "[0]"), ("[3]", "[1]")):
                output = await session.call_tool("act", {"action": action})
                assert f"Player 1: {reply}" in output.blocks[0].text  # type: ignore[union-attr]
            won = await session.call_tool("act", {"action": "[5]"})
        server.shutdown()
    assert (won.reward, won.finished) == (1.0, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Debate", "OpenRouter API key not found"),
        ("ThreePlayerTicTacToe", "exactly three players"),
        ("Nothing", "TextArena has no game 'Nothing-v0'"),
        ("TicTacToe", "Unknown provider 'nobody'"),
    ],
)
def test_what_cannot_be_played_is_refused_with_the_reason(name: str, why: str) -> None:
    def refused() -> None:
        made = library_environments(f"textarena:{name}")[0]
        (made.configured(opponent="nobody:x") if name == "TicTacToe" else made).list_splits()

    with pytest.raises(InvalidEnvironment, match=why):
        refused()
