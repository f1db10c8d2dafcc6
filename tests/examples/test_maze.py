import base64
import random
import struct
import zlib
from collections import deque
from typing import Any

from examples.maze import AGENT, COLOURS, DIRECTIONS, EXIT, PIXELS, WALL, Square, dig, distance
from tests.examples.conftest import Play
from tests.examples.episode import text
from tests.support.raw_http import Raw


def read_png(data: bytes) -> list[list[int]]:
    """One palette index per square, from a PNG file whose checksums and sizes are right."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, chunks = 8, {}
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + content),)
        chunks[kind] = content
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
    assert chunks[b"PLTE"] == COLOURS
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    pixels = zlib.decompress(chunks[b"IDAT"])
    assert len(pixels) == height * (width + 1)
    lines = [pixels[row * (width + 1) + 1 : (row + 1) * (width + 1)] for row in range(height)]
    return [list(line[::PIXELS]) for line in lines[::PIXELS]]


def seen(blocks: list[dict[str, Any]]) -> list[list[int]]:
    image = next(block for block in blocks if block["type"] == "image")
    assert image["mimeType"] == "image/png"
    return read_png(base64.b64decode(image["data"], validate=True))


def where(picture: list[list[int]], colour: int) -> Square:
    return next((row, line.index(colour)) for row, line in enumerate(picture) if colour in line)


def way(picture: list[list[int]]) -> list[str]:
    """The directions of a shortest way from the agent to the exit, as an agent would read the picture."""
    start, goal = where(picture, AGENT), where(picture, EXIT)
    queue, reached = deque([start]), {start: list[str]()}
    while goal not in reached:
        row, column = queue.popleft()
        for name, (down, right) in DIRECTIONS.items():
            square = (row + down, column + right)
            if square not in reached and picture[square[0]][square[1]] != WALL:
                reached[square] = [*reached[row, column], name]
                queue.append(square)
    return reached[goal]


def test_who_follows_the_picture_gets_the_whole_reward(play: Play) -> None:
    for split in ("train", "large"):
        episode = play("maze", split, 3)
        steps = way(seen(episode.prompt()))
        outputs = [episode.call("move", direction=step) for step in steps]
        assert [output["reward"] for output in outputs] == [0.0] * (len(steps) - 1) + [1.0]
        assert outputs[-1]["finished"]
        assert text(outputs[-1]) == "You are out."


def test_the_picture_moves_with_the_agent(play: Play) -> None:
    episode = play("maze", "train", 0)
    before = seen(episode.prompt())
    assert where(before, AGENT) == (1, 1)
    output = episode.call("move", direction=way(before)[0])
    assert where(seen(output["blocks"]), AGENT) == (output["metadata"]["row"], output["metadata"]["column"])
    assert where(seen(output["blocks"]), AGENT) != (1, 1)


def test_a_detour_costs_reward(play: Play) -> None:
    episode = play("maze", "train", 0)
    steps = way(seen(episode.prompt()))
    assert "ran into a wall" in text(episode.call("move", direction="up"))
    outputs = [episode.call("move", direction=step) for step in steps]
    assert outputs[-1]["reward"] == round(len(steps) / (len(steps) + 1), 6)


def test_the_steps_run_out(play: Play) -> None:
    episode = play("maze", "train", 0)
    allowed = 4 * len(way(seen(episode.prompt())))
    outputs = [episode.call("move", direction="up") for _ in range(allowed)]
    assert [output["finished"] for output in outputs] == [False] * (allowed - 1) + [True]
    assert outputs[-1]["reward"] == 0.0


def test_only_the_four_directions_are_offered(play: Play) -> None:
    episode = play("maze", "train", 0)
    assert episode.tools()["move"]["properties"]["direction"]["enum"] == ["up", "down", "left", "right"]
    assert episode.refused("move", direction="north")["reason"] == "input_validation"
    assert episode.refused("move", direction="up", steps=21)["reason"] == "input_validation"


def test_every_maze_has_a_way_out_and_no_two_tasks_are_one(examples: Raw) -> None:
    tasks = examples.post("/maze/tasks", {"split": "train"}).json()["tasks"]
    floors = [dig(task["size"], random.Random(task["seed"])) for task in tasks]
    assert all(distance(floor, (1, 1), (9, 9)) >= 16 for floor in floors)
    assert len({frozenset(floor) for floor in floors}) == len(tasks) == 100


def test_a_task_that_is_no_maze_is_refused_with_a_reason(examples: Raw) -> None:
    sid = examples.session("maze", {"size": 10**9, "seed": 1})
    answer = examples.get("/maze/prompt", sid=sid)
    assert answer.status == 500
    assert "less than or equal to 30" in answer.detail
