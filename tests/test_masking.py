"""Secrets in errors and logs: masked in whatever spelling, within bounds."""

import html
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from urllib.parse import quote, quote_plus

import pytest

from ors import Environment, Server, TextBlock, ToolError, ToolOutput, tool
from ors._masking import MASK, TOO_MUCH, hidden
from ors.recording import SessionRecorder
from ors.rollouts.records import RunInfo
from ors.server.episodes.error_text import message, trace
from ors.types import JSONObject
from tests.requirements import proves
from tests.support.live_server import serving
from tests.support.raw_http import Raw

SECRET = 'Pässwort/"1\\2"+&% <x>\'~ÿ😀'
KEY = "\n".join(
    [
        "-----BEGIN PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
        "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu",
        "Ag==",
        "-----END PRIVATE KEY-----",
        "",
    ]
)
"""A key of several lines, as a file holds it."""

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "quoted": quote,
    "quoted with nothing left": lambda secret: quote(secret, safe=""),
    "quoted in lower case": lambda secret: quote(secret, safe="").lower(),
    "quoted as by a browser": lambda secret: quote(secret, safe="!$&'()*+,;=:@/?~"),
    "quoted as a form": quote_plus,
    "quoted twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "JSON in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda secret: json.dumps(json.dumps({"key": secret})),
    "JSON in quotes": lambda secret: repr(json.dumps({"key": secret})),
    "printed": repr,
    "printed as ASCII": ascii,
    "printed bytes": lambda secret: repr(secret.encode()),
    "HTML": html.escape,
    "base64": lambda secret: b64encode(secret.encode()).decode(),
    "base64 in a URL": lambda secret: urlsafe_b64encode(secret.encode()).decode(),
    "base64 behind one byte": lambda secret: b64encode(b":" + secret.encode() + b"!").decode(),
    "base64 behind a name": lambda secret: b64encode(b"root:" + secret.encode()).decode(),
}


@proves("secrets.hidden")
@pytest.mark.parametrize("how", SPELLINGS)
def test_a_secret_is_masked_however_it_is_spelled(how: str) -> None:
    spelled = SPELLINGS[how](SECRET)
    text = hidden(f"before {spelled} after", [SECRET])
    start, masked, end = text.partition(MASK)
    assert masked
    assert start.startswith("before ")
    assert end.endswith(" after")
    # What stands around it in base64 or JSON may stay, and of the secret itself a few bits.
    assert len(start + end) <= len("before  after") + len('"{\\"key\\": \\"\\"}"') + 2


def test_the_text_around_a_secret_stays_as_it_is() -> None:
    assert hidden("İSTANBUL HUNTER22 ΣΑΣ hunter22!", ["Hunter22"]) == "İSTANBUL *** ΣΑΣ ***!"
    assert hidden("ΛΟΓΟΣ!", ["λόγος", "λογος"]) == "***!"
    assert hidden("nothing of it", ["hunter22", ""]) == "nothing of it"


def test_a_secret_with_half_a_character_is_masked() -> None:
    assert hidden("key \ud800hunter22!", ["\ud800hunter22"]) == f"key {MASK}!"


def test_secrets_that_overlap_are_masked_as_a_whole() -> None:
    assert hidden("line1line2", ["line1", "1line", "line"]) == f"{MASK}2"
    assert hidden("abcdefgh", ["abcdef", "cdefgh"]) == MASK


def test_a_very_short_secret_is_masked_where_it_stands_alone() -> None:
    assert hidden("pin 123, not 1234 nor x123; PIN=123", ["123"]) == "pin ***, not 1234 nor x123; PIN=***"
    assert hidden('{"pin": "A"} a cat', ["a"]) == '{"pin": "***"} *** cat'


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("a text", [f"{n:06}" for n in range(100_000)]),
        ("x" * 2_000_000, ["y" * 1_000_000]),
        ("hunter22" * 200_000, ["hunter22"]),
        ("a" * 2_000_000, ["a"]),
        ("x" * 10_000_000, ["hunter22", "hunter23", "hunter24"]),
        ("a text", ["\n".join(f"{n:06}" for n in range(90_000))]),
    ],
    ids=["many", "long", "often", "short", "text", "lines"],
)
def test_a_text_that_would_take_too_long_is_masked_as_a_whole(text: str, secrets: list[str]) -> None:
    text += secrets[0]
    assert hidden(text, secrets) == TOO_MUCH


def test_a_long_text_with_ordinary_secrets_is_not_too_much() -> None:
    text = "a line of a log\n" * 20_000
    assert hidden(text + "SECRET-09", [f"secret-{n:02}" for n in range(20)]) == text + MASK


def grouped(secret: str) -> str:
    return trace(ExceptionGroup("two failed", [ValueError(secret), ExceptionGroup("in", [KeyError(secret)])]))


def noted(secret: str) -> str:
    error = RuntimeError("failed")
    error.add_note(f"with {secret}")
    return trace(error)


RENDERINGS: dict[str, Callable[[str], str]] = {
    **SPELLINGS,
    "stripped": str.strip,
    "traceback": lambda secret: trace(ValueError(secret)),
    "exception group": grouped,
    "note": noted,
    "message": lambda secret: message(KeyError(secret)),
    "indented": lambda secret: indent(secret, "    | "),
    "lines of another system": lambda secret: secret.replace("\n", "\r\n"),
}


@proves("secrets.hidden")
@pytest.mark.parametrize("secret", [KEY, KEY.replace("\n", "\\n"), KEY.replace("\n", "\r\n")])
@pytest.mark.parametrize("how", RENDERINGS)
def test_no_line_of_a_key_is_shown_however_it_is_rendered(how: str, secret: str) -> None:
    shown = hidden(RENDERINGS[how](KEY), [secret]).lower()
    assert MASK in shown
    for line in KEY.lower().split():
        assert line not in shown
    encoded = b64encode(KEY.encode()).decode().lower()
    assert not [n for n in range(len(encoded) - 12) if encoded[n : n + 12] in shown]


@pytest.mark.parametrize("how", RENDERINGS)
def test_a_token_read_from_a_file_is_masked_without_its_line_break(how: str) -> None:
    for written in ("sk-TOKEN/1234567", "sk-TOKEN/1234567\n", " sk-TOKEN/1234567\r\n"):
        shown = hidden(f"before {RENDERINGS[how](written)} after", ["sk-TOKEN/1234567\n"])
        assert MASK in shown
        assert "token" not in shown.lower()


def test_brackets_on_lines_of_their_own_hide_nothing() -> None:
    secret = '{\n  "id": "hunter22"\n}\n'
    assert hidden('{ } {"id": "hunter22"}', [secret]) == "{ } {***}"
    assert hidden("a { } b", ["{ }"]) == f"a {MASK} b"
    assert hidden("a\n b", ["\n ", " "]) == "a\n b"


class Careless(Environment):
    """Tells its secret in many ways."""

    def get_prompt(self) -> list[TextBlock]:
        raise RuntimeError(f"GET /?key={quote(self.secrets['key'], safe='')}")

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train"]

    @classmethod
    def list_tasks(cls, split: str) -> list[JSONObject]:
        return [{}]

    @tool
    async def crash(self) -> ToolOutput:
        """Fails with the secret in its words."""
        raise RuntimeError(json.dumps({"key": self.secrets["key"]}))

    @tool
    async def crash_twice(self) -> ToolOutput:
        """Fails with the secret in a group of errors."""
        raise ExceptionGroup("two failed", [ValueError(self.secrets["key"]), KeyError(self.secrets["key"])])

    @tool
    async def say(self) -> ToolOutput:
        """Tells the secret, stripped."""
        return ToolOutput(blocks=[TextBlock(text=f"key: {self.secrets['key'].strip()}")])

    @tool
    async def refuse(self) -> ToolOutput:
        """Refuses with the secret in its words, and in its reason."""
        raise ToolError(self.secrets["key"].upper(), reason=f"bad {self.secrets['key']}")


@proves("secrets.hidden")
def test_no_spelling_of_a_secret_is_told_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = 'hunter/"2"-hunter'
    with serving(Server([Careless])) as url:
        raw = Raw(url)
        body = {"env_name": "careless", "task_spec": {}, "secrets": {"key": secret}}
        assert raw.post("/create", body, sid="careless").status == 200
        told = [
            raw.get("/careless/prompt", sid="careless").detail,
            raw.call("careless", "crash", env="careless").error(),
            *raw.call("careless", "refuse", env="careless").result().values(),
        ]
    assert "GET /?key=***" in told[0]
    assert '{"key": "***"}' in told[1]
    assert told[2:] == [False, MASK, f"bad {MASK}"]
    assert "hunter" not in f"{told}{caplog.text}".lower()


@proves("secrets.hidden")
@pytest.mark.parametrize("secret", [KEY, "sk-hunter22/1234567\n"], ids=["key", "token"])
def test_no_line_of_a_secret_is_in_stack_traces_logs_or_records(
    secret: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    recorder = SessionRecorder(tmp_path, RunInfo.gathered({}, kind="sessions"))
    with serving(Server([Careless], return_errors="stacktrace", observers=[recorder])) as url:
        raw = Raw(url)
        body = {"env_name": "careless", "task_spec": {}, "secrets": {"key": secret}}
        assert raw.post("/create", body, sid="careless").status == 200
        told = [raw.call("careless", name, env="careless").error() for name in ("crash", "crash_twice")]
        told.append(raw.get("/careless/prompt", sid="careless").detail)
        raw.call("careless", "say", env="careless").result()
        raw.post("/delete", sid="careless")
    recorder.close()
    assert all("Traceback" in text and MASK in text for text in told)
    recorded = "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    assert f"key: {MASK}" in recorded
    for line in secret.split():
        assert line not in f"{told}{caplog.text}{recorded}"
