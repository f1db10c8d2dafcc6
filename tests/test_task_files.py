"""Tasks from files: read one at a time, by an index that is always right."""

import csv
import hashlib
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ors import Blocks, Environment, JSONObject, TextBlock, tasks_from, tool
from ors.errors import BadRequest, ServerFailed
from ors.testing import client

ROWS = [{"question": f"{n} + {n}\nis?", "answer": str(2 * n), "é": ""} for n in range(1000)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ors" / "tasks"


def as_jsonl(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    return path


def as_csv(path: Path, rows: list[dict[str, str]], delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def written(kind: str, folder: Path, rows: list[dict[str, str]] = ROWS) -> Path:
    path = folder / f"train.{kind}"
    if kind == "tsv":
        return as_csv(path, rows, "\t")
    return {"jsonl": as_jsonl, "csv": as_csv, "parquet": as_parquet}[kind](path, rows)


KINDS = pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])


@KINDS
def test_every_row_of_a_file_is_a_task(kind: str, tmp_path: Path) -> None:
    tasks = tasks_from(written(kind, tmp_path))
    assert (len(tasks), tasks[0], tasks[-1]) == (1000, ROWS[0], ROWS[-1])
    assert list(tasks) == ROWS
    assert tasks[10:990:70] == ROWS[10:990:70]
    with pytest.raises(IndexError):
        tasks[1000]


@KINDS
def test_a_changed_file_is_read_anew_and_an_open_one_keeps_its_rows(
    kind: str, tmp_path: Path, cache: Path
) -> None:
    path = written(kind, tmp_path)
    before = tasks_from(path)
    files = sorted(cache.iterdir())
    other = tmp_path / "other"
    other.mkdir()
    os.replace(written(kind, other, ROWS[5:]), path)
    assert list(tasks_from(path)) == ROWS[5:]
    assert list(before) == ROWS
    assert len(list(cache.iterdir())) == len(files)  # older ones are removed


@KINDS
def test_the_index_is_made_once(kind: str, tmp_path: Path, cache: Path) -> None:
    path = written(kind, tmp_path)
    tasks_from(path)
    made = {file.name: file.stat().st_ino for file in cache.iterdir()}
    assert list(tasks_from(path)) == ROWS
    assert {file.name: file.stat().st_ino for file in cache.iterdir()} == made


@KINDS
@pytest.mark.parametrize("temporary", [True, False])
def test_folders_that_cannot_be_written_do_no_harm(
    kind: str, temporary: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(kind, tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # fails for root too
    if not temporary:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert list(tasks_from(path)) == ROWS


TORN = {
    "empty": lambda whole: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "cut by a byte": lambda whole: whole[:-1],
    "cut by a row": lambda whole: (
        whole[: -len(whole.splitlines()[-1])] if b"question" in whole else whole[:-8]
    ),
    "zeros in the middle": lambda whole: whole[:80] + bytes(len(whole) - 160) + whole[-80:],
    "zeros at the end": lambda whole: whole[:80] + bytes(len(whole) - 80),
    "something else": lambda whole: b"torn" * 10,
}


@KINDS
@pytest.mark.parametrize("tear", TORN.values(), ids=TORN)
def test_a_torn_file_in_the_cache_is_made_again(
    kind: str, tear: Callable[[bytes], bytes], tmp_path: Path, cache: Path
) -> None:
    path = written(kind, tmp_path)
    tasks_from(path)
    before = {file.name: file.read_bytes() for file in cache.iterdir()}
    for file in cache.iterdir():
        file.write_bytes(tear(before[file.name]))
    assert list(tasks_from(path)) == ROWS
    assert [file.suffix for file in cache.iterdir()].count(".index") == 1
    inodes = {file.name: file.stat().st_ino for file in cache.iterdir()}
    assert list(tasks_from(path)) == ROWS
    assert {file.name: file.stat().st_ino for file in cache.iterdir()} == inodes  # whole again


FULL_DISK = """
set -e
mount -t tmpfs -o size=16k none "$XDG_CACHE_HOME"
if [ "$2" = both ]; then export TMPDIR="$XDG_CACHE_HOME"; fi
"$0" -c 'import sys, ors; print(len(ors.tasks_from(sys.argv[1])))' "$1"
ls "$XDG_CACHE_HOME/ors/tasks"
"""


@KINDS
@pytest.mark.parametrize("full", ["cache", "both"])
def test_a_full_cache_disk_does_no_harm(kind: str, full: str, tmp_path: Path) -> None:
    rows = [{"question": f"{n}?", "answer": "x"} for n in range(5000)]
    path = written(kind, tmp_path, rows)
    cache = tmp_path / "full"
    cache.mkdir()
    command = ["unshare", "-rm", "sh", "-c", FULL_DISK, sys.executable, str(path), full]
    done = subprocess.run(
        command, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True, timeout=60
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no disk can be mounted here: {done.stderr}")
    assert (done.stdout, done.stderr) == ("5000\n", "")


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize("size", [131_073, 3_000_000])
def test_long_fields_of_a_csv_file_are_read(kind: str, size: int, tmp_path: Path) -> None:
    rows = [{"question": "x" * size, "answer": "1"}, {"question": 'y"\n' * (size // 30), "answer": "2"}]
    assert list(tasks_from(written(kind, tmp_path, rows))) == rows


def test_a_quote_that_is_never_closed_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ors.task_files.FIELD_CHARS", 200_000)
    limit = csv.field_size_limit(131_072)
    path = tmp_path / "train.csv"
    path.write_text('question,answer\na,b\n"c,d\n' + "e,f\n" * 100_000)
    with pytest.raises(ValueError, match=r"train.csv, line \d+: field larger than field limit \(200000\)"):
        tasks_from(path)
    csv.field_size_limit(limit)


def in_a_process(path: Path, start: Any, answers: Any) -> None:
    start.wait()
    answers.put(list(tasks_from(path)) == ROWS)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_many_processes_may_make_the_index_at_once(kind: str, tmp_path: Path, cache: Path) -> None:
    path = written(kind, tmp_path)
    context = multiprocessing.get_context("spawn")
    start, answers = context.Event(), context.Queue()
    processes = [context.Process(target=in_a_process, args=(path, start, answers)) for _ in range(8)]
    for process in processes:
        process.start()
    start.set()
    assert all(answers.get(timeout=30) for _ in processes)
    for process in processes:
        process.join(30)
    assert not [file for file in cache.iterdir() if file.suffix not in (".index", ".jsonl")]


@KINDS
def test_tasks_travel_to_other_processes(kind: str, tmp_path: Path) -> None:
    tasks = tasks_from(written(kind, tmp_path))
    assert list(pickle.loads(pickle.dumps(tasks))) == ROWS


def test_open_files_are_closed_with_their_tasks(tmp_path: Path) -> None:
    path = written("jsonl", tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        tasks_from(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.jsonl", '{"a": 1}\n\nnot json\n', r"a\.jsonl, line 3: this is not valid JSON"),
        ("a.jsonl", '{"a": 1}\n[1]\n', r"a\.jsonl, line 2: a task is a JSON object, not list"),
        ("a.csv", "a,b\n1,2\n3\n", r"a\.csv, line 3: the row has 1 values, but the first line has 2 names"),
        ("a.csv", "a,b\n1,\xff\n", r"a\.csv, line 2: the text is not UTF-8; convert the file"),
        (
            "a.jsonl",
            '{"a": 1}\n{"a": "\xe9"}\n',
            r"a\.jsonl, line 2: the text is not UTF-8; convert the file",
        ),
        ("a.csv", 'a,b\n1,"2\n', r"a\.csv, line 2: unexpected end of data"),
        ("a.csv", "a,a\n1,2\n", "two columns of the first line have the same name"),
        ("a.json", "[]", r"write one task per line and name it \.jsonl"),
        ("a.txt", "", r"tasks come from \.jsonl, \.csv, \.tsv or \.parquet files"),
        ("a.parquet", "no", "is not a valid Parquet file"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_place(
    name: str, content: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=told):
        list(tasks_from(tmp_path / name))


def test_columns_that_are_no_json_are_named(tmp_path: Path) -> None:
    path = as_parquet(tmp_path / "a.parquet", [{"ok": 1, "image": b"\xff"}])
    with pytest.raises(ValueError, match="cannot express the values of 'image'"):
        tasks_from(path)


def test_a_missing_file_is_told_with_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=rf"there is no file a\.jsonl; relative paths start at {tmp_path}"
    ):
        tasks_from("a.jsonl")


def test_an_empty_file_has_no_tasks(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).touch()
        assert len(tasks_from(tmp_path / name)) == 0
        assert list(tasks_from(tmp_path / name)) == []


def made(path: Path) -> type[Environment]:
    class Quiz(Environment):
        private_fields = ("answer",)

        @classmethod
        def list_splits(cls) -> list[str]:
            return ["train"]

        @classmethod
        def list_tasks(cls, split: str) -> Sequence[JSONObject]:
            return tasks_from(path)

        def get_prompt(self) -> Blocks:
            return [TextBlock(text=str(self.task_spec["question"]))]

        @tool
        def answer(self) -> str:
            """The answer."""
            return str(self.task_spec["answer"])

    return Quiz


async def test_a_server_lists_counts_and_opens_them(tmp_path: Path) -> None:
    path = written("csv", tmp_path)
    async with client(made(path)) as connected:
        env = connected.environment("quiz")
        assert await env.num_tasks("train") == 1000
        shown = [{key: value for key, value in row.items() if key != "answer"} for row in ROWS]
        assert [task.task_spec for task in await env.list_tasks("train")] == shown
        assert [task.task_spec for task in await env.get_task_range("train", 5, 7)] == shown[5:7]
        assert (await env.get_task("train", 999)).task_spec == shown[999]
        with pytest.raises(BadRequest, match="the split has 1000 tasks"):
            await env.get_task("train", 1000)
        async with env.session(split="train", index=21) as session:
            assert (await session.call_tool("answer")).blocks == [TextBlock(text="42")]


async def test_a_row_that_is_not_valid_is_told_to_the_client(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "?", "answer": ""}\nnot json\n')
    async with client(made(path)) as connected:
        env = connected.environment("quiz")
        await env.get_task("train", 0)
        with pytest.raises(ServerFailed, match=r"a\.jsonl, line 2: this is not valid JSON"):
            await env.get_task("train", 1)


def test_rows_in_memory_are_a_data_set_too() -> None:
    tasks = tasks_from(ROWS)
    assert (len(tasks), tasks[-1], tasks[2:4]) == (1000, ROWS[-1], ROWS[2:4])
    with pytest.raises(TypeError, match="row 0 of list is int, not a dictionary"):
        tasks_from([1])[0]
    with pytest.raises(
        TypeError, match=r"the parts train, test: pass one of them, such as dataset\['train'\]"
    ):
        tasks_from({"train": ROWS, "test": ROWS})
    with pytest.raises(TypeError, match="with a length, not list_iterator; load a streamed data set without"):
        tasks_from(iter(ROWS))


def test_a_data_set_is_a_list_of_tasks() -> None:
    datasets = pytest.importorskip("datasets")
    tasks = tasks_from(datasets.Dataset.from_list(ROWS))
    assert (len(tasks), tasks[-1], tasks[2:4]) == (1000, ROWS[-1], ROWS[2:4])
    with pytest.raises(TypeError, match=r"has the parts train: pass one of them, such as dataset\['train'\]"):
        tasks_from(datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS)))
    with pytest.raises(TypeError, match="without streaming=True"):
        tasks_from(datasets.Dataset.from_list(ROWS).to_iterable_dataset())


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    path = as_jsonl(tmp_path / "tasks.jsonl", ROWS)
    known = hashlib.sha256(path.read_bytes()).hexdigest()
    tasks = tasks_from(path, sha256=known.upper())
    assert list(pickle.loads(pickle.dumps(tasks))) == ROWS
    as_jsonl(path, ROWS[1:])
    now = hashlib.sha256(path.read_bytes()).hexdigest()
    for ask in (lambda: tasks_from(path, sha256=known), lambda: pickle.loads(pickle.dumps(tasks))):
        with pytest.raises(ValueError, match=f"is another file: its SHA-256 is {now}, not "):
            ask()
    with pytest.raises(TypeError, match="sha256 is for files"):
        tasks_from([{}], sha256=known)
