"""Runs, read lazily."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from ors.rollouts import EpisodeRecord, Failed, TaskKey, TaskRef, task_key
from ors.rollouts.records import Entry, RunError, RunInfo, RunWriter, find_runs, read_run
from ors.types import JSONObject
from tests.support.episode_records import LOST, RECORDS, episode


def written(folder: Path, *records: EpisodeRecord, info: RunInfo | None = None) -> Path:
    with RunWriter.create(folder, info or RunInfo(), append=True) as writer:
        for record in records:
            writer.append(record)
    return folder


def test_the_index_has_what_tables_need(tmp_path: Path) -> None:
    record = episode(3, 0.5, sample=2, steps=4, attempts=2)
    (entry,) = read_run(written(tmp_path, record)).entries
    assert (entry.id, entry.task, entry.sample, entry.agent) == (
        record.id,
        TaskKey("adder", "test", 3, None),
        2,
        "random",
    )
    assert (entry.outcome, entry.reward, entry.usage) == (record.outcome, 0.5, record.usage)
    assert (entry.turns, entry.calls, entry.seconds, entry.attempts) == (4, 4, 3.0, 2)
    assert (entry.model_seconds, entry.call_seconds) == ((0.5,) * 4, (0.25,) * 4)
    assert entry.task.label == "test/3"


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(RECORDS)
def test_the_index_of_any_record_is_that_of_the_record(tmp_path: Path, record: EpisodeRecord) -> None:
    written(tmp_path, replace(record, id="first"), record)
    entry = read_run(tmp_path).entries[-1]
    (tmp_path / "episodes.jsonl").unlink()
    assert (entry.id, entry.task, entry.sample) == (record.id, task_key(record.task), record.sample)
    assert (entry.outcome, entry.reward, entry.usage) == (record.outcome, record.reward, record.usage)


def test_one_episode_is_read_without_the_others(tmp_path: Path) -> None:
    records = [episode(number) for number in range(5)]
    run = read_run(written(tmp_path, *records))
    path = tmp_path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line if n == 3 else b"x" * len(line) for n, line in enumerate(lines)))
    assert run.episode(run.number(records[3].id)) == run.episode(3) == records[3]
    assert run.number("3") == 3
    with pytest.raises(RunError, match=f"Episode {records[2].id} in .*episodes.jsonl: not valid JSON"):
        run.episode(2)


def test_an_id_may_be_shortened_while_it_is_clear(tmp_path: Path) -> None:
    run = read_run(written(tmp_path, episode(0, id="aab1"), episode(1, id="abb2"), episode(2, id="7777")))
    assert run.number("ab") == 1
    assert run.number("77") == 2
    for word, said in (
        ("a", "2 episodes"),
        ("c", "no episode 'c'"),
        ("", "no episode ''"),
        ("3", "no episode '3'"),
    ):
        with pytest.raises(RunError, match=said):
            run.number(word)


def test_a_broken_line_in_the_middle_is_skipped_and_named(tmp_path: Path) -> None:
    written(tmp_path, *(episode(number) for number in range(5)))
    path = tmp_path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b'{"schema": 1, "id": "x"}\n'
    # Torn lines, before and after their messages begin, and the next line after them.
    lines[2], lines[3] = lines[2][:200] + lines[2], lines[3][:-30] + lines[3]
    path.write_bytes(b"".join([*lines, b"\n", b"[]\n", b"\xff\n"]))
    run = read_run(tmp_path)
    assert [entry.task.index for entry in run.entries] == [0, 4]
    assert [str(line) for line in run.broken] == [
        "episodes.jsonl:2: environment: Field required",
        "episodes.jsonl:3: not valid JSON, or nested too deeply",
        "episodes.jsonl:4: not valid JSON, or nested too deeply",
        "episodes.jsonl:6: not valid JSON, or nested too deeply",
        "episodes.jsonl:7: not a JSON object",
        "episodes.jsonl:8: not valid JSON, or nested too deeply",
    ]


def test_messages_that_are_broken_are_skipped_by_readers_that_say_so(tmp_path: Path) -> None:
    records = [episode(number) for number in range(3)]
    written(tmp_path, *records)
    path = tmp_path / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"role":"tool"', b'"role":"fool"')
    path.write_bytes(b"".join(lines))
    run = read_run(tmp_path)
    with pytest.raises(RunError, match=r"messages\.2"):
        list(run.episodes())
    skipped: list[Entry] = []
    found = list(run.episodes(on_broken=lambda entry, error: skipped.append(entry)))
    assert found == [records[0], records[2]]
    assert [entry.id for entry in skipped] == [records[1].id]


def test_a_line_of_a_newer_schema_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    written(tmp_path, episode(0), episode(1))
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(
        path.read_bytes().replace(
            b'{"schema":1,"id":"0000000000000001', b'{"schema":2,"id":"0000000000000001'
        )
    )
    with pytest.raises(RunError, match=r"episodes\.jsonl:2: schema 2 is newer .* update ors"):
        read_run(tmp_path)


@pytest.mark.parametrize("spec", [None, {"a": 1, "messages": [1], "schema": {"schema": 1}}])
def test_lines_of_other_writers_are_read_whatever_their_order_of_keys(
    spec: JSONObject | None, tmp_path: Path
) -> None:
    record = episode(0, steps=2, task=TaskRef("adder", spec=spec))
    written(tmp_path, record)
    path = tmp_path / "episodes.jsonl"
    before = read_run(tmp_path).entries
    line = json.loads(path.read_bytes())
    del line["times"]
    for keys in (line, dict(reversed(line.items()))):
        for separators in ((",", ":"), (", ", ": ")):
            path.write_text(json.dumps(keys, separators=separators) + "\n")
            run = read_run(tmp_path)
            assert run.episode(0) == record
            assert [replace(each, size=0) for each in run.entries] == [
                replace(each, size=0) for each in before
            ]


def test_a_sample_of_a_task_that_was_played_again_counts_once(tmp_path: Path) -> None:
    failed = Failed("environment", "call", "ToolFailed")
    records = [
        episode(0, None, outcome=LOST, id="a"),
        episode(1, None, outcome=failed, id="b"),
        episode(0, None, outcome=LOST, id="c"),
        episode(0, 1.0, id="d"),
        episode(1, 1.0, id="e"),
        episode(0, 0.0, id="f"),
        episode(0, 0.0, id="g", sample=1),
        episode(0, None, outcome=LOST, id="h", sample=1),
        episode(0, 1.0, id="i", agent="another"),
    ]
    run = read_run(written(tmp_path / "one", *records))
    assert [entry.id for entry in run.entries] == ["f", "e", "g", "i"]
    assert run.episode(run.number("f")) == records[5]
    assert [record.id for record in run.episodes()] == ["f", "e", "g", "i"]
    for replaced in "abcdh":
        with pytest.raises(RunError):
            run.number(replaced)
    sessions = read_run(written(tmp_path / "two", *records, info=RunInfo("sessions")))
    assert [entry.id for entry in sessions.entries] == list("abcdefghi")


def test_a_run_that_grows_is_read_from_where_it_was(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        run = read_run(tmp_path)
        assert list(run.entries) == []
        writer.append(episode(0))
        with (tmp_path / "episodes.jsonl").open("ab") as file:
            file.write(b'{"schema":1')
            file.flush()
            run.refresh()
            assert len(run.entries) == 1
            file.write(b"}\n")
        run.refresh()
        run.refresh()
    assert [line.number for line in run.broken] == [2]
    assert len(run.entries) == 1


def test_tasks_given_whole_are_known_by_their_content() -> None:
    one, same, other = (
        TaskRef("adder", spec=spec) for spec in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1})
    )
    assert task_key(one) == task_key(same) != task_key(other)
    assert task_key(one).label.startswith("spec ")


def test_runs_are_found_below_a_folder(tmp_path: Path) -> None:
    for name in ("b/deep/er", "a", ".hidden"):
        written(tmp_path / name)
    (tmp_path / "a" / "inner").mkdir()
    (tmp_path / "a" / "inner" / "run.json").touch()
    assert list(find_runs(tmp_path)) == [tmp_path / "a", tmp_path / "b" / "deep" / "er"]
    assert list(find_runs(tmp_path / "a")) == [tmp_path / "a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "run.json is not valid JSON"),
        ("[]", "run.json: schema None is not 1"),
        ('{"schema": 7}', "schema 7 is newer than this version of ors can read: update ors"),
        ('{"schema": 1, "kind": "x"}', "run.json: kind: "),
    ],
)
def test_a_wrong_run_json_says_what_is_wrong(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunError, match=said):
        read_run(tmp_path)
