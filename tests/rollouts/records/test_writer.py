"""Runs on disk: written, killed, continued."""

import asyncio
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from ors.rollouts.records import RunError, RunInfo, RunWriter, read_run
from tests.support.episode_records import episode

RIVALS = 4
ROUNDS = 60


def ids(folder: Path) -> list[int]:
    return [entry.task.index or 0 for entry in read_run(folder).entries]


def test_what_is_appended_is_read_back_at_once(tmp_path: Path) -> None:
    records = [episode(0, 1.0), episode(1, 0.0), episode(2, None)]
    with RunWriter.create(tmp_path / "new" / "run", RunInfo()) as writer:
        for count, record in enumerate(records, 1):
            writer.append(record)
            assert list(read_run(tmp_path / "new" / "run").episodes()) == records[:count]


def test_a_run_is_not_overwritten_but_can_be_continued(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo(config={"a": 1})) as writer:
        writer.append(episode(0))
    with pytest.raises(RunError, match="already has a run"):
        RunWriter.create(tmp_path, RunInfo())
    with RunWriter.create(tmp_path, RunInfo(config={"a": 2}), append=True) as writer:
        writer.append(episode(1))
    with RunWriter.open(tmp_path) as writer:
        writer.append(episode(2))
    assert ids(tmp_path) == [0, 1, 2]
    assert read_run(tmp_path).info.config == {"a": 1}


def test_a_folder_without_a_run_cannot_be_continued(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        RunWriter.open(tmp_path)
    assert list(tmp_path.iterdir()) == []


def rival(number: int, folder: Path, how: dict[str, Any], start: Barrier) -> None:
    """Creates every run at the same moment as the others; notes whose run it is where it was not refused."""
    kept = []
    how = {**how, "part": str(number)} if "part" in how else how
    for turn in range(ROUNDS):
        start.wait(60)
        run = folder / str(turn)
        try:
            kept.append(RunWriter.create(run, RunInfo(config={"by": number}), **how))
        except RunError:
            continue
        (run / f"opened-{number}").write_text(str(read_run(run).info.config["by"]))


@pytest.mark.long
@pytest.mark.parametrize("how", [{}, {"append": True}, {"append": True, "part": ""}], ids=str)
def test_processes_that_create_a_run_at_once_agree_whose_it_is(tmp_path: Path, how: dict[str, Any]) -> None:
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(RIVALS)
    rivals = [spawn.Process(target=rival, args=(number, tmp_path, how, start)) for number in range(RIVALS)]
    for each in rivals:
        each.start()
    for each in rivals:
        each.join(120)
    assert [each.exitcode for each in rivals] == [0] * RIVALS
    for turn in range(ROUNDS):
        run = tmp_path / str(turn)
        creator = str(read_run(run).info.config["by"])
        opened = {path.name: path.read_text() for path in run.glob("opened-*")}
        assert set(opened.values()) == {creator}
        assert len(opened) == (RIVALS if "part" in how else 1)
        assert f"opened-{creator}" in opened
        assert not list(run.glob(".*"))


def test_a_description_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    wrong: Any = "games"
    for info in (RunInfo(wrong), RunInfo(created=float("inf")), RunInfo(created=1e300), RunInfo(schema=2)):
        with pytest.raises(ValueError, match=r"kind|created|schema"):
            RunWriter.create(tmp_path, info)
        assert not (tmp_path / "run.json").exists()
    RunWriter.create(tmp_path, RunInfo()).close()


def test_a_run_has_one_writing_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ors.rollouts.records import RunError, RunWriter\n"
        "try: RunWriter.open(Path(sys.argv[1]), part=sys.argv[2])\n"
        "except RunError as error: print(error)"
    )

    def other(part: str) -> str:
        words = [sys.executable, "-c", code, str(tmp_path), part]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    with RunWriter.create(tmp_path, RunInfo()):
        assert "Another process is writing to the run" in other("")
        assert other("1") == ""
    assert other("") == ""


def test_every_process_has_its_own_file_and_readers_read_all(tmp_path: Path) -> None:
    with (
        RunWriter.create(tmp_path, RunInfo(), part="0", append=True) as first,
        RunWriter.create(tmp_path, RunInfo(), part="1", append=True) as second,
    ):
        second.append(episode(1))
        first.append(episode(0))
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["episodes-0.jsonl", "episodes-1.jsonl"]
    assert ids(tmp_path) == [0, 1]


def test_a_part_is_a_plain_word(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be part of a file name"):
        RunWriter.create(tmp_path, RunInfo(), part="../x")


def test_a_line_torn_at_any_byte_is_ignored_and_cut_off(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        writer.append(episode(0))
        writer.append(episode(1))
    path = tmp_path / "episodes.jsonl"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        run = read_run(tmp_path)
        assert (len(run.entries), list(run.broken)) == (1, []), end
        with RunWriter.open(tmp_path) as writer:
            assert path.read_bytes() == whole[:first]
            writer.append(episode(2))
        assert ids(tmp_path) == [0, 2], end


def test_a_torn_line_that_is_longer_than_one_read_is_cut_off(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        writer.append(episode(0))
    path = tmp_path / "episodes.jsonl"
    whole = path.read_bytes()
    for torn in (b"x" * 200_000, b"\0" * 65_536):
        path.write_bytes(whole + torn)
        with RunWriter.open(tmp_path):
            assert path.read_bytes() == whole
    path.write_bytes(b"{" * 70_000)
    with RunWriter.open(tmp_path):
        assert path.stat().st_size == 0


def test_a_full_disk_leaves_the_file_whole(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        writer.append(episode(0))
        size = (tmp_path / "episodes.jsonl").stat().st_size
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                writer.append(episode(1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, ignored)
        assert (tmp_path / "episodes.jsonl").stat().st_size == size
        writer.append(episode(2))
    assert ids(tmp_path) == [0, 2]


def test_a_record_that_json_cannot_express_leaves_the_file_whole(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        with pytest.raises((TypeError, ValueError), match="object"):
            writer.append(episode(0, session=object()))
        writer.append(episode(1))
    assert ids(tmp_path) == [1]


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, RunInfo())
    writer.close()
    writer.close()
    with pytest.raises(RunError, match="is closed"):
        writer.append(episode())


async def test_tasks_and_threads_share_a_writer(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:

        async def play(number: int) -> None:
            await asyncio.sleep(0)
            writer.append(episode(number))

        def many(start: int) -> None:
            for number in range(start, start + 50):
                writer.append(episode(number))

        threads = [threading.Thread(target=many, args=(start,)) for start in (100, 200, 300)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*map(play, range(50)))
        for thread in threads:
            thread.join()
    run = read_run(tmp_path)
    assert sorted(entry.task.index or 0 for entry in run.entries) == [
        *range(50),
        *range(100, 150),
        *range(200, 250),
        *range(300, 350),
    ]
    assert list(run.broken) == []


WRITES_FOR_EVER = """
import itertools, sys
from ors.rollouts.records import RunInfo, RunWriter
from tests.support.episode_records import episode
writer = RunWriter.create(sys.argv[1], RunInfo(), append=True)
for number in itertools.count(int(sys.argv[2])):
    writer.append(episode(number, steps=5))
    print(number, flush=True)
"""


GROWTH = """
import sys
from pathlib import Path
from ors.rollouts.records import RunInfo, RunWriter, read_run
from tests.support.episode_records import episode
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
with RunWriter.create(sys.argv[1], RunInfo()) as writer:
    writer.append(episode(0, steps=10))
    before = resident()
    for number in range(1, 2000):
        writer.append(episode(number, steps=10))
    print(resident() - before)
run = read_run(sys.argv[1])
next(run.episodes())
before = resident()
assert sum(len(record.messages) for record in run.episodes()) == 21 * 2000
print(resident() - before)
"""


def test_neither_writing_nor_reading_keeps_the_episodes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert all(int(line) < 5e6 for line in done.stdout.splitlines()), done.stdout
    assert (tmp_path / "episodes.jsonl").stat().st_size > 10e6


def test_a_killed_process_loses_nothing_that_it_had_appended(tmp_path: Path) -> None:
    next_number = 0
    for appended in (1, 7, 40):
        words = [sys.executable, "-c", WRITES_FOR_EVER, str(tmp_path), str(next_number)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ})
        assert process.stdout is not None
        for _ in range(appended):
            last = int(process.stdout.readline())
        process.kill()
        last = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
        process.wait()
        process.stdout.close()
        found = ids(tmp_path)
        assert found == list(range(len(found)))
        assert len(found) > last
        next_number = len(found)
