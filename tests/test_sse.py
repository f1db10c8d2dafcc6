"""The event stream format: any text, any cut, any reader."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ors._json import dumps, loads
from ors._protocol import (
    CHUNK_BYTES,
    CallReader,
    Event,
    EventDecoder,
    encode_event,
    ending_error,
    error_event,
    result_events,
    task_id_event,
)
from tests.requirements import proves

# Everything that is easy to lose: white space of all kinds, line ends, quotes, wide characters, surrogates.
TRICKY = ' \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000\ufeff"\\:aé漢😀\ud800\x00'
texts = st.one_of(
    st.text(st.sampled_from(TRICKY)),
    st.text(st.characters(codec=None)),
    st.builds(
        lambda text, times: text * times, st.text(st.sampled_from(TRICKY), min_size=1), st.integers(1, 3000)
    ),
)
cuts = st.lists(st.integers(0, 1 << 20), max_size=8)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in at} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


def ours(chunks: list[bytes]) -> str:
    reader = CallReader()
    for chunk in chunks:
        reader.feed(chunk)
    assert reader.task_id == "t"
    assert reader.result is not None
    return reader.result


def stripping(chunks: list[bytes]) -> str:
    """As ors-sdk 0.1.0 and openreward 0.1.167 read: all white space at the start of data is lost."""
    found, event = "", ""
    for raw in b"".join(chunks).split(b"\n"):
        field, _, value = raw.decode("utf-8", "ignore").partition(":")
        if field == "event":
            event = value.strip()
        elif field == "data" and event != "task_id":
            found += value.strip()
    return found


def splitting(chunks: list[bytes]) -> str:
    """As the specification's own example reads: lines as `str.splitlines` has them."""
    found, event = "", ""
    for line in b"".join(chunks).decode().splitlines():
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: ") and event in ("chunk", "end"):
            found += line[6:]
    return found


@proves("format.reassembly", "format.example-clients")
@given(text=texts, at=cuts)
@example(text=" " * 9000, at=[])
@example(text="漢" * 3000, at=[])
@example(text="\u3000" * 3000, at=[])
@example(text="x" * 4000 + " " * 200, at=[])
def test_any_text_survives_the_encoder_and_every_reader(text: str, at: list[int]) -> None:
    chunks = cut(task_id_event("t") + result_events(dumps({"text": text})), at)
    for read in (ours, stripping, splitting):
        assert json.loads(read(chunks)) == {"text": text}, read.__name__


@proves("format.chunk-size", "format.chunk-size-utf8", "format.no-edge-space")
@given(text=texts)
def test_no_piece_is_too_long_or_begins_or_ends_with_white_space(text: str) -> None:
    events = EventDecoder().feed(result_events(dumps({"text": text})))
    assert [event.event for event in events] == ["chunk"] * (len(events) - 1) + ["end"]
    for event in events:
        assert len(event.data.encode()) <= CHUNK_BYTES
        assert event.data == event.data.strip().strip("\ufeff")
    assert len(events) == 1 or len(dumps({"text": text})) > CHUNK_BYTES // 3


@pytest.mark.parametrize("character", ["é", "漢", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_a_piece_of_wide_characters_ends_with_the_last_one_that_leaves_room_to_escape_it(
    character: str, shift: int
) -> None:
    text = dumps({"text": "x" * shift + character * 5000})
    events = EventDecoder().feed(result_events(text))
    room = CHUNK_BYTES - len("\\u3000") + 1
    for event in events[:-1]:
        assert room - len(character.encode()) < len(event.data.encode()) <= room
    assert "".join(event.data for event in events).encode() == text  # and nothing had to be escaped


@proves("format.chunk-size", "format.no-edge-space")
@pytest.mark.parametrize("shift", range(3))
def test_a_text_of_words_is_cut_inside_the_last_word_that_fits(shift: int) -> None:
    text = b"x" * shift + b"ab " * 5000 + b"x"
    events = EventDecoder().feed(result_events(text))
    for event in events[:-1]:
        assert CHUNK_BYTES - 2 <= len(event.data) <= CHUNK_BYTES
        assert event.data == event.data.strip()
    assert "".join(event.data for event in events).encode() == text


@proves("format.chunk-size")
def test_a_piece_that_begins_with_an_escaped_character_is_as_long_as_any_other() -> None:
    for size in range(CHUNK_BYTES - 20, CHUNK_BYTES + 20):  # after the first piece and its next character
        text = b"x" * (CHUNK_BYTES - 100) + b" " * 200 + b"x" * (size - 104)
        *full, last = (event.data for event in EventDecoder().feed(result_events(text)))
        assert [len(piece) for piece in full] == [CHUNK_BYTES] * len(full)
        assert len(full) == (1 if len("\\u0020") + size <= CHUNK_BYTES else 2)
        assert 0 < len(last) <= CHUNK_BYTES
        assert "".join([*full, last]).replace("\\u0020", " ").encode() == text


def test_the_ending_of_a_call_is_a_result_or_an_error() -> None:
    assert ending_error(b'{"ok":true}') is None
    assert result_events(b'{"ok":true}') == b'event: end\ndata: {"ok":true}\n\n'
    error = error_event("it\nbroke", "tool")
    assert (ending_error(error), result_events(error)) == (("it\nbroke", "tool"), error)


@given(data=st.text(st.characters(exclude_categories=["Cs"])), at=cuts)
def test_events_survive_being_cut_anywhere(data: str, at: list[int]) -> None:
    decoder = EventDecoder()
    events = [event for chunk in cut(encode_event("x", data), at) for event in decoder.feed(chunk)]
    assert events == [Event("x", "\n".join(data.splitlines()))]


@proves("client.sse")
@given(at=cuts)
def test_the_decoder_reads_by_the_standard(at: list[int]) -> None:
    stream = (
        b"\xef\xbb\xbfevent: a\r\ndata:  two spaces\r\n\r\n"
        b": comment\revent:b\rdata:1\rdata\rdata: 3\r\r"
        b"event: dropped\n\nretry: 5\nid: 7\nunknown: x\nnocolon\ndata: unnamed\n\n"
        b"event: last\ndata: never finished"
    )
    decoder = EventDecoder()
    events = [event for chunk in cut(stream, at) for event in decoder.feed(chunk)]
    more = (("unknown", "x"), ("nocolon", ""))
    assert events == [Event("a", " two spaces"), Event("b", "1\n\n3"), Event("message", "unnamed", more)]


@given(message=st.text())
def test_every_line_of_an_error_is_a_data_line(message: str) -> None:
    body = error_event(message).decode()
    lines = body.splitlines()
    assert lines[0] == "event: error"
    assert lines[-1] == ""
    assert all(line.startswith("data: ") for line in lines[1:-1])
    assert len(lines) == 2 + max(1, len(message.splitlines()))


def test_a_reader_that_has_read_nothing_has_nothing() -> None:
    reader = CallReader()
    assert not reader.feed(b"")
    assert (reader.task_id, reader.result, reader.error, reader.reason) == (None, None, None, None)


def test_a_result_may_be_empty() -> None:  # ors-sdk 0.1.0 ends create_session so
    reader = CallReader()
    assert reader.feed(b"event: end\ndata: \n\n")
    assert reader.result == ""


def test_a_reader_takes_the_first_end_and_nothing_after_it() -> None:
    reader = CallReader()
    assert not reader.feed(b"event: task_id\ndata:  t \n\nevent: chunk\ndata: [1\n\n")
    assert reader.feed(b"event: odd\ndata: x\n\nevent: end\ndata: ]\n\nevent: error\ndata: late\n\n")
    assert (reader.task_id, reader.result, reader.error) == ("t", "[1]", None)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=json_values)
def test_json_goes_out_and_comes_back_the_same(value: object) -> None:
    assert loads(dumps(value)) == value
    assert json.loads(dumps(value)) == value
