"""The modules of the page that need no browser, under Node; and the page's sources."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src/ors/inspector/page"


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_markdown_schemas_events_and_json_work_under_node() -> None:
    files = sorted(map(str, (ROOT / "tests/page").glob("*.test.js")))
    done = subprocess.run(["node", "--test", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"^# pass (\d+)", done.stdout, re.MULTILINE)[0]) > 50


def test_every_module_is_checked_against_the_shapes_of_the_interface() -> None:
    modules = list(PAGE.rglob("*.js"))
    assert modules
    assert [path.name for path in modules if not path.read_text().startswith("// @ts-check\n")] == []


def test_the_page_needs_nothing_but_its_own_modules() -> None:
    for path in PAGE.rglob("*.js"):
        for module in re.findall(
            r"""(?:^import .*|^} )from ["']([^"']+)["']""", path.read_text(), re.MULTILINE
        ):
            assert (path.parent / module).resolve().is_relative_to(PAGE), (path.name, module)
            assert (path.parent / module).exists(), (path.name, module)
