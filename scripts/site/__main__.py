"""Builds the documentation site: `python -m scripts.site`, from docs/ to build/site.

The pages are prepared here, in build/pages, so that any generator of the MkDocs family can build them.
Links inside the site are checked by the generator; those to other servers are listed in build/links.txt.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.site import llms, navigation, openapi, outside, reference
from scripts.site.outside import ROOT

BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SETTINGS = Path(__file__).parent / "site.yml"


def main() -> None:
    """Prepares the pages and runs the generator; ends with its exit code."""
    prepare(PAGES)
    config = BUILD / "site.yml"
    config.write_text(SETTINGS.read_text() + f"\nnav: {json.dumps(navigation.nav(texts(PAGES)))}\n")
    links = outside.external_links(texts(PAGES))
    (BUILD / "links.txt").write_text(
        "".join(f"{link}  {' '.join(places)}\n" for link, places in links.items())
    )
    generator = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", str(config)]
    status = subprocess.run(generator, check=False).returncode
    if status == 0:
        site = (BUILD / "site").relative_to(ROOT)
        print(f"The site is in {site}. Open {site}/index.html in a browser;")
        print(f"to search it too, run `python -m http.server --bind 127.0.0.1 --directory {site}`.")
    sys.exit(status)


def prepare(pages: Path) -> None:
    """Writes all pages, with the parts that are made from the code, and the files for programs."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages)
    for place, source in outside.pictures().items():
        _written(pages / place, source.read_text(encoding="utf-8"))
    _written(pages / "reference" / "openapi.json", openapi.as_json())
    raw = texts(pages) | outside.pages()
    for place, text in raw.items():
        _written(pages / place, outside.relinked(reference.filled(text, raw), place))
    for place, text in llms.written(texts(pages)).items():
        _written(pages / place, text)


def texts(pages: Path) -> dict[str, str]:
    """The text of every page, by its path."""
    found = sorted(pages.rglob("*.md"))
    return {path.relative_to(pages).as_posix(): path.read_text(encoding="utf-8") for path in found}


def _written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
