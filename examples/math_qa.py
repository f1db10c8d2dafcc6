"""Maths word problems: one question, one answer, a reward of 1 for the right one."""

import math

from pydantic import BaseModel

from ors import Blocks, Environment, JSONObject, Server, TextBlock, ToolOutput, tool

TASKS: dict[str, list[JSONObject]] = {
    "train": [
        {"question": "A baker fills 6 trays with 7 buns each. How many buns are there?", "answer": 42},
        {"question": "Nora has 31 marbles and gives away 13. How many are left?", "answer": 18},
        {"question": "A train covers 180 km in 2.5 hours. What is its speed in km/h?", "answer": 72},
        {"question": "If 3x + 7 = 25, what is x?", "answer": 6},
        {"question": "What is 15% of 240?", "answer": 36},
        {"question": "A rectangle is 12 cm by 5 cm. How long is its diagonal, in cm?", "answer": 13},
        {"question": "Five pens cost 8.50. What do eight of them cost?", "answer": 13.6},
        {"question": "What is the sum of the whole numbers from 1 to 40?", "answer": 820},
    ],
    "test": [
        {"question": "A farmer packs 252 eggs into boxes of 12. How many boxes are full?", "answer": 21},
        {"question": "If 5(x - 2) = 3x + 8, what is x?", "answer": 9},
        {"question": "A jacket of 80 is sold at 35% off. What does it cost?", "answer": 52},
        {"question": "How many minutes are there in three quarters of a day?", "answer": 1080},
    ],
}


class Task(BaseModel):
    """The fields of a task."""

    question: str
    answer: float


class MathQA(Environment):
    """Asks one question and takes one answer."""

    tasks = TASKS
    private_fields = ("answer",)  # left out of task listings

    def setup(self) -> None:
        """Reads the task. A wrong one fails here, and the client gets the reason."""
        self.task = Task.model_validate(self.task_spec)

    def get_prompt(self) -> Blocks:
        """The question."""
        return [TextBlock(text=f"{self.task.question}\n\nWork it out, then submit your answer as a number.")]

    @tool
    def submit(self, answer: float) -> ToolOutput:
        """Submit your final answer. There is one attempt: the answer is graded and the episode ends."""
        right = math.isclose(answer, self.task.answer, rel_tol=1e-6)
        verdict = "Correct." if right else f"Wrong: the answer is {self.task.answer:g}."
        return ToolOutput(blocks=[TextBlock(text=verdict)], reward=float(right), finished=True)


if __name__ == "__main__":
    Server([MathQA]).run()
