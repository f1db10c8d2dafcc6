"""The pages of the site: all of them can be reached, are short, and are complete."""

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ors.server.admin.metrics import METRICS
from scripts.site import code_tables, commands, navigation, outside, reference
from scripts.site.__main__ import texts
from scripts.site.outside import ROOT
from tests.support.raw_http import Raw

pytestmark = pytest.mark.xdist_group("site")

MOST_WORDS = 2200
"""About ten minutes of reading."""
READ = ("index.md", "tutorial.md", "troubleshooting.md", "guides/", "migration/", "contributing.md")
"""Pages that one reads from top to bottom; in the others one looks things up."""
MOST_WORDS_ANYWHERE = 2400
"""Of a page in which one looks things up: still about ten minutes."""
MEASURED = "bench.md"
"""The page that `make bench` writes."""


def words(page: str) -> int:
    """The length of a page without its blocks of code and its drawings."""
    return len(re.sub(r"^( *)```.*?^\1```$", "", page, flags=re.DOTALL | re.MULTILINE).split())


def test_every_page_is_in_the_navigation_once(pages: Mapping[str, str]) -> None:
    assert sorted(navigation.in_order(navigation.nav(pages))) == sorted(pages)


def test_pages_that_arrive_find_their_place_by_folder() -> None:
    arrived = ("tutorial", "guides/zebras", "guides/environments", "migration/openenv", "new")
    nav = navigation.nav({f"{name}.md": f"# {name}: and more" for name in arrived})
    assert nav == [
        {"Tutorial": "tutorial.md"},
        {
            "Guides": [
                {"guides/environments": "guides/environments.md"},
                {"guides/zebras": "guides/zebras.md"},
            ]
        },
        {"Migration": [{"migration/openenv": "migration/openenv.md"}]},
        {"Project": [{"new": "new.md"}]},
    ]


def test_every_page_has_a_title_and_says_what_it_is_about(pages: Mapping[str, str]) -> None:
    assert [path for path, text in pages.items() if len(re.findall(r"^# ", text, re.MULTILINE)) < 1] == []
    assert [path for path, text in pages.items() if reference.MARK.search(text)] == []


def test_no_page_takes_over_ten_minutes_to_read(pages: Mapping[str, str]) -> None:
    found = {path: words(text) for path, text in pages.items() if path.startswith(READ)}
    assert found["index.md"] > 50
    assert {path: count for path, count in found.items() if count > MOST_WORDS} == {}


def test_no_page_that_is_written_by_hand_is_too_long() -> None:
    written = texts(ROOT / "docs")
    found = {path: words(text) for path, text in written.items() if path != MEASURED}
    assert found["design.md"] > 500
    assert {path: count for path, count in found.items() if count > MOST_WORDS_ANYWHERE} == {}


def test_blocks_of_code_and_drawings_are_not_counted_as_words() -> None:
    drawn = "Two words.\n\n```\na ─▶ b\n```\n\nThree more words:\n\n    ```sh\n    ors --help\n    ```\n"
    assert words(drawn) == 5


def test_the_readme_takes_two_screens() -> None:
    assert words((ROOT / "README.md").read_text()) < 700


def test_a_mark_that_names_no_part_is_an_error() -> None:
    with pytest.raises(KeyError, match="nothing"):
        reference.filled("<!-- generated: nothing -->", {})


def test_links_to_other_servers_are_whole_addresses(pages: Mapping[str, str]) -> None:
    links = outside.external_links(pages)
    assert "https://openrewardstandard.io" in links
    for link in links:
        parts = urlsplit(link)
        assert parts.scheme == "https" or parts.hostname == "127.0.0.1", link
        assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", parts.hostname or ""), link


def test_links_to_files_of_the_repository_become_links_to_their_pages() -> None:
    text = "[a](../../examples/maze.py) [b](../protocol.md#forks) [c](../../tests/requirements.py) [d](#here)"
    assert outside.relinked(text, "guides/environments.md") == (
        "[a](../examples/maze.md) [b](../protocol.md#forks) [c](../../tests/requirements.py) [d](#here)"
    )
    assert outside.relinked("[d](docs/design.md)", "contributing.md") == "[d](design.md)"


def test_every_command_of_every_group_has_a_section(pages: Mapping[str, str]) -> None:
    sections = set(re.findall(r"^##+ ors (.+)$", pages["reference/cli.md"], re.MULTILINE))
    assert sections >= set(commands.found()) >= {"serve", "sandbox", "runs show"}
    assert "--tool-seconds" in pages["reference/cli.md"]


def test_every_metric_that_a_server_shows_is_in_the_reference(pages: Mapping[str, str], served: Raw) -> None:
    shown = served.get("/-/metrics").body.decode()
    families = set(re.findall(r"^# TYPE (ors_\w+) ", shown, re.MULTILINE))
    names = {code_tables.metric_name(row) for row in METRICS}
    assert families == names
    assert [name for name in names if f"`{name}`" not in pages["reference/metrics.md"]] == []


def test_every_reason_in_the_source_is_explained() -> None:
    sources = [path.read_text() for path in (ROOT / "src" / "ors").rglob("*.py")]
    used = {found for text in sources for found in re.findall(r"reason=\"(\w+)\"", text)}
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    rows = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(used) > 10
    assert used - explained == set()


def test_every_error_has_a_section_that_says_what_to_do(pages: Mapping[str, str]) -> None:
    page = pages["reference/errors.md"]
    for error in code_tables.error_classes():
        assert f"### {error.__name__}\n" in page
        assert error.__doc__ != error.__bases__[0].__doc__, f"{error.__name__} has no docstring of its own"


INNER = {"ors.cli", "ors.inspector", "ors.openreward"}
"""Packages of the command line and of the server's own."""


def test_every_public_name_of_every_package_is_in_the_reference(pages: Mapping[str, str]) -> None:
    source = ROOT / "src"
    files = [path for path in source.rglob("__init__.py") if "__all__" in path.read_text()]
    packages = {".".join(path.parent.relative_to(source).parts) for path in files}
    shown = {
        name for text in pages.values() for name in re.findall(r"^::: [\w.]+\.(\w+)$", text, re.MULTILINE)
    }
    public = {name: import_module(name).__all__ for name in packages - INNER}
    missing = {
        f"{package}.{name}" for package, names in public.items() for name in names if name not in shown
    }
    assert len(shown) > 100
    assert {name for name in missing if not name.endswith("__version__")} == set()


def test_every_variable_of_a_model_provider_is_in_the_configuration(pages: Mapping[str, str]) -> None:
    sources = [path.read_text() for path in (ROOT / "src/ors/providers").glob("*.py")]
    read = {name for text in sources for name in re.findall(r"\"([A-Z]+_(?:API_KEY|BASE_URL))\"", text)}
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"} <= read
    assert [name for name in read if f"`{name}`" not in pages["reference/configuration.md"]] == []


def test_the_list_for_language_models_has_every_page_and_the_full_text_has_signatures(
    pages: Mapping[str, str], folder: Path
) -> None:
    short, whole = ((folder / name).read_text() for name in ("llms.txt", "llms-full.txt"))
    assert len(re.findall(r"^- \[.+\]\(.*\): .+$", short, re.MULTILINE)) == len(pages)
    assert short.startswith("# ors-kit\n\n> ")
    assert "AsyncSession.call_tool(self, " in whole
    assert ":::" not in whole
