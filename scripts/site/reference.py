"""Parts of pages that are made from the code: `<!-- generated: NAME -->` is replaced by them."""

import inspect
import re
from collections.abc import Callable, Mapping
from importlib import import_module

from scripts.site import code_tables, commands, configuration, navigation, openapi
from scripts.site.outside import ROOT

Pages = Mapping[str, str]
PARTS: dict[str, Callable[[str, Pages], str]] = {
    "client-options": lambda words, pages: configuration.fields("ors.client.transports.options:Options"),
    "commands": lambda words, pages: commands.text(),
    "contents": lambda words, pages: navigation.contents(words, pages),
    "endpoints": lambda words, pages: openapi.as_markdown(),
    "errors": lambda words, pages: code_tables.error_sections(),
    "limits": lambda words, pages: configuration.fields("ors.limits:Limits", flags=True),
    "metrics": lambda words, pages: code_tables.metrics(),
    "model-variables": lambda words, pages: configuration.model_variables(),
    "python": lambda words, pages: public_names(words),
    "readme": lambda words, pages: readme_block(int(words)),
    "settings": lambda words, pages: configuration.settings(words),
}
"""What makes each part, from the words that follow its name and the texts of all pages by path."""

MARK = re.compile(r"^<!-- generated: ([\w-]+) ?(.*?) -->$", re.MULTILINE)


def filled(markdown: str, pages: Pages) -> str:
    """Replaces every mark of a page.

    Raises:
        KeyError: a mark names a part that does not exist.
    """
    return MARK.sub(lambda match: PARTS[match[1]](match[2], pages), markdown)


def public_names(words: str) -> str:
    """A directive of mkdocstrings for each public name of a package: those given, classes, the rest."""
    package, *first = words.split()
    module = import_module(package)
    others = [name for name in module.__all__ if name not in first and not name.startswith("_")]
    others.sort(key=lambda name: (not inspect.isclass(getattr(module, name)), name.lower()))
    return "\n\n".join(f"::: {package}.{name}" for name in [*first, *others]) + "\n"


def readme_block(number: int) -> str:
    """A block of Python of the README, which a test runs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```python\n.*?^```$", text, re.DOTALL | re.MULTILINE)
    return blocks[number]
