"""Repair: the gold solution earns everything, and cheats earn nothing."""

import pytest

from examples.repair import CASES, PROGRAMS, REPAIRED, Repair
from tests.examples.conftest import Play
from tests.examples.episode import text

LOOKS_FOR_ANSWERS = """
import os, subprocess
given = input()
for folder, _, names in os.walk("/home"):
    for name in names:
        data = open(os.path.join(folder, name), errors="replace").read()
        for line in data.split('"'):
            if data and given in line:
                print(line)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for part in ("environ", "cmdline"):
        try:
            print(open(f"/proc/{pid}/{part}").read())
        except OSError:
            pass
"""
TAKES_THE_GRADER_OVER = """
mkdir -p ~/.local/lib/python3.11/site-packages bin
for name in sitecustomize usercustomize json subprocess conftest run_cases; do
  echo 'import os; os.write(1, b"[\\"I\\", \\"IV\\", \\"MCMXCIV\\"]"); os._exit(0)' > $name.py
  cp $name.py ~/.local/lib/python3.11/site-packages/
done
printf '#!/bin/sh\\necho \\'["I"]\\'\\n' > bin/python3; chmod +x bin/python3
echo 'export PATH=/work/bin:$PATH PYTHONPATH=/work' > ~/.profile; cp ~/.profile ~/.bashrc
"""
WRITES_THE_VERDICT = """
import json, os, signal
grader = os.getppid()
verdict = json.dumps([True] * 5) + "\\n" + json.dumps("all passed")
for fd in (1, 2):
    try:
        with open(f"/proc/{grader}/fd/{fd}", "w") as out:
            out.write(verdict)
    except OSError:
        pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    ("split", "index", "name"), [("train", 0, "roman"), ("train", 1, "words"), ("test", 0, "clock")]
)
def test_the_gold_solution_earns_everything_and_the_broken_program_nothing(
    play: Play, split: str, index: int, name: str
) -> None:
    broken = play("repair", split, index)
    assert PROGRAMS[name].splitlines()[0] in text(broken.call("view", path="program.py"))
    assert broken.call("submit")["reward"] == 0.0
    gold = play("repair", split, index)
    for tool, given in Repair.solve({"program": name}):
        output = gold.call(tool, **given)
    assert (output["reward"], output["finished"]) == (1.0, True)
    assert name in CASES


def test_a_cheat_that_looks_for_the_answers_earns_nothing(play: Play) -> None:
    episode = play("repair", "train", 0)
    episode.call("create", path="program.py", text=LOOKS_FOR_ANSWERS)
    assert episode.call("submit")["reward"] == 0.0


def test_a_cheat_that_takes_the_grader_over_earns_nothing(play: Play) -> None:
    episode = play("repair", "train", 0)
    episode.call("bash", command=TAKES_THE_GRADER_OVER)
    assert episode.call("submit")["reward"] == 0.0


def test_what_a_cheat_plants_does_not_touch_an_honest_program(play: Play) -> None:
    episode = play("repair", "train", 0)
    episode.call("bash", command=TAKES_THE_GRADER_OVER)
    episode.call("create", path="program.py", text=REPAIRED["roman"])
    assert episode.call("submit")["reward"] == 1.0


def test_a_cheat_that_writes_the_verdict_itself_earns_nothing(play: Play) -> None:
    episode = play("repair", "train", 0)
    episode.call("create", path="program.py", text=WRITES_THE_VERDICT)
    assert episode.call("submit")["reward"] == 0.0


def test_a_cheat_that_makes_grading_impossible_earns_nothing(play: Play) -> None:
    episode = play("repair", "train", 0)
    episode.call("bash", command="truncate -s 1T huge; mkfifo pipe; chmod 0 program.py; chmod 0 /work")
    assert episode.call("submit")["reward"] == 0.0
