"""A word game over several turns: state between calls, a small reward for every step forward."""

from pydantic import BaseModel, Field

from ors import Blocks, Environment, JSONObject, Server, TextBlock, ToolError, ToolOutput, tool

WORDS = {
    "train": ["amber", "beach", "chair", "dance", "eagle", "flame", "grape", "honey", "ivory", "knife"],
    "test": ["mango", "piano", "river", "stone", "tiger"],
}
TASKS: dict[str, list[JSONObject]] = {
    split: [{"id": f"{split}-{number}", "word": word} for number, word in enumerate(words)]
    for split, words in WORDS.items()
}
GUESSES = 6
LETTER_REWARD = 0.1


class Task(BaseModel):
    """The fields of a task."""

    word: str = Field(pattern=r"^[a-z]{5}$")


class Guess(BaseModel):
    """The input of `guess`."""

    word: str = Field(
        description="An English word of five letters.", pattern=r"^[A-Za-z]{5}$", examples=["crane"]
    )


class WordHunt(Environment):
    """Find a hidden word of five letters in six guesses.

    Each letter found in its place earns 0.1, once. The right word earns the rest up to 1, so the
    rewards of an episode add up to 1 if it is solved and to at most 0.4 if it is not.
    """

    tasks = TASKS
    private_fields = ("word",)  # left out of task listings

    async def setup(self) -> None:
        """Starts a new game."""
        self.word = Task.model_validate(self.task_spec).word
        self.guesses: list[str] = []
        self.placed: set[int] = set()

    async def get_prompt(self) -> Blocks:
        """The rules."""
        text = (
            f"Find the hidden word of five letters. You have {GUESSES} guesses. Each is answered with one "
            "mark per letter: G if it is in the right place, Y if it occurs elsewhere, - if it does not."
        )
        return [TextBlock(text=text)]

    @tool
    async def guess(self, params: Guess) -> ToolOutput:
        """Guess the word. Shows all guesses so far with their marks. The right word ends the episode."""
        word = params.word.lower()
        if word in self.guesses:
            # Costs no guess: the agent gets the text, and continues.
            raise ToolError(f"{word!r} was guessed before; try another word")
        self.guesses.append(word)
        solved = word == self.word
        left = GUESSES - len(self.guesses)
        text = self._board()
        if solved:
            text += "\nSolved."
        elif left == 0:
            text += f"\nNo guesses left. The word was {self.word!r}."
        return ToolOutput(
            blocks=[TextBlock(text=text)],
            metadata={"guesses_left": left},
            reward=self._reward(word),
            finished=solved or left == 0,
        )

    @tool
    async def give_up(self) -> ToolOutput:
        """End the episode without a solution, and see the word."""
        return ToolOutput(blocks=[TextBlock(text=f"The word was {self.word!r}.")], reward=0.0, finished=True)

    def _reward(self, word: str) -> float:
        before = LETTER_REWARD * len(self.placed)
        if word == self.word:
            return round(1 - before, 6)
        self.placed |= {at for at, letter in enumerate(word) if self.word[at] == letter}
        return round(LETTER_REWARD * len(self.placed) - before, 6)

    def _board(self) -> str:
        return "\n".join(f"{word} {marks(word, self.word)}" for word in self.guesses)


def marks(guess: str, word: str) -> str:
    """One mark per letter; a letter that occurs once is marked once."""
    unplaced = [letter for letter, theirs in zip(word, guess, strict=True) if letter != theirs]
    found = ""
    for letter, theirs in zip(word, guess, strict=True):
        if letter == theirs:
            found += "G"
        elif theirs in unplaced:
            unplaced.remove(theirs)
            found += "Y"
        else:
            found += "-"
    return found


if __name__ == "__main__":
    Server([WordHunt]).run()
