"""llms.txt, a list of the pages, and llms-full.txt, their whole text, for language models."""

import inspect
import re
from collections.abc import Mapping, Sequence
from importlib import import_module

from scripts.site.markdown import first_sentence, title
from scripts.site.navigation import in_order, nav

APART = ("changelog.md", "bench.md", "bench-peers.md", "examples/", "contributing.md", "design.md", "design-")
"""Pages that are listed as optional, and not part of llms-full.txt."""

_DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


_HEAD = """# ors-kit

> The Open Reward Standard in Python: write RL environments for language-model agents, serve them, call them.
"""


def written(pages: Mapping[str, str]) -> dict[str, str]:
    """Returns both files by name, from the texts of the pages by path."""
    places = in_order(nav(pages))
    optional = [place for place in places if place.startswith(APART)]
    main = [place for place in places if place not in optional]
    whole = "".join(f"\n\n<!-- {place} -->\n\n{with_names(pages[place]).strip()}" for place in main)
    return {
        "llms.txt": f"{_HEAD}\n## Pages\n\n{_listed(main, pages)}\n## Optional\n\n{_listed(optional, pages)}",
        "llms-full.txt": f"{_HEAD}{whole}\n",
    }


def _listed(places: Sequence[str], pages: Mapping[str, str]) -> str:
    return "".join(
        f"- [{title(pages[place])}]({_address(place)}): {first_sentence(pages[place])}\n" for place in places
    )


def _address(place: str) -> str:
    return place.removesuffix(".md") + ".html"


def with_names(markdown: str) -> str:
    """Replaces the directives of a page by signatures and docstrings."""
    return _DIRECTIVE.sub(lambda match: described(match[1]), markdown)


def described(path: str) -> str:
    """A public name with its signature and docstring, and its public methods with theirs."""
    package, _, name = path.rpartition(".")
    try:
        value = getattr(import_module(package), name)
    except ModuleNotFoundError:  # an adapter, whose trainer is not installed here
        return f"## {path}"
    parts = [f"## {path}", _spoken(name, value)]
    if inspect.isclass(value):
        own = [(key, one) for key, one in vars(value).items() if not key.startswith("_")]
        parts += [_spoken(f"{name}.{key}", getattr(value, key)) for key, one in own if _is_method(one)]
    return "\n\n".join(parts)


def _is_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)


def _spoken(name: str, value: object) -> str:
    if not callable(value):
        return f"`{name}`"
    try:
        signature = re.sub(r"\bat 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        signature = ""
    return f"`{name}{signature}`\n\n{inspect.getdoc(value) or ''}".rstrip()
