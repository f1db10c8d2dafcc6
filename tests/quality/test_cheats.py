"""`ors test` and graders that can be fooled."""

from pathlib import Path

import pytest

from examples.repair import Repair
from ors import Environment
from ors.quality import Plan, Report, as_text, examine
from tests.support import graded_environments as graded
from tests.support.commands import run

pytestmark = pytest.mark.long
PLAN = Plan(sample=2, steps=2, repeat=1, episodes=20, seconds=1)


def examined(cls: type[Environment]) -> Report:
    (report,) = examine(classes={cls.name().lower(): cls}, plan=PLAN)
    return report


@pytest.mark.parametrize("cls", graded.FOOLED, ids=lambda cls: cls.__name__)
def test_a_grader_that_can_be_fooled_is_found(cls: type[Environment]) -> None:
    report = examined(cls)
    assert [finding.id for finding in report.faults] == ["forged-grade"], as_text(report)


@pytest.mark.parametrize("cls", [graded.Careful, Repair], ids=lambda cls: cls.__name__)
@pytest.mark.untraced
def test_a_grader_that_cannot_be_fooled_is_fine(cls: type[Environment]) -> None:
    report = examined(cls)
    assert not report.faults, as_text(report)


def test_the_report_says_how_the_grader_was_fooled_and_what_to_do() -> None:
    words = [f"{Path(graded.__file__)}:Exiting", "--limit", "1", "--steps", "2", "--episodes", "20"]
    done = run("test", *words, patience=200)
    assert done.code == 1
    assert "✗ forged-grade: wrong work earns 1: its modules print 'PASSED 4 4' and exit with 0" in done.out
    assert "box.grade_cases()" in done.out
