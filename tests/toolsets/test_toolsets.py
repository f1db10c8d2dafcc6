"""Tools in a sandbox, as an agent calls them."""

import base64
import threading
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import pytest_asyncio

import ors.testing
from ors import Blocks, Environment, ImageBlock, JSONObject, TextBlock, ToolOutput
from ors.client import AsyncSession, ToolCallError
from ors.errors import SandboxDead, SandboxLimit, ServerFailed, ToolFailed
from ors.sandbox import Pool, SandboxSpec
from ors.toolsets import Bash, Files, Python, SandboxEnvironment, Submit
from ors.toolsets.environment import NOT_STARTED, Bounded, shortened


class Workshop(SandboxEnvironment):
    """All tools, and a grade of what is in a file."""

    toolsets = [Bash, Files, Python, Submit]
    sandbox: ClassVar[SandboxSpec | Pool] = SandboxSpec(backend="bwrap")

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    def get_prompt(self) -> Blocks:
        return [TextBlock(text="Work.")]

    async def grade(self) -> float:
        return float((await self.box.grade("cat /work/answer")).stdout == b"42\n")


class Narrow(Workshop):
    """Has little room."""

    sandbox = SandboxSpec(backend="bwrap", inodes=300, tmp=2**20)


@pytest_asyncio.fixture
async def session() -> AsyncIterator[AsyncSession]:
    async with ors.testing.session(Workshop, split="train", index=0) as opened:
        yield opened


def text(output: ToolOutput) -> str:
    block = output.blocks[0]
    assert isinstance(block, TextBlock)
    return block.text


async def bash(session: AsyncSession, command: str, **more: Any) -> str:
    return text(await session.call_tool("bash", {"command": command, **more}))


async def python(session: AsyncSession, code: str, **more: Any) -> str:
    return text(await session.call_tool("python", {"code": code, **more}))


# ── bash ─────────────────────────────────────────────────────────────────────────────────────────


async def test_the_shell_remembers_its_folder_variables_and_jobs(session: AsyncSession) -> None:
    await bash(session, "mkdir -p a/b; cd a/b; X='one two'; f() { echo f $1; }; sleep 300 &")
    assert await bash(session, 'pwd; echo "$X"; f 1; jobs -r | wc -l') == "/work/a/b\none two\nf 1\n1"


async def test_an_exit_code_and_both_streams_are_shown(session: AsyncSession) -> None:
    output = await session.call_tool("bash", {"command": "echo out; echo err >&2; (exit 3)"})
    assert text(output) == "out\nerr\n[exit code 3]"
    assert output.metadata == {"exit_code": 3}
    assert await bash(session, "true") == "[no output]"


async def test_a_command_of_many_lines_and_quotes_is_taken_as_it_is(session: AsyncSession) -> None:
    command = "cat <<'END'\n$X 'single' \"double\" \\back\nEND\nfor i in 1 2; do\n  echo $i\ndone"
    assert await bash(session, command) == "$X 'single' \"double\" \\back\n1\n2"


async def test_a_mistake_in_the_syntax_is_a_result(session: AsyncSession) -> None:
    assert "syntax error" in await bash(session, "if then")
    assert await bash(session, "echo still here") == "still here"


async def test_a_command_cannot_read_input(session: AsyncSession) -> None:
    assert await bash(session, "cat; read x; echo \"got '$x'\"") == "got ''"


async def test_a_command_over_its_time_is_killed_and_the_shell_stays(session: AsyncSession) -> None:
    await bash(session, "X=kept; sleep 301 &")
    shown = await bash(session, "echo before; sleep 302 | cat", timeout=0.5)
    assert shown.startswith("before\n")
    assert shown.endswith("\n[stopped after 0.5 seconds]")
    assert await bash(session, "echo $X; ps -eo args | grep '[s]leep 30'") == "kept\nsleep 301"


async def test_a_shell_that_spins_is_replaced(session: AsyncSession) -> None:
    shown = await bash(session, "echo before; while :; do :; done", timeout=0.5)
    assert shown.startswith("before\n[stopped after 0.5 seconds; the shell has ended")
    assert await bash(session, "pwd") == "/work"


async def test_a_shell_that_exits_is_replaced(session: AsyncSession) -> None:
    output = await session.call_tool("bash", {"command": "trap 'echo bye' EXIT; exit 4"})
    assert text(output).startswith("bye\n[the shell has ended")
    assert text(output).endswith("exit code 4]")
    assert output.metadata == {"exit_code": 4}
    assert await bash(session, "echo new") == "new"


async def test_long_output_is_cut_in_the_middle(session: AsyncSession) -> None:
    shown = await bash(session, "seq 1 200000; echo end")
    assert shown.startswith("1\n2\n")
    assert shown.endswith("\n200000\nend")
    assert "left out" in shown
    assert len(shown) < 17_000


async def test_endless_output_is_stopped(session: AsyncSession) -> None:
    shown = await bash(session, "yes", timeout=60)
    assert "stopped after 16 MB of output" in shown
    assert await bash(session, "echo still here") == "still here"


async def test_a_background_server_answers_the_next_command(session: AsyncSession) -> None:
    await bash(session, "echo hello > page; python3 -m http.server 8000 --bind 127.0.0.1 >log 2>&1 &")
    assert await python(session, ASK) == "b'hello\\n'"


ASK = """
import time, urllib.request
for _ in range(200):
    try:
        print(urllib.request.urlopen('http://127.0.0.1:8000/page').read())
        break
    except OSError:
        time.sleep(0.05)
"""


# ── python ───────────────────────────────────────────────────────────────────────────────────────


async def test_the_session_remembers_and_shows_the_last_value(session: AsyncSession) -> None:
    assert await python(session, "import math\nx = 3\ndef f(n): return n * x") == "[no output]"
    assert await python(session, "print('hi')\nf(14)") == "hi\n42"


async def test_an_exception_is_a_result_without_our_frames(session: AsyncSession) -> None:
    shown = await python(session, "def f():\n    1 / 0\nf()")
    assert "ZeroDivisionError" in shown
    assert "ors" not in shown
    assert "SyntaxError" in await python(session, "def")
    assert await python(session, "import sys; sys.exit(3)") == "SystemExit: 3"
    assert await python(session, "1 + 1") == "2"


async def test_code_over_its_time_is_interrupted_and_the_variables_stay(session: AsyncSession) -> None:
    await python(session, "x = 7")
    shown = await python(session, "print('before')\nwhile True: pass", timeout=0.5)
    assert shown.startswith("before")
    assert "KeyboardInterrupt" in shown
    assert shown.endswith("[stopped after 0.5 seconds]")
    assert await python(session, "x") == "7"


async def test_code_that_ignores_the_interrupt_is_killed(session: AsyncSession) -> None:
    code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    assert "the session has ended" in await python(session, code, timeout=0.5)
    assert await python(session, "'again'") == "'again'"


async def test_code_cannot_take_over_the_requests(session: AsyncSession) -> None:
    assert await python(session, "import sys; sys.stdin.read()") == "''"
    assert (
        await python(session, "import os; os.system('echo sub; cat'); os.write(1, b'raw'); None")
        == "sub\nraw"
    )


async def test_figures_are_images(session: AsyncSession) -> None:
    png = base64.b64encode(b"\x89PNG data").decode()
    # The part of matplotlib that the session uses; the machine may not have the package.
    fake = f"""
import base64, sys, types
class Figure:
    def savefig(self, path): open(path, 'wb').write(base64.b64decode({png!r}))
plots = types.SimpleNamespace(get_fignums=lambda: [1, 2], figure=lambda n: Figure(), close=lambda _: None)
sys.modules['matplotlib.pyplot'] = plots
"""
    output = await session.call_tool("python", {"code": fake})
    assert output.blocks[1:] == [ImageBlock(data=png, mimeType="image/png")] * 2


# ── files ────────────────────────────────────────────────────────────────────────────────────────


async def files(session: AsyncSession, tool: str, /, **given: Any) -> str:
    return text(await session.call_tool(tool, given))


async def test_a_file_is_created_viewed_and_changed(session: AsyncSession) -> None:
    await files(session, "create", path="deep/a.py", text="one\ntwo\nthree\n")
    assert await files(session, "view", path="deep/a.py") == "     1\tone\n     2\ttwo\n     3\tthree"
    assert await files(session, "view", path="deep/a.py", first=2, last=2) == "     2\ttwo"
    assert (
        await files(session, "replace", path="deep/a.py", old="two", new="2")
        == "Replaced it in deep/a.py, line 2."
    )
    await files(session, "insert", path="deep/a.py", line=0, text="zero")
    await files(session, "insert", path="deep/a.py", line=4, text="four")
    assert await bash(session, "cat deep/a.py") == "zero\none\n2\nthree\nfour"


async def test_a_long_file_is_viewed_in_pages(session: AsyncSession) -> None:
    await bash(session, "seq 1 1000 > long")
    shown = await files(session, "view", path="long")
    assert shown.endswith("   400\t400\n[… 600 more lines; view from line 401 …]")
    assert (await files(session, "view", path="long", first=2000)).endswith(
        "has 1000 lines; there is no line 2000]"
    )


async def test_a_view_is_bounded_however_long_the_lines_are(session: AsyncSession) -> None:
    await bash(session, "head -c 1000000 /dev/zero | tr '\\0' x > long; echo >> long; echo end >> long")
    shown = await files(session, "view", path="long")
    assert len(shown) < 17_000
    assert "984,000 characters, 0 lines left out" in shown
    assert shown.endswith("[… 1 more lines; view from line 2 …]")
    await bash(session, "for n in $(seq 300); do printf '%0100d\\n' $n; done > wide")
    shown = await files(session, "view", path="wide")
    assert len(shown) < 17_000
    assert "more lines; view from line" in shown


async def test_lines_are_counted_as_programs_count_them(session: AsyncSession) -> None:
    odd = "one\r\ntwo\x0c\x0b still two\u2028 and \x85\x1c\rnow\nthree\n"
    await files(session, "create", path="odd", text=odd)
    assert await files(session, "grep", pattern="three", where="odd") == "3:three"
    assert await files(session, "view", path="odd", first=3) == "     3\tthree"
    assert await files(session, "insert", path="odd", line=2, text="new") == "Inserted 1 lines into odd."
    assert await bash(session, "sed -n '3p;4p' odd") == "new\nthree"


async def test_files_are_found_by_name_and_by_content(session: AsyncSession) -> None:
    await bash(session, "mkdir d; echo 'x = 41' > d/a.py; echo hello > d/b.txt")
    assert await files(session, "find", name="*.py") == "./d/a.py"
    assert await files(session, "grep", pattern="4[0-9]", where="d") == "d/a.py:1:x = 41"
    assert await files(session, "grep", pattern="nowhere") == "No line matches."
    assert "No such file" in await files(session, "find", name="x", where="-delete")


@pytest.mark.parametrize(
    ("name", "given", "match"),
    [
        ("view", {"path": "nothing"}, "nothing: No such file"),
        ("view", {"path": "/dev/zero"}, "Not a regular file"),
        ("create", {"path": "/usr/x", "text": ""}, "Read-only"),
        ("replace", {"path": "two", "old": "a", "new": "b"}, "occurs 2 times in two"),
        ("insert", {"path": "two", "line": 9, "text": ""}, "has 1 lines, no line 9"),
        ("view", {"path": "binary"}, "not a text file"),
        ("view", {"path": "large"}, "too large"),
        ("view", {"path": "zero\0byte"}, "zero byte"),
    ],
)
async def test_a_mistake_is_told_to_the_agent(
    session: AsyncSession, name: str, given: dict[str, Any], match: str
) -> None:
    await bash(session, "echo aa > two; printf '\\377' > binary; head -c 2000000 /dev/zero > large")
    with pytest.raises(ToolCallError, match=match):
        await session.call_tool(name, given)


# ── the environment ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "reward"), [("echo 42 > answer", 1.0), ("echo 41 > answer", 0.0), ("true", 0.0)]
)
async def test_submit_asks_for_the_grade(session: AsyncSession, command: str, reward: float) -> None:
    await bash(session, command)
    output = await session.call_tool("submit")
    assert (output.reward, output.finished) == (reward, True)


async def test_a_sandbox_that_dies_is_a_failure_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = []

    async def setup(self: Workshop) -> None:
        await SandboxEnvironment.setup(self)
        boxes.append(self.box)

    monkeypatch.setattr(Workshop, "setup", setup)
    async with ors.testing.session(Workshop, split="train", index=0) as session:
        await session.get_prompt()
        await boxes[0].close()
        with pytest.raises(ToolFailed):
            await session.call_tool("bash", {"command": "true"})
    with pytest.raises(SandboxDead):
        await boxes[0].exec(["true"])


async def test_the_sandbox_ends_with_the_episode_and_comes_from_a_pool() -> None:
    async with Pool(SandboxSpec(backend="bwrap"), limit=1, warm=1) as pool:

        class Pooled(Workshop):
            sandbox = pool

        for _ in range(2):
            async with ors.testing.session(Pooled, split="train", index=0) as session:
                assert await bash(session, "ls") == "[no output]"
                assert pool.open == 1
            assert pool.open == 0


async def test_a_copy_of_an_episode_has_the_files_and_goes_its_own_way() -> None:
    first = Workshop({"k": [1]})
    await first.setup()
    await first.box.write_file("file", b"here")
    second = await first.fork()
    assert await second.box.read_file("file") == b"here"
    assert second.task_spec == first.task_spec
    assert second.task_spec is not first.task_spec
    await first.teardown()
    assert (await second.box.exec(["cat", "file"])).stdout == b"here"
    await second.teardown()


async def test_tools_without_a_sandbox_say_what_is_missing() -> None:
    class Bare(Workshop):
        setup = Environment.setup  # type: ignore[assignment]

    async with ors.testing.session(Bare, split="train", index=0) as session:
        with pytest.raises(ToolFailed, match="Bare has no sandbox: derive it from SandboxEnvironment"):
            await session.call_tool("bash", {"command": "true"})


def test_the_middle_of_a_text_is_left_out() -> None:
    assert shortened("short") == "short"
    assert (
        shortened("a" * 50 + "\n" * 10 + "b" * 50, 20)
        == f"{'a' * 10}\n[… 90 characters, 10 lines left out …]\n{'b' * 10}"
    )


def test_only_both_ends_of_output_are_kept() -> None:
    kept = Bounded(part=4)
    for number in range(10):
        kept.add(b"%d" % number)
    assert kept.text() == "0123\n[… 2 bytes left out …]\n6789"


async def test_an_agent_that_fills_its_sandbox_is_told_and_its_episode_goes_on() -> None:
    fill = "head -c 9999999 /dev/zero > /tmp/big; for n in $(seq 900); do : > $n; done; sleep 9"
    async with ors.testing.session(Narrow, split="train", index=0) as session:
        assert "the shell has ended" in await bash(session, fill)
        for shown in (
            await bash(session, "sleep 9"),
            await python(session, "import time; time.sleep(9)", timeout=15),
        ):
            assert "[killed: over the inodes limit; the " in shown or NOT_STARTED in shown
        assert (await session.call_tool("submit")).reward == 0.0


@pytest.mark.parametrize("reason", ["disk", "waiting"])
async def test_work_over_a_limit_earns_nothing_and_a_full_pool_is_a_failure(
    session: AsyncSession, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    async def grade(_: Workshop) -> float:
        raise SandboxLimit("too much of it", reason=reason)

    monkeypatch.setattr(Workshop, "grade", grade)
    if reason == "waiting":
        with pytest.raises(ToolFailed, match="too much of it"):
            await session.call_tool("submit")
    else:
        submitted = await session.call_tool("submit")
        assert text(submitted) == "Submitted, but it cannot be graded: too much of it"
        assert (submitted.reward, submitted.finished) == (0.0, True)


# ── forks ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_fork_has_the_files_and_new_programs_and_goes_its_own_way(session: AsyncSession) -> None:
    await bash(session, "echo 42 > answer; cd /tmp; x=1")
    await python(session, "y = 1")
    first, second = await session.fork(2)
    async with first, second:
        shown = await bash(first, "cat answer; pwd; echo $x")
        assert shown.startswith("42\n/work\n[this is a fork with a new program: folder, variables")
        assert await bash(first, "pwd") == "/work"
        shown = await python(first, "y")
        assert "NameError" in shown
        assert shown.endswith("folder, variables and jobs were not copied]")
        assert await python(first, "'again'") == "'again'"
        await bash(second, "echo 41 > answer")
        assert (await first.call_tool("submit")).reward == 1.0
        assert (await second.call_tool("submit")).reward == 0.0
    assert await bash(session, "pwd; cat /work/answer") == "/tmp\n42"


class Numbered(Workshop):
    """Numbers its copies in a fork of its own."""

    def __init__(self, task_spec: JSONObject, secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.copies = 0

    async def fork(self) -> "Numbered":
        made = await super().fork()
        self.copies += 1
        await made.box.write_file("number", str(self.copies).encode())
        return made


async def test_a_fork_of_ones_own_is_asked_for_each_copy() -> None:
    async with ors.testing.session(Numbered, split="train", index=0) as session:
        first, second = await session.fork(2)
        async with first, second:
            assert await bash(first, "cat number") == "1"
            assert await bash(second, "cat number") == "2"


class Stubborn(Workshop):
    """Has state of its own that cannot be copied."""

    async def setup(self) -> None:
        await super().setup()
        self.lock = threading.Lock()


async def test_a_sandbox_with_state_that_cannot_be_copied_says_so_and_leaves_no_sandbox() -> None:
    async with ors.testing.session(Stubborn, split="train", index=0) as session:
        with pytest.raises(ServerFailed, match=r"Stubborn.lock cannot be copied"):
            await session.fork(2)
        assert await bash(session, "echo here") == "here"
