"""A small broken program to repair, in a sandbox; hidden tests grade it."""

from pydantic import BaseModel

from ors import Blocks, JSONObject, Server, TextBlock
from ors.sandbox import SandboxSpec
from ors.toolsets import Bash, Files, Python, SandboxEnvironment, Submit

MB = 2**20

PROGRAMS: dict[str, str] = {
    "roman": '''\
"""Reads a number from 1 to 3999, and prints it in Roman numerals."""

VALUES = [(1000, "M"), (500, "D"), (100, "C"), (50, "L"), (10, "X"), (5, "V"), (1, "I")]


def roman(number):
    text = ""
    for value, letter in VALUES:
        while number > value:
            text += letter
            number -= value
    return text


print(roman(int(input())))
''',
    "words": '''\
"""Reads a line, and prints its words in alphabetical order, each once, without regard to case."""

words = input().split(" ")
print(" ".join(set(words)))
''',
    "clock": '''\
"""Reads a number of seconds, and prints it as hours:minutes:seconds, such as 1:01:05."""

seconds = int(input())
print(f"{seconds // 3600}:{seconds // 60}:{seconds % 60}")
''',
}
REPAIRED = {
    "roman": PROGRAMS["roman"]
    .replace("number > value", "number >= value")
    .replace('(1000, "M"), (500', '(1000, "M"), (900, "CM"), (500')
    .replace('(100, "C"), (50', '(400, "CD"), (100, "C"), (90, "XC"), (50')
    .replace('(10, "X"), (5', '(40, "XL"), (10, "X"), (9, "IX"), (5')
    .replace('(1, "I")', '(4, "IV"), (1, "I")'),
    "words": "print(' '.join(sorted({word.lower() for word in input().split()})))\n",
    "clock": "n = int(input())\nprint(f'{n // 3600}:{n // 60 % 60:02}:{n % 60:02}')\n",
}
CASES: dict[str, dict[str, str]] = {
    "roman": {"1": "I", "4": "IV", "1994": "MCMXCIV", "3999": "MMMCMXCIX", "50": "L"},
    "words": {"b a b": "a b", "The  the CAT": "cat the", "x": "x"},
    "clock": {"65": "0:01:05", "3600": "1:00:00", "86399": "23:59:59"},
}
"""Input and expected output. They stay with the server: no sandbox ever has the expected output."""


class Task(BaseModel):
    """The name of a program."""

    program: str


class Repair(SandboxEnvironment):
    """A broken program to repair. The reward is 1 if it passes all hidden tests."""

    toolsets = [Bash, Files, Python, Submit]
    sandbox = SandboxSpec(memory=256 * MB, disk=32 * MB)

    @classmethod
    def list_splits(cls) -> list[str]:
        """Programs for training, and another for testing."""
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        """All programs of a split."""
        return [{"program": name} for name in (["roman", "words"] if split == "train" else ["clock"])]

    @classmethod
    def solve(cls, task_spec: JSONObject) -> list[tuple[str, JSONObject]]:
        """The calls of a perfect episode, for `ors test` and the agent `gold`."""
        repaired = REPAIRED[str(task_spec["program"])]
        return [("create", {"path": "program.py", "text": repaired}), ("submit", {})]

    async def setup(self) -> None:
        """Opens the sandbox with the broken program in it."""
        self.task = Task.model_validate(self.task_spec)
        await super().setup()
        await self.box.write_file("program.py", PROGRAMS[self.task.program].encode())

    def get_prompt(self) -> Blocks:
        """What is to be done."""
        text = "/work/program.py does not do what its first line says. Repair it, try it, then submit."
        return [TextBlock(text=text)]

    async def grade(self) -> float:
        """Runs the program on each hidden input in a sandbox of its own, and compares here."""
        command = ["python3", "-I", "program.py"]
        graded = await self.box.grade_cases(command, CASES[self.task.program], timeout=5)
        return float(graded.all)


if __name__ == "__main__":
    Server([Repair]).run()
