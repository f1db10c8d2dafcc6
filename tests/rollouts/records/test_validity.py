"""One rule for reader and writer: what is written can be read, and what is read can be shown."""

import json
import math
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ors.cli.output import runs as printing
from ors.client import ToolInvocation
from ors.inspector.run_queries import histogram, pairs, rewards
from ors.inspector.shown_runs import ShownRuns
from ors.rollouts import AgentMessage, EpisodeRecord, TaskRef, ToolMessage, Usage, UserMessage
from ors.rollouts.records import (
    OUTCOMES,
    Run,
    RunInfo,
    RunWriter,
    compare,
    export_run,
    read_run,
    record_json,
    summarize,
    task_rows,
)
from ors.types import ImageBlock, TextBlock, ToolSpec
from tests.support.episode_records import episode


def nested(depth: int, innermost: Any = 0) -> Any:
    for _ in range(depth):
        innermost = {"a": innermost}
    return innermost


LOOP: dict[str, Any] = {}
LOOP["loop"] = LOOP
HOSTILE: list[Any] = [
    *(math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e-320, 10**30, 10**400, -(2**63), 2**63, 2**64, -1),
    *("1.0", "", "\ud800", "a\x00b", "\x1b[31m", b"bytes", b"\xff", "x" * 70_000, True, None, 3, 0.5),
    *([], {}, [None], {1: "a", "1": "b"}, {(1, 2): 3}, {None: 0}, {"\udc00": "\ud800"}, {"messages": []}),
    *(nested(190), nested(201), nested(260), nested(900), nested(5000), LOOP, object(), {3}, Decimal("0.5")),
    *(np.float64(0.5), np.float64("nan"), np.array([1.0]), {"blob": "0" * 64}, {"schema": 1}, 1e11, 1e300),
    *({"n": math.nan}, {"n": 10**5000}, episode(), Usage(), TextBlock(text="x"), lambda: None),
]
"""Values for every place of a record."""


def with_value(record: EpisodeRecord, place: str, value: Any) -> EpisodeRecord:
    """The record with a value in some place of it, or of its messages."""
    prompt, reply, result = record.messages
    assert isinstance(reply, AgentMessage)
    assert isinstance(result, ToolMessage)
    kind, _, name = place.partition(".")
    if kind == "record":
        return replace(record, **{name: value})
    if kind == "task":
        return replace(record, task=replace(record.task, **{name: value}))
    if kind == "usage":
        return replace(record, usage=replace(record.usage, **{name: value}))
    if kind == "reply":
        return replace(record, messages=(prompt, replace(reply, **{name: value}), result))
    if kind == "result":
        return replace(record, messages=(prompt, reply, replace(result, **{name: value})))
    if kind == "call":
        call = replace(reply.calls[0], **{name: value})
        return replace(record, messages=(prompt, replace(reply, calls=(call,)), result))
    if kind == "block":
        made = {"type": "text", "text": "x", "detail": None, name: value}
        return replace(record, messages=(UserMessage([TextBlock.model_construct(**made)]), reply, result))
    made = {"name": "x", "description": "x", "input_schema": None, name: value}
    return replace(record, tools=(ToolSpec.model_construct(**made),))


PLACES = [
    *(f"record.{each.name}" for each in fields(EpisodeRecord)),
    *(f"task.{each.name}" for each in fields(TaskRef)),
    *(f"usage.{each.name}" for each in fields(Usage)),
    *(f"reply.{each.name}" for each in fields(AgentMessage)),
    *(f"result.{each.name}" for each in fields(ToolMessage)),
    *(f"call.{each.name}" for each in fields(ToolInvocation)),
    *("block.text", "block.detail", "block.type", "tool.name", "tool.description", "tool.input_schema"),
]


def shown_everywhere(run: Run, out: Path) -> None:
    """Shows a run in all ways that there are."""
    entries = run.entries
    printing.print_runs([("run", run, summarize(entries))])
    printing.print_summary(summarize(entries))
    printing.print_tasks(task_rows(entries))
    printing.print_episodes(entries)
    compare(entries, entries)
    pairs(entries, entries)
    histogram(rewards(entries))
    for record in run.episodes():
        printing.print_episode(record)
        json.dumps(record_json(record), allow_nan=False)
    skipped = export_run(run, "openai", out / "sft.jsonl", outcomes=OUTCOMES).skipped
    assert all(": Tool " in why for why in skipped)  # names that the provider does not take
    assert export_run(run, "atif", out / "atif", outcomes=OUTCOMES).skipped == []
    shown = ShownRuns(run.folder)
    (row,) = shown.list()
    assert row.get("problem") is None
    for entry in entries:
        shown.get(run.folder.resolve().name).line(entry)


@pytest.mark.parametrize("place", PLACES)
def test_what_append_writes_is_read_again_and_what_it_refuses_leaves_no_trace(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunWriter.create(tmp_path / "run", RunInfo()) as writer:
        written = 0
        for number, value in enumerate(HOSTILE):
            record = with_value(episode(number), place, value)
            try:
                writer.append(record)
            except (TypeError, ValueError):
                continue
            written += 1
            run = read_run(tmp_path / "run")
            assert list(run.broken) == [], value
            # Values of another task or id may replace earlier ones, which is not what is tested here.
            read = run.episode(run.number(record.id) if place != "record.id" else len(run.entries) - 1)
            assert (read.reward is None) == (record.reward is None)
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes().count(b"\n") == written
    shown_everywhere(read_run(tmp_path / "run"), tmp_path)
    capsys.readouterr()


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, "1", b"1", True, [1.0], np.float64("nan")])
def test_a_reward_that_is_no_finite_number_is_refused(reward: Any, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        for wrong in (replace(episode(), reward=reward), replace(episode(), rewards=(reward,))):
            with pytest.raises((TypeError, ValueError), match="reward"):
                writer.append(wrong)
    assert (tmp_path / "episodes.jsonl").read_bytes() == b""


@pytest.mark.parametrize("tasks", [2, 20])
def test_the_largest_numbers_there_are_can_be_summed_and_compared(
    tasks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for sign in (1, -1):
        folder = tmp_path / f"run{sign}"
        with RunWriter.create(folder, RunInfo()) as writer:
            for number in range(4 * tasks):
                vast = sign * (1.7e308 if number % 3 else -1.7e308)
                writer.append(episode(number % tasks, vast, sample=number))
        runs.append(read_run(folder))
        shown_everywhere(runs[-1], folder)
    first, second = (run.entries for run in runs)
    found = compare(first, second)
    assert found is not None
    assert math.isfinite(found.before)
    assert math.isfinite(found.after)
    printing.print_comparison(found)
    histogram(rewards(first), rewards(second))
    pairs(first, second)
    capsys.readouterr()


LITERALS = [
    *(
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        '"1.0"',
        '"x"',
        "true",
        "null",
        "[]",
        "{}",
        "1.7e308",
        "-1.7e308",
    ),
    *(
        "1" + "0" * 400,
        "9" * 5000,
        "9223372036854775808",
        "0.5",
        "1",
        "-0.0",
        "1e300",
        '"\\ud800"',
        '"\\u0000"',
    ),
    *(
        '{"a":' * 150 + "0" + "}" * 150,
        '{"a":' * 900 + "0" + "}" * 900,
        '["\\u0041",' * 900 + "0" + "]" * 900,
    ),
    *(
        '{"a":1e999}',
        '{"a":"\\udc00"}',
        '{"type":"scored"}',
        '[{"role":"user","blocks":[]}]',
        '"' + "0" * 64 + '"',
    ),
]


@settings(max_examples=40)
@given(data=st.data())
def test_a_line_of_anybody_is_refused_in_words_or_can_be_shown(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        with RunWriter.create(path, RunInfo()) as writer:
            writer.append(episode(0))
            writer.append(episode(1, task=TaskRef("adder", spec={"n": 1})))
        first, second = (path / "episodes.jsonl").read_text().splitlines()
        found = json.loads(second)
        at: Any = found
        key: Any = data.draw(st.sampled_from(sorted(set(at) - {"schema"})))
        while isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans()):
            at = at[key]
            key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        at[key] = "HERE"
        literal = data.draw(st.sampled_from(LITERALS))
        compact = data.draw(st.booleans())  # the index reads lines as we write them in another way
        text = json.dumps(found, separators=(",", ":") if compact else None).replace('"HERE"', literal)
        (path / "episodes.jsonl").write_text(f"{first}\n{text}\n")
        run = read_run(path)
        assert len(run.entries) + len(run.broken) == 2
        torn: list[Any] = []
        list(run.episodes(on_broken=lambda entry, error: torn.append(entry)))
        if not torn:
            shown_everywhere(run, Path(folder))


def test_an_image_of_any_size_is_kept(tmp_path: Path) -> None:
    image = ImageBlock(data="AAAA" * 5000, mimeType="image/png")
    with RunWriter.create(tmp_path, RunInfo()) as writer:
        writer.append(replace(episode(), messages=(UserMessage([image]),)))
    (read,) = read_run(tmp_path).episodes()
    assert read.messages == (UserMessage([image]),)
