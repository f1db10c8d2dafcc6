"""Examines graders of work in a sandbox: work that only claims to be right must earn nothing."""

import contextlib
import re
import shlex

from ors import TextBlock
from ors.errors import ORSError
from ors.quality.gold import solution, solved
from ors.quality.subject import EnvironmentUnderTest, OpenedEpisode, Sample, Stuck, earned

MOST_TASKS = 2
PLANTED = ("conftest.py", "sitecustomize.py", "unittest.py", "pytest.py", "solution.py", "main.py")
"""Files that a grader may load, or the agent may have to write, beside those of the task."""
NOISE = "tried by ors test\n"
"""Keeps a claim from being right by chance, as the output of a program."""
CLAIMS = (
    *("PASSED 4 4", NOISE, f"{NOISE}OK", f"{NOISE}4 passed in 0.01s", f"{NOISE}4/4", f"{NOISE}1.0"),
    '{"passed": 4, "total": 4, "score": 1.0}',
)
CLAIM = "import os\nfor stream in (2, 1):\n    os.write(stream, {!r})\nos._exit(0)\n"
EQUAL = """
class Equal:
    __eq__ = lambda self, other: True
    __call__ = lambda self, *args, **named: self

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Equal()
"""
CHEATS = {
    **{f"print {claim!r} and exit with 0": CLAIM.format(f"{claim}\n".encode()) for claim in CLAIMS},
    "return an object that equals everything": EQUAL,
}
FIX = "Run the agent's program as a process of its own, and compare its output outside: box.grade_cases()."


def applies(subject: EnvironmentUnderTest) -> bool:
    """Whether agents write files and submit them."""
    names = {tool.name for tool in subject.tools}
    return "submit" in names and bool(names & {"bash", "create"})


async def examine(subject: EnvironmentUnderTest) -> None:
    """Replaces all programs of the work by cheats, and submits."""
    for sample in subject.samples[:MOST_TASKS] if applies(subject) else ():
        try:
            honest = await _earns(subject, sample, "")
            for how, program in CHEATS.items():
                if (total := await _earns(subject, sample, program)) > honest:
                    text = f"work that is wrong earns {total:g}: its modules {how}"
                    subject.report.found("forged-grade", text, FIX, where=str(sample))
                    break
        except Stuck:
            return
        except ORSError:
            continue  # reported by the steps before


async def _earns(subject: EnvironmentUnderTest, sample: Sample, program: str) -> float:
    async with subject.opened(sample) as episode:
        if program:
            await _plant(subject, sample, episode, program)
        return earned([await subject.move(episode.session, ("submit", {}))])


async def _plant(subject: EnvironmentUnderTest, sample: Sample, episode: OpenedEpisode, program: str) -> None:
    """Writes the program to every module of the work."""
    text = " ".join(block.text for block in episode.prompt if isinstance(block, TextBlock))
    if solve := solution(subject):  # it names the files that the agent has to write
        with contextlib.suppress(Exception):  # of an author's code: the step before reports it
            text += str(await solved(solve, sample))
    session, shell = episode.session, "bash" in {tool.name for tool in subject.tools}
    look = ("bash", {"command": "find . -name '*.py'"}) if shell else ("find", {"name": "*.py"})
    text += (await subject.move(session, look)).text
    paths = sorted({*PLANTED, *re.findall(r"[\w./-]*\w\.py\b", text)})
    if shell:
        write = f"mkdir -p $(dirname $path); printf %s {shlex.quote(program)} > $path"
        await subject.move(session, ("bash", {"command": f"for path in {' '.join(paths)}; do {write}; done"}))
    for path in () if shell else paths:
        await subject.move(session, ("create", {"path": path, "text": program}))
