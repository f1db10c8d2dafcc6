"""Records as lines of JSON, and back."""

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings

from ors.rollouts import AgentMessage, EpisodeRecord, Failed, ToolMessage, UserMessage
from ors.rollouts.episodes.scoring import Scoring
from ors.rollouts.records import RunError, line_schema
from ors.rollouts.records.files import Blobs
from ors.rollouts.records.line import LARGEST_IMAGE, LARGEST_TEXT, decode, encode
from ors.rollouts.records.reader import entry
from ors.types import ImageBlock, TextBlock
from tests.support.episode_records import RECORDS, episode

VALIDATOR = jsonschema.Draft202012Validator(line_schema())


def changed(record: EpisodeRecord, blobs: Blobs, **keys: Any) -> bytes:
    return json.dumps({**json.loads(encode(record, blobs)), **keys}).encode()


@settings(max_examples=80)
@given(RECORDS)
def test_any_record_comes_back_as_it_was_and_fits_the_schema(record: EpisodeRecord) -> None:
    with TemporaryDirectory() as folder:
        blobs = Blobs(Path(folder))
        line = encode(record, blobs)
        assert line.count(b"\n") == 1
        assert decode(line, blobs) == record
        VALIDATOR.validate(json.loads(line))


def test_a_line_has_the_documented_keys_and_nothing_of_the_provider(tmp_path: Path) -> None:
    record = episode()
    question, _, result = record.messages
    record = replace(record, messages=(question, AgentMessage("4", native={"key": "sk-1"}), result))
    line = json.loads(encode(record, Blobs(tmp_path)))
    assert list(line) == [
        *("schema", "id", "environment", "split", "index", "sample", "agent", "outcome", "reward", "rewards"),
        *("tokens", "session", "started", "seconds", "attempts", "times", "actions"),
        *("tools", "messages"),
    ]
    assert line["times"] == {"model": [0.0], "calls": [0.25]}
    assert "native" not in line["messages"][1]
    assert "native" not in json.dumps(line_schema())


def test_a_line_has_the_attempts_before_it_whole(tmp_path: Path) -> None:
    long = UserMessage([TextBlock(text="x" * (LARGEST_TEXT + 1))])
    lost = Failed("infrastructure", "call", "SessionLost", "gone", may_have_run=True)
    first = replace(episode(), id="first", outcome=lost, reward=None, messages=(long,))
    record = replace(episode(), attempts=2, earlier=(first,))
    line = encode(record, Blobs(tmp_path))
    assert decode(line, Blobs(tmp_path)) == record
    VALIDATOR.validate(json.loads(line))
    found = entry(line, "episodes.jsonl", 0, Scoring(), {})
    assert (found.id, found.outcome, found.calls) == (record.id, record.outcome, 1)


def test_large_blocks_are_blobs_and_small_ones_are_not(tmp_path: Path) -> None:
    image, text = "AAAA" * (LARGEST_IMAGE // 4), "x" * LARGEST_TEXT
    blocks: list[TextBlock | ImageBlock] = [
        ImageBlock(data=image, mimeType="image/png"),
        ImageBlock(data=image + "AAAA", mimeType="image/png"),
        TextBlock(text=text),
        TextBlock(text=text + "ä", detail={"a": 1}),
    ]
    record = replace(episode(), messages=(UserMessage(blocks),))
    stored = json.loads(encode(record, Blobs(tmp_path)))["messages"][0]["blocks"]
    assert ["blob" in block for block in stored] == [False, True, False, True]
    assert (tmp_path / "blobs" / stored[1]["blob"]).read_bytes() == bytes(LARGEST_IMAGE // 4 * 3 + 3)
    assert (tmp_path / "blobs" / stored[3]["blob"]).read_text() == text + "ä"
    assert stored[3].keys() == {"type", "blob", "detail"}


@pytest.mark.parametrize("data", ["AAAA" * 2000 + "AB==", "AAAA" * 2000 + "\n", "ä" * 9000])
def test_an_image_that_is_not_plain_base64_stays_as_it_is(data: str, tmp_path: Path) -> None:
    record = replace(episode(), messages=(UserMessage([ImageBlock(data=data, mimeType="image/png")]),))
    line = encode(record, Blobs(tmp_path))
    assert json.loads(line)["messages"][0]["blocks"][0]["data"] == data
    assert decode(line, Blobs(tmp_path)) == record


def test_a_blob_that_occurs_twice_is_one_file(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    for index in range(3):
        encode(episode(index), blobs)
    assert len(list((tmp_path / "blobs").iterdir())) == 1  # the tools


def test_unknown_keys_are_ignored(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    record = episode()
    line = json.loads(encode(record, blobs))
    line["new"] = line["outcome"]["new"] = line["tokens"]["new"] = {"a": 1}
    line["messages"][0]["new"] = line["messages"][0]["blocks"][0]["new"] = 1
    line["messages"][1]["native"] = {"of": "another writer"}
    assert decode(json.dumps(line).encode(), blobs) == record


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"schema": 2}, "schema 2 is newer than this version of ors can read: update ors"),
        ({"schema": None}, "schema None is not 1"),
        ({"outcome": {"type": "won"}}, "outcome: Input tag 'won'"),
        ({"id": None}, "id: Input should be a valid string"),
        ({"messages": [{"role": "tool"}]}, "messages.0.tool.call: Field required"),
        ({"messages": {}}, "messages: "),
        ({"messages": [3]}, "messages.0: "),
        ({"messages": [{"role": "user", "blocks": ["x"]}]}, "messages.0.user.blocks.0"),
        ({"tools": "../../etc/passwd"}, "tools: String should match pattern"),
        ({"tools": "0" * 64}, "0{64} cannot be read: No such file"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(RunError, match=said):
        decode(changed(episode(), blobs, **keys), blobs)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "x", ""])
def test_the_name_of_a_blob_leads_to_no_other_file(name: str, tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    line = changed(episode(), blobs, messages=[{"role": "user", "blocks": [{"type": "text", "blob": name}]}])
    with pytest.raises(RunError, match="is not the name of a blob"):
        decode(line, blobs)


def test_a_changed_blob_is_noticed(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    line = encode(episode(), blobs)
    (blob,) = (tmp_path / "blobs").iterdir()
    blob.write_bytes(b"[]")
    with pytest.raises(RunError, match="was changed or damaged"):
        decode(line, blobs)


def test_rewards_belong_to_tool_messages() -> None:
    record = episode(steps=3)
    assert len([each for each in record.messages if isinstance(each, ToolMessage)]) == len(record.rewards)
