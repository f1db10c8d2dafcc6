"""Exceptions in words for clients."""

import signal
from concurrent.futures import ThreadPoolExecutor

from ors.server.episodes.error_text import SIGNALS, message


def test_a_page_of_text_about_missing_data_is_told_in_one_line() -> None:
    page = f"\n{'*' * 70}\n  Resource 'words' not found.\n  >>> nltk.download('words')\n{'*' * 70}\n"
    assert message(LookupError(page)) == "Resource 'words' not found. >>> nltk.download('words')"
    assert message(ValueError("two\nlines")) == "two\nlines"


def test_the_hint_about_signals_is_given_however_deep_the_cause() -> None:
    with ThreadPoolExecutor(1) as thread:
        caught = thread.submit(signal.signal, signal.SIGALRM, signal.SIG_DFL).exception(20)
    assert caught is not None
    error = RuntimeError("no grade")
    error.__cause__ = KeyError("x")
    assert message(error) == "no grade"
    error.__cause__.__context__ = caught
    assert message(error) == f"no grade [{SIGNALS}]"
