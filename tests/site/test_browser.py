"""The built site, as `make docs` leaves it, in a real browser at two widths."""

import functools
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from ors.server.admin.openapi import document
from scripts.site import openapi
from scripts.site.outside import ROOT
from tests.support.browser import Page, chromium

SITE = ROOT / "build" / "site"
WIDTHS = {"a desk": 1280, "a phone": 390}
PAGES = (
    "",
    "reference/cli.html",
    "reference/configuration.html",
    "reference/python/client.html",
    "design.html",
)
RESULTS = """
const hosts = [...document.querySelectorAll('div')]
const found = hosts.find(each => each.shadowRoot?.querySelector('[role=combobox]'))
return found && [...found.shadowRoot.querySelectorAll('[role=option]')].map(each => each.href)
"""
"""The addresses that the search shows, once it is open."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """The URL of the built site."""
    assert (SITE / "index.html").exists(), "build it first: make docs"
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def page(driver: webdriver.Chrome) -> Iterator[Page]:
    """A tab; nothing that its code complains about goes unnoticed."""
    opened = Page(driver)
    opened.complaints()
    yield opened
    assert opened.complaints() == []


def show(page: Page, url: str, width: int) -> None:
    """Opens a page in a window of a width."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.driver.get(url)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_pages_fit_their_window(page: Page, site: str, width: int) -> None:
    for path in PAGES:
        show(page, f"{site}/{path}", width)
        page.find("h1")
        assert page.run(f"return document.documentElement.scrollWidth <= {width}"), path


def test_nothing_is_loaded_from_other_servers(page: Page, site: str) -> None:
    for path in PAGES:
        show(page, f"{site}/{path}", 1280)
        loaded = page.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
        assert isinstance(loaded, list)
        assert loaded
        assert [name for name in loaded if not name.startswith((site, "data:", "blob:"))] == []


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_search_finds_a_name_of_the_reference(page: Page, site: str, width: int) -> None:
    show(page, f"{site}/", width)
    page.click(".md-search__button, label[for=__search].md-header__button")
    page.until(lambda: page.run(RESULTS) is not None, "the search is open")
    page.press("CallOutcomeUnknown")
    page.until(lambda: "reference/errors.html" in str(page.run(RESULTS)), "the error is found")
    page.press(Keys.ENTER)
    page.until(lambda: page.driver.current_url.endswith("#calloutcomeunknown"), "the section is shown")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [("partial reward", "guides/questions"), ("windows", "guides/questions"), ("version", "guides/sharing")],
)
def test_the_search_finds_what_newcomers_ask_for(page: Page, site: str, words: str, wanted: str) -> None:
    show(page, f"{site}/", 1280)
    page.click(".md-search__button, label[for=__search].md-header__button")
    page.until(lambda: page.run(RESULTS) is not None, "the search is open")
    page.press(words)
    page.until(lambda: f"{wanted}.html" in str(page.run(RESULTS)), f"{wanted} is found")


def test_links_work_from_the_file_system(page: Page) -> None:
    page.driver.get((SITE / "index.html").as_uri())
    page.find("h1")
    links = page.run("return [...document.querySelectorAll('a[href]')].map(each => each.href)")
    assert isinstance(links, list)
    files = {link.partition("#")[0].removeprefix("file://") for link in links if link.startswith("file:")}
    assert len(files) > 5
    assert [path for path in files if not Path(path).is_file()] == []


def test_the_colours_follow_the_system_and_can_be_chosen(page: Page, site: str) -> None:
    scheme = "return document.body.getAttribute('data-md-color-scheme')"
    for wanted, name in (("dark", "slate"), ("light", "default")):
        feature = {"features": [{"name": "prefers-color-scheme", "value": wanted}]}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
        show(page, f"{site}/", 1280)
        page.until(lambda name=name: page.run(scheme) == name, wanted)  # type: ignore[misc]
    for name in ("default", "slate"):
        page.click("label[for^=__palette_]")
        page.until(lambda name=name: page.run(scheme) == name, name)  # type: ignore[misc]


def test_every_public_name_has_a_place_that_links_lead_to() -> None:
    marks = re.findall(r"generated: python ([\w.]+)", _sources())
    assert len(marks) > 10
    for package in marks:
        page = next(
            path
            for path in (ROOT / "docs/reference/python").glob("*.md")
            if f"python {package} " in path.read_text()
        )
        html = (SITE / "reference/python" / f"{page.stem}.html").read_text()
        names = [name for name in import_module(package).__all__ if not name.startswith("_")]
        assert [name for name in names if f'id="{package}.{name}"' not in html] == []


def _sources() -> str:
    return "".join(path.read_text() for path in Path(ROOT / "docs/reference").rglob("*.md"))


def test_the_files_for_programs_are_there_and_the_document_is_valid() -> None:
    assert (SITE / "llms.txt").read_text().startswith("# ors-kit")
    assert len((SITE / "llms-full.txt").read_text()) > 100_000
    assert (SITE / "reference/openapi.json").read_text() == openapi.as_json()
    validate(document())
