"""API keys as they are written, and what each may do."""

import pytest

from ors.errors import AuthenticationError
from ors.server.sessions.admission import ApiKey, Keys


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("secret", ApiKey("key3", "secret")),
        ("ann=secret", ApiKey("ann", "secret")),
        ("ann=se=cret", ApiKey("ann", "se=cret")),
        ("ann=secret sessions=12", ApiKey("ann", "secret", 12)),
        ("ann=secret private", ApiKey("ann", "secret", None, True)),
        ("  secret private  sessions=0 ", ApiKey("key3", "secret", 0, True)),
    ],
)
def test_a_key_is_a_secret_with_or_without_a_name_and_what_it_may_do(text: str, key: ApiKey) -> None:
    assert ApiKey.parse(text, 3) == key


@pytest.mark.parametrize(
    "words", ["huh", "sessions=", "sessions=x", "sessions=²", "sessions=-1", "privately5"]
)
def test_other_words_after_a_key_are_refused(words: str) -> None:
    with pytest.raises(ValueError) as refused:
        ApiKey.parse(f"ann=hunter2 {words}")
    assert str(refused.value) == "an API key may only be followed by sessions=N or private"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an API key is empty"),
        (" \t", "an API key is empty"),
        ("=hunter2", "in an API key NAME=SECRET, neither may be empty"),
        ("ann=", "in an API key NAME=SECRET, neither may be empty"),
    ],
)
def test_a_key_that_lacks_something_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        ApiKey.parse(text)
    assert str(refused.value) == message


def test_keys_without_names_are_numbered_from_one() -> None:
    keys = Keys(["one", "ann=two", "three"])
    assert [keys.name_of(secret) for secret in (b"one", b"two", b"three")] == ["key1", "ann", "key3"]
    assert ApiKey.parse("alone").name == "key1"


@pytest.mark.parametrize("texts", [["ann=one", "ann=two"], ["ann=one", "bob=one"], ["one", "key1=two"]])
def test_two_keys_with_one_name_or_one_secret_are_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError) as refused:
        Keys(texts)
    assert str(refused.value) == "two API keys have the same name or the same secret"


def test_a_secret_that_no_key_has_is_refused_with_the_header_to_send() -> None:
    with pytest.raises(AuthenticationError) as refused:
        Keys(["one"]).name_of(b"two")
    assert str(refused.value) == "The API key is missing or wrong; send it as X-API-Key"
    assert refused.value.reason == "key"


def test_a_key_has_its_own_limit_or_that_of_the_server() -> None:
    keys = Keys(
        [ApiKey("own", "one", sessions=2), ApiKey("plain", "two"), ApiKey("none", "three", sessions=0)]
    )
    assert [keys.sessions(name, 7) for name in ("own", "plain", "none", "unknown")] == [2, 7, 0, 7]
    assert keys.sessions("plain", None) is None


def test_only_private_keys_see_what_is_private() -> None:
    keys = Keys([ApiKey("yes", "one", private=True), ApiKey("no", "two")])
    assert [keys.sees_private(name) for name in ("yes", "no", "unknown")] == [True, False, False]


def test_a_key_does_not_show_its_secret() -> None:
    assert "hunter2" not in repr(ApiKey("ann", "hunter2"))
