"""What `ors test` says is true of environments that are unusual, but not wrong."""

import threading
import tracemalloc
from typing import Any

import pytest

from ors import Blocks, TextBlock, ToolOutput, tool
from ors.quality import Plan, Report, as_text, examine
from tests.support import faulty_environments as park

pytestmark = pytest.mark.long

PLAN = Plan(sample=1, repeat=1, steps=3, episodes=20)


def examined(cls: type[park.Clean], plan: Plan = PLAN) -> Report:
    (report,) = examine(classes={cls.name().lower(): cls}, plan=plan)
    return report


class BegunByPrompt(park.Clean):
    """Has no state before its prompt is read, as several public environments."""

    def get_prompt(self) -> Blocks:
        self.word = str(self.task_spec["word"])
        return [TextBlock(text=f"Spell {self.word} backwards.")]

    @tool
    def guess(self, given: park.Guess) -> ToolOutput:
        """Gives your word."""
        right = given.word == self.word[::-1]
        return ToolOutput(blocks=[], reward=float(right), finished=True)


class WithNamesOfItsOwn(park.Clean):
    """Has a tool and an attribute with names that `ors` uses too."""

    limits = {"guesses": 3}

    @tool
    def solve(self, word: str) -> ToolOutput:  # type: ignore[override]
        """Solves the riddle."""
        return ToolOutput(blocks=[], reward=0.0, finished=True)


class SlowWhileTraced(park.Clean):
    """Takes its time only while memory is traced."""

    let_go = threading.Event()

    def setup(self) -> None:
        if tracemalloc.is_tracing():
            self.let_go.wait(2)


class StuckInConstructor(park.Clean):
    """Never gets ready."""

    let_go = threading.Event()

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.let_go.wait(30)


def test_the_prompt_is_read_before_the_first_call() -> None:
    report = examined(BegunByPrompt)
    assert report.findings == [], as_text(report)
    assert report.figures["gold earns"] == 1


def test_a_tool_called_solve_and_limits_of_the_author_are_theirs() -> None:
    report = examined(WithNamesOfItsOwn)
    assert report.findings == [], as_text(report)
    assert "no classmethod solve" in report.not_tried["gold solution"]


@pytest.mark.untraced
def test_what_is_slow_only_while_memory_is_traced_does_not_hang() -> None:
    plan = Plan(sample=1, repeat=1, steps=1, episodes=20, patience=0.5, seconds=0.2)
    try:
        report = examined(SlowWhileTraced, plan)
    finally:
        SlowWhileTraced.let_go.set()
    assert report.findings == [], as_text(report)
    assert report.not_tried["memory"].endswith("takes longer than 0.5 s while memory is traced")


def test_a_constructor_that_hangs_is_not_called_a_call() -> None:
    try:
        report = examined(StuckInConstructor, Plan(sample=1, patience=0.3))
    finally:
        StuckInConstructor.let_go.set()
    assert "the setup (__init__ and setup) takes longer than 0.3 s" in {f.text for f in report.findings}
