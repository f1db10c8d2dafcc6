"""Programs and files in a sandbox."""

import asyncio
import os
from pathlib import Path

import pytest

from ors.sandbox import Sandbox, SandboxDead, SandboxLimit, SandboxSpec, SandboxUnavailable, open_sandbox
from tests.sandbox.conftest import exists
from tests.support.waiting import until


async def test_a_program_runs_and_its_output_comes_back_in_two_streams(box: Sandbox) -> None:
    result = await box.exec("echo out; echo err >&2; exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert not result.timed_out
    assert not result.truncated
    assert result.limit is None


async def test_a_program_gets_input_of_any_size(box: Sandbox) -> None:
    data = os.urandom(3_000_000)
    result = await box.exec(["cat"], stdin=data, max_output=len(data))
    assert result.stdout == data


async def test_a_program_need_not_read_its_input(box: Sandbox) -> None:
    result = await box.exec(["true"], stdin=b"x" * 3_000_000)
    assert result.returncode == 0


async def test_a_program_that_is_missing_is_told_as_a_shell_tells_it(box: Sandbox) -> None:
    result = await box.exec(["no-such-program"])
    assert result.returncode == 127
    assert result.stderr == b"no-such-program: command not found\n"
    elsewhere = await box.exec(["true"], cwd="/nowhere")
    assert (elsewhere.returncode, elsewhere.stderr) == (127, b"true: there is no folder /nowhere\n")


async def test_what_was_printed_before_the_time_limit_comes_back(box: Sandbox) -> None:
    result = await box.exec("echo first; sleep 60 & sleep 60", timeout=0.3)
    assert (result.returncode, result.stdout) == (None, b"first\n")
    assert result.timed_out
    assert result.limit == "time"
    assert b"sleep" not in (await box.exec("ps -eo args | grep [s]leep")).stdout


async def test_a_program_that_died_by_a_signal_of_its_own_was_not_killed_by_a_limit(box: Sandbox) -> None:
    result = await box.exec("kill -SEGV $$")
    assert (result.returncode, result.limit) == (-11, None)


async def test_the_memory_limit_is_named(box: Sandbox) -> None:
    result = await box.exec(["python3", "-c", "x = b'x' * 2**30; print(len(x))"], timeout=20)
    assert result.stdout == b""
    assert result.limit == "memory" or b"MemoryError" in result.stderr


async def test_a_process_left_behind_does_not_hold_up_the_result(box: Sandbox) -> None:
    async with asyncio.timeout(20):
        result = await box.exec("sleep 600 & echo done")
    assert result.stdout == b"done\n"


async def test_many_programs_run_beside_each_other(box: Sandbox) -> None:
    script = "mkdir -p meet; touch meet/$0; until [ $(ls meet | wc -l) = 10 ]; do sleep 0.01; done; echo $0"
    results = await asyncio.gather(*(box.exec(["sh", "-c", script, str(n)]) for n in range(10)))
    assert [result.stdout for result in results] == [b"%d\n" % n for n in range(10)]


async def test_a_cancelled_program_is_killed(box: Sandbox) -> None:
    running = asyncio.ensure_future(box.exec("touch started; exec sleep 600"))
    await until(lambda: exists(box, "started"))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async def has_ended() -> bool:
        return (await box.exec("ps -eo args | grep -q [s]leep")).returncode != 0

    await until(has_ended, "the program has ended")


async def test_only_given_variables_are_set(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_SECRET", "hidden")
    async with await open_sandbox(SandboxSpec(env={"A": "1"})) as other:
        text = (await other.exec(["env"], env={"B": "2"})).stdout.decode()
    assert {"A=1", "B=2", "HOME=/home/agent"} <= set(text.split())
    assert "hidden" not in text


async def test_a_spawned_program_talks_over_streams(box: Sandbox) -> None:
    process = await box.spawn(["cat"])
    await process.write(b"hello")
    assert await process.read() == b"hello"
    await process.write(b"", end=True)
    assert await process.read() == b""
    assert await process.wait() == 0


async def test_a_spawned_program_waits_until_its_output_is_read(box: Sandbox) -> None:
    process = await box.spawn("yes | head -c 5000000; touch finished")
    total = 0
    while data := await process.read():
        total += len(data)
    assert total == 5_000_000
    assert await process.wait() == 0


async def test_a_spawned_program_can_be_killed(box: Sandbox) -> None:
    process = await box.spawn("sleep 600")
    process.kill()
    assert await process.wait() is None


async def test_a_file_comes_back_as_it_was_written(box: Sandbox) -> None:
    data = os.urandom(2_500_000)
    await box.write_file("deep/er/file", data, mode=0o755)
    assert await box.read_file("/work/deep/er/file") == data
    assert (await box.exec("stat -c %a deep/er/file")).stdout == b"755\n"
    await box.write_file("deep/er/file", b"short")
    assert await box.read_file("deep/er/file") == b"short"


async def test_a_missing_file_and_a_folder_are_errors_of_the_file_system(box: Sandbox) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        await box.read_file("nothing")
    with pytest.raises(OSError, match="Not a regular file"):
        await box.read_file("/work")
    with pytest.raises(OSError, match="Read-only"):
        await box.write_file("/usr/new", b"")


async def test_limits_of_files_are_typed_errors(box: Sandbox) -> None:
    await box.exec("head -c 2000000 /dev/zero > big")
    with pytest.raises(SandboxLimit, match="big") as caught:
        await box.read_file("big", max_bytes=1000)
    assert caught.value.reason == "file"
    with pytest.raises(SandboxLimit) as caught:
        await box.write_file("/tmp/full", bytes(100 << 20))
    assert caught.value.reason == "disk"


async def test_too_many_processes_are_a_typed_error() -> None:
    async with await open_sandbox(SandboxSpec(processes=4)) as box:
        sleeping = [await box.spawn(["sleep", "600"]) for _ in range(4)]
        with pytest.raises(SandboxLimit) as caught:
            await box.exec(["true"])
        assert caught.value.reason == "processes"
        for process in sleeping:
            process.kill()
            await process.wait()
        assert (await box.exec(["true"])).returncode == 0


async def test_folders_are_copied_in_and_out(box: Sandbox, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "run").write_text("#!/bin/sh\necho ran\n")
    (tree / "sub" / "run").chmod(0o755)
    (tree / "link").symlink_to("sub/run")
    (tree / "empty").touch()
    await box.upload(tree, "here")
    assert (await box.exec("here/sub/run; here/link")).stdout == b"ran\nran\n"
    await box.download("here", tmp_path / "back")
    assert sorted(path.name for path in (tmp_path / "back").rglob("*")) == ["empty", "run", "sub"]
    assert (tmp_path / "back" / "sub" / "run").stat().st_mode & 0o777 == 0o755


async def test_a_download_is_bounded(box: Sandbox, tmp_path: Path) -> None:
    await box.exec("truncate -s 1T sparse")
    with pytest.raises(SandboxLimit):
        await box.download("sparse", tmp_path / "sparse")
    assert not (tmp_path / "sparse").exists()
    assert (await box.exec(["true"])).returncode == 0


async def test_a_fork_has_the_files_and_goes_its_own_way(box: Sandbox) -> None:
    await box.exec("echo one > file; echo tmp > /tmp/file; echo home > ~/file; chmod 0 file; ln -s file link")
    first, second = await box.fork(2)
    async with first, second:
        assert (await first.exec("chmod 600 file; cat link /tmp/file ~/file")).stdout == b"one\ntmp\nhome\n"
        await first.write_file("file", b"changed")
        assert (await second.exec("stat -c %a file; chmod 600 file; cat file")).stdout == b"0\none\n"
    assert (await box.exec("chmod 600 file; cat file")).stdout == b"one\n"


MANY = "import os\nfor n in range(3000): open(f'/work/{n}', 'w').write(str(n))"


async def test_the_first_use_of_a_fork_waits_for_all_files(box: Sandbox, tmp_path: Path) -> None:
    await box.exec(["python3", "-c", MANY])
    forks = await box.fork(6)
    await box.exec("rm -r /work/*")  # the copies have the files of the moment of the fork
    count = "ls /work | wc -l"
    try:
        program = await forks[1].spawn(["sh", "-c", count])
        assert (await forks[0].exec(count)).stdout == b"3000\n"
        assert await program.read() == b"3000\n"
        assert await forks[2].read_file("2999") == b"2999"
        await forks[3].download("/work", tmp_path / "work")
        assert len(list((tmp_path / "work").iterdir())) == 3000
        (again,) = await forks[4].fork()
        async with again:
            assert (await again.exec(count)).stdout == b"3000\n"
        assert (await forks[5].grade("ls /work | wc -l")).stdout == b"3000\n"
    finally:
        for each in forks:
            await each.close()


async def test_a_fork_that_is_closed_before_its_files_are_there_tells_whoever_waits(box: Sandbox) -> None:
    await box.exec(["python3", "-c", MANY])
    (fork,) = await box.fork()
    waiting = asyncio.ensure_future(fork.exec(["true"]))
    await asyncio.sleep(0)
    await fork.close()
    with pytest.raises(SandboxDead):
        await waiting


async def test_a_snapshot_opens_a_sandbox_later(box: Sandbox) -> None:
    await box.write_file("file", b"kept")
    files = await box.snapshot()
    await box.close()
    async with await open_sandbox(files=files) as later:
        assert await later.read_file("file") == b"kept"
    files.close()


async def test_the_grader_sees_the_work_and_nothing_else_of_the_agent(box: Sandbox) -> None:
    await box.exec("echo mine > work.txt; echo bad > ~/.profile; echo bad > /tmp/planted; sleep 600 &")
    script = "cat /work/work.txt secret; ls -A /tmp; ls -A ~; ps -eo args | grep [s]leep; pwd"
    result = await box.grade(script, files={"secret": "hidden\n"})
    assert result.stdout.split() == [b"mine", b"hidden", b"grade", b"/home/agent/grade"]
    assert (await box.exec("ls ~/grade")).returncode != 0


async def test_the_grader_imports_nothing_from_its_folders_by_accident(box: Sandbox) -> None:
    await box.write_file("json.py", b"raise SystemExit('taken over')")
    await box.write_file("sitecustomize.py", b"raise SystemExit('taken over')")
    check = "import json; print(json.dumps(1))"
    for command in ("python3 check.py", f"cd /work; python3 -c '{check}'"):
        result = await box.grade(command, files={"check.py": check})
        assert (result.stdout, result.stderr) == (b"1\n", b"")


async def test_after_the_end_everything_is_a_typed_error(box: Sandbox) -> None:
    running = asyncio.ensure_future(box.exec("touch started; sleep 600"))
    await until(lambda: exists(box, "started"))
    await box.close()
    await box.close()
    with pytest.raises(SandboxDead):
        await running
    with pytest.raises(SandboxDead):
        await box.exec(["true"])
    with pytest.raises(SandboxDead):
        await box.read_file("x")


async def test_a_folder_can_be_the_root(rootfs: Path) -> None:
    async with await open_sandbox(SandboxSpec(backend="bwrap", rootfs=str(rootfs))) as box:
        result = await box.exec("ls /; cat /etc/motd; echo x > /work/x; echo x > /etc/x")
    assert {b"bin", b"usr", b"etc", b"work"} <= set(result.stdout.split())
    assert b"welcome" in result.stdout
    assert b"Read-only" in result.stderr
    assert not (rootfs / "work" / "x").exists()


async def test_a_root_without_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="there is no Python for the agent in"):
        await open_sandbox(SandboxSpec(backend="bwrap", rootfs=str(tmp_path)))


async def test_further_folders_can_be_read_and_not_written() -> None:
    async with await open_sandbox(SandboxSpec(read_only=("/etc/apt",))) as box:
        assert (await box.exec("ls /etc/apt")).returncode == 0
        assert b"Read-only" in (await box.exec("touch /etc/apt/x")).stderr


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"memory": 0}, "memory must be over 0"),
        ({"rootfs": "relative"}, "absolute"),
        ({"image": "a", "rootfs": "/b"}, "not both"),
        ({"env": {"A=B": ""}}, "environment variable"),
    ],
)
def test_a_wrong_spec_says_what_is_wrong(wrong: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SandboxSpec(**wrong)  # type: ignore[arg-type]


async def test_without_a_backend_the_error_says_for_each_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable) as caught:
        await open_sandbox()
    lines = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in lines] == ["bwrap", "podman", "docker"]
    assert "sudo apt-get install bubblewrap" in lines[0]


@pytest.mark.skipif(os.getuid() != 0, reason="sandboxes of a plain user see all that the user owns")
async def test_a_folder_that_sandboxes_may_not_see_is_an_error_that_says_so(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o700)
    (locked / "data").mkdir()
    with pytest.raises(SandboxUnavailable, match="make the paths of the SandboxSpec readable for all users"):
        await open_sandbox(SandboxSpec(backend="bwrap", read_only=(str(locked / "data"),)))


async def test_auto_never_takes_the_backend_that_does_not_isolate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable):
        await open_sandbox(SandboxSpec(backend="auto"))


async def test_the_backend_none_says_at_every_start_that_nothing_is_isolated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        async with await open_sandbox(SandboxSpec(backend="none")) as box:
            assert (await box.exec("pwd")).stdout.decode().strip() == box.work
            await box.write_file("file", b"here")
            assert Path(box.work, "file").read_bytes() == b"here"
        assert not Path(box.work).parent.exists()
    assert [record.message.split(":")[0] for record in caplog.records] == ["sandbox backend 'none'"] * 2
