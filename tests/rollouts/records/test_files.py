"""Files of a run that are no files: links, pipes, devices and folders."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ors.rollouts import UserMessage
from ors.rollouts.records import RunError, RunInfo, RunWriter, export_run, read_run
from ors.types import TextBlock
from tests.support.episode_records import episode

LONG = "x" * 70_000


def link(path: Path) -> None:
    outside = path.parent.parent / f"outside-{path.name}"
    path.rename(outside)
    path.symlink_to(outside)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


ODDITIES = pytest.mark.parametrize("made", [link, pipe, device, folder])


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        writer.append(episode(0))
        writer.append(episode(1, messages=(UserMessage([TextBlock(text=LONG)]),)))
    return tmp_path / "run"


@ODDITIES
@pytest.mark.parametrize("name", ["run.json", "episodes.jsonl", "episodes-1.jsonl"])
def test_a_run_whose_file_is_no_file_is_refused_at_once(
    kept: Path, name: str, made: Callable[[Path], None]
) -> None:
    (kept / name).touch()
    made(kept / name)
    with pytest.raises(RunError, match=rf"{name} (is a link|is not a regular file)"):
        read_run(kept)


@ODDITIES
def test_a_blob_that_is_no_file_costs_only_its_episode(kept: Path, made: Callable[[Path], None]) -> None:
    run = read_run(kept)
    (blob,) = (path for path in (kept / "blobs").iterdir() if path.stat().st_size == len(LONG))
    made(blob)
    with pytest.raises(RunError, match=r"is a link|is not a regular file"):
        run.episode(1)
    done = export_run(run, "atif", kept.parent / "out")
    assert (done.episodes, len(done.skipped)) == (1, 1)


def test_a_linked_folder_of_blobs_is_neither_read_nor_written(kept: Path) -> None:
    link(kept / "blobs")
    before = sorted(path.name for path in (kept / "blobs").iterdir())
    with pytest.raises(RunError, match="blobs is a link"):
        read_run(kept).episode(1)
    with RunWriter.open(kept) as writer, pytest.raises(RunError, match="blobs is a link"):
        writer.append(episode(2, messages=(UserMessage([TextBlock(text=LONG + "y")]),)))
    assert sorted(path.name for path in (kept / "blobs").iterdir()) == before


@ODDITIES
def test_a_writer_does_not_write_through_what_is_no_file(kept: Path, made: Callable[[Path], None]) -> None:
    outside = kept.parent / "outside-episodes.jsonl"
    made(kept / "episodes.jsonl")
    if outside.exists():
        outside.write_text("a text without an end")
    with pytest.raises((RunError, IsADirectoryError)):
        RunWriter.open(kept)
    assert not outside.exists() or outside.read_text() == "a text without an end"


def test_a_damaged_blob_is_written_again_with_the_episode_that_needs_it(kept: Path) -> None:
    blobs = sorted((kept / "blobs").iterdir())
    before = [path.read_bytes() for path in blobs]
    for path in blobs:
        path.write_bytes(b"?" * path.stat().st_size)
    with RunWriter.open(kept) as writer:
        writer.append(episode(1, id="again", messages=(UserMessage([TextBlock(text=LONG)]),)))
    assert [path.read_bytes() for path in blobs] == before
    assert len(list(read_run(kept).episodes())) == 2
