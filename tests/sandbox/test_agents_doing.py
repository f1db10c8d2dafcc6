"""Whatever a program inside does is the agent's doing: a result, or a limit that was hit."""

import asyncio
import errno
import os
import pickle
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

import ors.testing
from ors import Server, ToolOutput, tool
from ors.errors import ToolCallError
from ors.sandbox import Sandbox, SandboxDead, SandboxLimit, SandboxSpec, open_sandbox
from ors.sandbox.battery import FULL, SMALL
from ors.sandbox.box import open_box
from ors.toolsets import SandboxEnvironment, Submit
from tests.sandbox.conftest import exists
from tests.sandbox.test_end import family
from tests.support.waiting import until

ROOT = os.getuid() == 0
SPEC = SandboxSpec(backend="bwrap")


@pytest_asyncio.fixture
async def real() -> AsyncIterator[Sandbox]:
    async with await open_box(SPEC) as opened:
        yield opened


# ── The end of a sandbox ─────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(
    not ROOT, reason="without control groups the kernel kills nobody for the memory of a sandbox"
)
async def test_a_sandbox_that_programs_kill_by_its_memory_has_hit_a_limit() -> None:
    async with await open_box(SMALL) as box:
        process = await box.spawn(["python3", "-c", f"print(flush=True)\ninput()\n{FULL}"])
        await process.read()  # it runs, so the agent has its own score again
        agent = Path(f"/proc/{family(box.cell.pid)[1]}/oom_score_adj")
        agent.write_text("1000")  # the kernel kills the agent, and not one of the programs
        await process.write(b"\n")
        assert (await process.wait(), process.limit) == (None, "memory")
        for again in (box.exec, box.grade):
            with pytest.raises(SandboxLimit, match="limit: memory"):
                await again(["true"])
        with pytest.raises(SandboxLimit, match="limit: memory"):
            await box.read_file("x")
        with pytest.raises(SandboxLimit, match="limit: memory"):
            await box.fork()


async def test_a_sandbox_that_ends_from_inside_has_hit_a_limit(real: Sandbox) -> None:
    running = asyncio.ensure_future(real.exec("echo begun; touch begun; sleep 600"))
    await until(lambda: exists(real, "begun"))
    os.kill(family(real.cell.pid)[1], signal.SIGKILL)  # the agent, as if a program had found a way
    result = await running
    assert (result.returncode, result.stdout, result.limit) == (None, b"begun\n", "killed")
    with pytest.raises(SandboxLimit) as caught:
        await real.exec(["true"])
    assert caught.value.reason == "killed"


async def test_what_the_host_ends_is_a_failure(real: Sandbox) -> None:
    running = asyncio.ensure_future(real.exec(["sleep", "600"]))
    await asyncio.sleep(0)
    os.kill(real.cell.pid, signal.SIGKILL)
    with pytest.raises(SandboxDead):
        await running
    with pytest.raises(SandboxDead):
        await real.grade(["true"])


async def test_an_agent_that_programs_keep_from_answering_has_hit_a_limit(
    real: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ors.sandbox.box.UNANSWERED", 0.2)
    os.kill(family(real.cell.pid)[1], signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(SandboxLimit) as caught:
            await real.exec(["true"], timeout=0.1)
        assert caught.value.reason == "time"
        await real.cell.gone


class Careless(SandboxEnvironment):
    """An author who catches nothing."""

    sandbox = SPEC
    toolsets = [Submit]

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, str]]:
        return [{}]

    def get_prompt(self) -> str:
        return ""

    @tool
    async def end(self) -> ToolOutput:
        """Ends the sandbox, as a program might."""
        os.kill(family(self.box.cell.pid)[1], signal.SIGKILL)
        await self.box.exec(["true"])
        return ToolOutput(blocks=[])

    @tool
    async def read(self) -> ToolOutput:
        """Reads what the agent was to write."""
        await self.box.read_file("answer")
        return ToolOutput(blocks=[])

    async def grade(self) -> float:
        return float(await self.box.read_file("answer") == b"42")


async def test_an_agent_cannot_void_its_episode_through_a_careless_author() -> None:
    async with ors.testing.session(Careless, split="train", index=0) as session:
        with pytest.raises(ToolCallError, match="No such file"):
            await session.call_tool("read", {})
        await session.call_tool("end", {})
        with pytest.raises(ToolCallError, match="a program has ended the sandbox"):
            await session.call_tool("read", {})
        output = await session.call_tool("submit", {})
        assert (output.reward, output.finished) == (0.0, True)


async def test_a_missing_file_is_the_agents_doing_and_can_be_pickled(real: Sandbox) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        await real.read_file("nothing")
    assert isinstance(caught.value, SandboxLimit)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (type(copied), copied.errno, copied.filename) == (FileNotFoundError, errno.ENOENT, "nothing")


async def test_a_request_that_the_agent_cannot_fulfil_does_not_end_it(real: Sandbox) -> None:
    with pytest.raises(OSError, match="recursion"):
        await real.write_file("d/" * 1500 + "file", b"")
    assert (await real.exec(["echo", "here"])).stdout == b"here\n"


async def test_copies_of_files_have_a_deadline(
    real: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await real.write_file("file", b"x")
    monkeypatch.setattr("ors.sandbox.box.FILE_SECONDS", 0.0)
    monkeypatch.setattr("ors.sandbox.box.SLOWEST_COPY", 1 << 60)
    for copy in (
        real.grade(["true"]),
        real.fork(),
        real.download("file", tmp_path / "x"),
        real.upload("/etc/hostname", "h"),
    ):
        with pytest.raises(SandboxLimit, match="takes too long") as caught:
            await copy
        assert caught.value.reason == "time"
    assert (await real.exec(["true"])).returncode == 0


# ── The agent, its limits, and the judge ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", ["nofile", "cpu", "nproc", "as", "stack"])
async def test_a_program_cannot_limit_the_agent_nor_its_judge(box: Sandbox, limit: str) -> None:
    attack = f"prlimit --pid 1 --{limit}=0:0; prlimit --pid $PPID --{limit}=0:0; echo $?"
    assert (await box.exec(attack)).stdout == b"1\n"
    await box.write_file("program", attack.encode())
    judge = "import subprocess as s; print(s.run(['sh', '/work/program'], capture_output=True).stdout)"
    assert (await box.grade(["python3", "-c", judge])).stdout == b"b'1\\n'\n"


async def test_a_loop_of_signals_holds_nothing_up(box: Sandbox) -> None:
    await box.exec("(while :; do kill -STOP -1; done) 2>/dev/null &")
    async with asyncio.timeout(60):
        for _ in range(20):
            assert (await box.exec(["true"])).returncode == 0
        assert (await box.grade(["echo", "graded"])).stdout == b"graded\n"


@pytest.mark.skipif(not ROOT, reason="a plain user has one user id")
async def test_agent_and_programs_of_a_root_server_are_two_users(real: Sandbox) -> None:
    result = await real.exec(
        "stat -Lc %u /proc/1 /proc/self; grep Cap /proc/1/status; chmod 777 /work; touch x; stat -c %u x"
    )
    agent, program, *capabilities, owner = result.stdout.split()
    assert (agent, program, owner) == (b"1001", b"1000", b"1000")
    assert {value.strip(b"0") for value in capabilities[1::2]} <= {
        b"",
        b"c",
    }  # only the bounding set has some
    await real.write_file("written", b"")
    assert (await real.exec("umask 077; echo mine > secret; stat -c %u written")).stdout == b"1000\n"
    assert await real.read_file("secret") == b"mine\n"


LOOK = """
import os, sys
parent = f"/proc/{os.getppid()}"
for name in ("cwd/judge.py", "fd/1", "mem", "environ"):
    try:
        os.close(os.open(f"{parent}/{name}", os.O_RDWR if name != "environ" else os.O_RDONLY))
        print(name)
    except OSError:
        continue
print("looked")
"""


@pytest.mark.parametrize("command", [["python3", "-I", "judge.py", "given"], "python3 judge.py given"])
async def test_a_judge_cannot_be_looked_into_by_the_program_that_it_starts(
    box: Sandbox, command: list[str] | str
) -> None:
    await box.write_file("program.py", LOOK.encode())
    judge = (
        "import subprocess, sys\n"
        "print(sys.executable, sys.prefix, *sys.argv)\n"
        "print(subprocess.run(['python3', '/work/program.py'], capture_output=True, text=True).stdout)\n"
    )
    result = await box.grade(command, files={"judge.py": judge})
    python, prefix, name, given, *found = result.stdout.decode().split()
    assert (name, given, found) == ("judge.py", "given", ["looked"])
    assert python.startswith(prefix)
    beside = await box.exec(
        ["python3", "-c", f"import subprocess\nsubprocess.run(['python3', '-c', {LOOK!r}])"]
    )
    assert b"mem" in beside.stdout  # the attack works where nobody grades


async def test_the_cpu_limit_is_for_programs_and_not_for_the_agent() -> None:
    async with await open_sandbox(SandboxSpec(backend="bwrap", cpu_seconds=1)) as box:
        result = await box.exec("while :; do :; done", timeout=30)
        assert (result.returncode, result.limit) == (-signal.SIGXCPU, None)
        assert (await box.exec("grep 'Max cpu time' /proc/1/limits")).stdout.split()[3:5] == [
            b"1",
            b"unlimited",
        ]


async def test_terminals_that_all_sandboxes_share_are_limited(box: Sandbox) -> None:
    code = "import os, time\nfor n in range(400): os.openpty()\nprint('opened'); time.sleep(30)"
    result = await box.exec(["python3", "-c", code], timeout=20)
    assert result.limit == "inodes"


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


async def test_links_of_graded_work_stay_in_it(box: Sandbox) -> None:
    await box.exec(
        "mkdir -p a/b; echo kept > a/file; ln -s a/file 1; ln -s /work/a 2; ln -s ../../1 a/b/3;"
        "ln -s nothing 4; ln -s . a/5; ln -s /etc/passwd 6; ln -s .. 7; ln -s a/../../tmp 8;"
        "ln -s /work/../tmp 9; ln -s 9 10; ln -s /workbench 11; ln -s 12 12; ln -s /work 13;"
        "ln -s 13/../etc/passwd 14; ln -s /proc/self/cwd/work/1 15"
    )
    result = await box.grade(
        "cd /work; cat 1 2/file a/b/3 a/5/file; find . -type l -printf '%f\\n' | sort -n"
    )
    assert result.stdout.split() == [b"kept"] * 4 + [b"1", b"2", b"3", b"4", b"5", b"13"]
    (fork,) = await box.fork()
    async with fork:
        assert len((await fork.exec("find . -type l")).stdout.split()) == 15


async def test_sparse_and_hard_linked_work_is_graded_and_forked(box: Sandbox, tmp_path: Path) -> None:
    await box.exec(
        "truncate -s 1T sparse; printf end | dd of=sparse bs=1 seek=1M conv=notrunc;"
        "head -c 100M /dev/urandom > large;"
        "mkdir d; for n in 1 2 3 4 5 6 7 8; do ln large d/$n; done; echo x > one; ln one two"
    )
    check = (
        "stat -c %s sparse; dd if=sparse bs=1 skip=1M count=4 status=none | od -c | head -1;"
        "cmp large d/8; stat -c %h large"
    )
    expected = (await box.exec(check)).stdout
    assert b"1099511627776" in expected
    assert expected.endswith(b"9\n")
    assert (await box.grade(f"cd /work; {check}")).stdout == expected
    (fork,) = await box.fork()
    async with fork:
        assert (await fork.exec(check)).stdout == expected
        assert (await fork.exec("echo y >> two; cat one")).stdout == b"x\ny\n"
    await box.exec("rm -r sparse large d")
    await box.download("/work", tmp_path / "work")
    assert (tmp_path / "work" / "two").read_bytes() == b"x\n"


async def test_a_folder_that_is_too_deep_for_the_host_leaves_nothing_there(
    box: Sandbox, tmp_path: Path
) -> None:
    await box.exec(["python3", "-c", "import os\nfor n in range(2043): os.mkdir('d'); os.chdir('d')"])
    with pytest.raises(SandboxLimit, match="path too long"):
        await box.download("/work", tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


async def test_read_only_folders_can_be_below_the_writable_ones() -> None:
    folder = Path(f"/tmp/ors-read-only-test-{os.getpid()}")
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("shown")
    folder.chmod(0o755)
    try:
        async with await open_sandbox(SandboxSpec(backend="bwrap", read_only=(str(folder),))) as box:
            result = await box.exec(f"cat {folder}/file; touch {folder}/x; touch /tmp/x && echo writable")
            assert result.stdout == b"shownwritable\n"
            assert b"Read-only" in result.stderr
            (fork,) = await box.fork()
            async with fork:
                assert (await fork.exec(f"cat {folder}/file")).stdout == b"shown"
    finally:
        (folder / "file").unlink()
        folder.rmdir()


@pytest.mark.skipif(not ROOT, reason="only root can put files into /usr")
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("parent", ["src", "share"])
async def test_folders_of_served_modules_are_hidden(
    parent: str, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"ors_test_served_{parent}_{os.getpid()}"
    folder = f"/usr/{parent}/{name}"
    path = Path(folder)
    (path / "data").mkdir(parents=True)
    (path / f"{name}.py").write_text("answers = 42")
    (path / "data" / "tasks.json").write_text("{}")
    monkeypatch.syspath_prepend(folder)
    try:
        __import__(name)
        async with await open_sandbox(replace(SPEC, writable=writable)) as box:
            (path / "data" / "later.json").write_text("{}")
            seen = await box.exec(f"cat {folder}/{name}.py {folder}/data/*; ls /usr/{parent}/")
            assert b"answers" not in seen.stdout + seen.stderr
            assert b"{}" not in seen.stdout
            assert (await box.exec(["python3", "-c", "import json, sqlite3"])).returncode == 0
    finally:
        shutil.rmtree(path)
        sys.modules.pop(name, None)


def test_files_that_exceed_the_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="must fit into memory"):
        SandboxSpec(memory=128 << 20, disk=256 << 20)
    with pytest.raises(ValueError, match="must fit into memory"):
        SandboxSpec(tmp=128 << 20)
    small = SandboxSpec(memory=128 << 20)
    assert (small.disk, small.tmp) == (64 << 20, 16 << 20)
    assert (SandboxSpec().disk, SandboxSpec().tmp) == (256 << 20, 64 << 20)
    assert SandboxSpec(backend="none", memory=8, disk=50).disk == 50


class Reaching(Careless):
    """Its sandboxes have the host's network."""

    sandbox = SandboxSpec(backend="bwrap", network="host")


def test_a_server_without_a_key_warns_of_sandboxes_that_reach_it(caplog: pytest.LogCaptureFixture) -> None:
    Server([Careless])
    Server([Careless, Reaching], api_keys=["secret"])
    assert caplog.records == []
    Server([Careless, Reaching])
    assert [record.message.split(":")[0] for record in caplog.records] == ["Reaching"]


@pytest.mark.skipif(not ROOT, reason="control groups belong to root")
async def test_the_processor_is_shared_by_sandboxes_and_not_by_their_processes(real: Sandbox) -> None:
    group = real.cell.launched.cgroup
    if group is None or not any((folder / "cpu.shares").exists() for folder in group.folders):
        pytest.skip("this machine has no control groups of version 1")
    (shares,) = [folder for folder in group.folders if (folder / "cpu.shares").exists()]
    await real.exec("for n in 1 2 3 4 5; do setsid sleep 600 & done")
    assert len((shares / "cgroup.procs").read_text().split()) >= 7  # bubblewrap and the agent too
