"""`ors test` and faults that do not show at once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ors import Environment
from ors.quality import Plan, Report, as_text, examine
from tests.support import intermittent_environments as marsh
from tests.support.commands import run

pytestmark = pytest.mark.long

MARSH = Path(marsh.__file__)


def examined(cls: type[Environment], plan: Plan) -> Report:
    (report,) = examine(classes={cls.name().lower(): cls}, plan=plan)
    return report


@pytest.fixture(autouse=True)
def tidy(tmp_path: Path) -> Iterator[None]:
    marsh.OUTSIDE[:] = [str(tmp_path)]
    yield
    marsh.GOING_ON.set()
    while marsh.Orphaning.pids:
        os.kill(marsh.Orphaning.pids.pop(), signal.SIGKILL)
    marsh.GOING_ON.clear()


@pytest.mark.parametrize("cls", marsh.HIDDEN, ids=lambda cls: cls.__name__)
def test_a_hidden_fault_is_found_and_nothing_else(cls: type[Environment]) -> None:
    report = examined(cls, Plan(sample=3, episodes=20))
    assert {finding.id for finding in report.findings} == marsh.HIDDEN[cls], as_text(report)


@pytest.mark.parametrize("cls", marsh.HANGING, ids=lambda cls: cls.__name__)
def test_what_does_not_end_is_found_and_not_waited_for(cls: type[Environment]) -> None:
    report = examined(cls, Plan(sample=3, episodes=20, patience=1.0))
    assert {finding.id for finding in report.findings} == {marsh.HANGING[cls]}, as_text(report)
    assert "leftovers and memory" in report.not_tried


def test_another_process_has_to_list_the_same_tasks() -> None:
    done = run("test", f"{MARSH}:Unhashed", "--limit", "1", "--episodes", "20", env={"PYTHONHASHSEED": "0"})
    assert done.code == 1
    assert "✗ unstable: another process lists 'train' differently" in done.out
