"""Exceptions in words for clients."""

from ors.server.episodes.error_text import message


def test_a_page_of_text_about_missing_data_is_told_in_one_line() -> None:
    page = f"\n{'*' * 70}\n  Resource 'words' not found.\n  >>> nltk.download('words')\n{'*' * 70}\n"
    assert message(LookupError(page)) == "Resource 'words' not found. >>> nltk.download('words')"
    assert message(ValueError("two\nlines")) == "two\nlines"
