"""Secrets in errors and logs: masked in whatever spelling, within bounds."""

import html
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from ors import Environment, Server, TextBlock, ToolError, ToolOutput, tool
from ors.server.episodes.masking import MASK, TOO_MUCH, hidden
from ors.types import JSONObject
from tests.requirements import proves
from tests.support.live_server import serving
from tests.support.raw_http import Raw

SECRET = 'Pässwort/"1\\2"+&% <x>\n\'~ÿ'

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


@proves("sessions.secrets")
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
        ("x" * 10_000_000, ["hunter22", "hunter23"]),
    ],
    ids=["many", "long", "often", "short", "text"],
)
def test_a_text_that_would_take_too_long_is_masked_as_a_whole(text: str, secrets: list[str]) -> None:
    text += secrets[0]
    assert hidden(text, secrets) == TOO_MUCH


def test_a_long_text_with_ordinary_secrets_is_not_too_much() -> None:
    text = "a line of a log\n" * 20_000
    assert hidden(text + "SECRET-09", [f"secret-{n:02}" for n in range(20)]) == text + MASK


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
    async def refuse(self) -> ToolOutput:
        """Refuses with the secret in its words, and in its reason."""
        raise ToolError(self.secrets["key"].upper(), reason=f"bad {self.secrets['key']}")


@proves("sessions.secrets")
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
