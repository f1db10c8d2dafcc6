"""The order of the pages: sections by folder, and within a folder by a list that need not be complete."""

from collections.abc import Iterable, Mapping

from scripts.site.markdown import first_sentence, title

HOME = "index.md"
TUTORIAL = "tutorial.md"
TROUBLESHOOTING = "troubleshooting.md"
COMMANDS = "cli.md"
"""The commands with examples: a guide, beside the folder of the others."""
SECTIONS = {
    "Guides": "guides/",
    "Reference": "reference/",
    "Python": "reference/python/",
    "Migration": "migration/",
    "Examples": "examples/",
    "Project": "",
}
FIRST = {
    "guides/": (
        *(
            "index",
            "environments",
            "tools",
            "datasets",
            "libraries",
            "secrets",
            "sandboxes",
            "sandbox-roots",
            "rewards",
            "judges",
        ),
        *("testing", "sharing", "inspector", "calling", "agents", "coding-agents"),
        *("evaluating", "rollouts", "runs", "replay"),
        *("training", "training-adapters", "operating", "telemetry", "recording", "scaling", "proxies"),
    ),
    "reference/": ("index", "cli", "configuration", "errors", "http", "metrics"),
    "reference/python/": (
        *("ors", "client", "testing", "rollouts", "agents", "records", "sandbox", "toolsets", "judges"),
        *("adapters", "server", "quality", "conformance", "recording", "cluster", "ray", "schemas"),
    ),
    "migration/": ("index", "ors-sdk", "openreward", "openenv", "verifiers", "gymnasium"),
    "examples/": ("index",),
    "": (
        *("design", "design-streams", "design-rules", "design-decisions"),
        *("protocol", "conformance", "bench", "bench-peers", "contributing", "changelog", "agents-md"),
    ),
}
"""The pages that come first in a folder, by name. Others follow in alphabetical order."""

Nav = list[dict[str, object] | str]


def nav(pages: Mapping[str, str]) -> Nav:
    """Returns the navigation of all pages, given by path. A section without pages is left out."""
    made: Nav = [{"Home": HOME}] if HOME in pages else []
    made += [{"Tutorial": TUTORIAL}] if TUTORIAL in pages else []
    for name in ("Guides", "Reference", "Migration", "Examples"):
        made += _section(name, pages)
    made += [{"Troubleshooting": TROUBLESHOOTING}] if TROUBLESHOOTING in pages else []
    return made + _section("Project", pages)


def in_order(part: object) -> list[str]:
    """The paths of a navigation, in their order."""
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part
    return [path for each in parts for path in in_order(each)]  # type: ignore[attr-defined]


def _section(name: str, pages: Mapping[str, str]) -> Nav:
    folder = SECTIONS[name]
    inner = _section("Python", pages) if name == "Reference" else []
    found = _ordered(folder, pages)
    found += [COMMANDS] if name == "Guides" and COMMANDS in pages else []
    entries = [path if path.endswith(HOME) else {_short(pages[path]): path} for path in found]
    return [{name: [*entries, *inner]}] if found or inner else []


def _short(page: str) -> str:
    """The title up to its first colon, which is enough beside other titles."""
    return title(page).partition(":")[0]


def _ordered(folder: str, pages: Iterable[str]) -> list[str]:
    apart = {HOME, TUTORIAL, TROUBLESHOOTING, COMMANDS}
    here = {
        path[len(folder) : -len(".md")] for path in pages if path.startswith(folder) and path not in apart
    }
    names = sorted(name for name in here if "/" not in name)
    first = FIRST[folder]
    ranks = {name: rank for rank, name in enumerate(first)}
    return [f"{folder}{name}.md" for name in sorted(names, key=lambda name: ranks.get(name, len(first)))]


def contents(folder: str, pages: Mapping[str, str]) -> str:
    """A list of the pages in a folder, each with its first sentence."""
    found = [path for path in _ordered(folder, pages) if path != f"{folder}{HOME}"]
    return "\n".join(
        f"- [{title(pages[path])}]({path.removeprefix(folder)}): {first_sentence(pages[path])}"
        for path in found
    )
