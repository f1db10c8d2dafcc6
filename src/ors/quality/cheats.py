"""Examines graders of work in a sandbox: work that only claims to be right must earn nothing."""

import re
import shlex

from ors import TextBlock, ToolSpec
from ors.errors import ORSError
from ors.quality.gold import solution, solved
from ors.quality.subject import Action, EnvironmentUnderTest, OpenedEpisode, Sample, Stuck, earned

MOST_TASKS = 2
PLANTED = ("conftest.py", "sitecustomize.py", "unittest.py", "pytest.py", "solution.py", "main.py")
"""Files that a grader may load, or the agent may have to write, beside those of the task."""
NAMES = re.compile(r"[\w./-]*\w\.py\b")
CLAIM = "import os\nfor stream in (2, 1):\n    os.write(stream, {!r})\nos._exit(0)\n"
NOISE = "tried by ors test\n"
"""Keeps a claim from being right by chance, as the output of a program."""
CLAIMS = (
    *("PASSED 4 4", NOISE, f"{NOISE}OK", f"{NOISE}4 passed in 0.01s", f"{NOISE}4/4", f"{NOISE}1.0"),
    '{"passed": 4, "total": 4, "score": 1.0}',
)
EQUAL = """
class Equal:
    __hash__ = object.__hash__
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
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
FIX = (
    "Let the agent's program be a process of its own, and compare what it prints outside: box.grade_cases()."
)


def applies(subject: EnvironmentUnderTest) -> bool:
    """Whether agents write files and submit them."""
    tools = {tool.name: _parameters(tool) for tool in subject.tools}
    writes = "command" in tools.get("bash", ()) or {"path", "text"} <= tools.get("create", set())
    return writes and tools.get("submit") == set()


async def examine(subject: EnvironmentUnderTest) -> None:
    """Replaces all programs of the work by cheats, and submits."""
    for sample in subject.samples[:MOST_TASKS] if applies(subject) else ():
        try:
            await _try(subject, sample)
        except Stuck:
            return
        except ORSError:
            continue  # reported by the steps before


def _parameters(tool: ToolSpec) -> set[str]:
    properties = (tool.input_schema or {}).get("properties")
    return set(properties) if isinstance(properties, dict) else set()


async def _try(subject: EnvironmentUnderTest, sample: Sample) -> None:
    honest = await _earns(subject, sample, "")
    for how, program in CHEATS.items():
        total = await _earns(subject, sample, program)
        if total > honest:
            text = f"work that is wrong earns {total:g}: its modules {how}"
            subject.report.found("forged-grade", text, FIX, where=str(sample))
            return


async def _earns(subject: EnvironmentUnderTest, sample: Sample, program: str) -> float:
    async with subject.opened(sample) as episode:
        actions = await _plant(subject, sample, episode, program) if program else []
        moves = [await subject.move(episode.session, action) for action in [*actions, ("submit", {})]]
    return earned(moves)


async def _plant(
    subject: EnvironmentUnderTest, sample: Sample, episode: OpenedEpisode, program: str
) -> list[Action]:
    """Calls that write the program to every module of the work."""
    known = {tool.name for tool in subject.tools}
    text = " ".join(block.text for block in episode.prompt if isinstance(block, TextBlock))
    text += await _gold(subject, sample)
    name, given = (
        ("bash", {"command": "find . -name '*.py'"}) if "bash" in known else ("find", {"name": "*.py"})
    )
    if name in known:
        text += (await subject.move(episode.session, (name, given))).text
    paths = sorted({*PLANTED, *NAMES.findall(text)})
    if "bash" not in known:
        return [("create", {"path": path, "text": program}) for path in paths]
    written, words = shlex.quote(program), shlex.join(paths)
    command = f"for path in {words}; do mkdir -p $(dirname $path); printf %s {written} > $path; done"
    return [("bash", {"command": command})]


async def _gold(subject: EnvironmentUnderTest, sample: Sample) -> str:
    """The calls of the gold solution, which name the files that the agent has to write."""
    solve = solution(subject)
    try:
        return str(await solved(solve, sample)) if solve else ""
    except Exception:  # an author's code, and reported by the step before
        return ""
