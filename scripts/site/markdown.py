"""Reads and writes parts of Markdown: tables, titles, first sentences."""

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table; line ends and bars in cells are made harmless."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"


def cell(text: str) -> str:
    """One cell, on one line."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text in the type of code; nothing for no text."""
    return f"`{text}`" if text else ""


def title(page: str) -> str:
    """The first heading of a page, as plain text.

    Raises:
        ValueError: the page has none.
    """
    found = re.search(r"^# (.+)$", page, re.MULTILINE)
    if found is None:
        raise ValueError(f"a page has no title; it begins with {page[:60]!r}")
    return found[1].replace("`", "")


def first_sentence(page: str) -> str:
    """The first sentence below the heading, or nothing."""
    paragraphs = [text for text in page.split("\n\n") if text[:1].isalnum() or text[:1] in "`["]
    return (
        re.split(r"(?<=[.:]) ", " ".join(paragraphs[0].split()))[0].rstrip(":.") + "." if paragraphs else ""
    )
