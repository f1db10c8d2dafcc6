"""Hides values that look like secrets."""

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"
_NAMES = re.compile(
    r"(^|[-_. ])(api[-_]?keys?|keys?|secrets?|passw(or)?d|passphrase|token|auth|authorization|bearer|"
    r"credentials?|cookie)$",
    re.IGNORECASE,
)
"""Names of settings that hold secrets. "tokens" is a limit."""
_VALUES = re.compile(
    r"""
    \b(?:sk|pk|rk|gsk|xai|hf|glpat|gh[opsu]|github_pat|xox[abprs]|pplx|r8|nvapi|tgp|fw|csk)[-_][\w-]{8,}
    | \b(?:AKIA|ASIA|AIza|ya29\.)[\w-]{12,}                 # AWS, Google
    | \beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?                   # JSON web tokens
    | (?<=Bearer\s)\S+ | (?<=Basic\s)\S+
    | (?<=://)[^/\s@]+(?=@)                                 # the login of a URL
    | -----BEGIN[^-]*PRIVATE\ KEY-----[\s\S]*
    | \b(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{28,}\b
    """,
    re.VERBOSE,
)
_ASSIGNED = re.compile(
    r"([\w-]*(?:key|secret|token(?!s)|passwd|password|credential)[\w-]*\s*[=:]\s*)(\S+)", re.IGNORECASE
)
"""A secret in the middle of a text, such as `--api-key=…` and `OPENAI_API_KEY=…`."""


def redacted(value: Any, name: str = "") -> Any:
    """A copy of a JSON value in which everything that looks like a secret is hidden."""
    if value not in (None, "", False, True) and _NAMES.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: redacted(each, str(key)) for key, each in value.items()}
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, list | tuple):
        return _redacted_words(value)
    return value


def redacted_text(text: str) -> str:
    """The text with everything that looks like a secret hidden."""
    return _VALUES.sub(HIDDEN, _ASSIGNED.sub(rf"\g<1>{HIDDEN}", text))


def _redacted_words(words: list[Any] | tuple[Any, ...]) -> list[Any]:
    """Hides `--api-key X` in a command line as well: the name is the word before the value."""
    names = ["", *(word if isinstance(word, str) and word.startswith("-") else "" for word in words)]
    return [redacted(word, name.lstrip("-")) for word, name in zip(words, names, strict=False)]
