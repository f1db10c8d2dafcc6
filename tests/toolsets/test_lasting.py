"""A shell and a Python that last, under code that wants to confuse them: all of it is a result."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import ors.testing
from ors import TextBlock
from ors.client import AsyncSession
from ors.sandbox import Sandbox, SandboxSpec, open_sandbox
from ors.toolsets import Bash
from ors.toolsets.environment import MOST_OUTPUT, Lasting
from tests.toolsets.test_toolsets import Workshop, bash, python


@pytest_asyncio.fixture
async def session() -> AsyncIterator[AsyncSession]:
    async with ors.testing.session(Workshop, split="train", index=0) as opened:
        yield opened


@pytest_asyncio.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with await open_sandbox(SandboxSpec(backend="bwrap", processes=16)) as opened:
        yield opened


# ── the shell ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command",
    [
        "printf() { echo forged; }; jobs() { echo forged; }; echo() { :; }; eval() { :; }; exec() { :; }",
        "exec >/dev/null 2>&1",
        "exec >&- 2>&- 9>&- </etc/passwd",
        "set -euo pipefail",
        "trap 'echo forged >&1' DEBUG ERR RETURN; trap - DEBUG ERR RETURN",
        "shopt -s expand_aliases; alias builtin=false if=false",
        "IFS=0123456789; LC_ALL=C; PS4='$(echo forged)'",
        "export TMPDIR=/nowhere POSIXLY_CORRECT=1",
        "enable -n printf; ulimit -n 20",
        "echo 123 >&9; command -p printf '%s\\n' '((: 1 2 3 : forged'",
    ],
)
async def test_no_command_takes_the_status_away(session: AsyncSession, command: str) -> None:
    await bash(session, command)
    assert await bash(session, "builtin echo here; pwd") == "here\n/work"
    output = await session.call_tool("bash", {"command": "builtin echo there; (exit 3)"})
    assert output.metadata == {"exit_code": 3}
    block = output.blocks[0]
    assert isinstance(block, TextBlock)
    assert block.text.startswith("there\n")
    assert block.text.endswith("exit code 3]")


@pytest.mark.parametrize("flag", ["x", "v"])
async def test_tracing_shows_the_command_and_nothing_of_ours(session: AsyncSession, flag: str) -> None:
    await bash(session, f"set -{flag}")
    shown = await bash(session, "echo traced")
    assert shown in ("++ echo traced\ntraced", "echo traced\ntraced")


async def test_printing_without_newlines_is_bounded(session: AsyncSession) -> None:
    shown = await bash(session, "yes | tr -d '\\n'")
    assert "stopped after 16 MB of output" in shown
    assert len(shown) < 17_000
    assert await bash(session, "echo still here") == "still here"


async def test_a_command_that_is_not_unicode_is_a_result() -> None:
    env = Workshop({})
    await env.setup()
    try:
        shown = (await Bash(env).bash("echo '\ud800'; echo '\0'; echo on")).blocks[0]
        assert isinstance(shown, TextBlock)
        assert shown.text.endswith("\non")
    finally:
        await env.teardown()


async def test_an_editor_that_wants_a_terminal_ends_by_itself(session: AsyncSession) -> None:
    assert await bash(session, "echo $TERM") == "dumb"
    if "vim" not in await bash(session, "command -v vim"):
        pytest.skip("there is no vim here")
    shown = await bash(session, "vim file", timeout=60)
    assert "needs a terminal" in shown
    assert shown.endswith("[exit code 1]")
    await bash(session, "echo aa > file; vim -c '%s/a/b/g' -c wq file")
    assert await bash(session, "cat file") == "bb"


# ── Python ───────────────────────────────────────────────────────────────────────────────────────

FORGED = """
import os, sys
frame = sys._getframe()
while frame.f_back:
    frame = frame.f_back
    found = dict(frame.f_locals)
    if "report" in found:
        os.write(found["report"], %r.replace(b"N", str(found["number"]).encode()))
"""


@pytest.mark.parametrize(
    "report",
    [
        b"N " + b"[" * 60_000 + b"\n",
        b'N ["\\ud800"]\n',
        b'N ["/tmp/\\u0000"]\n',
        b"N 99999999999999999999\n",
        b"N 1000000000\n",
        b"\n" * 200_000,
        b"\xff\0" * 50_000,
    ],
)
async def test_a_forged_report_is_a_result(session: AsyncSession, report: bytes) -> None:
    assert "Error" not in await python(session, FORGED % report, timeout=20)
    assert await python(session, "1 + 1") == "2"


async def test_endless_reports_are_stopped(session: AsyncSession) -> None:
    shown = await python(session, f"while True:\n    {FORGED % (b'x' * 60_000)}".replace("\n", "\n    "))
    assert f"stopped after {MOST_OUTPUT >> 20} MB of output" in shown
    assert await python(session, "1 + 1") == "2"


async def test_python_imports_from_its_folder_and_survives_modules_with_names_of_ours(
    session: AsyncSession,
) -> None:
    await bash(
        session, "echo 'V = 5' > mine.py; for n in json ast os typing linecache; do echo 1/0 > $n.py; done"
    )
    await bash(session, "cp *.py /tmp")
    assert await python(session, "import mine\nmine.V") == "5"
    assert "the session has ended" in await python(session, "import os; os._exit(3)")
    assert await python(session, "import json\njson.dumps([1])") == "'[1]'"


async def test_python_can_pickle_and_use_processes(session: AsyncSession) -> None:
    await python(session, "def square(n): return n * n\nclass Thing: pass\nimport pickle, multiprocessing")
    assert await python(
        session, "pickle.loads(pickle.dumps(square))(3), type(pickle.loads(pickle.dumps(Thing())))"
    ) == ("(9, <class '__main__.Thing'>)")
    assert (
        await python(session, "with multiprocessing.Pool(2) as p: print(p.map(square, [1, 2, 3]))")
        == "[1, 4, 9]"
    )


async def test_the_child_of_a_fork_takes_no_requests(session: AsyncSession) -> None:
    await python(session, "import os\nparent = os.getpid()\nchild = os.fork()")
    assert [await python(session, "os.getpid() == parent") for _ in range(5)] == ["True"] * 5


async def test_a_traceback_shows_the_lines_of_the_code(session: AsyncSession) -> None:
    shown = await python(session, "def f():\n    return 1 / 0  # here\n\nf()")
    assert "    return 1 / 0  # here\n" in shown
    assert "    f()\n" in shown


async def test_text_that_is_not_unicode_is_shown(session: AsyncSession) -> None:
    assert await python(session, "print('\\ud800')") == "\\ud800"
    assert "ValueError: \\udfff" in await python(session, "raise ValueError('\\udfff')")
    assert await python(session, "1 + 1") == "2"


async def test_a_session_that_was_killed_for_its_memory_says_so(session: AsyncSession) -> None:
    fill = "kept = []\nwhile True: kept.append(b'x' * 2**20)"
    assert "killed: over the memory limit; the session has ended" in await python(session, fill)
    assert await python(session, "1 + 1") == "2"


async def test_what_a_python_says_that_cannot_start_is_shown(session: AsyncSession) -> None:
    where = "$(python3 -c 'import site; print(site.getusersitepackages())')"
    broken = "import os; os.write(2, b'broken'); os._exit(1)"
    await bash(session, f'mkdir -p {where}; echo "{broken}" > {where}/usercustomize.py')
    assert (await python(session, "1")).startswith("broken")


# ── any program ──────────────────────────────────────────────────────────────────────────────────


async def test_output_before_a_report_is_never_lost(box: Sandbox) -> None:
    script = 'while read -r n; do head -c 9000 /dev/zero | tr "\\0" x; echo "$n 7" >&3; done'
    program = Lasting(box, ["sh", "-c", script])
    await program.start()
    for _ in range(200):
        reply = await program.ask(lambda number: b"%d\n" % number, 30, _nothing)
        assert (reply.report, len(reply.output)) == ((7,), 9000)


async def test_a_program_that_cannot_start_is_a_result(box: Sandbox) -> None:
    sleeping = [await box.spawn(["sleep", "600"]) for _ in range(40)]
    program = Lasting(box, ["sh"])
    await program.start()
    reply = await program.ask(lambda number: b"", 30, _nothing)
    assert "could not be started" in reply.text()
    for each in sleeping:
        each.kill()


async def test_a_request_that_nobody_reads_ends_at_its_time_limit(box: Sandbox) -> None:
    program = Lasting(box, ["sleep", "600"])
    await program.start()
    async with asyncio.timeout(60):
        reply = await program.ask(lambda number: b"x" * 4_000_000, 0.5, _nothing)
    assert reply.text("ended") == "[stopped after 0.5 seconds; ended]"


async def _nothing() -> None:
    """Interrupts nothing."""
