"""A maze that the agent sees as a picture, in the prompt and after every move."""

import base64
import random
import struct
import zlib
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, Field

from ors import Blocks, Environment, ImageBlock, JSONObject, Server, Split, TextBlock, ToolOutput, tool

Square = tuple[int, int]

SIZES = {"train": 5, "large": 9}
TASKS_PER_SPLIT = 100
DIRECTIONS: dict[str, Square] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
WALL, FLOOR, TRAIL, AGENT, EXIT = range(5)
COLOURS = bytes.fromhex("222222 ffffff bbddff dd2222 22aa44")
PIXELS = 12


class Task(BaseModel):
    """A maze: its rooms per side, and the seed of its walls."""

    size: int = Field(ge=2, le=30)
    seed: int


class Move(BaseModel):
    """The input of `move`."""

    direction: Literal["up", "down", "left", "right"] = Field(
        description="Where to go, as seen in the picture."
    )
    steps: int = Field(default=1, ge=1, le=20, description="How many squares to go.")


class Maze(Environment):
    """Find the way out of a maze. The reward is 1 for a shortest way, and less for a longer one.

    Drawing needs the processor, so these are plain methods, which run in threads.
    """

    @classmethod
    def list_splits(cls) -> list[Split]:
        """Small mazes for training, large ones for testing."""
        return [Split(name="train", type="train"), Split(name="large", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        """A maze is its size and a seed."""
        return [{"size": SIZES[split], "seed": seed} for seed in range(TASKS_PER_SPLIT)]

    def setup(self) -> None:
        """Digs the maze and puts the agent into its upper left corner."""
        task = Task.model_validate(self.task_spec)
        self.floor = dig(task.size, random.Random(task.seed))
        self.side = 2 * task.size + 1
        self.at: Square = (1, 1)
        self.exit: Square = (self.side - 2, self.side - 2)
        self.trail = {self.at}
        self.walked = 0
        self.shortest = distance(self.floor, self.at, self.exit)
        self.allowed = 4 * self.shortest

    def get_prompt(self) -> Blocks:
        """The task in words, the maze as a picture."""
        text = (
            "You are the red square in this maze. Go to the green one. Walls are black. "
            f"Every step counts, also one into a wall; you have {self.allowed}."
        )
        return [TextBlock(text=text), self._picture()]

    @tool
    def move(self, params: Move) -> ToolOutput:
        """Go some squares in one direction, up to the next wall. Shows the maze afterwards."""
        blocked = self._walk(DIRECTIONS[params.direction], params.steps)
        out = self.at == self.exit
        left = self.allowed - self.walked
        text = "You are out." if out else f"{'You ran into a wall. ' if blocked else ''}{left} steps left."
        return ToolOutput(
            blocks=[TextBlock(text=text), self._picture()],
            metadata={"row": self.at[0], "column": self.at[1], "steps": self.walked},
            reward=round(self.shortest / self.walked, 6) if out else 0.0,
            finished=out or left == 0,
        )

    def _walk(self, direction: Square, steps: int) -> bool:
        for _ in range(min(steps, self.allowed - self.walked)):
            self.walked += 1
            square = (self.at[0] + direction[0], self.at[1] + direction[1])
            if square not in self.floor:
                return True
            self.at = square
            self.trail.add(square)
            if square == self.exit:
                break
        return False

    def _picture(self) -> ImageBlock:
        rows = [[self._colour((row, column)) for column in range(self.side)] for row in range(self.side)]
        return ImageBlock(data=base64.b64encode(png(rows)).decode(), mimeType="image/png")

    def _colour(self, square: Square) -> int:
        if square == self.at:
            return AGENT
        if square == self.exit:
            return EXIT
        if square in self.trail:
            return TRAIL
        return FLOOR if square in self.floor else WALL


def dig(size: int, chance: random.Random) -> set[Square]:
    """The floor of a maze of size x size rooms, with one way between any two of them."""
    floor, path = {(1, 1)}, [(1, 1)]
    while path:
        row, column = path[-1]
        rooms = [
            (row + 2 * down, column + 2 * right)
            for down, right in DIRECTIONS.values()
            if 0 < row + 2 * down < 2 * size and 0 < column + 2 * right < 2 * size
        ]
        closed = [room for room in rooms if room not in floor]
        if not closed:
            path.pop()
            continue
        room = chance.choice(closed)
        floor |= {room, ((row + room[0]) // 2, (column + room[1]) // 2)}
        path.append(room)
    return floor


def distance(floor: set[Square], start: Square, goal: Square) -> int:
    """The number of steps of the shortest way."""
    steps, reached, edge = 0, {start}, {start}
    while goal not in reached:
        around = {(row + down, column + right) for row, column in edge for down, right in DIRECTIONS.values()}
        edge = (around & floor) - reached
        reached |= edge
        steps += 1
    return steps


def png(rows: Iterable[Iterable[int]]) -> bytes:
    """A PNG file with PIXELS x PIXELS pixels for each number, which is an index into COLOURS."""
    lines = [bytes(index for index in row for _ in range(PIXELS)) for row in rows for _ in range(PIXELS)]
    header = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 3, 0, 0, 0)  # 8 bits, with a palette
    data = zlib.compress(b"".join(b"\0" + line for line in lines))
    chunks = (b"IHDR", header), (b"PLTE", COLOURS), (b"IDAT", data), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


if __name__ == "__main__":
    Server([Maze]).run()
