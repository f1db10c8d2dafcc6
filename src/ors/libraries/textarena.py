"""The games of TextArena: one tool, `act`. Other players are random, or a model."""

import random
import re
from asyncio import to_thread
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

import textarena
from pydantic import ConfigDict, Field
from textarena.envs.registration import ENV_REGISTRY

from ors.environment import Environment, tool
from ors.errors import InvalidEnvironment, ToolError
from ors.libraries.seeded import OwnRandom, Seeded, seed_of, subclass
from ors.models import Model
from ors.providers.messages import AgentMessage, Message, SystemMessage, UserMessage
from ors.types import TextBlock, ToolOutput

AGENT = 0
"""The player that the agent is."""
MOST_MOVES = 100
"""Moves of the other players between two of the agent."""
MOVE = re.compile(r"\[[^\[\]\n]{1,40}\]")
COORDINATE = re.compile(r"[a-zA-Z](?=\d)|\d|\b[A-Z]\b")
"""A letter before a digit, a digit, or a place for a number, as in [swap X Y]."""
GUESSES = 100
RULES = "You are playing a game. Reply with your move alone, in the format that the game asks for."


class Game(Seeded, Environment):
    """A game of TextArena. The reward comes with its end; against others it is 1, 0 or -1."""

    class Config(Seeded.Config):
        model_config = ConfigDict(extra="allow")  # arguments of the game
        opponent: str = Field(default="random", description="The other players: random, or PROVIDER:MODEL.")
        opponent_url: str | None = Field(default=None, description="Where that model is served.")

    @classmethod
    def check(cls) -> object:
        return cls._begun(0), cls._model()

    @classmethod
    def _model(cls) -> Model | None:
        provider, _, model = cls.config.opponent.partition(":")
        return None if provider == "random" else Model(provider, model, base_url=cls.config.opponent_url)

    @classmethod
    def _begun(cls, seed: int) -> Any:
        """A new game, with as few players as it takes."""
        game = textarena.make(cls.of, **(cls.config.model_extra or {}))
        while isinstance(game, textarena.Wrapper):  # which repeats all messages at each turn
            game = game.env
        failures = []
        usual = getattr(game, "default_num_players", None)  # textarena 0.7.4: with fewer, two games never end
        for players in [usual] if usual else (1, 2):
            try:
                game.reset(num_players=players, seed=seed)
            except Exception as error:
                failures.append(error)
            else:
                return game
        raise failures[0]

    async def setup(self) -> None:
        self._model_asked = self._model()
        self._choices = random.Random(seed_of(self.task_spec))
        self._seen: dict[int, list[Message]] = {}
        self._done = False
        await to_thread(self._begin)
        self._first = await self._until_my_turn()

    def _begin(self) -> None:
        seed = seed_of(self.task_spec)
        self._random = OwnRandom(seed)
        with self._random:
            self._game = self._begun(seed)

    async def teardown(self) -> None:
        if model := getattr(self, "_model_asked", None):
            await model.close()

    def get_prompt(self) -> str:
        return f"{self._first}\n\nPlay by calling the tool act with your move, until the game is over."

    @tool
    async def act(self, action: str) -> ToolOutput:
        """Make a move, in the format that the game asks for, such as [4]."""
        before = deepcopy(self._game)
        try:
            await to_thread(self._step, action)
        except Exception as error:  # of a game that cannot read the move
            self._game = before
            raise ToolError(f"The game does not understand this move ({error}): try another one") from error
        text = await self._until_my_turn()
        return self._ended(text) if self._done else ToolOutput(text)

    def _ended(self, text: str) -> ToolOutput:
        rewards, about = self._game.close()
        reward, mine = (rewards or {}).get(AGENT, 0.0), about[AGENT]
        how = {"invalid_move": bool(mine["invalid_move"])}
        if isinstance(reward, str):  # textarena 0.7.4: some games mix up two arguments
            reward, mine = 0.0, {"reason": reward}
        text = f"{text}\n\n{mine.get('reason') or ''}".strip() or "The game is over."
        return ToolOutput(text, how, reward=float(reward), finished=True)

    def _step(self, move: str) -> None:
        with self._random:
            self._done, _ = self._game.step(move if "[" in move or "]" in move else f"[{move}]")

    async def _until_my_turn(self) -> str:
        """Lets the other players move; returns what the agent has not seen."""
        for _ in range(MOST_MOVES):
            player = self._game.state.current_player_id
            if self._done or player == AGENT:
                return self._news(AGENT)
            seen = self._seen.setdefault(player, [SystemMessage(RULES)])
            seen.append(UserMessage([TextBlock(self._news(player))]))
            if self._model_asked is None:
                await to_thread(self._move_at_random, player)
                continue
            reply = await self._model_asked.answer(seen)
            seen.append(AgentMessage(reply.text))
            await to_thread(self._step, reply.text)
        raise RuntimeError(f"{self.config.opponent} made {MOST_MOVES} moves without ending its turn")

    def _news(self, player: int) -> str:
        """Messages for a player since the last time, without its own moves."""
        state = self._game.state
        messages, state.observations[player] = state.observations[player], []
        return "\n\n".join(
            text if sender == textarena.GAME_ID else f"Player {sender}: {text}"
            for sender, text, _ in messages
            if sender != player
        )

    def _move_at_random(self, player: int) -> None:
        """Makes a legal move. TextArena lists none, so moves that the texts name are tried on a copy."""
        move = next(filter(lambda move: self._is_legal(player, move), self._guesses(player)), "[pass]")
        self._step(move)

    def _guesses(self, player: int) -> Iterator[str]:
        texts = [each.blocks[0].text for each in self._seen[player] if isinstance(each, UserMessage)]  # type: ignore[union-attr]
        lately, ever = (list(dict.fromkeys(MOVE.findall(text))) for text in (texts[-1], "\n".join(texts)))
        for moves in (lately, ever):
            yield from self._choices.sample(moves, len(moves))
        for _ in range(GUESSES if ever else 0):  # the same shape with other coordinates
            yield COORDINATE.sub(self._other, self._choices.choice(ever))

    def _other(self, found: re.Match[str]) -> str:
        after = found.string[found.end() : found.end() + 1]
        letters = "abcdefgh" if found[0].islower() else "ABCDEFGH"
        return self._choices.choice(letters if found[0].isalpha() and after.isdigit() else "0123456789")

    def _is_legal(self, player: int, move: str) -> bool:
        with suppress(Exception), self._random:
            copy = deepcopy(self._game)
            copy.step(move)
            return not copy.state.error_count and not copy.state.game_info[player]["invalid_move"]
        return False


def environment(name: str) -> Any:
    name = name if name in ENV_REGISTRY else f"{name}-v0"
    if name not in ENV_REGISTRY:
        raise InvalidEnvironment(f"TextArena has no game {name!r}: see `ors list textarena:`")
    return subclass(Game, name, of=name)


def names() -> list[str]:
    return [name for name in ENV_REGISTRY if name.endswith("-v0")]
