"""The prompts that are kept, without a server."""

from ors.server.sessions.prompts import ENTRY_BYTES, KEPT_BYTES, MOST_BYTES, KeptPrompts

FULL = 8
"""This many prompts of `PROMPT` fill the budget to the last byte."""
PROMPT = bytes(KEPT_BYTES // FULL - ENTRY_BYTES)


def filled() -> KeptPrompts:
    prompts = KeptPrompts()
    for number in range(FULL):
        prompts.keep(str(number), PROMPT)
    return prompts


def kept(prompts: KeptPrompts, count: int) -> list[int]:
    return [number for number in range(count) if prompts.get(str(number)) is not None]


def test_the_last_prompt_of_a_session_is_kept_until_it_is_dropped() -> None:
    prompts = KeptPrompts()
    prompts.keep("a", b"one")
    prompts.keep("b", b"other")
    prompts.keep("a", b"two")
    assert (prompts.get("a"), prompts.get("b"), prompts.get("c")) == (b"two", b"other", None)
    prompts.drop("a")
    prompts.drop("a")
    assert (prompts.get("a"), prompts.get("b")) == (None, b"other")


def test_over_the_budget_the_oldest_prompt_is_dropped() -> None:
    prompts = filled()
    assert kept(prompts, FULL) == list(range(FULL))
    prompts.keep("0", PROMPT)  # now the newest
    prompts.keep(str(FULL), PROMPT)
    assert kept(prompts, FULL + 1) == [0, *range(2, FULL + 1)]


def test_one_byte_more_than_the_budget_is_too_much() -> None:
    prompts = filled()
    prompts.keep(str(FULL - 1), PROMPT + b"x")
    assert kept(prompts, FULL) == list(range(1, FULL))


def test_what_is_dropped_makes_room_for_as_much() -> None:
    prompts = filled()
    for number in range(FULL):
        prompts.drop(str(number))
    for number in range(FULL):
        prompts.keep(str(number), PROMPT)
    assert kept(prompts, FULL) == list(range(FULL))


def test_a_prompt_that_is_too_long_is_not_kept_nor_is_the_one_before_it() -> None:
    prompts = KeptPrompts()
    prompts.keep("a", bytes(MOST_BYTES))
    assert prompts.get("a") == bytes(MOST_BYTES)
    prompts.keep("a", bytes(MOST_BYTES + 1))
    assert prompts.get("a") is None
